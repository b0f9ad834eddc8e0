"""Processes that share a store: one is killed, suspended or ended, or stops a turn of another. Acknowledged
turns survive, tool effects are recorded once, and a process that lost its lane cannot write."""

from __future__ import annotations

import signal
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import pytest

from tests.crash.killed_processes import LAST_WORDS
from tests.crash.processes import Start, Worker, suspend
from tests.crash.promises import check_chain, check_promises, recovered
from turnledger.model.item import open_calls

NO_TIMER = 1e6
"""A lease time so long that no timer of the engine and no wait bounded by it ends within a test: each process
acts because it noticed a write of another."""
BEATS = 1.2


async def test_waiter_gets_the_lane_of_a_killed_holder(start: Start, tmp_path: Path) -> None:
    holder = start("hold", "lane", "commit")
    holder.wait_for("holding")
    waiter = start("wait-without-time", "lane", lease_time=0.4)
    waiter.wait_for("queued")
    holder.kill()
    acknowledged = waiter.wait_for("acked").split()
    assert waiter.end() == 0
    histories = await recovered(tmp_path, ["lane"])
    settled, taken, *_ = histories["lane"]
    assert [settled.kind, taken.kind] == ["settled", "completed"]
    assert acknowledged[2] == taken.id
    assert [item.fields["call_id"] for item in settled.output if item.is_call] == ["lane/0"]


async def test_process_that_ends_without_closing_its_ledger_loses_no_turn(
    start: Start, tmp_path: Path
) -> None:
    output: list[str] = []
    workers = {number: start("loop", 2, number, 0, 0) for number in (signal.SIGINT, signal.SIGTERM)}
    for number, worker in workers.items():
        worker.wait_for("acked", 10)
        worker.send(number)
        assert worker.end() == -number
        output += worker.output
    worker = start("a-few", 3, 20)
    assert worker.end() == 0
    assert worker.errors.read_text() == ""
    assert sum(line.split()[0] in LAST_WORDS for line in worker.output) == 20
    check_promises(await recovered(tmp_path), [*output, *worker.output], tmp_path / "effects")


async def test_suspended_holder_that_was_superseded_cannot_write(start: Start, tmp_path: Path) -> None:
    cases = {
        f"{hold}-{then}": (hold, then) for hold, then in product(["hold", "hold-deaf"], ["commit", "act"])
    }
    holders = {lane: start(hold, lane, then, lease_time=BEATS) for lane, (hold, then) in cases.items()}
    for holder in holders.values():
        holder.wait_for("holding")
        suspend(holder.process, tmp_path / "chats.db")
    others = {lane: start("wait", lane, lease_time=BEATS) for lane in cases}
    acknowledged = {lane: other.wait_for("acked").split()[2] for lane, other in others.items()}
    assert [other.end() for other in others.values()] == [0] * 4
    for lane, holder in holders.items():
        holder.send(signal.SIGCONT)
        holder.send_line("go")
        assert holder.wait_for("refused") == "refused held Superseded", lane
        assert holder.end() == 0

    for lane, history in (await recovered(tmp_path, list(cases))).items():
        check_chain(history)
        assert open_calls([item for turn in history for item in turn.items]) == (), lane
        assert [turn.kind for turn in history] == ["settled", "completed", "completed", "completed"], lane
        assert history[1].id == acknowledged[lane]
        assert "too late" not in "".join(turn.text for turn in history), lane
        # Its earlier effects are in the history; later ones were not even started.
        assert [item.fields["call_id"] for item in history[0].output if item.is_call] == [f"{lane}/0"]
    effects = (tmp_path / "effects").read_text().splitlines()
    assert sorted(effects) == sorted(f"{lane}/0" for lane in cases)


async def test_suspended_holder_that_was_not_superseded_commits(start: Start, tmp_path: Path) -> None:
    holder = start("hold", "lane", "act", lease_time=0.05)
    holder.wait_for("holding")
    suspend(holder.process, tmp_path / "chats.db")
    holder.send(signal.SIGCONT)
    holder.send_line("go")
    acknowledged = holder.wait_for("acked").split()
    assert holder.end() == 0
    history = (await recovered(tmp_path, ["lane"]))["lane"]
    assert history[0].id == acknowledged[2]
    assert (tmp_path / "effects").read_text().splitlines() == ["lane/0", "lane/1"]


# A stop from another process reaches running and queued turns, and returns the outcome.


