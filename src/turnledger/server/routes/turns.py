"""/api/turns/{id}: the state of a turn, its events, and stopping it on any worker."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.requests import KeyedStopBody, StopBody
from turnledger.api.turns import StopAnswer, TurnState
from turnledger.engine.attempt.end import Outcome
from turnledger.errors import InvalidInput
from turnledger.model.access.token import TokenScope
from turnledger.model.event import Event
from turnledger.model.ids import TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.models.redaction import redact_failure
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import id_schema
from turnledger.server.routes.chat_history import CHAT, CHAT_GONE
from turnledger.server.service import Service
from turnledger.server.wire.events import event_bytes
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import read_state
from turnledger.server.wire.sse import Stream, StreamEndpoint, redact_events

TURN = {"turn": Parameter("The id of a turn: committed, running, queued or failed.", id_schema(TurnId))}
GONE = {404: "Turn not found.", 410: "The chat of the turn was deleted or has expired."}
EVENT_NUMBER = {"type": "string", "pattern": "^[0-9]{1,15}$"}


class TurnRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def read(self, request: Request) -> Response:
        principal: Principal = request.state.principal
        turn = request.path_params["turn"]
        return json_response(await read_state(self._service.chats(principal), principal, turn))

    async def stop(self, request: Request) -> Response:
        turn = request.path_params["turn"]
        body, principal = await self._service.read_request(request, StopBody, needs_body=False)
        chat = await self._service.chats(principal).of_turn(turn)
        return json_response(_show_end(principal, await chat.stop(turn, policy=body.policy), turn))

    async def stop_any(self, request: Request) -> Response:
        """Stop whatever turn is running in a chat."""
        body, principal = await self._service.read_request(request, StopBody, needs_body=False)
        chat = await self._service.chat_in(request, principal)
        return json_response(_show_end(principal, await chat.stop(policy=body.policy)))

    async def stop_by_key(self, request: Request) -> Response:
        body, principal = await self._service.read_request(request, KeyedStopBody)
        ended = await self._service.chats(principal).stop(body.idempotency_key, policy=body.policy)
        return json_response(_show_end(principal, ended))

    @asynccontextmanager
    async def events(self, principal: Principal, request: Request) -> AsyncIterator[Stream]:
        """Follow a turn; the caller counts as one of its readers."""
        turn = TurnId(request.path_params["turn"])
        after = event_number_of(request.headers.get("last-event-id") or "0")
        chat = await self._service.chats(principal).of_turn(turn)
        events = redact_events(principal, chat.events(turn, after=after))
        self._service.audience.join(turn)
        try:
            yield Stream((event_bytes(event) async for event in events), has_heartbeat=True)
        finally:
            self._service.audience.leave(turn)


def endpoints(service: Service) -> list[Endpoint]:
    routes = TurnRoutes(service)
    return [
        Endpoint(
            route="GET /api/turns/{turn}",
            handler=routes.read,
            needs=TokenScope.CHATS_READ,
            summary="Read the state of a turn, and its chat. Does not wait for it to end.",
            in_path=TURN,
            content={200: TurnState},
            responses={200: "The turn, if it is committed; otherwise its state, or its failure.", **GONE},
        ),
        Endpoint(
            route="POST /api/turns/{turn}/stop",
            handler=routes.stop,
            needs=TokenScope.TURNS_RUN,
            summary="Stop a running or queued turn. Responds with the outcome when it is final.",
            in_path=TURN,
            body=StopBody,
            needs_body=False,
            content={200: StopAnswer},
            responses={200: "How the turn ended; `state` is null if there was nothing to stop.", **GONE},
        ),
        Endpoint(
            route="POST /api/chats/{chat}/stop",
            handler=routes.stop_any,
            needs=TokenScope.TURNS_RUN,
            summary="Stop the running turn of a chat. Responds when it is final.",
            in_path=CHAT,
            body=StopBody,
            needs_body=False,
            content={200: StopAnswer},
            responses={
                200: "How the turn ended; `state` is null if no turn was running.",
                **CHAT_GONE,
            },
        ),
        Endpoint(
            route="POST /api/turns/stop",
            is_fixed_path=True,
            handler=routes.stop_by_key,
            needs=TokenScope.TURNS_RUN,
            summary="Stop a turn by its Idempotency-Key, before its id is known. Responds when it is final.",
            body=KeyedStopBody,
            content={200: StopAnswer},
            responses={
                200: "How the turn ended; `state` is null if no request with this key has arrived.",
                410: "The chat of the turn was deleted or has expired.",
            },
        ),
        Endpoint(
            route="GET /api/turns/{turn}/events",
            handler=StreamEndpoint(service.streams, routes.events),
            needs=TokenScope.CHATS_READ,
            summary="Follow a turn, or read its recorded events. Each event has a number.",
            in_path=TURN,
            headers={
                "Last-Event-ID": Parameter(
                    "The number of the last event received: later events are sent.", EVENT_NUMBER
                )
            },
            is_stream=True,
            content={200: {"text/event-stream": Event}},
            responses={
                200: "The events up to `turn.finished` or `error`; none if the turn was withdrawn before it"
                " began. Skip unknown types. Comments keep a silent stream alive.",
                **GONE,
            },
        ),
    ]


def _show_end(principal: Principal, ended: Outcome | None, turn: str | None = None) -> StopAnswer:
    """Show how a turn ended, the named one or whichever ran; a narrowed caller sees no details of a
    failure."""
    id = None if turn is None else TurnId(turn)
    if ended is None:
        return StopAnswer(turn=id, state=None)
    return StopAnswer(
        turn=id or ended.id,
        state=ended.state,
        committed=ended.turn is not None,
        failure=redact_failure(ended.failure) if principal.is_narrowed else ended.failure,
    )


def event_number_of(text: str) -> int:
    """Return the number in a `Last-Event-ID`. Raises InvalidInput if it is not one."""
    if not text.isascii() or not text.isdigit() or len(text) > 15:
        raise InvalidInput("Last-Event-ID must be the id of an event.")
    return int(text)
