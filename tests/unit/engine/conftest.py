from collections.abc import AsyncIterator

import pytest

from tests.unit.engine.populated_store import PopulatedStore, populate
from turnledger import Ledger, Limits
from turnledger.chat import Chat
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import GatedStore


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delays of retries."""
    monkeypatch.setattr("turnledger.engine.process.FIRST_DELAY", 0.001)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
def store(database: Database) -> GatedStore:
    return GatedStore(MemoryStore(database))


@pytest.fixture
def limits() -> Limits:
    return Limits()


@pytest.fixture
async def ledger(store: GatedStore, limits: Limits) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store, limits=limits) as ledger:
        yield ledger


@pytest.fixture
async def chat(ledger: Ledger) -> Chat:
    return await ledger.conversation()


@pytest.fixture
async def populated(database: Database) -> AsyncIterator[PopulatedStore]:
    populated = await populate(MemoryStore(database))
    yield populated
    await populated.ledger.close()
