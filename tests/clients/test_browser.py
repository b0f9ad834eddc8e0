"""The TypeScript client in a browser, in a page that comes from another origin than the server. Here are the
scenarios in which browsers have a say; `python -m tests.clients.play --client browser` plays all."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.clients.drivers.driver import Driver
from tests.clients.places import Place
from tests.clients.play import can_play, stage
from tests.clients.playing import Play
from tests.clients.scenario import all_scenarios

ABOUT = (
    "keeping:",
    "following:",
    "branching: back",
    "stopping: a stop by",
    "lost: a rename of",
    "wire: a stream that falls",
    "wire: a request that arrives twice",
    "wire: a turn whose reader",
    "wire: a server that is not there",
)
NAMES = [
    name
    for name, scenario in all_scenarios().items()
    if name.startswith(ABOUT) and can_play("browser", scenario)
]


@pytest.fixture(scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[tuple[Driver, Place]]:
    async with stage("browser", Path(tmp_path_factory.mktemp("browser"))) as (driver, places):
        yield driver, places[None]


@pytest.mark.parametrize("name", NAMES)
async def test_a_page(name: str, page: tuple[Driver, Place]) -> None:
    await Play(all_scenarios()[name], *page).run()