async def test_suspended_worker_cannot_act_in_a_job_that_another_has_resumed(
    start: Start, tmp_path: Path
) -> None:
    suspended = start("hold-job-deaf", "lane", lease_time=BEATS)
    suspended.wait_for("holding")
    suspend(suspended.process, tmp_path / "chats.db")
    resuming = start("hold-job", "lane", lease_time=BEATS)
    resuming.wait_for("holding")
    suspended.send(signal.SIGCONT)
    suspended.send_line("go")
    assert next(suspended.lines()) == "refused held Superseded"
    resuming.send_line("go")
    held, *_ = (await recovered(tmp_path, ["lane"]))["lane"]
    assert (held.kind, held.text) == ("completed", "too late")
    assert (tmp_path / "effects").read_text().split() == ["lane/0", "lane/1"]


@pytest.fixture(scope="module")
def three() -> Iterator[list[Worker]]:
    """A holder, a waiter and a stopper; each test has a lane of its own."""
    with tempfile.TemporaryDirectory() as folder:
        command = ("obey", folder, str(NO_TIMER))
        workers = [Worker(Path(folder) / f"errors-{number}", *command) for number in range(3)]
        yield workers
        end(*workers)


def start_turn(worker: Worker, what: str, lane: str, token: str) -> str:
    """Have a turn started; return its id."""
    worker.send_line(f"{what} {lane} {token}")
    return worker.wait_for("requested").split()[2]


def in_line(worker: Worker, lane: str, token: str) -> str:
    """Have a turn started that finds the lane busy; return its id when it waits for a bell."""
    turn = start_turn(worker, "run", lane, token)
    worker.wait_for("queued", times=2)
    return turn


def end(*workers: Worker) -> None:
    for worker in workers:
        worker.send_line("end")
        assert worker.end() == 0, worker.errors.read_text()


def test_running_turn_stopped_by_another_process_is_kept_and_the_queue_continues(three: list[Worker]) -> None:
    holder, waiter, stopper = three
    turn = start_turn(holder, "hold", "one", "q0")
    holder.wait_for("running")
    in_line(waiter, "one", "q1")
    stopper.send_line(f"stop one {turn}")
    assert stopper.wait_for("ended") == f"ended {turn} kept"
    assert holder.wait_for("stopped") == "stopped q0 kept"
    assert waiter.wait_for("done") == "done q1"


def test_queued_turn_stopped_by_another_process_is_discarded_behind_the_first(three: list[Worker]) -> None:
    holder, waiter, stopper = three
    held = start_turn(holder, "hold", "two", "q2")
    holder.wait_for("running")
    in_line(waiter, "two", "q3")
    second = in_line(waiter, "two", "q4")
    stopper.send_line(f"stop two {second}")
    assert stopper.wait_for("ended") == f"ended {second} discarded"
    assert waiter.wait_for("stopped") == "stopped q4 discarded"
    assert not any(line.startswith(("running q3", "running q4")) for line in waiter.output)
    stopper.send_line(f"stop two {held}")
    assert waiter.wait_for("done") == "done q3"
    stopper.wait_for("ended")


def test_turn_can_be_stopped_by_another_process_at_its_begin(three: list[Worker]) -> None:
    """The stop is sent with the request: it may arrive before, during or after the begin."""
    holder, _, stopper = three
    for number in range(10):
        turn = start_turn(holder, "hold", "three", f"r{number}")
        stopper.send_line(f"stop three {turn}")
        answer = stopper.wait_for("ended").split()[2]
        if answer == "None":  # it arrived before there was anything to stop
            holder.wait_for("running")
            stopper.send_line(f"stop three {turn}")
            answer = stopper.wait_for("ended").split()[2]
        assert answer == "kept"
        assert holder.wait_for("stopped") == f"stopped r{number} kept"


def test_stop_of_a_turn_in_a_hung_process_succeeds(start: Start, tmp_path: Path) -> None:
    holder, stopper = start("obey", lease_time=BEATS), start("obey", lease_time=BEATS)
    turn = start_turn(holder, "hold", "lane", "q0")
    holder.wait_for("running")
    suspend(holder.process, tmp_path / "chats.db")
    stopper.send_line(f"stop lane {turn}")
    assert stopper.wait_for("ended") == f"ended {turn} kept"
    stopper.send_line("run lane q1")
    stopper.wait_for("done")
    holder.send(signal.SIGCONT)
    assert holder.wait_for("superseded") == "superseded q0"
    end(holder, stopper)
