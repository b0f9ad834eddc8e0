"""kill -9 of workers under load: what was acknowledged is there, once, and the server never goes away."""

from pathlib import Path

import pytest

from tests.crash.killed_workers import WorkerStorm


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found by /proc")
async def test_killed_workers_take_nothing_with_them_that_was_acknowledged(tmp_path: Path) -> None:
    storm = WorkerStorm(tmp_path, seed=5, workers=3, cold=9)
    histories = await storm.run(rounds=4)
    # Some were cut off by a kill, or the test proves nothing.
    assert storm.cut
    assert storm.kills == 4
    assert any(histories.values())
