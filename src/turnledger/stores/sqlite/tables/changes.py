"""The changes that a SQLite store keeps for who follows: changes.sql, called by the engine's names."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import apsw

from turnledger.model.change import ChangeKind, LiveChange, Position, mark_of
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.stores.sqlite.decoders import decoder
from turnledger.stores.sqlite.tables.queries import named_queries, sql_text
from turnledger.stores.sqlite.tables.records import Row, id_or_none, raw_or_none

QUERIES = named_queries(sql_text("tables/changes.sql"))

KINDS = (
    ChangeKind.CHAT_CREATED,
    ChangeKind.CHAT_CHANGED,
    ChangeKind.CHAT_DELETED,
    ChangeKind.CHAT_RESTORED,
    ChangeKind.CHAT_SWITCHED,
    ChangeKind.TURN_QUEUED,
    ChangeKind.TURN_RUNNING,
    ChangeKind.TURN_COMMITTED,
    ChangeKind.TURN_FAILED,
    ChangeKind.TURN_STOPPED,
    ChangeKind.TURN_WITHDRAWN,
)
"""Kinds by the number that stands for them in the table."""
NUMBER_OF = {kind: number for number, kind in enumerate(KINDS)}


class SqliteChangeRows:
    """The part of `Tables` that holds changes."""

    _cursor: apsw.Cursor

    def _look(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    async def add_change(self, change: LiveChange) -> None:
        assert change.conversation is not None  # noqa: S101 - only changes of conversations are stored
        columns = (
            change.at,
            change.owner,
            change.scope,
            NUMBER_OF[change.kind],
            change.conversation.raw,
            raw_or_none(change.turn),
            raw_or_none(change.branch),
            change.detail,
        )
        self._look("add_change", *columns)

    @decoder
    async def changes(
        self, after: int, owners: Collection[str], limit: int
    ) -> tuple[list[LiveChange], Position | None]:
        rows = self._look("changes", after, limit)
        # Most are of owners whom nobody follows here: those are not even made into changes.
        found = [_change_of(row) for row in rows if row[1] in owners]
        return found, _position_of(rows[-1]) if rows else None

    async def changes_of(self, owner: str, after: int, limit: int) -> list[LiveChange]:
        rows = self._look("changes_of", after, owner, limit)
        return [_change_of(row) for row in rows]

    @decoder
    async def change_position(self, number: int | None) -> Position | None:
        if number == 0:
            [(oldest,)] = self._look("oldest_change")
            return Position() if oldest in (None, 1) else None
        rows = self._look("newest_change") if number is None else self._look("change", number)
        if not rows:
            return Position() if number is None else None
        found, at, conversation, turn = rows[0]
        return Position(found, mark_of(at, conversation, turn))

    @decoder
    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest = self._look("newest_change")
        if not newest:
            return 0
        number = newest[0][0]
        self._look("purge_changes", limit, number, before, number - keep)
        return self._cursor.connection.changes()

    async def owner_of_ticket(self, attempt: TurnId) -> str | None:
        rows = self._look("owner_of_ticket", attempt.raw)
        return rows[0][0] if rows else None


@decoder
def _position_of(row: Row) -> Position:
    return Position(row[0], mark_of(row[2], row[5], row[6]))


@decoder
def _change_of(row: Row) -> LiveChange:
    _, owner, at, scope, kind, conversation, turn, branch, detail = row
    return LiveChange(
        kind=KINDS[kind],
        owner=owner,
        conversation=ConversationId.trusted(conversation),
        scope=scope,
        turn=id_or_none(TurnId, turn),
        branch=id_or_none(BranchId, branch),
        detail=detail,
        at=at,
        position=_position_of(row),
    )
