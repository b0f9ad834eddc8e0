"""Store calls: finished even if their caller is cancelled, refused outside the store's process and loop.

In a forked process or on another event loop the threads of a store do not run, its futures wake no task and
its memory is a copy: a call would wait forever, or its write would be lost.
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
"""Seconds for which a cancelled caller still waits for a write that the store has not begun."""


def is_cancelled() -> bool:
    """Whether the current task is being cancelled: then nothing that failed is tried again."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


class Unstoppable(asyncio.Future[Any]):
    """A future that no cancellation reaches: who waits for it is cancelled when it is done. Stores answer
    with it, so that waiting for a write to its end costs nothing.

    A cancellation makes it call `withdraw` after the grace time: a store that has not begun the write by then
    gives it up, so that the caller is not held by what others do.
    """

    withdraw: Callable[[], None] | None = None

    def cancel(self, msg: Any | None = None) -> bool:
        if self.withdraw is not None and not self.done():
            self.get_loop().call_later(GRACE, self.withdraw)
            self.withdraw = None
        return False

    def pass_on(self, _: asyncio.Future[Any]) -> None:
        """Be done as the other one is, whatever came of it."""
        self.set_result(None)


@coroutine
def uninterrupted(work: Coroutine[Any, Any, Result]) -> Generator[Any, None, Result]:
    """Run to the end whatever happens to the caller; a cancellation is raised again afterwards.

    The caller then knows that the work is over, not how it went: it asks the store. Runs within the
    caller's task: a task of its own for each write would cost as much as the write.
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
            # Thrown in by the task, the work finds the same error in the future itself. Anything else, such
            # as the GeneratorExit of a task that is destroyed with its loop, ends the work.
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
    """Have a future that a coroutine yielded call back, in place of a task that waits for it.

    The one place that touches a private attribute of asyncio: a task takes the mark off that `await` puts on
    a future, and without that nobody else could await it. docs/decisions/0042 has the price of a task.
    """
    waits_for._asyncio_future_blocking = False
    waits_for.add_done_callback(then)


def _raise_again(cancelled: asyncio.CancelledError) -> None:
    """Raise the cancellation, unless it was taken back meanwhile (Task.uncancel)."""
    caller = asyncio.current_task()
    if caller is not None and caller.cancelling():
        raise cancelled


class JointReads(Generic[Asked, Result]):
    """Reads that were asked for and have not begun. Whoever asks for the same until then takes part: a read
    that has begun may be too old for a caller that was woken since."""

    def __init__(self, read: Callable[[Asked], Coroutine[Any, Any, Result]], name: str) -> None:
        self._read = read
        self._name = name
        self._asked: dict[Asked, asyncio.Task[Result]] = {}

    async def take(self, request: Asked) -> Result:
        """Read, together with all who ask for the same. A caller that is cancelled leaves the others their
        read."""
        task = self._asked.get(request)
        if task is None:
            task = asyncio.create_task(self._begin(request), name=self._name)
            task.add_done_callback(_heed)
            self._asked[request] = task
        return await asyncio.shield(task)

    async def _begin(self, request: Asked) -> Result:
        # A task starts after all who were woken together have asked.
        del self._asked[request]
        return await self._read(request)


def _heed(task: asyncio.Task[Any]) -> None:
    """Take note of an error that everybody left before it came."""
    if not task.cancelled():
        task.exception()


FORKED = "This ledger was opened before os.fork(). Open one in each process after the fork, or use spawn."
OTHER_LOOP = "This ledger belongs to another event loop. Open one in each loop that uses it."


_forks = 0
"""How often this process, or one before it, was forked: cheaper to compare than the number of a process."""


def _count_fork() -> None:
    global _forks
    _forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)


class Home:
    """Made where a store is opened; the first event loop that uses the store is its loop for good."""

    def __init__(self) -> None:
        self._forks = _forks
        self._loop: asyncio.AbstractEventLoop | None = None

    def check(self) -> None:
        """Raise LedgerElsewhere in another process, or on another event loop."""
        if self._forks != _forks:
            raise LedgerElsewhere(FORKED)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            return  # an operation that is driven by hand
        if self._loop is None:
            self._loop = loop
        elif self._loop is not loop:
            raise LedgerElsewhere(OTHER_LOOP)
