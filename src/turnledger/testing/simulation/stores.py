"""The real stores under the simulator: memory, and SQLite with its writer driven inline."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from turnledger.engine.ports import Store
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.machine import Machine, MemoryMachine, SqliteMachine


@contextmanager
def open_inner(kind: str, ttl_ms: int | None = None) -> Iterator[Callable[[], Awaitable[Store]]]:
    """Yield a function that opens another handle on a fresh database. Only a memory store has a `ttl`."""
    if kind == "memory":
        database = Database(ttl_ms=ttl_ms)

        async def open_memory() -> Store:
            return MemoryStore(database)

        yield open_memory
        return
    from turnledger.stores.sqlite.store import SqliteStore

    with _folder() as folder:

        async def open_sqlite() -> Store:
            return await SqliteStore.open(str(folder / "simulated.db"), inline=True)

        yield open_sqlite


@contextmanager
def machine(kind: str, ttl_ms: int | None = None) -> Iterator[Machine]:
    if kind == "memory":
        yield MemoryMachine(Database(ttl_ms=ttl_ms))
        return
    with _folder() as folder:
        yield SqliteMachine(folder, inline=True)


@contextmanager
def _folder() -> Iterator[Path]:
    # In memory where possible: the simulation tests the logic, not the disk.
    shared_memory = Path("/dev/shm")  # noqa: S108 - a private folder is made inside
    folder = tempfile.mkdtemp(dir=shared_memory if shared_memory.is_dir() else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
