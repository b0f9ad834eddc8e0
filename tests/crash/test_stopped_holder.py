"""A holder that the system stops for a while, and that wakes up when its lane is another's."""

import os
import signal
from pathlib import Path

import apsw
import pytest

from tests.crash.processes import Start, Worker
from tests.crash.promises import check_chain, recovered
from turnledger.model.messages.calls import open_calls

BEATS = 1.2


def stop(worker: Worker, database: Path) -> None:
    """Stop it while it waits for a write lock at most: stopped with one, it would stop everyone."""
    connection = apsw.Connection(str(database))
    connection.set_busy_timeout(10_000)
    try:
        connection.execute("BEGIN IMMEDIATE")
        worker.send(signal.SIGSTOP)
        os.waitid(os.P_PID, worker.process.pid, os.WSTOPPED)
    finally:
        connection.close()


@pytest.mark.parametrize("then", ["commit", "act"])
@pytest.mark.parametrize("hold", ["hold", "hold-deaf"])
async def test_a_holder_that_was_stopped_and_superseded_can_write_nothing(
    start: Start, tmp_path: Path, hold: str, then: str
) -> None:
    holder = start(hold, "lane", then, lease_time=BEATS)
    holder.hear("holding")
    stop(holder, tmp_path / "chats.db")
    other = start("wait", "lane", lease_time=BEATS)
    acknowledged = other.hear("acked").split()
    assert other.end() == 0
    holder.send(signal.SIGCONT)
    holder.tell("go")
    assert holder.hear("refused") == "refused held Superseded"
    assert holder.end() == 0

    history = (await recovered(tmp_path, ["lane"]))["lane"]
    check_chain(history)
    assert open_calls([item for turn in history for item in turn.items]) == ()
    assert [turn.kind for turn in history] == ["settled", "completed", "completed", "completed"]
    assert history[1].id == acknowledged[2]
    assert "too late" not in "".join(turn.text for turn in history)
    # What it had done before is told; what it would have done after was not even started.
    assert [item.fields["call_id"] for item in history[0].output if item.is_call] == ["held/0"]
    assert (tmp_path / "effects").read_text().splitlines() == ["held/0"]


async def test_a_holder_that_was_stopped_and_missed_by_nobody_still_commits(
    start: Start, tmp_path: Path
) -> None:
    holder = start("hold", "lane", "act", lease_time=0.05)
    holder.hear("holding")
    stop(holder, tmp_path / "chats.db")
    holder.send(signal.SIGCONT)
    holder.tell("go")
    acknowledged = holder.hear("acked").split()
    assert holder.end() == 0
    history = (await recovered(tmp_path, ["lane"]))["lane"]
    assert history[0].id == acknowledged[2]
    assert (tmp_path / "effects").read_text().splitlines() == ["held/0", "held/1"]
