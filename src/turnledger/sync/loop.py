"""The event loop of a blocking ledger, in a thread of its own, and the callers that wait for it.

A caller that is interrupted while it waits, as by Ctrl-C or by the exception of a signal handler, cancels its
work and waits for the end of it: when the exception arrives, the outcome is decided.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterable, Iterator
from contextlib import suppress
from contextvars import copy_context
from functools import partial
from queue import SimpleQueue
from typing import Any, TypeVar

from turnledger.engine.lane.shield import Home
from turnledger.errors import LedgerClosed, LedgerElsewhere, TurnledgerError

Result = TypeVar("Result")

OWN_THREAD = "This call would wait for its own thread. In async code, use turnledger.Ledger."
END: Any = object()


def resolve(future: asyncio.Future[Result], result: Result) -> None:
    """Set the result, unless the future is cancelled or has one."""
    if not future.done():
        future.set_result(result)


class LedgerLoop:
    """Runs an event loop in a thread until `close`. Any number of threads may call it."""

    def __init__(self) -> None:
        self._home = Home()
        self._callers: set[Caller] = set()
        """Those whose work has not ended."""
        self._loop: asyncio.AbstractEventLoop
        self._closing: asyncio.Future[None]
        is_ready = threading.Event()
        self._thread = threading.Thread(target=self._serve, args=(is_ready,), name="turnledger", daemon=True)
        self._thread.start()
        is_ready.wait()

    def _serve(self, is_ready: threading.Event) -> None:
        self._loop = asyncio.new_event_loop()
        self._closing = self._loop.create_future()
        self._loop.call_soon(is_ready.set)
        self._loop.run_until_complete(self._wait_for_close())
        # Not by asyncio.run, which starts a thread at the end: an interpreter that shuts down may refuse.
        self._loop.close()
        # From here on `send` finds the loop closed. What was sent before and never ran ends here.
        for caller in list(self._callers):
            caller.end(LedgerClosed())

    async def _wait_for_close(self) -> None:
        await self._closing
        left = asyncio.all_tasks() - {asyncio.current_task()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        await self._loop.shutdown_asyncgens()

    @property
    def is_closing(self) -> bool:
        return self._closing.done()

    def call(self, function: Callable[[], Result]) -> Result:
        """Call a function on the loop; return its result."""
        return Caller(self).call(function)

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run a coroutine on the loop; return its result."""
        return Caller(self).run(work)

    def iterate(self, source: AsyncIterator[Result]) -> Iterator[Result]:
        """Iterate over what an async iterator yields on the loop."""
        return Caller(self).iterate(source)

    def send(self, function: Callable[[], object], caller: Caller | None = None) -> None:
        """Have the loop call a function soon, with the context variables of this thread. Raises LedgerClosed,
        and LedgerElsewhere in a forked process and on the loop itself."""
        if threading.current_thread() is self._thread:
            raise LedgerElsewhere(OWN_THREAD)
        if caller is not None:
            self._callers.add(caller)  # before the loop may find it
        self.post(function)

    def post(self, function: Callable[[], object]) -> None:
        """As `send`, also on the loop itself."""
        self._home.check_process()
        try:
            self._loop.call_soon_threadsafe(function, context=copy_context())
        except RuntimeError:
            raise LedgerClosed from None

    def dismiss(self, caller: Caller) -> None:
        self._callers.discard(caller)

    def close(self) -> None:
        """End the loop and its thread. A second call waits for the first."""
        with suppress(LedgerClosed):
            self.send(partial(resolve, self._closing, None))
        self._thread.join()


