"""The SQLite store: one file that processes share, one writer with group commit, a reader beside it."""

from turnledger.stores.sqlite.opening import path_of
from turnledger.stores.sqlite.store import SqliteStore

__all__ = ["SqliteStore", "path_of"]
