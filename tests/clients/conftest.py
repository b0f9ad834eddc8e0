"""Servers, and a driver for each client."""

from collections.abc import AsyncIterator

import pytest

from tests.clients.drivers.all_drivers import start_driver
from tests.clients.drivers.driver import Driver
from tests.clients.places import (
    ProcessPlace,
    ServedPlace,
    guarded_place,
    process_place,
    served_place,
)


@pytest.fixture(scope="module")
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
async def served() -> AsyncIterator[ServedPlace]:
    """One server for all tests of a module."""
    async with served_place() as place:
        yield place


@pytest.fixture(scope="module")
async def guarded() -> AsyncIterator[ServedPlace]:
    """A server that requires tokens."""
    async with guarded_place() as place:
        yield place


@pytest.fixture(scope="module")
async def killable(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[ProcessPlace]:
    """A server that can be killed."""
    async with process_place(tmp_path_factory.mktemp("server")) as place:
        yield place


@pytest.fixture(scope="module", params=["python", "async", "typescript"])
async def client(request: pytest.FixtureRequest) -> AsyncIterator[Driver]:
    async with start_driver(request.param) as driver:
        yield driver
