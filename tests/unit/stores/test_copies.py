"""Records of the SQL stores: every column of every table is copied, or left out for a reason."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import apsw
import asyncpg
import pytest

from turnledger.engine.tables.records import TABLES, CopyProgress, StoreRecord
from turnledger.errors import InvalidInput, NotAStore, StoreCorrupt
from turnledger.stores.copies import UNFINISHED
from turnledger.stores.postgresql import PostgresStore
from turnledger.stores.postgresql import copies as of_postgresql
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite import copies as of_sqlite
from turnledger.stores.url import open_source, open_target
from turnledger.testing.postgresql import PostgresServer

COLUMNS = """
SELECT table_name, column_name, data_type, is_nullable = 'YES'
FROM information_schema.columns WHERE table_schema = 'public'
"""
TABLES_OF_A_FILE = "SELECT name FROM sqlite_schema WHERE type = 'table'"
COLUMNS_OF_A_FILE = 'SELECT name, type, "notnull" FROM pragma_table_info(?)'
KINDS = {"bytea": bytes, "text": str, "bigint": int, "integer": int, "smallint": int}
SHADOWS = ("_config", "_content", "_data", "_docsize", "_idx")
"""Endings of the tables in which SQLite keeps a full-text index."""


@pytest.fixture(scope="module")
def server() -> Iterator[PostgresServer]:
    with PostgresServer.start() as running:
        yield running


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, server: PostgresServer, tmp_path: Path) -> str:
    return server.create_database() if request.param == "postgresql" else f"sqlite:///{tmp_path}/chats.db"


def path_of(url: str) -> str:
    return url.removeprefix("sqlite:///")


async def columns_of(url: str) -> dict[str, dict[str, tuple[type, bool]]]:
    """Return the tables of a new store: the kind of each column, and whether it can be NULL."""
    found: dict[str, dict[str, tuple[type, bool]]] = {}
    await (await open_target(url)).close()
    if url.startswith("sqlite"):
        connection = apsw.Connection(path_of(url))
        tables = [
            name for (name,) in connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        ]
        for table in tables:
            if not table.endswith(SHADOWS) or table == "buried":
                rows = connection.execute('SELECT name, type, "notnull" FROM pragma_table_info(?)', (table,))
                kinds = {"BLOB": bytes, "TEXT": str, "INTEGER": int, "": str}
                found[table] = {name: (kinds[kind], not required) for name, kind, required in rows}
        connection.close()
        return found
    connection = await asyncpg.connect(url)
    for table, column, kind, is_nullable in await connection.fetch(COLUMNS):
        found.setdefault(table, {})[column] = KINDS.get(kind, str), is_nullable
    await connection.close()
    return found


async def test_every_column_of_the_schema_is_copied_or_left_out_for_a_reason(url: str) -> None:
    module: ModuleType = of_sqlite if url.startswith("sqlite") else of_postgresql
    found = await columns_of(url)
    left_out: Mapping[str, str] = module.NOT_COPIED
    missing = []
    for table, columns in found.items():
        if table in left_out:
            assert table not in TABLES, f"{table} is copied, and left out"
            continue
        named = {name for name in left_out if name.startswith(f"{table}.")}
        missing += [
            f"{table}.{column}"
            for column in columns
            if column not in TABLES.get(table, ()) and f"{table}.{column}" not in named
        ]
        assert named <= {f"{table}.{column}" for column in set(columns) - set(TABLES[table])}
    assert missing == []
    assert {name.partition(".")[0] for name in left_out} | set(TABLES) == set(found)
    assert [table.name for table in module.TABLES] == list(TABLES)


def full_records(
    kinds: dict[str, dict[str, tuple[type, bool]]], *, nulls: bool
) -> dict[str, list[StoreRecord]]:
    """Return a record for each table, with a value of its own in every column, or NULL where that can be.

    Ids of one kind are the same in all tables, so that every row finds those that it names.
    """
    conversation, branch, source, attempt, turn = (bytes([number]) * 16 for number in range(1, 6))
    shared: dict[str, Any] = {
        "owner": "ann \x00 🦋",
        "conversation": conversation,
        "branch": branch,
        "attempt": attempt,
    }
    ids = {"conversation": conversation, "attempt": attempt, "turn": turn, "clock": 1}
    number = 100

    def value(table: str, column: str) -> Any:
        nonlocal number
        number += 1
        if column == "id" and table in ids:
            return ids[table]
        if column in shared and (table, column) != ("conversation", "branch"):
            return shared[column]
        kind, is_nullable = kinds[table].get(column, (bytes, True))
        if is_nullable and nulls:
            return None
        return {int: number, str: f"{column} {number}", bytes: b"%016d" % number}[kind]

    records = {table: [tuple(value(table, each) for each in columns)] for table, columns in TABLES.items()}

    def change(table: str, **values: Any) -> StoreRecord:
        return tuple(
            values.get(column, old) for column, old in zip(TABLES[table], records[table][0], strict=True)
        )

    line = b"".join(id + bytes(7) + b"\x01" + bytes(7) + b"\x02" for id in (branch, source))
    records["branch"] = [
        change("branch", id=branch, previous=None),
        change("branch", id=source, previous=branch),
    ]
    records["origin"] = [change("origin", source=None if nulls else source, line=None if nulls else line)]
    records["turn"] = [
        change("turn", number=1, parent=None, checksum=-5),
        change("turn", id=b"t" * 16, number=2, parent=turn, checksum=5),
        change("turn", id=b"u" * 16, number=3, parent=turn, checksum=5),
    ]
    long = b"x" * 5_000
    records["attempt"] = [change("attempt", ended=0), change("attempt", id=b"z" * 16, ended=1, input=long)]
    return records


@pytest.mark.parametrize("nulls", [False, True])
async def test_records_with_a_value_of_their_own_in_every_column_are_read_as_they_were_written(
    url: str, server: PostgresServer, nulls: bool
) -> None:
    # The kinds of PostgreSQL, which are stricter than those of the records.
    kinds = await columns_of(server.create_database())
    kinds["conversation"] |= {name: kinds["trail"][name] for name in ("switches", "forgotten")}
    written = full_records(kinds, nulls=nulls)
    source, target = await open_source_of_nothing(url)
    progress = CopyProgress(await source.state(), "owner")
    assert await target.begin(progress)
    for table, records in written.items():
        await target.write(table, records, progress, progress)
    await source.renew()
    for table, records in written.items():
        read: list[StoreRecord] = []
        page = await source.read(table, None, 1)
        while page.records:
            read += page.records
            page = await source.read(table, page.after, 1)
        assert sorted(map(repr, read)) == sorted(map(repr, records)), table
        assert await source.count(table) == len(records)
    await source.close()
    await target.close()


async def open_source_of_nothing(url: str) -> tuple[Any, Any]:
    """Return a target, and a source that reads it."""
    target = await open_target(url)
    return await target.snapshot(), target


@pytest.mark.parametrize("page", [1, 700, 10_000_000])
async def test_pages_hold_their_bytes_and_continue_behind_their_last_record(url: str, page: int) -> None:
    source, target = await open_source_of_nothing(url)
    begun = CopyProgress(await source.state(), "job")
    assert await target.begin(begun)
    jobs = [(bytes([n]) * 16, "ann", bytes(16), 1, 0, b"x" * 300) for n in range(1, 8)]
    await target.write("job", jobs, begun, begun)
    await source.renew()
    read, sizes, after = [], [], None
    while records := (found := await source.read("job", after, page)).records:
        read += records
        sizes.append(len(records))
        after = found.after
    assert read == jobs
    assert sizes == {1: [1] * 7, 700: [2, 2, 2, 1], 10_000_000: [7]}[page]
    await source.close()
    await target.close()


async def test_row_of_a_file_that_belongs_to_nothing_is_reported(tmp_path: Path) -> None:
    """The tables of PostgreSQL refuse such a row."""
    await (await open_target(f"sqlite:///{tmp_path}/chats.db")).close()
    connection = apsw.Connection(f"{tmp_path}/chats.db")
    connection.execute("INSERT INTO branch (id, conversation, fence, length) VALUES (x'01', x'02', 0, 0)")
    connection.close()
    source = await open_source(f"sqlite:///{tmp_path}/chats.db")
    with pytest.raises(StoreCorrupt, match=r"`branch` belongs to nothing\. Run `turnledger check`"):
        await source.read("branch", None, 1)
    await source.close()


async def test_unfinished_copy_is_opened_by_nothing_but_a_copy_of_the_same_version(url: str) -> None:
    target = await open_target(url)
    reader = await target.snapshot()
    begun = CopyProgress(await reader.state(), "owner")
    assert await target.begin(begun)
    assert await target.progress() == begun
    for refused in (store_of(url), visit_of(url), open_source(url)):
        with pytest.raises(NotAStore, match=r"unfinished copy\. Repeat `turnledger copy`"):
            await refused
    await (await open_target(url)).close()
    await target.finish(begun)
    await reader.close()
    await target.close()
    await (await store_of(url)).close()

    await save_version(url, UNFINISHED + 999)
    with pytest.raises(InvalidInput, match="by another version of Turnledger"):
        await open_target(url)


def store_of(url: str) -> Any:
    return SqliteStore.open(path_of(url)) if url.startswith("sqlite") else PostgresStore.open(url)


def visit_of(url: str) -> Any:
    from turnledger.stores.url import open_read_only

    return open_read_only(url)


async def save_version(url: str, version: int) -> None:
    if url.startswith("sqlite"):
        connection = apsw.Connection(path_of(url))
        connection.pragma("user_version", version)
        connection.close()
        return
    database = await asyncpg.connect(url)
    await database.execute("UPDATE store SET version = $1", version)
    await database.close()
