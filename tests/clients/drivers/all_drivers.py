"""The drivers of the clients, by their names."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.clients.drivers.driver import Driver
from tests.clients.drivers.python import AsyncDriver, SyncDriver
from tests.clients.drivers.typescript import typescript_driver

CLIENTS = ("python", "async", "typescript")


@asynccontextmanager
async def started(name: str) -> AsyncIterator[Driver]:
    """The driver of a client, until it is not needed any more."""
    driver = await typescript_driver() if name == "typescript" else made(name)
    try:
        yield driver
    finally:
        await driver.close()


def made(name: str) -> Driver:
    """The driver of a client that runs in this process."""
    return {"python": SyncDriver, "async": AsyncDriver}[name]()
