"""The memory store: the readable reference. Nothing survives the process."""

from turnledger.stores.memory.database import Database
from turnledger.stores.memory.store import MemoryStore
from turnledger.stores.memory.tables import MemoryTables

__all__ = ["Database", "MemoryStore", "MemoryTables"]
