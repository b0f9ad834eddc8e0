"""The drivers of the clients, by their names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.clients.drivers.driver import Driver
from tests.clients.drivers.mixed import MixedDriver
from tests.clients.drivers.python import AsyncDriver, SyncDriver
from tests.clients.drivers.typescript import typescript_driver

CLIENTS = ("python", "async", "typescript")


@asynccontextmanager
async def start_driver(name: str) -> AsyncIterator[Driver]:
    """The driver of a client, until it is not needed any more; `mixed`: of one in each language."""
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
    """The driver of a client that runs in this process."""
    return {"python": SyncDriver, "async": AsyncDriver}[name]()
