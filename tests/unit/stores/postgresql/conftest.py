"""A database of a real PostgreSQL server for each test."""

from collections.abc import Callable, Iterator

import pytest

from tests.databases import VERSIONS, databases
from turnledger.testing.postgresql import PostgresServer


@pytest.fixture(scope="session", params=VERSIONS)
def version(request: pytest.FixtureRequest) -> int | None:
    found: int | None = request.param
    return found


@pytest.fixture(scope="session")
def server(version: int | None) -> Iterator[PostgresServer]:
    """For tests that change the server itself."""
    with PostgresServer.start(version or 18) as running:
        yield running


@pytest.fixture(scope="session")
def create_database(version: int | None) -> Iterator[Callable[[], str]]:
    with databases(version) as create:
        yield create


@pytest.fixture
def url(request: pytest.FixtureRequest, version: int | None) -> str:
    """A new database: of `server`, if the test uses it."""
    if "server" in request.fixturenames:
        own: PostgresServer = request.getfixturevalue("server")
        return own.create_database()
    create: Callable[[], str] = request.getfixturevalue("create_database")
    return create()
