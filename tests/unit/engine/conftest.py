from collections.abc import AsyncIterator

import pytest

from tests.unit.engine.populated_store import Lived, live_in
from turnledger.stores.memory import Database, MemoryStore


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """What failed is tried again soon."""
    monkeypatch.setattr("turnledger.engine.process.FIRST_DELAY", 0.001)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def lived(database: Database) -> AsyncIterator[Lived]:
    """A store in which everything has happened."""
    lived = await live_in(MemoryStore(database))
    yield lived
    await lived.ledger.close()
