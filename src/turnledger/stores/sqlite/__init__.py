"""The SQLite store: one file that processes share, one writer with group commit, a reader beside it."""

from turnledger.stores.sqlite.connections import path_of
from turnledger.stores.sqlite.read_only import ReadOnlySqlite
from turnledger.stores.sqlite.store import SqliteStore

__all__ = ["ReadOnlySqlite", "SqliteStore", "path_of"]
