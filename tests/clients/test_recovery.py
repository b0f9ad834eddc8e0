"""Clients on broken connections and killed servers yield complete answers once. `python -m
tests.clients.every_byte` and `python -m tests.clients.storm` run many more cases."""

from pathlib import Path
from typing import Any

import pytest

from tests.clients import every_byte
from tests.clients.drivers import all_drivers
from tests.clients.drivers.driver import ClientError, Command, Driver, OnEvent
from tests.clients.drivers.python import AsyncDriver
from tests.clients.every_byte import Case
from tests.clients.places import ProcessPlace, ServedPlace
from tests.clients.player import Play
from tests.clients.scenario import all_scenarios
from tests.clients.storm import Notes, Weather, storm
from tests.long_form import IS_LONG

WIRE = [name for name, each in all_scenarios().items() if each.needs == "wire" and each.server is None]
SERVERS = [name for name, each in all_scenarios().items() if each.server == "process"]
KILLED = [
    (client, name)
    for client in ("python", "async", "typescript")
    for name in SERVERS
    # Both edges of the Python client have one core, which recovers.
    if client != "async" or name.startswith("servers: a server killed within an answer")
]


@pytest.mark.parametrize(("client", "name"), all_drivers.on_clients(WIRE), indirect=["client"])
async def test_client_on_a_broken_wire_recovers(name: str, client: Driver, served: ServedPlace) -> None:
    await Play(all_scenarios()[name], client, served).run()


@pytest.mark.parametrize(("client", "name"), KILLED, indirect=["client"])
async def test_client_of_a_killed_server_recovers(name: str, client: Driver, killable: ProcessPlace) -> None:
    await Play(all_scenarios()[name], client, killable).run()


CASES = 600 if IS_LONG else 20


@pytest.mark.parametrize("client", all_drivers.CLIENTS)
async def test_client_recovers_from_a_sample_of_cuts_at_every_byte(client: str) -> None:
    problems, happened = await every_byte.run_sample(client, CASES, seed=7)
    assert problems == []
    assert set(happened) == set(every_byte.KINDS)
    assert happened.total() > CASES * 0.8


class Naive(AsyncDriver):
    """A naive client: it resends a failed message as another request."""

    async def do(self, command: Command, on_event: OnEvent) -> Any:
        if command.do == "client":
            command.arguments["retries"] = {"times": 0}
        for _ in range(3):
            try:
                return await super().do(command, on_event)
            except ClientError as problem:
                if problem.code != "server_unavailable":
                    raise
        raise AssertionError("three times in vain")


async def test_client_that_sends_twice_is_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    def naive(_: str) -> Driver:
        return Naive()

    monkeypatch.setattr(all_drivers, "make_driver", naive)
    # It would take a slow machine for a broken connection.
    monkeypatch.setitem(every_byte.CLIENT, "timeouts", dict.fromkeys(("connect", "silence", "write"), 60))
    async with every_byte.every_byte("async", 1) as trying:
        cases = [Case(operation, 0, "received", 5, "cut") for operation in ("send", "fork", "create")]
        problems = await trying.run(cases)
    assert len(problems) == 3


WEATHER = Weather(
    workers=4, words=(3, 20), silence=0.3, strikes=("break", "kill", "cut", "break", "stall", "end")
)


async def test_storm_of_kills_loses_and_repeats_no_turn(tmp_path: Path) -> None:
    def is_over(notes: Notes) -> bool:
        return notes.strikes.total() >= len(WEATHER.strikes)

    notes = await storm("mixed", tmp_path, 3, is_over, WEATHER)
    assert notes.answered
    assert notes.strikes["kill"] >= 1
