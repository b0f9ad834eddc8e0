"""What a memory store knows of time."""

from __future__ import annotations

from typing import TYPE_CHECKING

from turnledger.model.clock_mark import ClockMark
from turnledger.stores.memory.undo_log import UndoLog

if TYPE_CHECKING:
    from turnledger.stores.memory.database import Database


class MemoryClockRows(UndoLog):
    """The part of `Tables` that is about clocks."""

    _db: Database

    async def clock_mark(self) -> ClockMark | None:
        return self._db.clock_mark.get(None)

    async def save_clock_mark(self, mark: ClockMark) -> None:
        self._put(self._db.clock_mark, None, mark)

    async def newest_time(self) -> int | None:
        last = self._db.last_change.get(None)
        times = [self._db.changes[last].at] if last is not None else []
        times += [turn.committed_at for turn in list(self._db.turns.values())[-1:]]
        return max(times, default=None)
