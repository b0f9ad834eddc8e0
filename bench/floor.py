"""The floor: one bare SQLite transaction with the inserts of a commit, in WAL mode with synchronous=FULL."""

from __future__ import annotations

import os
import time
from importlib import resources
from pathlib import Path

import apsw


class Floor:
    """The same SQLite library on the same tables, without engine, threads or checks. The interpreter's own
    library may be too old for the schema."""

    def __init__(self, folder: Path, body: bytes) -> None:
        self._connection = apsw.Connection(str(folder / "floor.db"))
        self._connection.execute("PRAGMA page_size=8192")
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        schema = resources.files("turnledger.stores.sqlite").joinpath("schema.sql").read_text()
        self._connection.execute(schema)
        self._body = body
        self._number = 0
        self._connection.execute(
            "INSERT INTO conversation (ref, id, owner, branch, state, internal, revision, created_at,"
            " touched_at) VALUES (1, ?, 'local', ?, 'live', 0, 1, 0, 0)",
            (os.urandom(16), os.urandom(16)),
        )
        self._connection.execute(
            "INSERT INTO branch (ref, id, conversation, fence, length) VALUES (1, ?, ?, 0, 0)",
            (os.urandom(16), os.urandom(16)),
        )

    def commit(self) -> float:
        self._number += 1
        id = os.urandom(16)
        execute = self._connection.execute
        started = time.perf_counter()
        execute("BEGIN IMMEDIATE")
        execute(
            "INSERT INTO turn (id, branch, number, kind, created_at, committed_at, body)"
            " VALUES (?, 1, ?, 0, ?, ?, ?)",
            (id, self._number, 1_700_000_000_000, 1_700_000_000_001, self._body),
        )
        execute("UPDATE branch SET head = ?, length = ?, fence = ? WHERE ref = 1", (id, self._number, 1))
        execute("UPDATE conversation SET touched_at = ? WHERE ref = 1", (1_700_000_000_000 + self._number,))
        execute("COMMIT")
        return time.perf_counter() - started

    def close(self) -> None:
        self._connection.close()
