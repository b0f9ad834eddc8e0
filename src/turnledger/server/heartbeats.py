"""Heartbeats: who is told nothing for a while is told that, and so knows a quiet turn from a lost connection.

One timer for all streams of a process, and none while there are none: one of its own would cost a short
stream more than what it tells.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from turnledger.server.outlet import Headers, Outlet

EVERY = 10.0
"""Seconds; who was told nothing for as long hears a sign of life, within twice of it."""
SIGN = b": \n\n"
"""A comment, which readers of events pass over."""


class Heartbeats:
    """The streams that are kept alive."""

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._open: dict[Outlet, Headers | Callable[[], Headers | None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def join(self, outlet: Outlet, headers: Headers | Callable[[], Headers | None] = ()) -> None:
        """Keep a stream alive; `headers` are those of one that begins with a sign of life, if nothing else
        comes first. What gives them may give none: then it does not begin yet."""
        self._open[outlet] = headers
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)

    def leave(self, outlet: Outlet) -> None:
        """Do so no more. The timer is left to itself: the next stream will need it."""
        self._open.pop(outlet, None)

    @contextmanager
    def during(self, outlet: Outlet, headers: Headers) -> Iterator[None]:
        """Keep a stream alive while in this block."""
        self.join(outlet, headers)
        try:
            yield
        finally:
            self.leave(outlet)

    def _tick(self) -> None:
        self._timer = None
        self.beat()
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)

    def beat(self) -> None:
        """Tell all who were told nothing since the last beat."""
        for outlet, given in list(self._open.items()):
            headers = given() if callable(given) else given
            if headers is not None:
                outlet.beat(SIGN, headers)
