"""The schema: migrations lead to schema.sql, and every query is named, used and indexed."""

from __future__ import annotations

import re
from pathlib import Path

import apsw
import pytest

from tests.unit.engine.populated_store import populate, run_turn
from tests.unit.stores.sqlite.operations import ids
from turnledger import Ledger
from turnledger.hosting import Host
from turnledger.model.catalogue import ChatFilter
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.text.search import parse_query
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores import sql
from turnledger.stores.sql.queries import named_queries
from turnledger.stores.sqlite import SqliteStore, migrations, tables
from turnledger.stores.sqlite.header import APPLICATION_ID, PAGE_SIZE
from turnledger.stores.sqlite.migrations import (
    MIGRATIONS,
    VERSION,
    add_functions,
    migrate,
    turn_preview,
    turn_title,
)
from turnledger.stores.sqlite.tables.records import FILES, QUERIES, sql_text
from turnledger.stores.sqlite.tables.tables import SqliteTables
from turnledger.stores.sqlite.tables.whole import SqliteWholeStore
from turnledger.testing.scripted_model import ScriptedModel, Tool

SMALL = {"leases", "forget_buried", "attempts", "running_attempts", "mark_swept", "is_index_complete"}
"""Queries that read a table of few rows, or a part of one, from end to end."""
SMALL_TABLES = {"search_mark", "turn_due", "made", "page"}
"""Tables of one row, of what is to be done, and of what a query has found so far, or a page of it."""

CHECKS = set(named_queries(sql_text("tables/inspection.sql")))
"""Queries that go through everything."""


def shape(connection: apsw.Connection) -> set[tuple[str, str, str]]:
    rows = connection.execute("SELECT type, name, sql FROM sqlite_schema WHERE sql IS NOT NULL")
    return {(kind, name, without_layout(sql)) for kind, name, sql in rows}


def without_layout(sql: str) -> str:
    """A column that was added later stands on the last line."""
    words = " ".join(re.sub("--.*", "", sql).split())
    return re.sub(r" ?([(),]) ?", r"\1", words)


def rows(connection: apsw.Connection) -> dict[str, list[object]]:
    """What is in the tables of a store, but for what is drawn for each."""
    tables = [name for kind, name, _ in shape(connection) if kind == "table"]
    assert "secret" in tables
    connection.execute("UPDATE secret SET bits = zeroblob(32)")
    return {name: connection.execute(f"SELECT * FROM {name}").fetchall() for name in tables}


def of_the_first_version() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(sql_text(f"migrations/{MIGRATIONS[0]}"))
    connection.pragma("user_version", 1)
    return connection


@pytest.fixture(scope="module")
def migrated() -> apsw.Connection:
    connection = of_the_first_version()
    migrate(connection, ":memory:")
    return connection


def test_migrations_lead_to_the_schema_of_a_new_store(migrated: apsw.Connection) -> None:
    made = apsw.Connection(":memory:")
    migrate(made, ":memory:")
    assert shape(migrated) == shape(made)
    assert rows(migrated) == rows(made)
    assert migrated.pragma("user_version") == made.pragma("user_version") == VERSION


def test_schema_has_no_triggers(migrated: apsw.Connection) -> None:
    assert {name for kind, name, _ in shape(migrated) if kind == "trigger"} == set()


def test_migrations_are_numbered_without_gaps() -> None:
    folder = Path(migrations.__file__).parent / "migrations"
    assert sorted(path.name for path in folder.glob("*.sql")) == list(MIGRATIONS)
    assert [int(name[:4]) for name in MIGRATIONS] == list(range(1, VERSION + 1))


