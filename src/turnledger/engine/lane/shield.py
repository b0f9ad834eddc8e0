"""Store calls that finish even if their caller is cancelled, and are refused outside the store's process and
loop.

In a forked process or on another event loop the store's threads do not run, its futures wake no task, and its
memory is a copy: a call would wait for ever, or its write would be lost.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine, Generator
from types import coroutine
from typing import Any, Generic, TypeVar

from turnledger.errors import LedgerElsewhere

Asked = TypeVar("Asked")
Result = TypeVar("Result")

GRACE = 1.0
"""Seconds for which a cancelled caller still waits for a write that the store has not started."""


def is_cancelled() -> bool:
    """Return whether the current task is being cancelled, so that failures are not retried."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Unstoppable(asyncio.Future[Any]):
    """A future that cannot be cancelled: its waiter is cancelled when it is done. Stores return it, so that
    waiting for the end of a write needs no extra task.

    A cancellation makes it call `withdraw` after the grace time: a store that has not started the write by
    then drops it, so that the caller does not wait for the writes of others.
    """

    withdraw: Callable[[], None] | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        if self.withdraw is not None and not self.done():
            self.get_loop().call_later(GRACE, self.withdraw)
            self.withdraw = None
        return False

    def pass_on(self, _: asyncio.Future[Any]) -> None:
        """Finish when the other future does, whatever its outcome."""
        self.set_result(None)


@coroutine
def uninterrupted(work: Coroutine[Any, Any, Result]) -> Generator[Any, None, Result]:
    """Run to the end even if the caller is cancelled; raise the cancellation afterwards.

    The caller then knows that the work is over, but not its outcome, and asks the store. Runs within the
    caller's task: a new task for each write would cost as much as the write.
    """
    cancelled: asyncio.CancelledError | None = None
    result: Result
    while True:
        waits_for = None  # a failed one has this frame in its traceback: a cycle
        try:
            waits_for = work.send(None)
        except StopIteration as stop:
            result = stop.value
            break
        except BaseException:
            if cancelled is not None:
                _raise_again(cancelled)
            raise
        try:
            if isinstance(waits_for, Unstoppable):
                yield waits_for
            else:
                yield from _until_done(waits_for)
        except asyncio.CancelledError as cancellation:
            cancelled = cancellation
        except BaseException:
            # The work finds an error that the task throws in in its future, too. Any other, such as the
            # GeneratorExit of a task that is destroyed with its loop, ends the work.
            if not isinstance(waits_for, Unstoppable) or not waits_for.done():
                work.close()
                raise
    if cancelled is not None:
        _raise_again(cancelled)
    return result


def _until_done(waits_for: asyncio.Future[Any] | None) -> Generator[Any, None, None]:
    if waits_for is None:
        yield
        return
    relay = Unstoppable(loop=waits_for.get_loop())
    listen(waits_for, relay.pass_on)
    yield from relay


def listen(waits_for: asyncio.Future[Any], then: Callable[[asyncio.Future[Any]], object]) -> None:
    """Add a callback to a future that a coroutine yielded, in place of a task that waits for it.

    The only use of a private attribute of asyncio: `await` marks a future, a task removes the mark, and with
    the mark no one else can await it. docs/decisions/0042 has the cost of a task.
    """
    waits_for._asyncio_future_blocking = False
    waits_for.add_done_callback(then)


def _raise_again(cancelled: asyncio.CancelledError) -> None:
    """Raise the cancellation, unless it was withdrawn meanwhile (Task.uncancel)."""
    caller = asyncio.current_task()
    if caller is not None and caller.cancelling():
        raise cancelled


class JointReads(Generic[Asked, Result]):
    """Reads that were requested and have not begun. Equal requests share one until it begins: after that it
    may be too old for a caller that was woken since."""

    def __init__(self, read: Callable[[Asked], Coroutine[Any, Any, Result]], name: str) -> None:
        self._read = read
        self._name = name
        self._asked: dict[Asked, asyncio.Task[Result]] = {}

    async def take(self, request: Asked) -> Result:
        """Read, shared by all callers with the same request. Cancelling one leaves it to the others."""
        task = self._asked.get(request)
        if task is None:
            task = asyncio.create_task(self._begin(request), name=self._name)
            task.add_done_callback(_heed)
            self._asked[request] = task
        return await asyncio.shield(task)

    async def _begin(self, request: Asked) -> Result:
        # The task starts after all callers that were woken together have made their request.
        del self._asked[request]
        return await self._read(request)


def _heed(task: asyncio.Task[Any]) -> None:
    """Retrieve an error whose callers have all left, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()


FORKED = "This ledger was opened before os.fork(). Open one in each process after the fork, or use spawn."
OTHER_LOOP = "This ledger belongs to another event loop. Open one in each loop that uses it."


_forks = 0
"""Number of forks up to this process: cheaper to compare than the process id."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Home:
    """The process and event loop of a store. The first loop that uses the store is its loop for good."""

    def __init__(self) -> None:
        self._forks = _forks
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Raise LedgerElsewhere in another process, or on another event loop."""
        if self._forks != _forks:  # as check_process does, without a call: every use of the ledger checks it
            raise LedgerElsewhere(FORKED)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # an operation driven without a loop
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise LedgerElsewhere(OTHER_LOOP)

    def check_process(self) -> None:
        """Raise LedgerElsewhere in a forked process."""
        if self._forks != _forks:
            raise LedgerElsewhere(FORKED)
