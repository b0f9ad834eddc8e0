"""The changes that a memory store keeps for the feed. A position is the number of a change, as text."""

from __future__ import annotations

import re
from collections.abc import Collection

from msgspec.structs import replace

from turnledger.engine.tables.changes import ChangeTail
from turnledger.errors import StoreError
from turnledger.model.change import LiveChange, Position
from turnledger.stores.memory.database import MemoryRows

_POSITION = re.compile("[0-9a-f]{15}")


def _position(number: int) -> Position:
    return Position(f"{number:015x}")


class MemoryPositionRows(MemoryRows):
    async def newest_position(self) -> Position:
        return _position(self._newest())

    async def is_kept(self, position: Position) -> bool:
        if _POSITION.fullmatch(position) is None:
            return False
        number = int(position, 16)
        return number in self._db.changes or (number == 0 and self._starts_at_one())

    def _starts_at_one(self) -> bool:
        return not self._db.changes or 1 in self._db.changes

    def _newest(self) -> int:
        return self._db.last_change.get(None, 0)

    def _behind(self, after: Position, limit: int) -> list[LiveChange]:
        first = int(after, 16) + 1
        rows, through = self._db.changes, min(self._newest(), first + limit - 1)
        return [rows[number] for number in range(first, through + 1) if number in rows]


class MemoryChangeRows(MemoryPositionRows):
    owner: str

    async def add_change(self, change: LiveChange) -> None:
        id = change.conversation
        if change.owner != self.owner or (id is not None and self._owner_of(id) not in (None, self.owner)):
            raise StoreError(f"The change of {change.conversation} is of another owner.")
        self._add_change(change)

    def _add_change(self, change: LiveChange) -> None:
        number = self._newest() + 1
        self._put(self._db.changes, number, replace(change, position=_position(number)))
        self._put(self._db.last_change, None, number)

    async def changes(self, after: Position | None, limit: int) -> list[LiveChange]:
        behind = self._behind(after or _position(0), self._newest())
        return [each for each in behind if each.owner == self.owner][:limit]


class MemoryTailRows(MemoryPositionRows):
    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        found = self._behind(after, limit)
        through = found[-1].position if found else after
        return ChangeTail([each for each in found if each.owner in owners], through, len(found) == limit)

    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest, removed = self._newest(), 0
        for number in sorted(self._db.changes)[:limit]:
            is_old = self._db.changes[number].at < before or number <= newest - keep
            if not is_old or number == newest:
                break  # all changes after a kept one must stay
            self._remove(self._db.changes, number)
            removed += 1
        return removed

    async def secret(self) -> bytes:
        return self._db.secret
