"""A stop from another process: it reaches who runs and who waits, and its answer tells the outcome.

The lease time is so long that no timer of the engine goes off within a test, nor any wait that it bounds:
what happens here happens because a process noticed that another had written.
"""

import signal
from pathlib import Path

from tests.crash.processes import Start, Worker
from tests.crash.test_stopped_holder import stop as suspend

NO_TIMER = 1e6
BEATS = 1.2


def three(start: Start) -> tuple[Worker, Worker, Worker]:
    workers = start("obey", "lane", lease_time=NO_TIMER), start("obey", "lane", lease_time=NO_TIMER)
    stopper = start("obey", "lane", lease_time=NO_TIMER)
    for worker in (*workers, stopper):
        worker.hear("ready")
    return (*workers, stopper)


def asked(worker: Worker, what: str, token: str) -> str:
    """Have a turn started; return its id."""
    worker.tell(f"{what} {token}")
    return worker.hear("asking").split()[2]


def in_line(worker: Worker, token: str) -> str:
    """Have a turn started that finds the lane busy; return its id when it waits for a bell."""
    turn = asked(worker, "ask", token)
    worker.hear("queued", times=2)
    return turn


def end(*workers: Worker) -> None:
    for worker in workers:
        worker.tell("end")
        assert worker.end() == 0, worker.errors.read_text()


def test_a_running_turn_is_stopped_and_all_learn_of_it(start: Start) -> None:
    holder, waiter, stopper = three(start)
    turn = asked(holder, "hold", "q0")
    holder.hear("running")
    in_line(waiter, "q1")
    stopper.tell(f"stop {turn}")
    assert stopper.hear("ended") == f"ended {turn} kept"
    assert holder.hear("stopped") == "stopped q0 kept"
    assert waiter.hear("done") == "done q1"
    end(holder, waiter, stopper)


def test_a_waiting_turn_is_stopped_though_it_is_not_the_first_in_line(start: Start) -> None:
    holder, waiter, stopper = three(start)
    held = asked(holder, "hold", "q0")
    holder.hear("running")
    in_line(waiter, "q1")
    second = in_line(waiter, "q2")
    stopper.tell(f"stop {second}")
    assert stopper.hear("ended") == f"ended {second} discarded"
    assert waiter.hear("stopped") == "stopped q2 discarded"
    assert not any(line.startswith("running") for line in waiter.said)
    stopper.tell(f"stop {held}")
    assert waiter.hear("done") == "done q1"
    end(holder, waiter, stopper)


def test_a_turn_is_stopped_as_soon_as_it_has_begun(start: Start) -> None:
    """The stop is sent when the turn is only asked for: it may find it before, in or after its begin."""
    holder, other, stopper = three(start)
    for number in range(10):
        turn = asked(holder, "hold", f"q{number}")
        stopper.tell(f"stop {turn}")
        answer = stopper.hear("ended").split()[2]
        if answer == "None":  # it came before there was anything to stop
            holder.hear("running")
            stopper.tell(f"stop {turn}")
            answer = stopper.hear("ended").split()[2]
        assert answer == "kept"
        assert holder.hear("stopped") == f"stopped q{number} kept"
    end(holder, other, stopper)


def test_a_stop_of_a_process_that_hangs_is_honoured_without_it(start: Start, tmp_path: Path) -> None:
    holder = start("obey", "lane", lease_time=BEATS)
    stopper = start("obey", "lane", lease_time=BEATS)
    holder.hear("ready")
    stopper.hear("ready")
    turn = asked(holder, "hold", "q0")
    holder.hear("running")
    suspend(holder, tmp_path / "chats.db")
    stopper.tell(f"stop {turn}")
    assert stopper.hear("ended") == f"ended {turn} kept"
    stopper.tell("ask q1")
    stopper.hear("done")
    holder.send(signal.SIGCONT)
    assert holder.hear("superseded") == "superseded q0"
    end(holder, stopper)
