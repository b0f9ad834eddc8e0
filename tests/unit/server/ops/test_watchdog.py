"""A loop that stands still and memory above the limit are logged when they begin, and a loop that goes on."""

from __future__ import annotations

import asyncio
import os
import threading
import time

import pytest

from turnledger.server.ops import watchdog as module
from turnledger.server.ops.watchdog import STALLED_AFTER, Watchdog, resident_bytes


async def test_stalled_loop_is_logged_once_with_its_place_and_again_when_it_goes_on(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watchdog = Watchdog(None)
    stalled_at = time.monotonic() + STALLED_AFTER + 1
    for _ in range(2):
        await asyncio.to_thread(watchdog.look, stalled_at, None)
    watchdog.look(time.monotonic(), None)
    assert caplog.messages == ["event_loop_stalled", "event_loop_goes_on"]
    assert any("select" in place or "run_forever" in place for place in vars(caplog.records[0])["at"])


async def test_memory_above_the_limit_is_logged_each_time_it_is_exceeded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watchdog = Watchdog(100)
    for resident in (99, 101, 102, 50, 101, None):
        watchdog.look(time.monotonic(), resident)
    told = [(record.message, vars(record)["bytes"]) for record in caplog.records]
    assert told == [("memory_above_limit", 101)] * 2


async def test_watching_thread_looks_while_the_loop_is_blocked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "LOOK_EVERY", 0.001)
    monkeypatch.setattr(module, "STALLED_AFTER", 0.0)
    is_seen = threading.Event()
    look = Watchdog.look

    def note(self: Watchdog, now: float, resident: int | None) -> None:
        look(self, now, resident)
        if self._is_stalled:
            is_seen.set()

    monkeypatch.setattr(Watchdog, "look", note)
    with Watchdog(None).watching():
        assert is_seen.wait(60)  # blocks the loop
    assert "event_loop_stalled" in caplog.messages


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not tell")
def test_resident_bytes_are_those_of_the_process() -> None:
    assert (resident_bytes(os.getpid()) or 0) > 10_000_000
    assert resident_bytes(2**22 + 1) is None
