"""A machine that can lose power: its stores return to the last synced state.

    machine = SqliteMachine(tmp_path)          # or MemoryMachine()
    store = await machine.open()               # one handle for each process on the machine
    ...
    machine.lose_power()                       # handles opened before now belong to dead processes
    store = await machine.open()

A write that waits for the disk also makes all earlier ones durable.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from turnledger.engine.ports import Result, Store, Sync
from turnledger.stores.memory import Database, MemoryStore
from turnledger.stores.memory.whole import MemoryWholeStore

if TYPE_CHECKING:
    from turnledger.testing.faulty_disk import FaultyDisk


class Machine(Protocol):
    """The store and the power that the processes of one machine share."""

    @property
    def writes(self) -> int:
        """Increases with every write."""
        ...

    @property
    def synced_writes(self) -> int:
        """The number of the last durable write."""
        ...

    async def open(self) -> Store: ...
    def lose_power(self) -> None: ...


class MemoryMachine:
    """A memory store with a copy of its rows as of the last synced write."""

    def __init__(self, database: Database | None = None) -> None:
        self.database = Database() if database is None else database
        self.writes = self.synced_writes = 0
        self._durable: Database | None = None

    async def open(self) -> Store:
        return _MemoryHandle(self)

    def lose_power(self) -> None:
        self.database = self._durable or _copy(self.database)  # out of reach of dead processes
        self._durable = None
        self.synced_writes = self.writes

    def fail_over(self) -> None:
        """Lose all unsynced writes, as when a standby is promoted: the processes live on."""
        if self._durable is not None:
            for name, table in _tables_of(self._durable).items():
                setattr(self.database, name, table)
            self._durable = None
        self.synced_writes = self.writes

    def before_write(self, sync: Sync) -> None:
        if sync is Sync.PROCESS and self._durable is None:
            self._durable = _copy(self.database)

    def after_write(self, sync: Sync) -> None:
        self.writes += 1
        if sync is Sync.DISK:
            self._durable = None
            self.synced_writes = self.writes


class _MemoryHandle(MemoryStore):
    def __init__(self, machine: MemoryMachine) -> None:
        super().__init__(machine.database)
        self._machine = machine

    async def _run(
        self, operation: Callable[[MemoryWholeStore], Awaitable[Result]], sync: Sync = Sync.DISK
    ) -> Result:
        has_written = False

        async def watched(whole: MemoryWholeStore) -> Result:
            nonlocal has_written
            result = await operation(whole)
            has_written = whole.has_written
            return result

        self._machine.before_write(sync)
        result = await super()._run(watched, sync)
        # As in SQLite, a transaction without changes does not sync.
        if has_written:
            self._machine.after_write(sync)
        return result


def _copy(database: Database) -> Database:
    """Copy the tables, also nested ones; rows are immutable."""
    tables: dict[str, Any] = {name: _copy_table(table) for name, table in _tables_of(database).items()}
    return replace(database, **tables, watchers=[])


def _tables_of(database: Database) -> dict[str, dict[Any, Any]]:
    found = {each.name: getattr(database, each.name) for each in fields(database)}
    return {name: table for name, table in found.items() if isinstance(table, dict)}


def _copy_table(table: dict[Any, Any]) -> dict[Any, Any]:
    return {name: dict(row) if isinstance(row, dict) else row for name, row in table.items()}


class SqliteMachine:
    """A SQLite store on a FaultyDisk. When the power returns, the file is in another folder, where handles of
    dead processes cannot reach it."""

    def __init__(self, folder: Path, *, inline: bool = False) -> None:
        from turnledger.testing.faulty_disk import FaultyDisk

        self._disk: FaultyDisk = FaultyDisk()
        self._folder = folder
        self._inline = inline
        self._losses = 0
        folder.joinpath("0").mkdir()
        self.path = folder / "0" / "chats.db"

    @property
    def writes(self) -> int:
        return self._disk.log_writes

    @property
    def synced_writes(self) -> int:
        return self._disk.synced_log_writes

    async def open(self) -> Store:
        from turnledger.stores.sqlite import SqliteStore

        return await SqliteStore.open(self.path, inline=self._inline, vfs=self._disk.name)

    def lose_power(self) -> None:
        self._losses += 1
        self.path = self._disk.lose_power(self.path, self._folder / str(self._losses))
        self._disk.files.clear()
        self._disk.deleted.clear()
        self._disk.synced_log_writes = self._disk.log_writes
