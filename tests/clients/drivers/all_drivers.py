"""The drivers of the clients, by name."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from tests.clients.drivers.driver import Driver
from tests.clients.drivers.mixed import MixedDriver
from tests.clients.drivers.python import AsyncDriver, SyncDriver
from tests.clients.drivers.typescript import typescript_driver
from tests.long_form import sample

CLIENTS = ("python", "async", "typescript")


@asynccontextmanager
async def start_driver(name: str) -> AsyncIterator[Driver]:
    """Run the driver of a client; `mixed`: one in each language."""
    if name == "mixed":
        async with start_driver("python") as python, start_driver("typescript") as typescript:
            yield MixedDriver((python, typescript))
        return
    driver = await typescript_driver() if name == "typescript" else make_driver(name)
    try:
        yield driver
    finally:
        await driver.close()


def make_driver(name: str) -> Driver:
    """Create a driver that runs in this process."""
    return {"python": SyncDriver, "async": AsyncDriver}[name]()


def on_clients(names: Sequence[str]) -> list[tuple[str, str]]:
    """Return each client with each of these scenarios. The blocking client is generated from the awaiting
    one, and plays a third of them unless in the long form."""
    played = {"python": sample(names, len(names) // 3)}
    return [(client, name) for client in CLIENTS for name in played.get(client, names)]
