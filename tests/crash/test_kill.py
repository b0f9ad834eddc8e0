"""A process ends, killed or not: what it acknowledged is there, what its tools did is told once."""

import signal
from pathlib import Path

import pytest

from tests.crash.killed_processes import LAST_WORDS
from tests.crash.processes import Start
from tests.crash.promises import check_promises, recovered


async def test_a_waiter_gets_the_lane_of_a_killed_holder(start: Start, tmp_path: Path) -> None:
    holder = start("hold", "lane", "commit")
    holder.hear("holding")
    waiter = start("wait-without-time", "lane", lease_time=0.4)
    waiter.hear("queued")
    holder.kill()
    acknowledged = waiter.hear("acked").split()
    assert waiter.end() == 0
    histories = await recovered(tmp_path, ["lane"])
    settled, taken, *_ = histories["lane"]
    assert [settled.kind, taken.kind] == ["settled", "completed"]
    assert acknowledged[2] == taken.id
    assert [item.fields["call_id"] for item in settled.output if item.is_call] == ["held/0"]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_to_end_loses_nothing(start: Start, tmp_path: Path, number: signal.Signals) -> None:
    workers = [start("loop", 2, slot, 0, 0) for slot in range(2)]
    said: list[str] = []
    for worker in workers:
        worker.hear("acked", 10)
        worker.send(number)
        assert worker.end() == -number
        said += worker.said
    check_promises(await recovered(tmp_path), said, tmp_path / "effects")


async def test_an_exit_without_closing_the_ledger_loses_nothing(start: Start, tmp_path: Path) -> None:
    worker = start("a-few", 3, 20)
    assert worker.end() == 0
    assert worker.errors.read_text() == ""
    assert sum(line.split()[0] in LAST_WORDS for line in worker.said) == 20
    check_promises(await recovered(tmp_path), worker.said, tmp_path / "effects")
