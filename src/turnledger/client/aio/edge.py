"""Where tasks differ from threads. `sync/edge.py` has the same names, without `Async`. Written by hand."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any

from turnledger.client.core.steps import Steps

if TYPE_CHECKING:
    import httpx2

AsyncEvent = asyncio.Event
Lock = nullcontext[None]
"""Tasks of one loop need no lock where nothing is awaited."""
Run = Callable[[Steps[Any]], Awaitable[Any]]
Home = asyncio.AbstractEventLoop
home = asyncio.get_running_loop
"""The loop on which a response can be closed."""
run_blocking = asyncio.to_thread
"""Calls functions that may wait for the disk."""
OPENS_FILES = False
"""A constructor cannot wait for the disk here."""


class AsyncGate:
    """Lets one task at a time take a step of a stream. A second reader is a bug of the caller."""

    def __init__(self) -> None:
        self._is_taken = False

    def enter(self) -> None:
        """Raises RuntimeError while another task is inside."""
        if not self.try_enter():
            raise RuntimeError("Another task is reading this stream; only one may at a time.")

    def try_enter(self) -> bool:
        was_taken, self._is_taken = self._is_taken, True
        return not was_taken

    def leave(self) -> None:
        self._is_taken = False


class AsyncAbandonedResponses:
    """Closes responses that were garbage-collected while open."""

    def __init__(self) -> None:
        self._closing: set[asyncio.Task[None]] = set()

    def add(self, response: httpx2.Response, home: Home) -> None:
        """Close it on its loop. Called from any thread, as the garbage collector runs in any."""

        def close() -> None:
            task = home.create_task(response.aclose())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

        with suppress(RuntimeError):  # the loop is closed, and its connections with it
            home.call_soon_threadsafe(close)

    def sweep(self) -> None:
        """Do nothing: tasks close them."""


async def pause(
    seconds: float, until: AsyncEvent, sleep: Callable[[float], Awaitable[None] | None] | None
) -> None:
    """Wait, at most until this event is set. `sleep` replaces the wait."""
    if sleep is not None:
        slept = sleep(seconds)
        if inspect.isawaitable(slept):
            await slept
        return
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await until.wait()


async def hang_up(response: httpx2.Response | None) -> None:
    """Wake the task that reads this response."""
    if response is not None:
        await response.aclose()


async def send_pieces(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    for piece in pieces:
        yield piece


async def no_chunks() -> AsyncIterator[bytes]:
    for chunk in list[bytes]():
        yield chunk
