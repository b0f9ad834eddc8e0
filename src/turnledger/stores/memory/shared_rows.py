"""Rows that one owner and the whole memory store have in common: leases, and positions of changes. A position
is the number of a change, as text."""

from __future__ import annotations

import re

from turnledger.model.change import LiveChange, Position
from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId
from turnledger.stores.memory.database import MemoryRows

_POSITION = re.compile("[0-9a-f]{15}")


def position_at(number: int) -> Position:
    return Position(f"{number:015x}")


class MemorySharedRows(MemoryRows):
    async def lease(self, id: LeaseId) -> Lease | None:
        return self._db.leases.get(id)

    async def beat(self, id: LeaseId) -> None:
        last = self._db.leases.get(id) or self._db.buried.get(id)
        self._put(self._db.leases, id, Lease(id, last.beat + 1 if last else 1))
        self._remove(self._db.buried, id)

    async def newest_position(self) -> Position:
        return position_at(self._newest())

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
