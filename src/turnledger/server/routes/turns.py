"""/api/turns/{id}: where a turn stands; stop it wherever it runs, and follow it by its events."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.engine.attempt.end import Ended
from turnledger.engine.attempt.outcome import QUEUED, Standing
from turnledger.errors import InvalidInput
from turnledger.model.access.token import TokenScope
from turnledger.model.attempt import AttemptState, OnStop
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.models.redacted import discreet_failure
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import FAILURE, STATE, an_object, id_of, one_of, or_null
from turnledger.server.requests.body import decode_body, read_small_body
from turnledger.server.service import Service
from turnledger.server.wire.json import encode
from turnledger.server.wire.shapes import LISTED_CHAT, listed_shown, turn_shown
from turnledger.server.wire.shapes import TURN as COMMITTED
from turnledger.server.wire.sse import Stream, StreamEndpoint, event_bytes, seen_by

_JSON = "application/json"
TURN = {"turn": Parameter("The id of a turn, whether it is committed, runs, waits or failed.", id_of(TurnId))}
GONE = {404: "There is no such turn.", 410: "Its conversation was deleted or has expired."}
ENDED = an_object(
    {
        "turn": or_null({**id_of(TurnId), "description": "The one that was stopped, if there was any."}),
        "state": or_null(STATE),
        "committed": {"type": "boolean"},
        "failure": or_null(FAILURE),
    }
)
STOP = {**an_object({}, optional={"policy": or_null(one_of(OnStop))}), "additionalProperties": False}
STANDING = an_object(
    {
        "turn": or_null(COMMITTED),
        "state": {"type": "string", "enum": [QUEUED, *map(str, AttemptState)]},
        "failure": or_null(FAILURE),
        "chat": LISTED_CHAT,
        "branch": or_null({**id_of(BranchId), "description": "The one that it was committed on."}),
    }
)
EVENT_NUMBER = {"type": "string", "pattern": "^[0-9]{1,15}$"}


class StopBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the body of a stop may say, and nothing else: misspelt, it would keep what was to be discarded."""

    policy: OnStop | None = None


_stop_decoder = msgspec.json.Decoder(StopBody)


