"""A short storm over clients of both languages; `python -m tests.clients.storm` has longer ones for each."""

from pathlib import Path

from tests.clients.storm import Notes, Weather, storm

WEATHER = Weather(
    workers=4, words=(3, 20), silence=0.3, strikes=("break", "kill", "cut", "break", "stall", "end")
)


async def test_everything_is_told_once_and_is_there_once(tmp_path: Path) -> None:
    def is_over(notes: Notes) -> bool:
        return notes.strikes.total() >= len(WEATHER.strikes)

    notes = await storm("mixed", tmp_path, 3, is_over, WEATHER)
    assert notes.answered
    assert notes.strikes["kill"] >= 1
