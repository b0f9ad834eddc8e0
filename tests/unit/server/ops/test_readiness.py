"""Whether the store can be written to is found out by all who ask together, and no more often than needed."""

from __future__ import annotations

import asyncio
import json
from io import StringIO

import pytest

from tests.unit.server.logging_kept import kept_logging
from turnledger.errors import LedgerClosed, StoreFull, StoreReadOnly
from turnledger.server.ops import readiness
from turnledger.server.ops.logs import configure
from turnledger.server.ops.readiness import FRESH, NO_ANSWER, Readiness


class Disk:
    """A store to be probed; `problem` is what it then raises. Its time is what `now` says."""

    def __init__(self) -> None:
        self.problem: Exception | None = None
        self.probes = 0
        self.now = 100.0
        self.answers = asyncio.Event()
        self.answers.set()
        self.readiness = Readiness(self.probe, lambda: self.now)

    async def probe(self) -> None:
        self.probes += 1
        await self.answers.wait()
        if self.problem is not None:
            raise self.problem

    async def code(self) -> str | None:
        found = await self.readiness.problem()
        return found and found.code


async def test_all_who_ask_at_once_share_one_probe() -> None:
    disk = Disk()
    disk.answers.clear()
    asked = [asyncio.create_task(disk.code()) for _ in range(50)]
    await asyncio.sleep(0)
    disk.answers.set()
    assert await asyncio.gather(*asked) == [None] * 50
    assert disk.probes == 1


async def test_it_is_found_out_at_most_once_a_second() -> None:
    disk = Disk()
    for _ in range(10):
        assert await disk.code() is None
        disk.now += FRESH / 10.1
    assert disk.probes == 1
    disk.now += FRESH
    disk.problem = StoreFull()
    assert await disk.code() == "store_full"
    assert await disk.code() == "store_full"
    assert disk.probes == 2


async def test_it_is_ready_again_by_itself() -> None:
    disk = Disk()
    for problem, code in (
        (StoreReadOnly(), "store_read_only"),
        (None, None),
        (LedgerClosed(), "ledger_closed"),
    ):
        disk.problem = problem
        disk.now += FRESH
        assert await disk.code() == code


async def test_what_does_not_answer_is_not_ready_and_not_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "PATIENCE", 0.0)
    disk = Disk()
    disk.answers.clear()
    assert await disk.readiness.problem() == NO_ANSWER
    disk.now += 10 * FRESH
    assert await disk.readiness.problem() == NO_ANSWER
    assert disk.probes == 1
    monkeypatch.setattr(readiness, "PATIENCE", 60.0)
    disk.answers.set()
    assert await disk.code() is None
    assert disk.probes == 1


async def test_who_asks_and_leaves_takes_nothing_from_the_others() -> None:
    disk = Disk()
    disk.answers.clear()
    leaves, stays = (asyncio.create_task(disk.code()) for _ in range(2))
    await asyncio.sleep(0)
    leaves.cancel()
    await asyncio.wait([leaves])
    disk.answers.set()
    assert await stays is None
    assert disk.probes == 1


async def test_a_bug_is_no_reason_to_call_it_ready() -> None:
    disk = Disk()
    disk.problem = ZeroDivisionError()
    assert await disk.code() == "store_error"


async def test_changes_are_logged_once_with_their_details() -> None:
    disk, written = Disk(), StringIO()
    with kept_logging():
        configure("json", "info", written)
        for problem in (StoreFull("/a/b: full"), StoreFull("/a/b: full"), None, None):
            disk.problem = problem
            disk.now += FRESH
            await disk.code()
    logged = [json.loads(line) for line in written.getvalue().splitlines()]
    assert [(each["event"], each.get("details")) for each in logged] == [
        ("not_ready", "/a/b: full"),
        ("ready_again", None),
    ]