def test_migration_from_the_first_version_keeps_the_rows() -> None:
    connection = of_the_first_version()
    connection.execute(
        "INSERT INTO branch (id, conversation, fence, length) VALUES (?, ?, 3, 2)",
        (b"branch", b"conversation"),
    )
    connection.execute(
        "INSERT INTO conversation (id, owner, branch, conversation_key, state, internal, revision,"
        " created_at, touched_at) VALUES (?, 'ann', ?, 'k', 'live', 0, 1, 5, 6)",
        (b"conversation", b"branch"),
    )
    for number, body, log in ((1, b"x" * 16_384, None), (2, b"y", b"z")):
        connection.execute(
            "INSERT INTO turn (id, branch, number, kind, created_at, committed_at, body, log)"
            " VALUES (?, 1, ?, 0, 1, 1, ?, ?)",
            (b"%d" % number, number, body, log),
        )
    migrate(connection, ":memory:")
    assert connection.execute("SELECT owner, bytes FROM owner").fetchall() == [("ann", 2 * 16_384)]
    [found] = connection.execute(QUERIES["conversation_by_key"], ("ann", "", "k"))
    assert (found[0], found[14]) == (b"conversation", "")
    [row] = connection.execute(QUERIES["branch"], (b"branch", "ann"))
    assert row == (1, b"conversation", 3, None, 2, None, None, None, 0, 0, 0, 0, 16_386, "", None)
    assert connection.execute("SELECT * FROM item_flag").fetchall() == []


async def test_migration_from_version_8_with_rows_in_every_table_passes_the_check(
    tmp_path: Path,
) -> None:
    """The rows are those that this version writes, as far as version 8 had columns for them."""
    made, old = tmp_path / "made.db", tmp_path / "old.db"
    lived = await populate(await SqliteStore.open(made))
    chats = [lived.plain, lived.edited, lived.forked, lived.settled, lived.kept]
    before = [(str(chat.id), [turn.body for turn in await chat.turns()]) for chat in chats]
    owner = lived.plain.owner
    await Host(lived.ledger).tokens.create(owner=owner, scopes=["chats:read"])
    tokens = await Host(lived.ledger).tokens.list(owner=owner)
    await lived.ledger.close()
    connection = apsw.Connection(str(old))
    connection.pragma("page_size", PAGE_SIZE)
    connection.pragma("application_id", APPLICATION_ID)
    add_functions(connection)
    for name in MIGRATIONS[:8]:
        connection.execute(sql_text(f"migrations/{name}"))
    connection.execute("ATTACH ? AS made", (str(made),))
    names = connection.execute("SELECT name FROM sqlite_schema WHERE type = 'table'").fetchall()
    words = re.compile("(turn|title)_words")
    for table in [name for (name,) in names if not words.match(name)]:
        columns = [row[1] for row in connection.execute(f"PRAGMA table_info({table})")]
        known = [row[1] for row in connection.execute(f"PRAGMA made.table_info({table})")]
        both = ", ".join(column for column in columns if column in known)
        connection.execute(f"DELETE FROM {table}")
        connection.execute(f"INSERT INTO {table} ({both}) SELECT {both} FROM made.{table}")
    # Nothing was looked through yet: the index of words is empty.
    connection.execute("UPDATE search_mark SET turn = 0; DELETE FROM turn_due; DELETE FROM search_block")
    connection.execute("UPDATE turn SET kind = 1 WHERE kind = 3; UPDATE conversation SET title_due = 0")
    connection.pragma("user_version", 8)
    connection.close()
    async with await Ledger.open(f"sqlite:///{old}") as ledger:
        assert await ledger.check() == []
        for id, bodies in before:
            chat = await ledger.for_owner(owner).conversation(id, create=False)
            assert [turn.body for turn in await chat.turns()] == bodies
        assert await Host(ledger).tokens.list(owner=owner) == tokens
        await run_turn(await ledger.for_owner(owner).conversation(before[0][0]), "Are you there?")
        assert (await ledger.for_owner(owner).search("Are you there")).hits
        assert await ledger.check() == []


def test_migration_moves_flag_versions_into_the_owner_rows() -> None:
    connection = of_the_first_version()
    connection.execute("INSERT INTO flag_version (owner, version) VALUES ('ann', 7), ('ben', 1)")
    migrate(connection, ":memory:")
    rows = connection.execute("SELECT owner, flag_version, admission FROM owner ORDER BY owner").fetchall()
    assert rows == [("ann", 7, 0), ("ben", 1, 0)]
    connection.execute(QUERIES["raise_flag_version"], ("ann",))
    assert connection.execute(QUERIES["flag_version"], ("ann",)).fetchall() == [(8,)]


