"""A short storm for each language; `python -m tests.clients.storm` has longer ones, and the awaiting edge."""

from pathlib import Path

import pytest

from tests.clients.storm import Notes, Weather, storm

WEATHER = Weather(
    workers=3, words=(3, 20), silence=0.3, strikes=("break", "kill", "cut", "break", "stall", "end")
)


@pytest.mark.parametrize("client", ["python", "typescript"])
async def test_everything_is_told_once_and_is_there_once(client: str, tmp_path: Path) -> None:
    def is_over(notes: Notes) -> bool:
        return notes.strikes.total() >= len(WEATHER.strikes)

    notes = await storm(client, tmp_path, 3, is_over, WEATHER)
    assert notes.answered
    assert notes.strikes["kill"] >= 1
