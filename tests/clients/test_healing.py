"""Clients on a wire that breaks and on servers that die: what they tell is whole, and comes once."""

import pytest

from tests.clients.drivers.driver import Driver
from tests.clients.places import ProcessPlace, ServedPlace
from tests.clients.playing import Play
from tests.clients.scenario import all_scenarios

WIRE = [name for name, each in all_scenarios().items() if each.needs == "wire" and each.server is None]
SERVERS = [name for name, each in all_scenarios().items() if each.server == "process"]
KILLED = [
    (client, name)
    for client in ("python", "async", "typescript")
    for name in SERVERS
    # Both edges of the Python client have one core, which knows how to heal.
    if client != "async" or name.startswith("servers: killed in the middle of an answer")
]


@pytest.mark.parametrize("name", WIRE)
async def test_a_broken_wire(name: str, client: Driver, served: ServedPlace) -> None:
    await Play(all_scenarios()[name], client, served).run()


@pytest.mark.parametrize(("client", "name"), KILLED, indirect=["client"])
async def test_a_server_that_ends(name: str, client: Driver, killable: ProcessPlace) -> None:
    await Play(all_scenarios()[name], client, killable).run()
