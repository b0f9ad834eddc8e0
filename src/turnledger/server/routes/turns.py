"""/api/turns/{id}: the state of a turn, its events, and stopping it on any worker."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.requests import StopBody
from turnledger.api.turns import StopAnswer, TurnState
from turnledger.api.views import show_listed, show_turn
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.outcome import TurnStatus
from turnledger.errors import InvalidInput
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.models.redacted import discreet_failure
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import id_of
from turnledger.server.routes.chats import CHAT
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.sse import Stream, StreamEndpoint, event_bytes, seen_by

TURN = {"turn": Parameter("The id of a turn, whether it is committed, runs, waits or failed.", id_of(TurnId))}
GONE = {404: "Turn not found.", 410: "Its conversation was deleted or has expired."}
EVENT_NUMBER = {"type": "string", "pattern": "^[0-9]{1,15}$"}


class TurnRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def one(self, request: Request) -> Response:
        who: Principal = request.state.principal
        turn = request.path_params["turn"]
        chat = await self._service.chats(who).of_turn(turn)
        standing = await chat.standing(turn)
        [hidden] = await chat.hidden([standing.turn]) if standing.turn is not None else [()]
        if who.is_narrowed:
            standing = replace(standing, failure=discreet_failure(standing.failure))
        return json_response(_state_shown(standing, hidden))

    async def stop(self, request: Request) -> Response:
        turn = request.path_params["turn"]
        asked, who = await self._service.asked(request, StopBody)
        chat = await self._service.chats(who).of_turn(turn)
        return json_response(_end_shown(who, await chat.stop(turn, policy=asked.policy), turn))

    async def stop_any(self, request: Request) -> Response:
        """Stop whatever turn is running in a chat."""
        asked, who = await self._service.asked(request, StopBody)
        id = request.path_params["chat"]
        chat = await self._service.chats(who).conversation(id)
        return json_response(_end_shown(who, await chat.stop(policy=asked.policy)))

    @asynccontextmanager
    async def events(self, who: Principal, request: Request) -> AsyncIterator[Stream]:
        """Follow a turn; the caller counts as one of its readers."""
        turn = TurnId(request.path_params["turn"])
        after = after_of(request.headers.get("last-event-id") or "0")
        chat = await self._service.chats(who).of_turn(turn)
        events = seen_by(who, chat.events(turn, after=after))
        self._service.audience.join(turn)
        try:
            yield Stream((event_bytes(event) async for event in events), beats=True)
        finally:
            self._service.audience.leave(turn)


def endpoints(service: Service) -> list[Endpoint]:
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
        content={200: TurnState},
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
        body=StopBody,
        needs_body=False,
        content={200: StopAnswer},
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
        in_path=CHAT,
        body=StopBody,
        needs_body=False,
        content={200: StopAnswer},
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


def _state_shown(standing: TurnStatus, hidden: Sequence[int]) -> TurnState:
    turn = standing.turn
    return TurnState(
        turn=show_turn(turn, hidden) if turn is not None else None,
        state=standing.state,
        failure=standing.failure,
        chat=show_listed(standing.chat),
        branch=turn.branch if turn is not None else None,
    )


def _end_shown(who: Principal, ended: Outcome | None, turn: str | None = None) -> StopAnswer:
    """Show how a turn ended, the named one or whichever ran; a narrowed caller sees no details of a
    failure."""
    named = None if turn is None else TurnId(turn)
    if ended is None:
        return StopAnswer(turn=named, state=None)
    return StopAnswer(
        turn=named or ended.id,
        state=ended.state,
        committed=ended.turn is not None,
        failure=discreet_failure(ended.failure) if who.is_narrowed else ended.failure,
    )


def after_of(given: str) -> int:
    """Return the number in a `Last-Event-ID`. Raises InvalidInput if it is not one."""
    if not given.isascii() or not given.isdigit() or len(given) > 15:
        raise InvalidInput("Last-Event-ID must be the id of an event.")
    return int(given)
