"""The memory store: the readable reference. Nothing survives the process."""

from turnledger.stores.memory.database import Database, UndoLog
from turnledger.stores.memory.store import MemoryStore
from turnledger.stores.memory.tables import MemoryTables
from turnledger.stores.memory.whole import MemoryWholeStore

__all__ = ["Database", "MemoryStore", "MemoryTables", "MemoryWholeStore", "UndoLog"]
