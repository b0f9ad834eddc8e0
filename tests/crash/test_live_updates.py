"""Workers that are killed: who follows is told all that happened, once and in order, and nothing else."""

from pathlib import Path

import pytest

from tests.crash.live_updates import LiveStorm


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="workers are found by /proc")
async def test_followers_are_told_what_is_there(tmp_path: Path) -> None:
    storm = LiveStorm(tmp_path, seed=3, workers=2, kill_every=0.4)
    told = await storm.run(seconds=2.0)
    assert storm.kills
    assert {"chat.created", "turn.running", "turn.committed", "turn.failed"} <= set(told)
    # Some were cut off and came back, or the test proves nothing.
    assert any(each.cut for each in storm.followers)
    assert all(each.connections > 1 for each in storm.followers)
