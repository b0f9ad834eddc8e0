"""The changes of an owner's chats, for the feed.

Positions are opaque texts of the store, and sort in one order for all owners: a reader that has read up to a
position has missed no change below. That is all a store promises: numbers may have gaps.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Protocol

from msgspec import Struct

from turnledger.model.change import LiveChange, Position


class PositionRows(Protocol):
    async def newest_position(self) -> Position:
        """The position that every later change comes after."""

    async def is_kept(self, position: Position) -> bool:
        """Whether this is a position of this store, and no change after it was removed. After power loss it
        may be that of a change that was lost."""


class ChangeRows(PositionRows, Protocol):
    async def add_change(self, change: LiveChange) -> None:
        """Insert at the next position, without the chat."""

    async def changes(self, after: Position | None, limit: int) -> list[LiveChange]:
        """The next changes after a position that is kept, or the first ones kept, in order."""


class ChangeTail(Struct, frozen=True):
    changes: list[LiveChange]
    through: Position
    """Everything up to here was read."""
    has_more: bool


class TailRows(PositionRows, Protocol):
    """The changes of all owners: one read for all followers in a process."""

    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        """Read the next `limit` changes after a position that is kept; return those of these owners, in
        order."""

    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        """Remove changes before a time and those beyond `keep`, oldest first, at most `limit`; never the
        newest. Stop at the first that stays: all after it stay, too. Return how many."""

    async def secret(self) -> bytes:
        """32 random bytes, kept for the life of the store and never disclosed."""