async def test_migration_recounts_the_usage_of_every_owner(tmp_path: Path) -> None:
    """What failed turns, chats and details take is counted as if it always had been."""
    url = f"sqlite:///{tmp_path}/chats.db"
    async with await Ledger.open(url) as ledger:
        chat = await ledger.for_owner("ann").conversation(metadata={"long": "\N{SNOWMAN}" * 500}, tags=["t"])
        tool, text = Tool("pay", "x" * 1_000), "y" * 20_000
        for input in ("short", "z" * 5_000):
            with pytest.raises(RuntimeError):
                await chat.run(ScriptedModel([text, tool, RuntimeError("boom")]), input)
        await chat.run(ScriptedModel([text]), "next")
        await (await chat.fork()).undo()
        await (await ledger.for_owner("ann").conversation()).delete()
        gone = await ledger.for_owner("ben").conversation()
        await gone.run(ScriptedModel([text]), "q")
        await gone.delete(purge=True)
        await ledger.for_owner("cleo").conversation()
        usage = {owner: await ledger.for_owner(owner).usage() for owner in ("ann", "ben", "cleo")}
        assert usage["ann"].chats == 3
    [at] = [number for number, name in enumerate(MIGRATIONS) if name.endswith("_usage.sql")]
    later = "".join(sql_text(f"migrations/{name}") for name in MIGRATIONS[at:])
    added = re.findall(r"ALTER TABLE (\w+) ADD COLUMN (\w+)", later)
    connection = apsw.Connection(str(tmp_path / "chats.db"))
    for index in re.findall(r"CREATE INDEX (\w+)", later):
        connection.execute(f"DROP INDEX {index}")
    for table, column in added:
        connection.execute(f"ALTER TABLE {table} DROP COLUMN {column}")
    for table in re.findall(r"CREATE TABLE (\w+)", later):
        connection.execute(f"DROP TABLE {table}")
    connection.execute("UPDATE owner SET bytes = 0; DELETE FROM owner WHERE owner = 'cleo'")
    connection.pragma("user_version", at)
    connection.close()
    async with await Ledger.open(url) as ledger:
        assert {owner: await ledger.for_owner(owner).usage() for owner in usage} == usage
        assert await ledger.check(at_rest=True) == []


def test_migration_marks_interrupted_turns_that_ran_tools() -> None:
    connection = of_the_first_version()
    connection.execute(
        "INSERT INTO branch (id, conversation, fence, length) VALUES (?, ?, 3, 4), (?, ?, 0, 1)",
        (b"branch", b"conversation", b"fork", b"other"),
    )
    ran = b'{"items":[{"type": "function_call_output"}]}'
    for number, kind, body in ((1, 1, ran), (2, 1, b'{"items":[]}'), (3, 2, b"{}"), (4, 0, ran)):
        connection.execute(
            "INSERT INTO turn (id, branch, number, kind, created_at, committed_at, body)"
            " VALUES (?, 1, ?, ?, 1, 1, ?)",
            (b"%d" % number, number, kind, body),
        )
    migrate(connection, ":memory:")
    assert connection.execute("SELECT kind FROM turn ORDER BY number").fetchall() == [(3,), (1,), (2,), (0,)]
    assert connection.execute("SELECT settled FROM branch").fetchall() == [(4,), (1,)]
    found = connection.execute(QUERIES["turns_with_effects"], ("[[1, 0, 4]]",)).fetchall()
    assert sorted(row[1] for row in found) == [1, 3]


def test_migration_run_twice_changes_nothing(migrated: apsw.Connection) -> None:
    before = migrated.pragma("schema_version")
    migrate(migrated, ":memory:")
    assert migrated.pragma("schema_version") == before


