"""Servers, and a driver for each client."""

from collections.abc import AsyncIterator

import pytest

from tests.clients.drivers.all_drivers import CLIENTS, start_driver
from tests.clients.drivers.driver import Driver
from tests.clients.places import (
    ProcessPlace,
    ServedPlace,
    guarded_place,
    process_place,
    served_place,
)


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


@pytest.fixture(scope="module")
async def python_client() -> AsyncIterator[Driver]:
    async with start_driver("python") as driver:
        yield driver


@pytest.fixture(scope="module")
async def async_client() -> AsyncIterator[Driver]:
    async with start_driver("async") as driver:
        yield driver


@pytest.fixture(scope="module")
async def typescript_client() -> AsyncIterator[Driver]:
    async with start_driver("typescript") as driver:
        yield driver


@pytest.fixture(params=CLIENTS)
def client(request: pytest.FixtureRequest) -> Driver:
    """The driver of a client, started once for a module; pytest would start a parametrized one for each
    test that also has other parameters."""
    driver: Driver = request.getfixturevalue(f"{request.param}_client")
    return driver
