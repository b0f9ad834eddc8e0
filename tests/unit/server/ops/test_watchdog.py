"""The watchdog logs stalled loops and memory above the limit, and ends or retires the process."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from functools import partial
from pathlib import Path

import pytest

from turnledger.server.ops import watchdog as module
from turnledger.server.ops.watchdog import (
    STALLED_AFTER,
    Remedy,
    Watchdog,
    machine_bytes,
    resident_bytes,
)


async def test_stalled_loop_is_logged_once_with_its_frame_and_once_on_recovery(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watchdog = Watchdog(None)
    stalled_at = time.monotonic() + STALLED_AFTER + 1
    for _ in range(2):
        await asyncio.to_thread(watchdog.check, stalled_at, None)
    watchdog.check(time.monotonic(), None)
    assert caplog.messages == ["event_loop_stalled", "event_loop_goes_on"]
    assert any("select" in place or "run_forever" in place for place in vars(caplog.records[0])["at"])


async def test_memory_above_the_limit_is_logged_each_time_it_is_exceeded(
    caplog: pytest.LogCaptureFixture,
) -> None:
    watchdog = Watchdog(100)
    for resident in (99, 101, 102, 50, 101, None):
        watchdog.check(time.monotonic(), resident)
    logged = [(record.message, vars(record)["bytes"]) for record in caplog.records]
    assert logged == [("memory_above_limit", 101)] * 2


async def test_watchdog_thread_detects_a_stall_while_the_loop_is_blocked(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "CHECK_EVERY", 0.001)
    monkeypatch.setattr(module, "STALLED_AFTER", 0.0)
    is_seen = threading.Event()
    look = Watchdog.check

    def note(self: Watchdog, now: float, resident: int | None) -> None:
        look(self, now, resident)
        if self._is_stalled:
            is_seen.set()

    monkeypatch.setattr(Watchdog, "check", note)
    with Watchdog(None).watch():
        assert is_seen.wait(60)  # blocks the loop
    assert "event_loop_stalled" in caplog.messages


class Acts:
    """What a watchdog had a process do."""

    def __init__(self) -> None:
        self.all: list[str] = []
        self.remedy = Remedy(partial(self.all.append, "retire"), partial(self.all.append, "abort"), 60.0)


async def test_watchdog_aborts_a_process_whose_loop_stalls_for_too_long() -> None:
    acts = Acts()
    watchdog = Watchdog(None, acts.remedy)
    began = time.monotonic()
    for second in range(60):
        watchdog.check(began + second, None)
    assert acts.all == []
    watchdog.check(began + 61, None)
    assert acts.all == ["abort"]


async def test_watchdog_does_not_abort_a_process_that_was_paused_as_a_whole() -> None:
    acts = Acts()
    watchdog = Watchdog(None, acts.remedy)
    began = time.monotonic()
    watchdog.check(began + 3600, None)
    watchdog.check(began + 3659, None)
    assert acts.all == []


async def test_watchdog_retires_a_process_above_its_memory_limit_once_and_not_while_young() -> None:
    acts = Acts()
    watchdog = Watchdog(100, acts.remedy)
    began = time.monotonic()
    watchdog.check(began + module.YOUNG - 1, 101)
    assert acts.all == []
    for second in (1, 2, 3):
        watchdog.check(began + module.YOUNG + second, 101)
    assert acts.all == ["retire"]


@pytest.mark.skipif(not os.path.exists("/proc/self/cgroup"), reason="the system does not report it")
def test_machine_memory_is_the_container_limit_where_that_is_lower(tmp_path: Path) -> None:
    machine = machine_bytes(tmp_path)
    assert (machine or 0) > 1 << 27
    for name, content in (("memory.max", "max"), ("memory.max", "67108864")):
        (tmp_path / name).write_text(content)
        assert machine_bytes(tmp_path) == (machine if content == "max" else 1 << 26)


@pytest.mark.skipif(not os.path.exists("/proc/self/statm"), reason="the system does not report it")
def test_resident_bytes_reads_the_memory_of_a_process() -> None:
    assert (resident_bytes(os.getpid()) or 0) > 10_000_000
    assert resident_bytes(2**22 + 1) is None
