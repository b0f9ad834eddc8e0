"""The changes that a memory store keeps for the feed."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnledger.model.change import ChangeKind, LiveChange, Position, mark_of
from turnledger.model.conversation import Conversation
from turnledger.model.ids import TurnId
from turnledger.stores.memory.database import UndoLog

if TYPE_CHECKING:
    from turnledger.stores.memory.database import Database


class MemoryChangeRows(UndoLog):
    _db: Database

    async def add_change(self, change: LiveChange) -> None:
        assert change.conversation is not None  # noqa: S101 - only changes of conversations are stored
        number = self._newest() + 1
        mark = mark_of(change.at, change.conversation.raw, change.turn.raw if change.turn else None)
        self._put(self._db.changes, number, replace(change, position=Position(number, mark)))
        self._put(self._db.last_change, None, number)

    async def _record_removal(self, conversation: Conversation, why: str, at: int) -> None:
        """Record a chat that this store ended by itself, if the feed has reported it."""
        if conversation.is_listed and not conversation.internal:
            owner, id, scope = conversation.owner, conversation.id, conversation.scope
            kind = ChangeKind.CHAT_DELETED
            await self.add_change(
                LiveChange(kind=kind, owner=owner, conversation=id, scope=scope, detail=why, at=at)
            )

    async def changes(
        self, after: int, owners: Collection[str], limit: int
    ) -> tuple[list[LiveChange], Position | None]:
        found = self._behind(after, limit)
        return [each for each in found if each.owner in owners], found[-1].position if found else None

    async def changes_of(self, owner: str, after: int, limit: int) -> list[LiveChange]:
        behind = self._behind(after, self._newest())
        return [each for each in behind if each.owner == owner][:limit]

    async def change_position(self, number: int | None) -> Position | None:
        rows = self._db.changes
        if number is None:
            number = self._newest()
        if number == 0:
            return Position() if not rows or 1 in rows else None
        return rows[number].position if number in rows else None

    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest, removed = self._newest(), 0
        for number in sorted(self._db.changes)[:limit]:
            is_old = self._db.changes[number].at < before or number <= newest - keep
            if not is_old or number == newest:
                break  # all changes after a kept one must stay
            self._remove(self._db.changes, number)
            removed += 1
        return removed

    async def owner_of_ticket(self, attempt: TurnId) -> str | None:
        ticket = self._db.tickets.get(attempt)
        found = self._db.conversations.get(ticket.conversation) if ticket else None
        return found.owner if found else None

    def _newest(self) -> int:
        return self._db.last_change.get(None, 0)

    def _behind(self, after: int, limit: int) -> list[LiveChange]:
        rows, through = self._db.changes, min(self._newest(), after + limit)
        return [rows[number] for number in range(after + 1, through + 1) if number in rows]
