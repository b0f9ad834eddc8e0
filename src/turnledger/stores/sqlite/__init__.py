"""The SQLite store: one file that processes share, one writer with group commit, a reader beside it."""

from turnledger.stores.sqlite.connections import path_of
from turnledger.stores.sqlite.store import SqliteStore
from turnledger.stores.sqlite.visit import SqliteVisit

__all__ = ["SqliteStore", "SqliteVisit", "path_of"]
