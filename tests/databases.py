"""PostgreSQL for tests: a server of its own, or the one that TURNLEDGER_TEST_POSTGRES names.

The long form of the tests runs on each version of the binaries.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from secrets import token_hex
from urllib.parse import urlsplit

import asyncpg

from tests.long_form import sample
from turnledger.testing.postgresql import PostgresServer

OTHER = "TURNLEDGER_TEST_POSTGRES"
VERSIONS: list[int | None] = [None] if OTHER in os.environ else sample([18, 16], 1)
"""None for the other server."""


@contextmanager
def databases(version: int | None) -> Iterator[Callable[[], str]]:
    """Yield a function that makes a database and returns its URL. No version stands for the other server."""
    if version is None:
        with _databases_of(os.environ[OTHER]) as create:
            yield create
        return
    with PostgresServer.start(version) as server:
        yield server.create_database


@contextmanager
def _databases_of(url: str) -> Iterator[Callable[[], str]]:
    made: list[str] = []

    async def execute(statement: str) -> None:
        connection = await asyncpg.connect(url)
        await connection.execute(statement)
        await connection.close()

    def create() -> str:
        made.append(f"turnledger_test_{token_hex(8)}")
        asyncio.run(execute(f"CREATE DATABASE {made[-1]}"))
        parts = urlsplit(url)  # tests append settings
        return parts._replace(path=f"/{made[-1]}", query=parts.query or "sslmode=prefer").geturl()

    yield create
    for name in made:
        asyncio.run(execute(f"DROP DATABASE {name} WITH (FORCE)"))
