"""The home of a store: the process and the event loop that use it.

Elsewhere its threads do not run, its futures wake no task and its memory is a copy, so that a call would wait
for ever or write what is lost.
"""

from __future__ import annotations

import asyncio
import os

from turnledger.errors import LedgerElsewhere

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
