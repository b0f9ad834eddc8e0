"""The PostgreSQL store fulfils the store contract."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from tests.databases import VERSIONS, databases
from tests.long_form import IS_LONG
from turnledger.engine.ports import Store
from turnledger.stores.postgresql import PostgresStore
from turnledger.testing.store_contract import Capabilities, OpenStore, RowContract, StoreContract
from turnledger.testing.store_contract.atomicity import Atomicity
from turnledger.testing.store_contract.idempotency import Idempotency, UnknownOutcome
from turnledger.testing.store_contract.lanes import Fences, Lanes
from turnledger.testing.store_contract.search import Search


@pytest.fixture(scope="module", params=VERSIONS)
def database(request: pytest.FixtureRequest) -> Iterator[str]:
    with databases(request.param) as create:
        url = create()

        async def make() -> None:
            await (await PostgresStore.open(url)).close()

        asyncio.run(make())
        yield url


async def empty(url: str) -> None:
    """Remove all rows, which takes less time than to make a database."""
    connection = await asyncpg.connect(url)
    tables = await connection.fetch("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    deletions = [f'DELETE FROM "{table}"' for (table,) in tables if table != "store"]
    await connection.execute("; ".join(deletions))
    await connection.execute("UPDATE store SET purged_xid = -1, purged_place = -1")
    await connection.close()


class ShortContract(RowContract, Atomicity, Idempotency, UnknownOutcome, Lanes, Fences, Search):
    """The rows, and what depends on the isolation of transactions; the whole contract is a proof."""


class TestPostgresStore(StoreContract if IS_LONG else ShortContract):  # type: ignore[misc]
    capabilities = Capabilities(survives_restart=True)

    @pytest.fixture
    async def open_store(self, database: str) -> OpenStore:
        await empty(database)

        async def open_store() -> Store:
            return await PostgresStore.open(f"{database}&pool=4")

        return open_store
