"""Where scenarios are played: on a ledger itself, or on a server behind a wire that breaks on command."""

from __future__ import annotations

import asyncio
from typing import Any

from turnledger import Ledger
from turnledger.engine.system_clock import SystemClock


class MovingClock(SystemClock):
    """The time, by a clock that moves on with each look: what came later also says so."""

    _last_ms = 0

    def now_ms(self) -> int:
        self._last_ms = max(super().now_ms(), self._last_ms + 1)
        return self._last_ms


class EmbeddedPlace:
    """A ledger in this process. There is nothing in between that could break."""

    base_url = ""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger

    async def faults(self, faults: list[dict[str, Any] | None]) -> None:
        raise AssertionError("there is no wire here")

    async def wire(self, what: str) -> None:
        raise AssertionError("there is no wire here")

    async def faulted(self, count: int) -> None:
        raise AssertionError("there is no wire here")

    async def server(self, what: str) -> None:
        raise AssertionError("there is no server here")

    async def queued(self, count: int) -> None:
        while self._ledger.at_work().waiting != count:
            await asyncio.sleep(0)