class Caller:
    """A thread that waits for work on the loop, and meanwhile calls what the work hands back to it."""

    def __init__(
        self, loop: LedgerLoop, on_cancel: Callable[[BaseException], object] = lambda _: None
    ) -> None:
        self._loop = loop
        self._on_cancel = on_cancel
        self._inbox: SimpleQueue[Callable[[], object] | None] = SimpleQueue()
        """Functions to call in the waiting thread; None ends the waiting."""
        self._task: asyncio.Task[None] | None = None
        self._is_ended = True
        self._result: Any = None
        self._problem: BaseException | None = None

    def call(self, function: Callable[[], Result]) -> Result:
        def work() -> None:
            try:
                self.end(None, function())
            except BaseException as problem:
                self.end(problem)

        self._send(work)
        return self.wait()  # type: ignore[no-any-return]

    def run(self, work: Coroutine[Any, Any, Result]) -> Result:
        """Run the work; return its result, or what it gives before its end, see `give`."""
        try:
            self._send(partial(self._start, work))
        except BaseException:
            work.close()
            raise
        return self.wait()  # type: ignore[no-any-return]

    def _send(self, function: Callable[[], object]) -> None:
        self._is_ended = False
        try:
            self._loop.send(function, self)
        except TurnledgerError:
            self._is_ended = True
            self._loop.dismiss(self)
            raise
        except BaseException as interrupted:  # perhaps after the loop has received it
            self.cancel(interrupted)
            raise

    def _start(self, work: Coroutine[Any, Any, Any]) -> None:
        self._task = asyncio.create_task(self._do(work), name="turnledger call")
        self._task.add_done_callback(partial(self._close_unstarted, work))

    async def _do(self, work: Coroutine[Any, Any, Any]) -> None:
        # The loop would end by a KeyboardInterrupt that its task raises. The caller raises it instead.
        try:
            self.end(None, await work)
        except BaseException as problem:
            self.end(problem)

    def _close_unstarted(self, work: Coroutine[Any, Any, Any], task: asyncio.Task[None]) -> None:
        if task.cancelled():  # before its first step
            work.close()
            self.end(asyncio.CancelledError())

    def give(self, result: object) -> None:
        """Return something to the caller while the work goes on. The next `wait` returns the result."""
        self._result = result
        self._inbox.put(None)

    def end(self, problem: BaseException | None, result: object = None) -> None:
        self._result, self._problem, self._is_ended = result, problem, True
        self._loop.dismiss(self)
        self._inbox.put(None)

    def wait(self) -> Any:
        """Wait for what the work gives, returns or raises."""
        try:
            while (function := self._inbox.get()) is not None:
                function()
        except BaseException as interrupted:
            self.cancel(interrupted)
            raise interrupted from self._problem
        if isinstance(self._problem, asyncio.CancelledError) and self._loop.is_closing:
            raise LedgerClosed
        if self._problem is not None:
            raise self._problem
        return self._result

    def cancel(self, reason: BaseException) -> None:
        """Cancel the work, and wait for its end."""
        self.abandon(reason)
        while not self._is_ended:
            self._inbox.get()

    def abandon(self, reason: BaseException) -> None:
        """Cancel the work, on whichever thread, and wait for nothing."""

        def cancel() -> None:
            self._on_cancel(reason)
            if self._task is not None:
                self._task.cancel()
            elif not self._is_ended:  # it never arrived
                self.end(reason)

        if not self._is_ended:
            with suppress(LedgerClosed, LedgerElsewhere):
                self._loop.post(cancel)

    def iterate(self, source: AsyncIterator[Result]) -> Iterator[Result]:
        # The loop closes an async generator that is dropped: no caller has to, on whichever thread.
        async def step() -> Result:
            return await anext(source, END)

        while (item := self.run(step())) is not END:
            yield item

    def hand_back(self, function: Callable[[], Result]) -> Callable[[], Awaitable[Result]]:
        """Return a function that the work awaits, and that calls this one in the waiting thread."""

        async def call_there() -> Result:
            answer = asyncio.get_running_loop().create_future()

            def call_here() -> None:
                result, problem = None, None
                try:
                    result = function()
                except Exception as raised:
                    problem = raised
                self._loop.send(partial(resolve, answer, (result, problem)))

            self._inbox.put(call_here)
            result, problem = await answer
            if problem is not None:
                raise problem
            return result  # type: ignore[no-any-return]

        return call_there

    async def pull(self, source: Iterable[Result]) -> AsyncIterator[Result]:
        """Yield to the work what the waiting thread iterates over."""
        step = self.hand_back(partial(next, iter(source), END))
        while (item := await step()) is not END:
            yield item
