"""The conversation contract: the same scenarios on the embedded ledger and on every client."""

from collections.abc import AsyncIterator

import pytest

from tests.clients.drivers.driver import Driver
from tests.clients.drivers.embedded import EmbeddedDriver
from tests.clients.places import Place, ServedPlace, embedded_place
from tests.clients.playing import Play
from tests.clients.scenario import all_scenarios
from turnledger.runners.demo import DemoModel

GUARDED = [name for name, scenario in all_scenarios().items() if scenario.server == "guarded"]
CONTRACT = [name for name, scenario in all_scenarios().items() if scenario.is_contract]


@pytest.fixture(scope="module")
async def embedded() -> AsyncIterator[tuple[Driver, Place]]:
    async with embedded_place() as (ledger, place):
        yield EmbeddedDriver(ledger, DemoModel(pace=0)), place


@pytest.mark.parametrize("name", CONTRACT)
async def test_the_embedded_ledger(name: str, embedded: tuple[Driver, Place]) -> None:
    await Play(all_scenarios()[name], *embedded).run()


@pytest.mark.parametrize("name", CONTRACT)
async def test_a_client(name: str, client: Driver, served: ServedPlace) -> None:
    await Play(all_scenarios()[name], client, served).run()


@pytest.mark.parametrize("name", GUARDED)
async def test_a_client_with_a_token(name: str, client: Driver, guarded: ServedPlace) -> None:
    await Play(all_scenarios()[name], client, guarded).run()
