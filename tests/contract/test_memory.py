"""The memory store fulfils the store contract."""

import pytest

from turnledger.engine.ports import Store
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.machine import Machine, MemoryMachine
from turnledger.testing.store_contract import OpenStore, StoreContract


class TestMemoryStore(StoreContract):
    @pytest.fixture
    def open_store(self) -> OpenStore:
        database = Database()

        async def open_store() -> Store:
            return MemoryStore(database)

        return open_store

    @pytest.fixture
    def machine(self) -> Machine:
        return MemoryMachine()
