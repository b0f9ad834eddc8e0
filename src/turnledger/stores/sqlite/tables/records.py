"""The statements by name, and the conversion between rows and the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any
from zlib import crc32

import apsw

from turnledger.errors import StoreCorrupt, StoreError
from turnledger.model.change import Position
from turnledger.model.conversation import (
    Stretch,
)
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import (
    Turn,
)
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import FIXED, KINDS, Row, check_turn
from turnledger.stores.sql.queries import SqlOwnedQueries, SqlQueries, named_queries

if TYPE_CHECKING:
    from turnledger.stores.sqlite.tables.tables import LaneCache


def sql_text(name: str) -> str:
    return files("turnledger.stores.sqlite").joinpath(name).read_text("utf-8")


FILES = ("tables", "catalogue", "access", "search", "inspection")
QUERIES: Mapping[str, str] = {
    name: query for file in FILES for name, query in named_queries(sql_text(f"tables/{file}.sql")).items()
}


_WRITES = re.compile(r"(?:UPDATE|INSERT INTO|DELETE FROM) (?:conversation|branch|owner|lease)\b")
NOTED = frozenset(("save_branch", "touch_conversation", "save_conversation"))
NOT_IN_LANES = frozenset(
    ("add_branch", "add_conversation", "beat", "count_stored", "title_known", "titles_known")
)
"""Queries that write what no cached lane has: new rows, and other columns."""
ON_LANES = frozenset(name for name, query in QUERIES.items() if _WRITES.search(query)) - NOTED - NOT_IN_LANES
"""Queries after which cached lanes are outdated."""
ROWS_AT_ONCE = (200, 20, 1)
"""Rows inserted by one statement: few sizes, since statements are cached."""


class NamedQueries(SqlQueries):
    """Runs the queries of a transaction. `lanes` are cached by the writer; readers have none."""

    def __init__(self, cursor: apsw.Cursor, lanes: LaneCache | None = None) -> None:
        self._cursor = cursor
        self._execute = cursor.execute
        self._lanes = lanes

    def _rows(self, query: str, *bindings: Any) -> list[Row]:
        if query in ON_LANES and self._lanes is not None:
            self._lanes.clear()
        return self._execute(QUERIES[query], bindings).fetchall()

    def _row(self, query: str, *bindings: Any) -> Row | None:
        rows = self._rows(query, *bindings)
        return rows[0] if rows else None

    def _run(self, query: str, *bindings: Any) -> None:
        if query in ON_LANES and self._lanes is not None:
            self._lanes.clear()
        self._execute(QUERIES[query], bindings)

    async def _fetch(self, query: str, *arguments: Any) -> list[Row]:
        return self._rows(query, *arguments)

    async def _lock(self, owner: str) -> None:
        return  # the writer is the only one

    def _insert(self, query: str, rows: Iterable[Row]) -> None:
        """Insert many rows with few statements: each one releases the GIL, and may have to wait for it."""
        statement, left = QUERIES[query], iter(rows)
        values = statement[statement.index("(", statement.index("VALUES")) : statement.rindex(")") + 1]
        while part := list(islice(left, ROWS_AT_ONCE[0])):
            for size in ROWS_AT_ONCE:
                while len(part) >= size:
                    several = statement.replace(values, ", ".join([values] * size))
                    self._execute(several, list(chain.from_iterable(part[:size])))
                    del part[:size]


class OwnedRows(SqlOwnedQueries, NamedQueries):
    """Rows of one owner. Every query names the owner, or a branch whose owner was checked."""

    def __init__(self, cursor: apsw.Cursor, owner: str, lanes: LaneCache | None = None) -> None:
        super().__init__(cursor, lanes)
        self.owner = owner
        self._refs: dict[BranchId, int] = {}
        self._owned: set[ConversationId] = set()
        """Conversations that were found to be of this owner."""

    async def _own(self, query: str, *arguments: Any) -> list[Row]:
        return self._rows(query, self.owner, *arguments)

    async def _change(self, query: str, *arguments: Any) -> None:
        self._run(query, self.owner, *arguments)

    async def _check_conversation(self, id: ConversationId) -> None:
        if id not in self._owned and self._row("counted_details", id.raw, self.owner) is None:
            raise StoreError(f"There is no {id}.")

    def _check_not_foreign(self, id: ConversationId | None) -> None:
        if id is not None and id not in self._owned and self._rows("is_foreign", id.raw, self.owner):
            raise StoreError(f"There is no {id}.")

    def _known_ref(self, id: BranchId) -> int | None:
        """Return the number of a branch in its turns, None if this owner has no such branch; mostly cached,
        since the branch was read before."""
        if id not in self._refs:
            row = self._row("ref_of_branch", id.raw, self.owner)
            if row is None:
                return None
            self._refs[id] = row[0]
        return self._refs[id]

    def _ref(self, id: BranchId) -> int:
        ref = self._known_ref(id)
        if ref is None:
            raise StoreError(f"There is no {id}.")
        return ref


_STRETCH = Struct(">16sqqq")
"""The branch, its ref, and the numbers `after` and `through`."""


@lru_cache(maxsize=256)
@decoder
def line_of(raw: bytes | None) -> tuple[tuple[Stretch, ...], dict[BranchId, int]]:
    """Decode the stretches of an origin, and the refs of their branches. Cached, since many branches of a
    conversation share a long line, which never changes."""
    try:
        parts = tuple(_STRETCH.iter_unpack(raw or b""))
    except StructError as problem:
        raise StoreCorrupt(
            f"A stored line of turns cannot be read: {problem}. Restore the store from a backup."
        ) from None
    branches = {BranchId.trusted(branch): ref for branch, ref, _, _ in parts}
    stretches = (Stretch(BranchId.trusted(branch), after, through) for branch, _, after, through in parts)
    return tuple(stretches), branches


def pack_line(line: tuple[Stretch, ...], refs: Iterable[int]) -> bytes | None:
    parts = zip(line, refs, strict=True)
    return (
        b"".join(_STRETCH.pack(each.branch.raw, ref, each.after, each.through) for each, ref in parts) or None
    )


@decoder
def line_of_turns(
    rows: Iterable[Row], branches: Mapping[int, BranchId], find: Callable[[int, int], Row | None]
) -> list[Turn]:
    """Return turns in order. A row has a parent only if that is not the previous turn on its branch: mostly
    the row before; otherwise `find` it."""
    turns: list[Turn] = []
    before: TurnId | None = None
    last = (0, 0)
    for raw, number, parent_raw, kind, created_at, committed_at, body, checksum, ref in rows:
        id, branch = TurnId.trusted(raw), branches[ref]
        parent: TurnId | None
        if parent_raw is not None:
            parent = TurnId.trusted(parent_raw)
        elif last == (ref, number - 1):
            parent = before
        else:
            found = find(ref, number - 1) if number > 1 else None
            parent = TurnId.trusted(found[0]) if found else None
        if checksum is not None:
            fixed = FIXED.pack(raw, number, kind, created_at, committed_at)
            check_turn(id, branch, number, parent, fixed, body, checksum)
        turns.append(Turn(id, branch, number, parent, KINDS[kind], created_at, committed_at, body))
        before, last = id, (ref, number)
    return turns


def position_of(number: int, at: int, conversation: bytes, turn: bytes | None) -> Position:
    """Return the number of a change, with a mark that detects a different change with the same number: after
    power loss, numbers are used again."""
    return Position(f"{number:015x}-{crc32(b'%d' % at + conversation + (turn or b'')):08x}")


START = Position(f"{0:015x}-{0:08x}")
"""Before the first change."""


def number_at(position: Position) -> int:
    return int(position[:15], 16)


def position_in(row: Row) -> Position:
    return position_of(row[0], row[2], row[5], row[6])
