"""/api/turns/{id}: stop a turn wherever it runs, and follow it by its events."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.engine.ending import Ended
from turnledger.errors import InvalidInput, TurnledgerError
from turnledger.ledger import Ledger
from turnledger.model import codec
from turnledger.model.attempt import OnStop
from turnledger.model.event import Event
from turnledger.server.errors import error_body
from turnledger.server.outlet import Message, Receive, Send


class StopBody(msgspec.Struct):
    """What the body of a stop may say."""

    policy: OnStop | None = None


def ended_body(ended: Ended | None) -> bytes:
    """How a turn ended: the outcome that won."""
    if ended is None:
        return msgspec.json.encode({"state": None})
    failure = {"code": ended.failure.code, "message": ended.failure.message} if ended.failure else None
    return msgspec.json.encode({"state": ended.state, "committed": ended.turn is not None, "failure": failure})


class StopTurn:
    """POST /api/turns/{id}/stop: answers when the turn is final, and says which outcome won."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, request: Request) -> Response:
        turn = request.path_params["turn"]
        chat = await self._ledger.chat_of(turn, owner=request.state.owner)
        ended = await chat.stop(turn, policy=_policy(await request.body()))
        return Response(ended_body(ended), media_type="application/json")


def _policy(body: bytes) -> OnStop | None:
    if not body.strip():
        return None
    try:
        return msgspec.json.decode(body, type=StopBody).policy
    except msgspec.MsgspecError as problem:
        known = ", ".join(OnStop)
        raise InvalidInput(f"The body of a stop is empty, or has a policy, one of {known}: {problem}.") from None


def event_bytes(event: Event) -> bytes:
    """One event on the wire, with its number to go on from."""
    kind = type(event).__struct_config__.tag
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, str(kind).encode(), codec.encode(event))


class TurnEvents:
    """GET /api/turns/{id}/events: all events of a turn, from the one behind `Last-Event-ID` on."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        turn = request.path_params["turn"]
        chat = await self._ledger.chat_of(turn, owner=request.state.owner)
        events = chat.events(turn, after=_after(request))
        await send_events(events, receive, send)


def _after(request: Request) -> int:
    given = request.headers.get("last-event-id") or request.query_params.get("after") or "0"
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise InvalidInput("Last-Event-ID is the number of an event, as its id: line told it.")
    return int(given)
