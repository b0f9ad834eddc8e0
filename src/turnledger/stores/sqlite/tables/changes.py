"""The changes of a SQLite store. A position is the number of a change, with a mark that detects a different
change with the same number: after power loss, numbers are used again."""

from __future__ import annotations

import re
from collections.abc import Collection
from zlib import crc32

from turnledger.engine.tables.changes import ChangeTail
from turnledger.errors import StoreError
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.stores.sqlite.failures import decoder
from turnledger.stores.sqlite.tables.records import NamedQueries, OwnedRows, Row, id_or_none, raw_or_none

_POSITION = re.compile(r"([0-9a-f]{15})-([0-9a-f]{8})")

CHANGE_KINDS = (
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
"""Kinds by their number in the table."""
_NUMBER_OF_CHANGE = {kind: number for number, kind in enumerate(CHANGE_KINDS)}


def position_of(number: int, at: int, conversation: bytes, turn: bytes | None) -> Position:
    return Position(f"{number:015x}-{crc32(b'%d' % at + conversation + (turn or b'')):08x}")


START = Position(f"{0:015x}-{0:08x}")
"""Before the first change."""


class SqlitePositionRows(NamedQueries):
    @decoder
    async def newest_position(self) -> Position:
        rows = self._rows("newest_change")
        return position_of(*rows[0]) if rows else START

    @decoder
    async def is_kept(self, position: Position) -> bool:
        match = _POSITION.fullmatch(position)
        if match is None:
            return False
        if position == START:
            [(oldest,)] = self._rows("oldest_change")
            return oldest in (None, 1)
        rows = self._rows("change", int(match[1], 16))
        return bool(rows) and position_of(*rows[0]) == position


class SqliteChangeRows(SqlitePositionRows, OwnedRows):
    async def add_change(self, change: LiveChange) -> None:
        if change.owner != self.owner:
            raise StoreError(f"The change of {change.conversation} is of another owner.")
        self._check_not_foreign(change.conversation)
        self._run("add_change", *columns_of_change(change))

    async def changes(self, after: Position | None, limit: int) -> list[LiveChange]:
        number = 0 if after is None else _number(after)
        return [change_of(row) for row in self._rows("changes", number, self.owner, limit)]


class SqliteTailRows(SqlitePositionRows):
    @decoder
    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        rows = self._rows("tail", _number(after), limit)
        # Skip changes of owners without followers here, which are most.
        found = [change_of(row) for row in rows if row[1] in owners]
        through = _position_in(rows[-1]) if rows else after
        return ChangeTail(found, through, len(rows) == limit)

    @decoder
    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest = self._rows("newest_change")
        if not newest:
            return 0
        number = newest[0][0]
        self._rows("purge_changes", limit, number, before, number - keep)
        return self._cursor.connection.changes()

    async def secret(self) -> bytes:
        [(bits,)] = self._rows("secret")
        return bytes(bits)


def _number(position: Position) -> int:
    return int(position[:15], 16)


def _position_in(row: Row) -> Position:
    return position_of(row[0], row[2], row[5], row[6])


@decoder
def change_of(row: Row) -> LiveChange:
    _, owner, at, scope, kind, conversation, turn, branch, detail = row
    return LiveChange(
        kind=CHANGE_KINDS[kind],
        owner=owner,
        conversation=ConversationId.trusted(conversation),
        scope=scope,
        turn=id_or_none(TurnId, turn),
        branch=id_or_none(BranchId, branch),
        detail=detail,
        at=at,
        position=_position_in(row),
    )


def columns_of_change(change: LiveChange) -> Row:
    assert change.conversation is not None  # noqa: S101 - only changes of conversations are stored
    return (
        change.at,
        change.owner,
        change.scope,
        _NUMBER_OF_CHANGE[change.kind],
        change.conversation.raw,
        raw_or_none(change.turn),
        raw_or_none(change.branch),
        change.detail,
    )
