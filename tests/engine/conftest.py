"""Engine tests run on the memory store: the rules they test live once, in the engine."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.engine.views import BrokenEngine
from turnledger.chat import Chat
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Store
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.store_contract.stage import LIMITS, OpenStore, Stage, StageProcess


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
def limits() -> Limits:
    return LIMITS


@pytest.fixture
async def here(stage: Stage, limits: Limits) -> StageProcess:
    """The first process of the stage."""
    return await stage.process(limits)


@pytest.fixture
async def there(stage: Stage, limits: Limits, here: StageProcess) -> StageProcess:
    """The second one."""
    return await stage.process(limits)


@pytest.fixture
async def chat(here: StageProcess) -> Chat:
    """A new conversation in the first process."""
    return await here.chat()


@pytest.fixture
async def same(there: StageProcess, chat: Chat) -> Chat:
    """The same conversation in the second process."""
    return await there.chat(chat)


@pytest.fixture(params=["here", "there"])
async def either(request: pytest.FixtureRequest, here: StageProcess, there: StageProcess, chat: Chat) -> Chat:
    """The same conversation, opened again in the first process or in the second."""
    return await (here if request.param == "here" else there).chat(chat)


@pytest.fixture
def engine(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> BrokenEngine:
    """A broken engine; the fixtures after it run on it."""
    broken: BrokenEngine = request.param
    monkeypatch.setattr(broken.where, broken.what, broken.how)
    return broken


@pytest.fixture
def fixtures(stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat) -> dict[str, Any]:
    """By name, for a test that a broken engine has to fail."""
    return {"stage": stage, "here": here, "there": there, "chat": chat, "same": same}
