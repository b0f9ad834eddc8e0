"""A short storm for each client; `python -m tests.clients.storm` has longer ones."""

from pathlib import Path

import pytest

from tests.clients.drivers.all_drivers import CLIENTS
from tests.clients.storm import Notes, storm

STRIKES = 12


@pytest.mark.parametrize("client", CLIENTS)
async def test_everything_is_told_once_and_is_there_once(client: str, tmp_path: Path) -> None:
    def is_over(notes: Notes) -> bool:
        return notes.strikes.total() >= STRIKES and notes.strikes["kill"] > 0

    notes = await storm(client, tmp_path, 3, is_over)
    assert len(notes.answered) == len(notes.sent) > 0
