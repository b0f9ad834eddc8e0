"""kill -9, again and again: what was acknowledged is there, what tools did is told once, lanes are open."""

import signal
from pathlib import Path
from random import Random

import pytest

from tests.crash.processes import Start, Worker
from tests.crash.promises import check_promises, recovered

SLOTS = 3
KILLS = 12
MOMENTS = ("acked", "begun", "acted")
LAST_WORDS = ("acked", "failed", "stopped", "refused")


@pytest.mark.parametrize("seed", [1, 2])
async def test_killed_workers_lose_nothing_and_do_nothing_twice(
    start: Start, tmp_path: Path, seed: int
) -> None:
    dice = Random(seed)
    said: list[str] = []
    firsts, incarnations = [0] * SLOTS, [0] * SLOTS

    def begin(slot: int) -> Worker:
        return start("loop", seed, slot, firsts[slot], incarnations[slot])

    def kill(slot: int) -> None:
        workers[slot].kill()
        said.extend(workers[slot].said)
        # Its next life begins with the ask that this one did not finish: a keyed one is then a retry.
        firsts[slot] += sum(line.split()[0] in LAST_WORDS for line in workers[slot].said)
        incarnations[slot] += 1

    workers = [begin(slot) for slot in range(SLOTS)]
    for _ in range(KILLS):
        slot = dice.randrange(SLOTS)
        workers[slot].hear(dice.choice(MOMENTS), dice.randint(1, 9))
        kill(slot)
        workers[slot] = begin(slot)
    for slot, worker in enumerate(workers):
        worker.hear("acked", dice.randint(1, 9))
        kill(slot)
    check_promises(await recovered(tmp_path), said, tmp_path / "effects")


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
