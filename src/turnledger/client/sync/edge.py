"""Where threads differ from tasks. `aio/edge.py` has the same names, with `Async`. Written by hand."""

from __future__ import annotations

import socket
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

from turnledger.client.core.steps import Steps

if TYPE_CHECKING:
    import httpx2

Given = ParamSpec("Given")
Result = TypeVar("Result")
Lock = threading.RLock
"""Reentrant, because a signal handler may close the client."""
Run = Callable[[Steps[Any]], Any]
Home = bool
OPENS_FILES = True


class Event:
    """Like threading.Event, but a signal handler may set it while its thread waits."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._is_set = False

    def is_set(self) -> bool:
        return self._is_set

    def set(self) -> None:
        with self._condition:
            self._is_set = True
            self._condition.notify_all()

    def wait(self, seconds: float) -> None:
        with self._condition:
            self._condition.wait_for(self.is_set, seconds)


class Gate:
    """Lets one thread at a time take a step of a stream. The others wait for it."""

    def __init__(self) -> None:
        lock = threading.Lock()
        self.enter = lock.acquire
        self.leave = lock.release

    def try_enter(self) -> bool:
        return self.enter(blocking=False)


class AbandonedResponses:
    """Closes responses that were garbage-collected while open."""

    def __init__(self) -> None:
        self._responses: deque[httpx2.Response] = deque()

    def add(self, response: httpx2.Response, home: Home) -> None:
        """Hang up now; `sweep` closes the response. Takes no lock: the garbage collector may run in a thread
        that holds one."""
        hang_up(response)
        self._responses.append(response)

    def sweep(self) -> None:
        while self._responses:
            with suppress(IndexError):  # another thread may sweep, too
                self._responses.popleft().close()


def home() -> Home:
    """Return where a response can be closed: anywhere."""
    return True


def run_blocking(function: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs) -> Result:
    """Call a function that may wait for the disk."""
    return function(*args, **kwargs)


def pause(seconds: float, until: Event, sleep: Callable[[float], Awaitable[None] | None] | None) -> None:
    """Wait, at most until this event is set. `sleep` replaces the wait."""
    if sleep is not None:
        sleep(seconds)
    else:
        until.wait(seconds)


def hang_up(response: httpx2.Response | None) -> None:
    """Wake the thread that reads this response: closing it would not. Skips a response that was read to its
    end: its connection may already serve another request."""
    if response is None or response.is_closed:
        return
    stream = response.extensions.get("network_stream")
    connection = None if stream is None else stream.get_extra_info("socket")
    if connection is not None:
        with suppress(OSError):
            connection.shutdown(socket.SHUT_RDWR)


def send_pieces(pieces: Iterator[bytes]) -> Iterator[bytes]:
    return pieces


def no_chunks() -> Iterator[bytes]:
    return iter(())
