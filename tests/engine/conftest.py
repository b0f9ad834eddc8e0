"""Engine tests run on the memory store: the rules they test live once, in the engine."""

from collections.abc import AsyncIterator

import pytest

from turnledger.chat import Chat
from turnledger.engine.ports import Store
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.store_contract.stage import OpenStore, Stage


@pytest.fixture(autouse=True)
def short_delays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the delays of retries."""
    monkeypatch.setattr("turnledger.engine.process.FIRST_DELAY", 0.001)


@pytest.fixture
def open_store() -> OpenStore:
    database = Database()

    async def open_store() -> Store:
        return MemoryStore(database)

    return open_store


@pytest.fixture
async def stage(open_store: OpenStore) -> AsyncIterator[Stage]:
    stage = Stage(open_store)
    yield stage
    await stage.close()


@pytest.fixture
async def chat(stage: Stage) -> Chat:
    """A new conversation in the first process of the stage."""
    return await (await stage.process()).chat()
