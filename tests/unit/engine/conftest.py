from collections.abc import AsyncIterator

import pytest

from tests.unit.engine.populated_store import PopulatedStore, populate
from turnledger.stores.memory import Database, MemoryStore


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delays of retries."""
    monkeypatch.setattr("turnledger.engine.process.FIRST_DELAY", 0.001)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def populated(database: Database) -> AsyncIterator[PopulatedStore]:
    populated = await populate(MemoryStore(database))
    yield populated
    await populated.ledger.close()
