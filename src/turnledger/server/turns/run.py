"""One request in a conversation: the turn that it asks for, and everything its client is told of it."""

from __future__ import annotations

import asyncio
import time
from abc import ABC, abstractmethod
from collections.abc import MutableMapping
from contextlib import suppress
from functools import partial
from typing import Any, Protocol

from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.engine.turn.validation import TurnOptions
from turnledger.errors import (
    ConversationBusy,
    ConversationUnavailable,
    InvalidInput,
    OutcomeUnknown,
    TurnAttached,
    TurnledgerError,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.access.token import TokenScope
from turnledger.model.attempt import AttemptState
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Turn
from turnledger.runners.chat_runner import ChatRunner
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import Slot
from turnledger.server.requests.headers import OnDisconnect, Policies
from turnledger.server.service import Service
from turnledger.server.turns.response import Answer


class TurnAsked(Protocol):
    """What every request for a turn says of it."""

    @property
    def policies(self) -> Policies: ...
    @property
    def idempotency_key(self) -> str | None: ...
    @property
    def retry(self) -> int | None: ...
    @property
    def fingerprint(self) -> bytes: ...


class Conversing(ABC):
    """Used once, by the task that answers the request. How a turn is asked for and told is up to the API."""

    _asked: TurnAsked
    _runner: ChatRunner
    """What answers: set by who makes it."""

    def __init__(
        self,
        service: Service,
        state: MutableMapping[str, Any],
        asked: TurnAsked,
        answer: Answer,
        place: Slot,
    ) -> None:
        self._ledger = service.ledger
        self._metrics = service.metrics
        self._titles = service.titles
        self._audience = service.audience
        self._admission = service.admission
        self._streams = service.streams
        self._principal: Principal = state["principal"]
        self._state = state
        self._asked = asked
        self._answer = answer
        self._place = place
        self._turn = ""
        self._began_at = time.monotonic()
        self._stopping: asyncio.Task[None] | None = None
        self._running: RunningTurn | None = None
        self._reads: TurnId | None = None
        self._following: asyncio.Task[None] | None = None
        self._block = self._ask()

    async def run(self) -> None:
        """Run the turn, and tell its client. Raises what is to be told as an error."""
        block = self._block
        self._answer.outlet.watch(self._client_left)
        try:
            async with block as turn:
                self._running = turn
                self._place.begin()
                asked_at, self._began_at = self._began_at, time.monotonic()
                self._metrics.waited(self._began_at - asked_at)
                self._tell_place(turn.conversation.id, turn.began, turn.id)
                if self._stopping is not None:
                    # The client left while the turn began, when nobody could find it to stop it.
                    turn.stop(self._on_disconnect.value)
                    self._metrics.turn_ended("stopped")
                    return
                await self._runner(turn)
                leaving_at = time.monotonic()
            self._metrics.committed(time.monotonic() - leaving_at)
            if self.looks_again:
                await self._look_again()
            self._metrics.turn_ended("completed")
            self._finish()
            if self._titles is not None and turn.number == 1 and turn.turn is not None:
                self._titles.consider(turn.conversation, turn.turn)
        except TurnReplayed as replay:
            self._metrics.turn_ended("replayed")
            self._tell_place(replay.conversation, "continued", replay.turn.id)
            self._answer.header(b"idempotency-replayed", "true")
            await self._replay(replay.turn)
        except TurnAttached as attached:
            self._place.begin()
            self._tell_place(attached.conversation, "continued", attached.turn)
            if not self._answer.outlet.is_broken:
                self._audience.join(attached.turn)
                self._reads = attached.turn
                await self._follow_while_heard(attached.turn)
        except asyncio.CancelledError:
            # Cancelled while the store wrote, it may be there, and must not be denied. What was cut short and
            # kept is there, too, but is no answer.
            is_whole = self._running is not None and self._running.state is AttemptState.COMPLETED
            self._metrics.turn_ended("completed" if is_whole else "failed")
            if is_whole:
                self._finish()
            raise
        except BaseException as problem:
            self._metrics.turn_ended(outcome_of(problem))
            raise
        finally:
            self._read_no_more()
            self._audience.forget(block.id)
            # It calls back: kept, the two would keep each other until the garbage collector comes.
            del self._runner
            if self._stopping is not None:
                await asyncio.wait((self._stopping,))

    def was_told(self, *, all_of_it: bool) -> None:
        """Note whether the client was given its answer: if not, its next try is one and the same request. In
        doubt nothing is noted, and the turn runs again."""
        if all_of_it and self._answer.is_good:
            self._ledger.delivered(self._block)
        elif not self._answer.is_good or not self._answer.outlet.may_have_arrived:
            self._ledger.lost(self._block)

    @abstractmethod
    def _ask(self) -> TurnBlock:
        """The turn that is asked for."""

    @abstractmethod
    def _finish(self) -> None:
        """The turn is committed: now the client may hear that it is done."""

    @abstractmethod
    async def _replay(self, turn: Turn) -> None:
        """The turn was committed before, for the same request: tell it again."""

    @abstractmethod
    async def _follow(self, turn: TurnId) -> None:
        """Another request runs the turn: tell of it as it goes."""

    looks_again = False
    """Whether to look at the chat once the turn is committed, before that is told."""

    async def _look_again(self) -> None:  # noqa: B027 - most have nothing to look at
        """Do so. Raises nothing: the turn is there."""

    def _options(self) -> TurnOptions:
        """What the request says of its turn besides the input."""
        asked, policies = self._asked, self._asked.policies
        options: TurnOptions = {
            "attach": True,
            "admitted": self._principal.version,
            "admitted_until": self._principal.until,
            "readmit": partial(self._admission.readmit, self._state["head"], TokenScope.TURNS_RUN),
        }
        if policies.on_busy is not None:
            options["on_busy"] = policies.on_busy
        if policies.on_stop is not None:
            options["on_stop"] = policies.on_stop
        if policies.on_failure is not None:
            options["on_failure"] = policies.on_failure
        if asked.idempotency_key is not None:
            options["idempotency_key"] = asked.idempotency_key
            options["body_digest"] = asked.fingerprint
        elif asked.retry is not None:
            options["retry"] = Retry(asked.fingerprint, asked.retry)
        return options

    # What the client is told.

    def _tell_place(self, conversation: ConversationId, state: str, turn: TurnId) -> None:
        self._answer.header(b"x-conversation-id", conversation)
        self._answer.header(b"x-conversation-state", state)
        self._answer.header(b"x-turn-id", turn)
        self._turn = turn
        self._state["conversation"], self._state["turn"] = conversation, turn

    def _note_first_token(self) -> None:
        self._metrics.first_token(time.monotonic() - self._began_at)

    async def _follow_while_heard(self, turn: TurnId) -> None:
        """The turn needs no follower: when the client leaves, so does this request, and counts no more. Nor
        does one stay whose token has ended."""
        following = self._following = asyncio.create_task(self._follow(turn), name="turnledger follower")
        try:
            with self._streams.stay(self._principal):
                await asyncio.wait((following,))
        finally:
            following.cancel()
        if not following.cancelled():
            following.result()

    # When the client goes.

    @property
    def _on_disconnect(self) -> OnDisconnect:
        return self._asked.policies.on_disconnect or OnDisconnect.CONTINUE

    def _client_left(self) -> None:
        if not self._answer.outlet.may_have_arrived:
            self._ledger.lost(self._block)
        self._read_no_more()
        if self._following is not None:
            self._following.cancel()
        if self._on_disconnect is not OnDisconnect.CONTINUE:
            self._audience.when_gone(self._block.id, self._begin_to_stop)

    def _read_no_more(self) -> None:
        if self._reads is not None:
            self._audience.leave(self._reads)
            self._reads = None

    def _begin_to_stop(self) -> None:
        self._stopping = asyncio.create_task(self._stop(self._block.id), name="turnledger stop")

    async def _stop(self, turn: TurnId) -> None:
        with suppress(TurnledgerError):  # it has ended, or has not begun: then there is nothing to stop
            chat = await self._ledger.chat_of(
                turn, owner=self._principal.owner, within=self._principal.within
            )
            await chat.stop(turn, policy=self._on_disconnect.value)


def outcome_of(problem: BaseException) -> str:
    """What became of a turn that left its block so, in a word."""
    if isinstance(problem, TurnStopped):
        return "stopped"
    if isinstance(problem, OutcomeUnknown):
        return "unknown"
    is_refused = isinstance(problem, InvalidInput | ConversationUnavailable | ConversationBusy)
    return "refused" if is_refused else "failed"
