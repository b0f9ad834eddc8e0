"""kill -9 of `turnledger serve` under load: what it acknowledged is there, once, and nothing is half."""

from pathlib import Path

from tests.crash.killed_server import Storm


async def test_a_killed_server_keeps_what_it_acknowledged_and_goes_on(tmp_path: Path) -> None:
    storm = Storm(tmp_path, seed=3)
    histories = await storm.run(rounds=3)
    # Some were cut off by a kill, or the test proves nothing.
    assert len(storm.notes.acknowledged) < len(storm.notes.asked)
    assert all(histories.values())
