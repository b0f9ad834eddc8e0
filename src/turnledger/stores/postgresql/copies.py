"""The rows of a PostgreSQL database as records, and records as its rows: for copies between stores."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

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
    UNFINISHED,
    CopiedTable,
    check_copy_version,
    check_record,
    packed,
    unpacked,
)
from turnledger.stores.postgresql import connections
from turnledger.stores.postgresql.connections import DatabaseSettings
from turnledger.stores.postgresql.examination import check_exists
from turnledger.stores.postgresql.failures import translate
from turnledger.stores.postgresql.migrations import VERSION, migrate, version_of
from turnledger.stores.postgresql.tables.queries import sql_text
from turnledger.stores.sql.queries import named_queries

if TYPE_CHECKING:
    from turnledger.stores.postgresql.connections import AnyConnection

QUERIES = named_queries(sql_text("copies.sql"))
PAGE_ROWS = 1_000
"""The most records of a page."""
PATIENCE = 3_600.0
"""Seconds that a statement may take: one counts all rows of a table."""

TABLES = (
    CopiedTable(name="owner", key=("owner",)),
    CopiedTable(
        name="conversation",
        key=("id",),
        rows="conversation LEFT JOIN trail"
        " ON trail.owner = conversation.owner AND trail.conversation = conversation.id",
        read={"switches": "trail.switches", "forgotten": "trail.forgotten"},
    ),
    CopiedTable(name="conversation_tag", key=("owner", "tag", "conversation")),
    CopiedTable(
        name="branch",
        key=("owner", "conversation", "number"),
        read={
            "previous": "(SELECT p.id FROM branch AS p WHERE p.owner = branch.owner"
            " AND p.conversation = branch.conversation AND p.number < branch.number"
            " ORDER BY p.number DESC LIMIT 1)"
        },
        large=("pending",),
    ),
    CopiedTable(name="origin", key=("owner", "branch"), large=("line",)),
    CopiedTable(
        name="turn",
        key=("id",),
        read={
            "parent": "coalesce(turn.parent, (SELECT p.id FROM turn AS p WHERE p.owner = turn.owner"
            " AND p.branch = turn.branch AND p.number = turn.number - 1))"
        },
        large=("body", "log"),
    ),
    CopiedTable(name="item_flag", key=("owner", "turn", "place")),
    CopiedTable(name="token", key=("id",)),
    CopiedTable(name="share", key=("id",)),
    CopiedTable(name="attempt", key=("id",), large=("input", "partial")),
    CopiedTable(name="journal", key=("owner", "attempt", "number"), large=("record",)),
    CopiedTable(name="event_log", key=("owner", "attempt", "number"), large=("chunk",)),
    CopiedTable(name="ticket", key=("attempt",)),
    CopiedTable(name="job", key=("id",), large=("body",)),
    CopiedTable(name="claim", key=("owner", "key_digest(claim.idempotency_key)")),
    CopiedTable(name="lease", key=("id",)),
    CopiedTable(name="clock", key=("id",)),
)
BY_NAME = {table.name: table for table in TABLES}

NOT_COPIED: Mapping[str, str] = MappingProxyType(
    {
        "store": "the version, the secret and the positions are those of one store",
        "owner.last_text": "the search index is rebuilt",
        "owner.last_title": "the search index is rebuilt",
        "conversation.version": "only begins and commits in progress compare it",
        "branch.version": "only begins and commits in progress compare it",
        "attempt.version": "only begins and commits in progress compare it",
        "branch.number": "only its order counts, which the previous branch states",
        "trail": "a part of the conversations",
        "buried_lease": "buried leases are left out: their processes can only come back to the source",
        "epoch": "positions of changes are those of one store",
        "change": "positions name the secret of their store; followers read everything anew",
        "unindexed": "the search index is rebuilt",
        "search_text": "the search index is rebuilt",
    }
)
"""Tables and columns that are in no record, and why."""

_PLACE = {column: place for place, column in enumerate(BY_NAME["conversation"].columns)}
TRAIL = ("switches", "forgotten")
OWN = tuple(column for column in _PLACE if column not in TRAIL)
UNINDEXED = ("owner", "id", "title")


@asynccontextmanager
async def _translated(place: str) -> AsyncIterator[None]:
    try:
        yield
    except BaseException as error:
        failure = translate(error, place)
        if failure is error:
            raise
        raise failure from error


async def _connect(settings: DatabaseSettings) -> AnyConnection:
    connection = await connections.connect(settings)
    try:
        connections.check_server(connection, settings)
    except BaseException:
        connection.terminate()
        raise
    return connection


class PostgresRecords:
    """Reads a database in one transaction."""

    def __init__(self, place: str, connection: AnyConnection) -> None:
        self._place = place
        self._connection = connection

    @classmethod
    async def open(cls, url: str, *, unfinished: bool = False) -> PostgresRecords:
        """Connect to an existing, current store; raises as `PostgresStore.open_read_only`."""
        settings = replace(connections.settings_of(url), timeout=PATIENCE)
        async with _translated(settings.place):
            connection = await _connect(settings)
            try:
                if not unfinished:
                    await check_exists(connection, settings)
                await connection.execute(QUERIES["snapshot"])
            except BaseException:
                connection.terminate()
                raise
        return cls(settings.place, connection)

    @property
    def place(self) -> str:
        return self._place

    async def renew(self) -> None:
        async with _translated(self._place):
            await self._connection.execute("COMMIT")
            await self._connection.execute(QUERIES["snapshot"])

    async def state(self) -> StoreState:
        async with _translated(self._place):
            return await _state(self._connection)

    async def holders(self) -> Holders:
        async with _translated(self._place):
            leases = await self._connection.fetch(QUERIES["leases"])
            return Holders(0, {LeaseId.trusted(id): beat for id, beat in leases})

    async def count(self, table: str) -> int:
        async with _translated(self._place):
            return int(await self._connection.fetchval(f"SELECT count(*) FROM {BY_NAME[table].name}"))  # noqa: S608

    async def read(self, table: str, after: bytes | None, max_bytes: int) -> RecordPage:
        async with _translated(self._place):
            return await self._read(BY_NAME[table], after, max_bytes)

    async def _read(self, table: CopiedTable, after: bytes | None, max_bytes: int) -> RecordPage:
        key = len(table.key)
        begin: list[Any] = [] if after is None else msgspec.msgpack.decode(after)
        bounds = [f"({table.order}) > ({_parameters(1, key)})"] if begin else []
        end: Sequence[Any] = ()
        if table.large:
            end = await self._last_key(table, bounds, begin, max_bytes)
            if end:
                bounds.append(f"({table.order}) <= ({_parameters(len(begin) + 1, key)})")
        query = (
            f"SELECT {table.order}, {table.selection} {table.source} {_where(bounds)} "
            f"ORDER BY {table.order} LIMIT {PAGE_ROWS}"
        )
        rows = [tuple(row) for row in await self._connection.fetch(query, *begin, *end)]
        records = [row[key:] for row in rows]
        for record in records:
            check_record(table, record)
        return RecordPage(records, msgspec.msgpack.encode(rows[-1][:key] if rows else begin))

    async def _last_key(
        self, table: CopiedTable, bounds: list[str], begin: list[Any], max_bytes: int
    ) -> Sequence[Any]:
        """Return the key of the last record of a page; nothing at the end of the table. Sizes are read before
        the rows: a page of large ones must fit into the memory of both sides."""
        size = " + ".join(f"coalesce(octet_length({table.name}.{column}), 0)" for column in table.large)
        query = (
            f"SELECT {size}, {table.order} FROM {table.name} {_where(bounds)} "  # noqa: S608 - declared above
            f"ORDER BY {table.order} LIMIT {PAGE_ROWS}"
        )
        passed = 0
        last: Sequence[Any] = ()
        for row in await self._connection.fetch(query, *begin):
            if last and passed + row[0] > max_bytes:
                break
            passed += row[0]
            last = tuple(row)[1:]
        return last

    async def close(self) -> None:
        self._connection.terminate()


def _parameters(first: int, count: int) -> str:
    return ", ".join(f"${number}" for number in range(first, first + count))


def _where(bounds: Sequence[str]) -> str:
    return f"WHERE {' AND '.join(bounds)}" if bounds else ""


async def _state(connection: AnyConnection) -> StoreState:
    secret, *marks = await connection.fetchrow(QUERIES["state"])
    identity = hashlib.sha256(b"identity" + secret).hexdigest()[:32]
    return StoreState(identity, hashlib.sha256(msgspec.json.encode(marks)).hexdigest()[:32])


class PostgresCopy:
    """A database that records are copied into."""

    def __init__(self, url: str, place: str, connection: AnyConnection) -> None:
        self._url = url
        self._place = place
        self._connection = connection

    @classmethod
    async def open(cls, url: str) -> PostgresCopy:
        """Connect to the database, which may be an unfinished copy; create or migrate its tables if needed.
        Raises as `PostgresStore.open`."""
        settings = replace(connections.settings_of(url), timeout=PATIENCE)
        async with _translated(settings.place):
            connection = await _connect(settings)
            try:
                version = await version_of(connection)
                check_copy_version(version, VERSION, settings.place)
                if version < UNFINISHED:
                    await migrate(connection)
            except BaseException:
                connection.terminate()
                raise
        return cls(url, settings.place, connection)

    @property
    def place(self) -> str:
        return self._place

    async def progress(self) -> CopyProgress | None:
        async with _translated(self._place):
            if not await self._connection.fetchval(QUERIES["has_progress"]):
                return None
            raw = await self._connection.fetchval(QUERIES["progress"])
            return None if raw is None else unpacked(raw)

    async def begin(self, progress: CopyProgress) -> bool:
        async with _translated(self._place), self._connection.transaction():
            run = self._connection.execute
            if await self._connection.fetchval(QUERIES["lock_store"]) != VERSION:
                return False
            for table in (*BY_NAME, "change"):
                is_empty = f"SELECT NOT EXISTS (SELECT 1 FROM {table})"  # noqa: S608 - declared above
                if table not in ("lease", "clock") and not await self._connection.fetchval(is_empty):
                    return False
            for name in ("drop_leases", "drop_clock", "create_progress"):
                await run(QUERIES[name])
            await run(QUERIES["begin"], packed(progress))
            await run(QUERIES["save_version"], UNFINISHED + VERSION)
            return True

    async def write(
        self, table: str, records: Sequence[StoreRecord], old: CopyProgress, new: CopyProgress
    ) -> None:
        async with _translated(self._place), self._connection.transaction():
            await self._advance(old, new)
            for name, columns, rows in await self._rows_of(BY_NAME[table], records):
                await self._connection.copy_records_to_table(name, records=rows, columns=columns)

    async def _advance(self, old: CopyProgress, new: CopyProgress) -> None:
        if not await self._connection.fetch(QUERIES["advance"], packed(new), packed(old)):
            raise StoreUnavailable(f"Another process copies into {self._place}. Let it finish.")

    async def _rows_of(
        self, table: CopiedTable, records: Sequence[StoreRecord]
    ) -> list[tuple[str, Sequence[str], Iterable[StoreRecord]]]:
        """Return the rows of records, by table; texts have to be indexed."""
        columns = table.columns
        if table.name == "branch":
            numbers = await self._numbers_of(records)
            numbered = ((*record[:3], numbers[record[0]], *record[4:]) for record in records)
            return [("branch", (*columns[:3], "number", *columns[4:]), numbered)]
        if table.name == "turn":
            due = ((owner, id, 0) for id, owner, *_ in records)
            return [("turn", columns, records), ("unindexed", UNINDEXED, due)]
        if table.name == "conversation":
            titled = (record for record in records if _has_title(record))
            due = ((record[_PLACE["owner"]], record[_PLACE["id"]], 1) for record in titled)
            trails = (_columns_of(record, ("owner", "id", *TRAIL)) for record in records)
            return [
                ("conversation", OWN, (_columns_of(record, OWN) for record in records)),
                (
                    "trail",
                    ("owner", "conversation", *TRAIL),
                    (each for each in trails if each[2:] != (None, None)),
                ),
                ("unindexed", UNINDEXED, due),
            ]
        return [(table.name, columns, records)]

    async def _numbers_of(self, branches: Sequence[StoreRecord]) -> dict[bytes, int]:
        """Return the numbers of branches: each has that of its previous one and 1."""
        earlier = [previous for _, _, _, previous, *_ in branches if previous is not None]
        numbers: dict[bytes, int] = dict(await self._connection.fetch(QUERIES["numbers_of"], earlier))
        for id, _, _, previous, *_ in branches:
            numbers[id] = 1 if previous is None else numbers[previous] + 1
        return numbers

    async def finish(self, old: CopyProgress) -> None:
        async with _translated(self._place), self._connection.transaction():
            state = await _state(self._connection)
            await self._advance(old, msgspec.structs.replace(old, target=state))
            await self._connection.execute(QUERIES["save_version"], VERSION)

    async def snapshot(self) -> RecordSource:
        return await PostgresRecords.open(self._url, unfinished=True)

    async def close(self) -> None:
        self._connection.terminate()


def _has_title(conversation: StoreRecord) -> bool:
    """Return whether the title is indexed: one made of first words is found with its turn."""
    return conversation[_PLACE["title"]] is not None and conversation[_PLACE["named_by"]] != "words"


def _columns_of(conversation: StoreRecord, columns: Sequence[str]) -> StoreRecord:
    return tuple(conversation[_PLACE[column]] for column in columns)
