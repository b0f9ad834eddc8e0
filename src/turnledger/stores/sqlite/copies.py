"""The rows of a SQLite file as records, and records as its rows: for copies between stores."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from struct import Struct
from types import MappingProxyType
from typing import Any, TypeVar

import apsw
import msgspec

from turnledger.engine.tables.records import (
    CopyProgress,
    Holders,
    RecordPage,
    RecordSource,
    StoreRecord,
    StoreState,
)
from turnledger.errors import StoreUnavailable
from turnledger.model.ids import LeaseId
from turnledger.stores.copies import (
    NO_EXPRESSIONS,
    UNFINISHED,
    CopiedTable,
    check_record,
    packed,
    size_of,
    unpacked,
)
from turnledger.stores.row_codec import row_checksum
from turnledger.stores.sql.queries import named_queries
from turnledger.stores.sqlite import connections
from turnledger.stores.sqlite.failures import translate
from turnledger.stores.sqlite.files import check_not_inherited, check_place
from turnledger.stores.sqlite.leases import LockFiles
from turnledger.stores.sqlite.migrations import VERSION, immediate, version_of
from turnledger.stores.sqlite.tables.records import sql_text
from turnledger.stores.sqlite.tables.tables import LONG_INPUT

QUERIES = named_queries(sql_text("copies.sql"))
Result = TypeVar("Result")


class SqliteTable(CopiedTable, frozen=True, kw_only=True):
    write: Mapping[str, str] = NO_EXPRESSIONS
    """The columns of the table that are not a column of the record, or not as they are: expressions with
    columns of the record in braces."""
    without: tuple[str, ...] = ()
    """Columns of the record that the table does not have."""

    @property
    def insertion(self) -> str:
        parameters = {column: f"?{place}" for place, column in enumerate(self.columns, 1)}
        values = {column: parameters[column] for column in self.columns if column not in self.without}
        values |= {column: text.format(**parameters) for column, text in self.write.items()}
        return f"INSERT INTO {self.name} ({', '.join(values)}) VALUES ({', '.join(values.values())})"  # noqa: S608


_OWNER_OF_CONVERSATION = "(SELECT c.owner FROM conversation AS c WHERE c.id = {}.conversation)"
_OWNER_OF_ATTEMPT = "(SELECT a.owner FROM attempt AS a WHERE a.ended IN (0, 1) AND a.id = {}.attempt)"
_ID_OF_BRANCH = "(SELECT b.id FROM branch AS b WHERE b.ref = {})"
_REF_OF_BRANCH = "(SELECT b.ref FROM branch AS b WHERE b.id = {{{}}})"

TABLES = (
    SqliteTable(name="owner", key=("owner",)),
    SqliteTable(
        name="conversation",
        key=("ref",),
        write={"title_due": "({title} IS NOT NULL AND {named_by} IS NOT 'words')"},
    ),
    SqliteTable(name="conversation_tag", key=("owner", "tag", "conversation")),
    SqliteTable(
        name="branch",
        key=("ref",),
        # The order of refs is that of creation, which reading and inserting keep.
        read={
            "owner": _OWNER_OF_CONVERSATION.format("branch"),
            "previous": "(SELECT p.id FROM branch AS p WHERE p.conversation = branch.conversation"
            " AND p.ref < branch.ref ORDER BY p.ref DESC LIMIT 1)",
        },
        without=("owner", "previous"),
        large=("pending",),
    ),
    SqliteTable(
        name="origin",
        key=("branch",),
        read={
            "owner": _OWNER_OF_CONVERSATION.format("origin"),
            "branch": _ID_OF_BRANCH.format("origin.branch"),
            "source": _ID_OF_BRANCH.format("origin.source"),
        },
        write={"branch": _REF_OF_BRANCH.format("branch"), "source": _REF_OF_BRANCH.format("source")},
        without=("owner",),
        large=("line",),
    ),
    SqliteTable(
        name="turn",
        key=("ref",),
        rows="turn LEFT JOIN branch ON branch.ref = turn.branch"
        " LEFT JOIN conversation ON conversation.id = branch.conversation",
        read={
            "owner": "conversation.owner",
            "branch": "branch.id",
            "parent": "coalesce(turn.parent, (SELECT p.id FROM turn AS p"
            " WHERE p.branch = turn.branch AND p.number = turn.number - 1))",
        },
        write={
            "branch": _REF_OF_BRANCH.format("branch"),
            "parent": "nullif({parent}, (SELECT p.id FROM branch AS b JOIN turn AS p ON p.branch = b.ref"
            " WHERE b.id = {branch} AND p.number = {number} - 1))",
        },
        without=("owner",),
        large=("body", "log"),
    ),
    SqliteTable(
        name="item_flag",
        key=("turn", "place"),
        read={"branch": _ID_OF_BRANCH.format("item_flag.branch")},
        write={"branch": _REF_OF_BRANCH.format("branch")},
    ),
    SqliteTable(name="token", key=("id",)),
    SqliteTable(name="share", key=("id",)),
    SqliteTable(
        name="attempt",
        key=("ended", "id"),
        read={
            "input": "coalesce(attempt.input, (SELECT long.body FROM attempt_input AS long"
            " WHERE long.attempt = attempt.id))"
        },
        write={"input": f"iif(length({{input}}) < {LONG_INPUT}, {{input}}, NULL)"},
        large=("input", "partial"),
    ),
    SqliteTable(
        name="journal",
        key=("attempt", "number"),
        read={"owner": _OWNER_OF_ATTEMPT.format("journal")},
        without=("owner",),
        large=("record",),
    ),
    SqliteTable(
        name="event_log",
        key=("attempt", "number"),
        read={"owner": _OWNER_OF_ATTEMPT.format("event_log")},
        without=("owner",),
        large=("chunk",),
    ),
    SqliteTable(
        name="ticket",
        key=("attempt",),
        read={"owner": _OWNER_OF_CONVERSATION.format("ticket")},
        without=("owner",),
    ),
    SqliteTable(name="job", key=("id",), large=("body",)),
    SqliteTable(name="claim", key=("owner", "idempotency_key")),
    # Below zero: buried.
    SqliteTable(name="lease", key=("id",), rows="(SELECT id, beat FROM lease WHERE beat > 0) AS lease"),
    SqliteTable(name="clock", key=("id",)),
)
BY_NAME = {table.name: table for table in TABLES}
_INPUT = BY_NAME["attempt"].columns.index("input")

NOT_COPIED: Mapping[str, str] = MappingProxyType(
    {
        "conversation.ref": "numbers of rows are those of one store",
        "conversation.title_due": "the search index is rebuilt",
        "branch.ref": "numbers of rows are those of one store",
        "turn.ref": "numbers of rows are those of one store",
        "attempt_input": "a part of the attempts",
        "lease.buried": "buried leases are left out: their processes can only come back to the source",
        "change": "positions are those of one store; followers read everything anew",
        "turn_words": "the search index is rebuilt",
        "title_words": "the search index is rebuilt",
        "search_block": "the search index is rebuilt",
        "title_block": "the search index is rebuilt",
        "search_mark": "the search index is rebuilt",
        "turn_due": "the search index is rebuilt",
        "secret": "each store has one of its own; cursors of the source are not valid in the copy",
    }
)
"""Tables and columns that are in no record, and why."""

_STRETCH, _STRETCH_WITH_REF = Struct(">16sqq"), Struct(">16sqqq")


class ConnectionThread:
    """Runs calls with a connection in a thread, one after the other: even after one was cancelled."""

    def __init__(self, path: str, connection: apsw.Connection) -> None:
        self._path = path
        self._connection = connection
        self._thread = ThreadPoolExecutor(1, "turnledger-copy")

    @property
    def place(self) -> str:
        return self._path

    async def _run(self, function: Callable[..., Result], *arguments: Any) -> Result:
        run = partial(_translated, self._path, function, *arguments)
        return await asyncio.get_running_loop().run_in_executor(self._thread, run)

    async def close(self) -> None:
        await self._run(self._connection.close, True)
        self._thread.shutdown()


class SqliteRecords(ConnectionThread):
    """Reads a file in one transaction."""

    @classmethod
    async def open(cls, path: str, *, unfinished: bool = False) -> SqliteRecords:
        """Open an existing, current store; raises as `ReadOnlySqlite.open`."""
        return await asyncio.to_thread(cls._open, path, unfinished)

    @classmethod
    def _open(cls, path: str, unfinished: bool) -> SqliteRecords:
        connections.check_sqlite(apsw.sqlite_lib_version())
        check_not_inherited(check_place(path))
        connection = connections.connect_read_only(path, unfinished=unfinished)
        _begin(connection)
        return cls(path, connection)

    async def renew(self) -> None:
        await self._run(self._renew)

    def _renew(self) -> None:
        self._connection.execute("COMMIT")
        _begin(self._connection)

    async def state(self) -> StoreState:
        return await self._run(_state, self._connection)

    async def holders(self) -> Holders:
        return await self._run(_holders, self._connection)

    async def count(self, table: str) -> int:
        query = f"SELECT count(*) {BY_NAME[table].source}"
        return int(await self._run(lambda: self._connection.execute(query).get))

    async def read(self, table: str, after: bytes | None, max_bytes: int) -> RecordPage:
        return await self._run(_read, self._connection, BY_NAME[table], after, max_bytes)


def _begin(connection: apsw.Connection) -> None:
    connection.execute("BEGIN")
    connection.pragma("user_version")  # the first read starts the transaction


def _translated(path: str, function: Callable[..., Result], *arguments: Any) -> Result:
    try:
        return function(*arguments)
    except BaseException as error:
        failure = translate(error, path)
        if failure is error:
            raise
        raise failure from error


def _state(connection: apsw.Connection) -> StoreState:
    [row] = connection.execute(QUERIES["state"]).fetchall()
    secret: Any
    secret, *marks = row
    identity = hashlib.sha256(b"identity" + secret).hexdigest()[:32]
    return StoreState(identity, hashlib.sha256(msgspec.json.encode(marks)).hexdigest()[:32])


def _holders(connection: apsw.Connection) -> Holders:
    locks = LockFiles(connection.filename)
    leases = {LeaseId.trusted(id): beat for id, beat in connection.execute(QUERIES["leases"])}
    undead = {id: beat for id, beat in leases.items() if not locks.is_unlocked(id)}
    living = sum(locks.is_there(id) for id in undead)
    return Holders(living, {id: beat for id, beat in undead.items() if not locks.is_there(id)})


def _read(connection: apsw.Connection, table: SqliteTable, after: bytes | None, max_bytes: int) -> RecordPage:
    key = len(table.key)
    bindings = () if after is None else tuple(msgspec.msgpack.decode(after))
    where = f"WHERE ({table.order}) > ({', '.join('?' * key)})" if bindings else ""
    query = f"SELECT {table.order}, {table.selection} {table.source} {where} ORDER BY {table.order}"
    records: list[StoreRecord] = []
    size = 0
    last = bindings
    for row in connection.execute(query, bindings):
        record = READ.get(table.name, _as_it_is)(row[key:])
        check_record(table, record)
        records.append(record)
        last = row[:key]
        size += size_of(record) + RECORD_BYTES
        if size >= max_bytes:
            break
    return RecordPage(records, msgspec.msgpack.encode(last))


RECORD_BYTES = 100
"""What a record counts beside its texts: it bounds the number of records of a page."""


def _as_it_is(record: StoreRecord) -> StoreRecord:
    return record


def _turn(record: StoreRecord) -> StoreRecord:
    """Add the checksum that older versions did not store."""
    if record[-1] is not None:
        return record
    id, _, branch, number, parent, kind, created_at, committed_at, body, log = record[:-1]
    place = branch if parent is None else branch + parent
    return (*record[:-1], row_checksum(id, number, kind, created_at, committed_at, place, body, log or b""))


def _origin(record: StoreRecord) -> StoreRecord:
    """Leave the refs out of the line."""
    *rest, line = record
    if line is None:
        return record
    parts = _STRETCH_WITH_REF.iter_unpack(line)
    return (*rest, b"".join(_STRETCH.pack(id, after, through) for id, _, after, through in parts))


READ: Mapping[str, Callable[[StoreRecord], StoreRecord]] = MappingProxyType(
    {"turn": _turn, "origin": _origin}
)


class SqliteCopy(ConnectionThread):
    """A file that records are copied into."""

    @classmethod
    async def open(cls, path: str) -> SqliteCopy:
        """Open the store in this file, or the unfinished copy; create it if needed. Raises as
        `SqliteStore.open`."""
        return await asyncio.to_thread(cls._open, path)

    @classmethod
    def _open(cls, path: str) -> SqliteCopy:
        connections.check_sqlite(apsw.sqlite_lib_version())
        check_not_inherited(check_place(path))
        connections.prepare(path, unfinished=True)
        connection = connections.connect_writer(path)
        # A killed process loses nothing by that; `finish` waits for the disk.
        connection.pragma("synchronous", "NORMAL")
        return cls(path, connection)

    async def progress(self) -> CopyProgress | None:
        return await self._run(self._progress)

    async def begin(self, progress: CopyProgress) -> bool:
        return await self._run(self._begin, progress)

    async def write(
        self, table: str, records: Sequence[StoreRecord], old: CopyProgress, new: CopyProgress
    ) -> None:
        await self._run(self._write, BY_NAME[table], records, old, new)

    async def finish(self, old: CopyProgress) -> None:
        await self._run(self._finish, old)

    async def snapshot(self) -> RecordSource:
        return await SqliteRecords.open(self._path, unfinished=True)

    def _progress(self) -> CopyProgress | None:
        if not self._connection.table_exists("main", "copied_from"):
            return None
        raw = self._connection.execute(QUERIES["progress"]).get
        return None if raw is None else unpacked(raw)

    def _begin(self, progress: CopyProgress) -> bool:
        connection = self._connection
        with immediate(connection):
            if version_of(connection) != VERSION or any(
                connection.execute(f"SELECT EXISTS (SELECT 1 FROM {table})").get  # noqa: S608 - declared above
                for table in (*BY_NAME, "change")
                if table not in ("lease", "clock")
            ):
                return False
            for name in ("drop_leases", "drop_clock", "create_progress", "drop_progress"):
                connection.execute(QUERIES[name])
            connection.execute(QUERIES["begin"], (packed(progress),))
            connection.pragma("user_version", UNFINISHED + VERSION)
        return True

    def _write(
        self, table: SqliteTable, records: Sequence[StoreRecord], old: CopyProgress, new: CopyProgress
    ) -> None:
        with immediate(self._connection):
            self._advance(old, new)
            rows: Iterable[StoreRecord] = records
            if table.name == "origin":
                rows = map(self._with_refs, records)
            self._connection.executemany(table.insertion, rows)
            if table.name == "attempt":
                inputs = ((record[0], record[_INPUT]) for record in records)
                long = [(id, input) for id, input in inputs if len(input) >= LONG_INPUT]
                self._connection.executemany(QUERIES["add_long_input"], long)

    def _advance(self, old: CopyProgress, new: CopyProgress) -> None:
        if not self._connection.execute(QUERIES["advance"], (packed(new), packed(old))).fetchall():
            raise StoreUnavailable(f"Another process copies into {self._path}. Let it finish.")

    def _with_refs(self, record: StoreRecord) -> StoreRecord:
        """Add refs to the line of an origin."""
        *rest, line = record
        if line is None:
            return record
        parts = [
            _STRETCH_WITH_REF.pack(id, self._connection.execute(QUERIES["ref"], (id,)).get, after, through)
            for id, after, through in _STRETCH.iter_unpack(line)
        ]
        return (*rest, b"".join(parts))

    def _finish(self, old: CopyProgress) -> None:
        connection = self._connection
        connection.pragma("synchronous", "FULL")
        with immediate(connection):
            connection.execute(QUERIES["start_feed"])
            self._advance(old, msgspec.structs.replace(old, target=_state(connection)))
            connection.pragma("user_version", VERSION)
