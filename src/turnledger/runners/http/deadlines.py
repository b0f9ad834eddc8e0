"""Deadlines: one timer for many who wait, set anew only when somebody's time is up sooner than it rings.

Most deadlines are put off before they come, with every piece of a stream: that costs a number, not a timer.
"""

from __future__ import annotations

import asyncio
from typing import Protocol

NEVER = float("inf")


class Awaited(Protocol):
    """Something with a deadline, which it may put off by itself."""

    deadline: float
    """By the clock of the loop."""

    def expire(self) -> None:
        """The deadline has passed."""
        ...


class Deadlines:
    """Whose time is watched."""

    __slots__ = ("_loop", "_rings_at", "_timer", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: set[Awaited] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._rings_at = NEVER

    def watch(self, awaited: Awaited) -> None:
        """Expire it when its deadline has passed. To be called again when the deadline comes nearer."""
        self._watched.add(awaited)
        if awaited.deadline < self._rings_at:
            self._set(awaited.deadline)

    def forget(self, awaited: Awaited) -> None:
        """Watch it no more."""
        self._watched.discard(awaited)

    def close(self) -> None:
        """Watch nothing more."""
        self._watched.clear()
        self._set(NEVER)

    def _set(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._rings_at = at
        self._timer = None if at == NEVER else self._loop.call_at(at, self._ring)

    def _ring(self) -> None:
        now = self._loop.time()
        late = [each for each in self._watched if each.deadline <= now]
        self._watched.difference_update(late)
        self._set(min((each.deadline for each in self._watched), default=NEVER))
        for each in late:
            each.expire()
