"""The SQLite store fulfils the store contract."""

import asyncio
import shutil
from pathlib import Path

import pytest

from turnledger.engine.ports import Store
from turnledger.stores.sqlite.store import SqliteStore
from turnledger.testing.machine import Machine, SqliteMachine
from turnledger.testing.store_contract import Capabilities, OpenStore, StoreContract


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file without rows: to copy it takes less time than to make its tables."""
    path = tmp_path_factory.mktemp("empty") / "chats.db"

    async def make() -> None:
        await (await SqliteStore.open(path)).close()

    asyncio.run(make())
    return path


class TestSqliteStore(StoreContract):
    capabilities = Capabilities(survives_restart=True)

    @pytest.fixture
    def open_store(self, empty: Path, tmp_path: Path) -> OpenStore:
        path = Path(shutil.copy(empty, tmp_path))

        async def open_store() -> Store:
            return await SqliteStore.open(path)

        return open_store

    @pytest.fixture
    def machine(self, tmp_path: Path) -> Machine:
        return SqliteMachine(tmp_path)