@pytest.mark.parametrize("version", [0, 1])
def test_failed_migration_step_leaves_tables_and_version_unchanged(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = of_the_first_version() if version else apsw.Connection(":memory:")
    before = shape(connection)
    broken = "CREATE TABLE half (done INTEGER); CREATE TABLE broken ("
    monkeypatch.setattr("turnledger.stores.sqlite.migrations.sql_text", lambda name: broken)
    with pytest.raises(apsw.SQLError):
        migrate(connection, ":memory:")
    assert shape(connection) == before
    assert connection.pragma("user_version") == version


MODULES = "".join(
    path.read_text() for room in (sql, tables) for path in Path(str(room.__file__)).parent.glob("*.py")
)


@pytest.mark.parametrize("file", FILES)
def test_query_has_a_comment_and_is_used(file: str) -> None:
    written = sql_text(f"tables/{file}.sql")
    names = set(named_queries(written))
    assert {name for name in names if f'"{name}"' not in MODULES} == set()
    assert len(re.findall(r"^-- name: \w+\n-- [A-Z]", written, re.MULTILINE)) == len(names)


def test_query_names_are_unique_and_every_used_one_exists() -> None:
    written = [name for file in FILES for name in named_queries(sql_text(f"tables/{file}.sql"))]
    assert len(written) == len(QUERIES)
    used = re.findall(r'self\._(?:rows?|run|fetch(?:_row|_number)?|own(?:_row)?|change)\(\s*"(\w+)"', MODULES)
    assert set(used) <= set(QUERIES)


def test_named_queries_are_split_at_their_names() -> None:
    text = "-- about\n\n-- name: one\n-- Says.\nSELECT 1;\n\n-- name: two\n-- Says.\nSELECT\n  2;\n"
    assert named_queries(text) == {"one": "SELECT 1;", "two": "SELECT 2;"}


def scans_of(connection: apsw.Connection, query: str) -> list[str]:
    """The steps of a query's plan that read a table from end to end, except small ones."""
    names = re.findall(r"\?\d*", query)
    bindings = [None] * (len({*names}) if names and names[0] != "?" else len(names))
    plan = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {query}", bindings)]
    scans = [step for step in plan if step.startswith("SCAN") and "USING INDEX" not in step]
    scans = [step for step in scans if "VIRTUAL TABLE" not in step and "CONSTANT ROW" not in step]  # given
    scans = [step for step in scans if "SUBQUERY" not in step and "(subquery" not in step]
    return [step for step in scans if step.split()[1] not in SMALL_TABLES]


def test_queries_do_not_scan_a_growing_table(migrated: apsw.Connection) -> None:
    scanning = {name: scans_of(migrated, QUERIES[name]) for name in set(QUERIES) - CHECKS - SMALL}
    assert {name: scans for name, scans in scanning.items() if scans} == {}


CALL = Item.of({"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}"})
RESULT = Item.of({"type": "function_call_output", "call_id": "c", "output": "seen"})


@pytest.fixture
def old() -> apsw.Connection:
    """A store of the third version."""
    connection = apsw.Connection(":memory:")
    for name in MIGRATIONS[:3]:
        connection.execute(sql_text(f"migrations/{name}"))
    connection.pragma("user_version", 3)
    return connection


def body(question: str, *output: Item) -> bytes:
    turn = Turn.of(
        id=ids.new(TurnId),
        branch=ids.new(BranchId),
        number=1,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=1,
        committed_at=1,
        input=(message("user", question),) if question else (),
        output=output,
    )
    return turn.body


def add_chat(
    old: apsw.Connection, number: int, bodies: list[bytes], state: str = "live", title: str | None = None
) -> tuple[bytes, list[bytes]]:
    """A chat with its turns; returns its id and theirs."""
    chat, branch = ids.new(ConversationId).raw, ids.new(BranchId).raw
    turns = [ids.new(TurnId).raw for _ in bodies]
    old.execute(
        "INSERT INTO conversation (id, owner, branch, state, internal, title, metadata, revision, created_at,"
        " touched_at) VALUES (?, 'ann', ?, ?, 0, ?, '{\"a\":\"b\"}', 1, 1, ?)",
        (chat, branch, state, title, number),
    )
    head = turns[-1] if turns else None
    old.execute(
        "INSERT INTO branch (id, conversation, fence, head, length) VALUES (?, ?, 1, ?, ?)",
        (branch, chat, head, len(turns)),
    )
    ref = old.last_insert_rowid()
    for place, (turn, text) in enumerate(zip(turns, bodies, strict=True), 1):
        old.execute(
            "INSERT INTO turn (id, branch, number, kind, created_at, committed_at, body)"
            " VALUES (?, ?, ?, 0, 1, 1, ?)",
            (turn, ref, place, text),
        )
    return chat, turns


async def listed(connection: apsw.Connection) -> list[tuple[str | None, str | None, str]]:
    migrate(connection, ":memory:")
    found = await SqliteTables(connection.cursor(), "ann").listed_chats(ChatFilter(), None, 10)
    return [(each.conversation.title, each.conversation.named_by, each.preview) for each in found]


async def test_migration_fills_in_previews_and_titles(old: apsw.Connection) -> None:
    add_chat(old, 3, [body("What is a heron?", message("assistant", "A bird."))])
    add_chat(old, 2, [body("And an egret?", message("assistant", "A heron."))], title="Birds")
    add_chat(old, 1, [])
    assert await listed(old) == [
        ("What is a heron?", "words", "A bird."),
        ("Birds", "person", "A heron."),
        (None, None, ""),
    ]


async def test_migration_takes_the_preview_from_the_last_shown_text(old: apsw.Connection) -> None:
    shown = body("Look.", message("assistant", "I looked."))
    _, turns = add_chat(old, 1, [shown, body("", CALL), body("", RESULT)])
    assert len(turns) == 3
    _, [first, last] = add_chat(
        old, 2, [body("one", message("assistant", "two")), body("three", message("assistant", "four"))]
    )
    for turn, place in ((first, 0), (last, 0), (last, 1)):
        old.execute("INSERT INTO item_flag VALUES (?, ?, 'ann', 1, 0, 2, 1)", (turn, place))
    assert await listed(old) == [(None, None, "two"), ("Look.", "words", "I looked.")]


async def test_migration_removes_titles_and_previews_of_deleted_conversations(old: apsw.Connection) -> None:
    for number, state in enumerate(("deleted", "expired")):
        chat, _ = add_chat(old, number, [body("A secret.")], state, title="Secret")
        old.execute("UPDATE conversation SET former_conversation_key = ? WHERE id = ?", (state, chat))
    old.execute("UPDATE conversation SET conversation_key = 'k' WHERE state = 'expired'")
    assert await listed(old) == []
    rows = old.execute("SELECT state, title, metadata, named_by FROM conversation ORDER BY ref").fetchall()
    assert rows == [("purged", None, None, None), ("expired", None, None, None)]
    assert old.execute("SELECT preview FROM branch").fetchall() == [("",), ("",)]
    keys = old.execute("SELECT conversation_key, former_conversation_key FROM conversation ORDER BY ref")
    assert keys.fetchall() == [(None, None), ("k", "expired")]


async def test_migration_makes_titles_and_turns_searchable(old: apsw.Connection) -> None:
    named, _ = add_chat(old, 1, [body("What is a heron?")], title="Birds")
    unnamed, _ = add_chat(old, 2, [body("Where are birds?")])
    migrate(old, ":memory:")
    whole = SqliteWholeStore(old.cursor())
    while not await whole.is_index_complete():
        assert await whole.index_texts(10)
    found = await whole.of("ann").search(None, parse_query("birds"), None, 10)
    assert [(each.conversation.raw, each.turn is None) for each in found] == [(named, True), (unnamed, False)]


def test_migration_of_an_unreadable_turn_gives_no_preview_and_no_title() -> None:
    assert turn_preview(b"{", None) == ""
    assert turn_title(b"{", None) is None
    assert turn_title(body("one"), "0") is None
