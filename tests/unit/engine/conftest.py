from collections.abc import AsyncIterator

import pytest

from tests.unit.engine.lived_in import Lived, live_in
from turnledger.stores.memory import Database, MemoryStore


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def lived(database: Database) -> AsyncIterator[Lived]:
    """A store in which everything has happened."""
    lived = await live_in(MemoryStore(database))
    yield lived
    await lived.ledger.close()
