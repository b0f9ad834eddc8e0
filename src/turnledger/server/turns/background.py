"""Background turns: a request stores one and is answered at once; any server runs it, and resumes it after a
crash.

The model is the one in the details of the turn, for the caller that its token names: neither is remembered by
the process that took the request.
"""

from __future__ import annotations

import asyncio
from typing import cast

from turnledger.api.json import encode
from turnledger.api.turns import AcceptedTurn
from turnledger.api.views import view
from turnledger.engine.attempt.end import Outcome, outcome_name
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.validation import Input, JobOptions, TurnOptions
from turnledger.model.access.token import Token
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.reset_policy import ResetPolicy, policy_of
from turnledger.model.turn import QUEUED, AttemptState
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.access.auth import ALL_BUT_ADMIN, Principal
from turnledger.server.errors import RequestRefused
from turnledger.server.ops.logs import log_unexpected
from turnledger.server.requests.turn import TurnRequest
from turnledger.server.responses.response import may_reduce
from turnledger.server.service import Service
from turnledger.server.turns.run import TurnExchange, recorded_settings, resolve_model
from turnledger.server.wire.shapes import read_state


async def enqueue(exchange: TurnExchange, request: TurnRequest, options: TurnOptions) -> None:
    """Store the turn, and respond with its id and state. Raises RequestRefused if no server may run it."""
    body = request.body
    turn, is_new = await store_turn(
        exchange,
        body.scope,
        body.input,
        conversation=body.chat,
        conversation_key=body.conversation_key,
        create=not request.must_exist,
        reset=policy_of(body.reset),
        options=options,
    )
    service, principal = exchange.service, exchange.principal
    state = await read_state(service.chats(principal), principal, turn)
    report_stored(exchange, turn, state.chat.id, state.state, is_new=is_new)
    exchange.set_header(b"location", f"/api/turns/{turn}")
    exchange.send_whole(encode(view(AcceptedTurn, state, id=turn)), 202)


async def store_turn(
    exchange: TurnExchange,
    scope: str | None,
    input: Input,
    *,
    conversation: str | None,
    conversation_key: str | None,
    create: bool,
    options: TurnOptions,
    reset: ResetPolicy | None = None,
) -> tuple[TurnId, bool]:
    """Store a background turn, without the options that need a client; return its id, and whether it is new.
    Raises RequestRefused if no server may run it."""
    service, principal = exchange.service, exchange.principal
    if not service.settings.limits.background_turns:
        message = "Background turns are switched off here (limits.background_turns). Omit `background`."
        raise RequestRefused(400, "background_off", message, param="background")
    if service.models.credential_of(exchange.state["head"]) is not None:
        message = (
            f"Background turns run without {service.settings.credential_header}: it is not stored. Omit it."
        )
        raise RequestRefused(400, "credential_not_stored", message, param="background")
    if principal.caller.link is not None:
        message = "Visitors of a link cannot run background turns. Omit `background`."
        raise RequestRefused(403, "not_for_visitors", message, param="background")
    kept = [name for name in options if name not in ("attach", "on_busy")]
    return await service.host.enqueue(
        exchange.chats(scope),
        input,
        conversation=conversation,
        conversation_key=conversation_key,
        create=create,
        reset=reset,
        **cast(JobOptions, {name: options[name] for name in kept}),  # type: ignore[literal-required]
    )


def report_stored(
    exchange: TurnExchange, turn: TurnId, conversation: ConversationId, state: str, *, is_new: bool
) -> None:
    """Set the headers of the response for a stored turn, and record a retry."""
    exchange.set_header(b"x-conversation-id", conversation)
    exchange.set_header(b"x-turn-id", turn)
    if not is_new:
        exchange.set_header(b"idempotency-replayed", "true")
        exchange.record_retry("joined" if state in (QUEUED, AttemptState.RUNNING) else "replayed")
    exchange.state["conversation"], exchange.state["turn"] = conversation, turn


class BackgroundWork:
    """Runs the background turns of all callers, as many at once as the settings allow."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        slots = self._service.settings.limits.background_turns
        if slots and self._task is None:
            working = self._service.host.work(self._run, at_once=slots, on_end=self._record_end)
            self._task = asyncio.create_task(working, name="turnledger background work")
            self._task.add_done_callback(_log_end)

    async def close(self) -> None:
        """Take no more turns, and leave those that run to be resumed by another server."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait((self._task,))

    async def _run(self, running: RunningTurn, token: Token | None) -> None:
        owner = running.conversation.owner
        principal = Principal(owner, token.scopes if token else ALL_BUT_ADMIN, 0, token)
        recorded = recorded_settings(running.details)
        name = str(recorded.get("model", ""))
        model, settings = resolve_model(self._service, principal, name, recorded)
        memory, reduces = self._service.context_memory, may_reduce(running.details)
        await ChatRunner(model, settings, asks_usage=True, memory=memory, reduces=reduces)(running)

    def _record_end(self, ended: Outcome, running: RunningTurn | None) -> None:
        service = self._service
        service.metrics.turns(outcome_name(ended)).inc()
        if running is None or running.number != 1 or ended.state is not AttemptState.COMPLETED:
            return
        if ended.turn is not None and service.titles is not None:
            service.titles.enqueue(running.conversation, ended.turn)


def _log_end(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (problem := task.exception()) is not None:
        log_unexpected(problem)
