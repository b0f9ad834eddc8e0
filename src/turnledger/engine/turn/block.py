"""The block of a turn: entered when the lane is held, and left with a commit or by its policy."""

from __future__ import annotations

import sys
from types import TracebackType

from turnledger.engine.attempt.end import Ended
from turnledger.engine.attempt.outcome import committed
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.ports import Runner
from turnledger.engine.process.deliveries import Note
from turnledger.engine.process.process import Process
from turnledger.engine.turn.acquire import Replayed, enter
from turnledger.engine.turn.finish import leave
from turnledger.engine.turn.request import AcquireRequest
from turnledger.engine.turn.running_turn import RunningTurn, generator_around
from turnledger.errors import InvalidInput, TurnReplayed
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Turn


class TurnBlock:
    """One turn that is asked for: the context manager that runs it as a block, or `run` it with a runner.
    Used once."""

    def __init__(self, process: Process, request: AcquireRequest, on_event: EventSink | None) -> None:
        self._process = process
        self._request = request
        self._on_event = on_event
        self._running: RunningTurn | None = None
        self._is_used = False
        self._is_lost = False

    @property
    def id(self) -> TurnId:
        """The id that the turn will have; `chat.stop(id)` stops it while it waits, too."""
        return self._request.begin.attempt

    @property
    def waits_in(self) -> ConversationId | None:
        """The conversation in whose lane it waits at this moment; None if it does not."""
        return self._process.bells.lane_of(self._request.begin.attempt)

    def note_delivery(self, *, is_delivered: bool) -> None:
        """What became of the answer; see Ledger.delivered and Ledger.lost."""
        request = self._request.begin
        if request.retry is None:
            return
        self._is_lost = not is_delivered
        if self._running is not None:
            self._running.unheard = request.retry.name if self._is_lost else None
        name, owner = request.retry.name, request.target.owner
        at = self._process.clock.now_ms()
        self._process.deliveries.note(Note(owner, name, request.attempt, is_delivered, at))

    async def __aenter__(self) -> RunningTurn:
        if self._is_used:
            raise InvalidInput("A turn runs once. Call chat.turn() again for another one.")
        self._is_used = True
        entered = await enter(self._process, self._request, self._on_event)
        if isinstance(entered, Replayed):
            raise TurnReplayed(committed(entered.ended), entered.conversation)
        entered.generator = generator_around(sys._getframe(1))
        self._running = entered
        if self._is_lost:
            # Its client left while it waited, when there was no claim to mark.
            self.note_delivery(is_delivered=False)
        return entered

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._running is not None  # noqa: S101 - the block was entered
        await leave(self._process, self._running, problem)

    async def run(self, runner: Runner) -> Turn:
        """Run the turn with a runner; return it as committed, by this attempt or by an earlier one.

        Raises what the runner raises, and TurnStopped or TurnFailed if another caller's attempt answers and
        ended so.
        """
        try:
            async with self as running:
                await runner(running)
        except TurnReplayed as replay:
            if self._running is not None:
                raise  # it is about another turn, which the runner asked for
            return replay.turn
        return committed(Ended(running.state, running.turn))