class TurnRoutes:
    """The functions behind the paths."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def one(self, request: Request) -> Response:
        """Where a turn stands."""
        who: Principal = request.state.principal
        turn = request.path_params["turn"]
        chat = await self._service.ledger.chat_of(turn, owner=who.owner, within=who.within)
        standing = await chat.standing(turn)
        [hidden] = await chat.hidden([standing.turn]) if standing.turn is not None else [()]
        if who.is_narrowed:
            standing = replace(standing, failure=discreet_failure(standing.failure))
        return Response(standing_body(standing, hidden), media_type=_JSON)

    async def stop(self, request: Request) -> Response:
        """Stop a turn."""
        turn = request.path_params["turn"]
        policy, who = await self._asked(request)
        chat = await self._service.ledger.chat_of(turn, owner=who.owner, within=who.within)
        ended = _seen_by(who, await chat.stop(turn, policy=policy))
        return Response(ended_body(ended, turn), media_type=_JSON)

    async def stop_any(self, request: Request) -> Response:
        """Stop whichever turn runs in a chat."""
        policy, who = await self._asked(request)
        id = request.path_params["chat"]
        chat = await self._service.ledger.conversation(id, owner=who.owner, within=who.within)
        return Response(ended_body(_seen_by(who, await chat.stop(policy=policy))), media_type=_JSON)

    @asynccontextmanager
    async def events(self, who: Principal, request: Request) -> AsyncIterator[Stream]:
        """Follow a turn; the caller counts as one of its readers."""
        turn = TurnId(request.path_params["turn"])
        after = after_of(request.headers.get("last-event-id") or "0")
        chat = await self._service.ledger.chat_of(turn, owner=who.owner, within=who.within)
        events = seen_by(who, chat.events(turn, after=after))
        self._service.audience.join(turn)
        try:
            yield Stream((event_bytes(event) async for event in events), beats=True)
        finally:
            self._service.audience.leave(turn)

    async def _asked(self, request: Request) -> tuple[OnStop | None, Principal]:
        body = await read_small_body(request.scope, request.receive, self._service.settings.limits)
        policy = decode_body(body, _stop_decoder).policy if body.strip() else None
        # The body may have taken its time, in which the token may have ended.
        return policy, await self._service.admission.admit(request.state.head)


def endpoints(service: Service) -> list[Endpoint]:
    """`GET /api/turns/{turn}`, its stop, that of whatever runs in a chat, and the events of a turn."""
    routes = TurnRoutes(service)
    events = StreamEndpoint(service.streams, routes.events)
    return [_standing(routes), _stopping(routes), _stopping_any(routes), _following(events)]


def _standing(routes: TurnRoutes) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/api/turns/{turn}",
        answer=routes.one,
        needs=TokenScope.CHATS_READ,
        summary="Where a turn stands, committed or not, and its chat. Waits for nothing.",
        tag="turns",
        in_path=TURN,
        content={200: {_JSON: STANDING}},
        answers={200: "The turn, if it is committed; else how far it is, or why it failed.", **GONE},
    )


def _stopping(routes: TurnRoutes) -> Endpoint:
    return Endpoint(
        method="POST",
        path="/api/turns/{turn}/stop",
        answer=routes.stop,
        needs=TokenScope.TURNS_RUN,
        summary="Stop a turn, running or queued. Answers when it is final, with the outcome that won.",
        tag="turns",
        in_path=TURN,
        body=STOP,
        needs_body=False,
        content={200: {_JSON: ENDED}},
        answers={200: "How it ended; `state` is null if there was nothing to stop any more.", **GONE},
    )


def _stopping_any(routes: TurnRoutes) -> Endpoint:
    return Endpoint(
        method="POST",
        path="/api/chats/{chat}/stop",
        answer=routes.stop_any,
        needs=TokenScope.TURNS_RUN,
        summary="Stop the turn that runs in a chat, whichever it is. Answers when it is final.",
        tag="turns",
        in_path={"chat": Parameter("The id of a conversation.", id_of(ConversationId))},
        body=STOP,
        needs_body=False,
        content={200: {_JSON: ENDED}},
        answers={
            200: "How it ended; `state` is null if no turn ran there.",
            404: "There is no such chat.",
            410: "It was deleted or has expired.",
        },
    )


def _following(events: StreamEndpoint) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/api/turns/{turn}/events",
        answer=events,
        needs=TokenScope.CHATS_READ,
        summary="Follow a turn, or read what it told: each event has its number.",
        tag="turns",
        in_path=TURN,
        headers={
            "Last-Event-ID": Parameter(
                "The number of the last event that was heard: those after it are sent.", EVENT_NUMBER
            )
        },
        is_stream=True,
        content={200: {"text/event-stream": {}}},
        answers={
            200: "The events, up to `turn.finished`, or up to one called `error`; none if the turn was"
            " withdrawn before it began. Comments between them tell that it is only quiet.",
            **GONE,
        },
    )


def _seen_by(who: Principal, ended: Ended | None) -> Ended | None:
    if ended is None or not who.is_narrowed:
        return ended
    return replace(ended, failure=discreet_failure(ended.failure))


def standing_body(standing: Standing, hidden: Sequence[int]) -> bytes:
    """Where a turn stands, as it is told."""
    turn = standing.turn
    return encode(
        {
            "turn": turn_shown(turn, hidden) if turn is not None else None,
            "state": standing.state,
            "failure": standing.failure,
            "chat": listed_shown(standing.chat),
            "branch": turn.branch if turn is not None else None,
        }
    )


def ended_body(ended: Ended | None, turn: str | None = None) -> bytes:
    """How a turn ended, the one that was named or whichever ran; null where there was nothing to stop."""
    if ended is None:
        return encode({"turn": turn, "state": None, "committed": False, "failure": None})
    told = {"state": ended.state, "committed": ended.turn is not None, "failure": ended.failure}
    return encode({"turn": turn or ended.id, **told})


def after_of(given: str) -> int:
    """The number in a `Last-Event-ID`; raises InvalidInput if it is none."""
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise InvalidInput("Last-Event-ID is the number of an event, as its id line told it.")
    return int(given)
