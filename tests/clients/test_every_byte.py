"""A sample of what `python -m tests.clients.every_byte` tries, and a client that it finds out."""

from typing import Any

import pytest

from tests.clients import every_byte
from tests.clients.drivers import all_drivers
from tests.clients.drivers.driver import Command, Driver, Refused, Tell
from tests.clients.drivers.python import AsyncDriver
from tests.clients.every_byte import Case

CASES = 60


@pytest.mark.parametrize("client", all_drivers.CLIENTS)
async def test_a_sample_of_all_bytes(client: str) -> None:
    problems, happened = await every_byte.sampled(client, CASES, seed=7)
    assert problems == []
    assert set(happened) == set(every_byte.KINDS)
    assert happened.total() > CASES * 0.8


class Naive(AsyncDriver):
    """A client as one writes it in a minute: what went wrong is sent again, as another request."""

    async def do(self, command: Command, tell: Tell) -> Any:
        if command.do == "client":
            command.arguments["retries"] = {"times": 0}
        for _ in range(3):
            try:
                return await super().do(command, tell)
            except Refused as problem:
                if problem.code != "server_unavailable":
                    raise
        raise AssertionError("three times in vain")


async def test_a_client_that_sends_twice_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def naive(_: str) -> Driver:
        return Naive()

    monkeypatch.setattr(all_drivers, "made", naive)
    async with every_byte.every_byte("async", 1) as trying:
        cases = [Case(operation, 0, "received", 5, "cut") for operation in ("send", "fork", "create")]
        problems = await trying.run(cases)
    assert len(problems) == 3
