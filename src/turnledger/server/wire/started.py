"""Started: a coroutine that runs at once, as far as it can without waiting, with no task and no timer for it.

Most of what a server awaits is there: the body of a request, room for an answer. A task or a timer, just in
case it is not, takes longer than all the rest of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

from turnledger.engine.lane.shield import listen

Result = TypeVar("Result")


class Started(Generic[Result]):
    """Runs a coroutine up to its first wait; raises what that raises. Then `is_done` says whether it is over,
    with its `result`. If not, one of three: await it, have it call back, or close it."""

    __slots__ = ("_then", "_waits_for", "_work", "is_done", "result")
    result: Result

    def __init__(self, work: Coroutine[Any, Any, Result]) -> None:
        self._work = work
        self._waits_for: asyncio.Future[Any] | None = None
        self._then: Callable[[Result], object] | None = None
        self.is_done = False
        self._go_on()

    def _go_on(self) -> None:
        try:
            self._waits_for = self._work.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, Result]:
        while not self.is_done:
            try:
                yield self._waits_for
            except BaseException as problem:
                try:
                    self._waits_for = self._work.throw(problem)
                except StopIteration as stop:
                    self.is_done, self.result = True, stop.value
            else:
                self._go_on()
        return self.result

    def call_back(self, then: Callable[[Result], object]) -> None:
        """Go on without a task whenever what it waits for is there, and call `then` with the result. For what
        needs no task: it waits for futures, and is not cancelled but closed. What it raises then goes to the
        exception handler of the loop."""
        self._then = then
        self._listen()

    def _listen(self) -> None:
        if self.is_done:
            if self._then is not None:
                self._then(self.result)
        elif self._waits_for is None:  # it lets others go first
            asyncio.get_running_loop().call_soon(self._wake)
        else:
            listen(self._waits_for, self._wake)

    def _wake(self, _: object = None) -> None:
        if self._then is not None:
            self._go_on()
            self._listen()

    def close(self) -> None:
        """Leave it where it is; nobody is called back any more."""
        self._then = None
        if self._waits_for is not None:
            self._waits_for.remove_done_callback(self._wake)
            self._waits_for = None
        self._work.close()
