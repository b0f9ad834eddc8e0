"""The block of a turn for blocking programs. A task on the loop holds the turn as long as the block lasts."""

from __future__ import annotations

import asyncio
import inspect
from functools import partial
from types import TracebackType
from typing import Any, Protocol, TypeAlias, cast
from weakref import finalize

from turnledger.engine.attempt.end import Outcome
from turnledger.engine.attempt.outcome import committed_turn
from turnledger.engine.ports import Runner
from turnledger.engine.turn import block as awaiting
from turnledger.engine.turn.queue import QueueSink
from turnledger.engine.turn.running_turn import inside
from turnledger.errors import TurnledgerError, TurnReplayed
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Turn
from turnledger.sync.loop import Caller, LedgerLoop, resolve
from turnledger.sync.running_turn import RunningTurn


class BlockingRunner(Protocol):
    """Produces a draft, as a Runner does, in the thread of its caller."""

    def __call__(self, turn: RunningTurn, /) -> None: ...


AnyRunner: TypeAlias = Runner | BlockingRunner


def is_awaiting(runner: AnyRunner) -> bool:
    """Return whether a runner is for the event loop."""
    return inspect.iscoroutinefunction(runner) or inspect.iscoroutinefunction(type(runner).__call__)


def stop_if_interrupted(block: awaiting.TurnBlock, problem: BaseException | None) -> None:
    """Make a KeyboardInterrupt a stop of the turn."""
    running = block._running
    if isinstance(problem, KeyboardInterrupt) and running is not None and not running.is_leaving:
        running.stop_requested = running.stop_requested or running.attempt.on_stop


async def hold(block: awaiting.TurnBlock, caller: Caller) -> Any:
    """Hold a turn on the loop: give it to the caller, with a future for the exception by which its block is
    left, or None."""
    running = await block.__aenter__()
    left: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
    caller.give((running, left))
    problem: BaseException | None
    try:
        problem = await left
    except asyncio.CancelledError as cancelled:
        problem = cancelled
    stop_if_interrupted(block, problem)
    await block.__aexit__(type(problem) if problem else None, problem, None)
    if isinstance(problem, asyncio.CancelledError):
        raise problem


class TurnBlock:
    """A requested turn: a context manager that runs it as a block; or `run` it with a runner. Used once.

    A KeyboardInterrupt inside the block is a stop: the turn is kept or discarded, as `on_stop` says. After
    any other exception the history is unchanged. A stop from elsewhere ends the turn at once: the next call
    of the turn raises TurnEnded, and the block is left with TurnStopped.
    """

    def __init__(self, loop: LedgerLoop, block: awaiting.TurnBlock) -> None:
        self._loop = loop
        self._block = block
        self._caller = Caller(loop, partial(stop_if_interrupted, block))
        self._left: asyncio.Future[BaseException | None]
        self._turn: RunningTurn | None = None
        # Ends the turn of a block that is dropped without being left, as by an interrupt just before.
        self._guard = finalize(self, self._caller.abandon, GeneratorExit())
        self._guard.atexit = False

    def __repr__(self) -> str:
        return repr(self._block)

    @property
    def id(self) -> TurnId:
        """The id of the future turn; `chat.stop(id)` stops it while it waits, too."""
        return self._block.id

    @property
    def waits_in(self) -> ConversationId | None:
        """The conversation in whose lane it currently waits, or None."""
        return self._loop.call(lambda: self._block.waits_in)

    @property
    def prefill(self) -> str:
        """The beginning of the answer, with which a resent history may end."""
        return self._block.prefill

    def when_queued(self, call: QueueSink) -> None:
        """Call this with the conversation once the turn has its place in the queue, on the ledger's own
        thread; see the awaiting TurnBlock."""
        self._block.when_queued(call)

    def __enter__(self) -> RunningTurn:
        try:
            running, self._left = self._caller.run(hold(self._block, self._caller))
            self._turn = RunningTurn(self._loop, running)
            inside.set(inside.get() | {self.id})
            return self._turn
        except BaseException as problem:
            self._caller.cancel(problem)
            raise

    def __exit__(
        self,
        kind: type[BaseException] | None,
        problem: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        try:
            inside.set(inside.get() - {self.id})
            self._loop.send(partial(resolve, self._left, problem))
            self._caller.wait()
            self._guard.detach()
        except TurnledgerError:
            # An exception of the block itself is not replaced by how its turn ended.
            if problem is None or isinstance(problem, TurnledgerError):
                raise
        except BaseException as interrupted:
            self._caller.cancel(interrupted)
            raise

    def run(self, runner: AnyRunner) -> Turn:
        """Run the turn with a runner; return it as committed, by this attempt or an earlier one.

        A blocking runner runs in this thread. An awaiting one, such as the ChatRunner, runs on the loop of
        the ledger. Raises what the runner raises, and TurnStopped or TurnFailed if the attempt of another
        caller answers and ended so.
        """
        if is_awaiting(runner):
            return self._caller.run(self._block.run(cast("Runner", runner)))
        try:
            with self as turn:
                cast("BlockingRunner", runner)(turn)
        except TurnReplayed as replay:
            if self._turn is not None:
                raise  # it concerns another turn, which the runner requested
            return replay.turn
        return committed_turn(Outcome(turn.state, turn.turn))
