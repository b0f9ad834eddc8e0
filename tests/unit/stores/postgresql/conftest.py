"""A database of a real PostgreSQL server for each test."""

from collections.abc import Iterator

import pytest

from turnledger.testing.postgresql import PostgresServer


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="session")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as running:
        yield running


@pytest.fixture
def url(server: PostgresServer) -> str:
    return server.create_database()
