"""Clients on a wire that breaks and on servers that die: what they tell is whole, and comes once."""

import pytest

from tests.clients.drivers.driver import Driver
from tests.clients.places import ProcessPlace, ServedPlace
from tests.clients.playing import Play
from tests.clients.scenario import all_scenarios

WIRE = [name for name, each in all_scenarios().items() if each.needs == "wire" and each.server is None]
SERVERS = [name for name, each in all_scenarios().items() if each.server == "process"]


@pytest.mark.parametrize("name", WIRE)
async def test_a_broken_wire(name: str, client: Driver, served: ServedPlace) -> None:
    await Play(all_scenarios()[name], client, served).run()


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_that_ends(name: str, client: Driver, killable: ProcessPlace) -> None:
    await Play(all_scenarios()[name], client, killable).run()
