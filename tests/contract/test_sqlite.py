"""The SQLite store keeps the contract."""

from pathlib import Path

import pytest

from turnledger.engine.ports import Store
from turnledger.stores.sqlite.store import SqliteStore
from turnledger.testing.machine import Machine, SqliteMachine
from turnledger.testing.store_contract import Capabilities, OpenStore, StoreContract


class TestSqliteStore(StoreContract):
    capabilities = Capabilities(survives_restart=True)

    @pytest.fixture
    def open_store(self, tmp_path: Path) -> OpenStore:
        async def open_store() -> Store:
            return await SqliteStore.open(tmp_path / "chats.db")

        return open_store

    @pytest.fixture
    def machine(self, tmp_path: Path) -> Machine:
        return SqliteMachine(tmp_path)
