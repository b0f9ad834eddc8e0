"""Lists in SQLite cost the same among many chats, and the check reports damage to the file."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tests.unit.engine.populated_store import populate
from tests.unit.stores.sqlite.operations import ids
from turnledger.engine.check.check import CheckRequest, check
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import Branch, Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId
from turnledger.stores.sql import owner
from turnledger.stores.sqlite import ReadOnlySqlite, SqliteStore
from turnledger.stores.sqlite.migrations import migrate
from turnledger.stores.sqlite.tables import catalogue
from turnledger.stores.sqlite.tables.inspection import ODD, ODD_WORDS
from turnledger.stores.sqlite.tables.records import QUERIES
from turnledger.stores.sqlite.tables.tables import SqliteTables
from turnledger.types import Finding, Rule

ALL = 1_000


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    migrate(connection, ":memory:")
    yield connection
    connection.close()


@pytest.fixture
def tables(connection: apsw.Connection) -> SqliteTables:
    return SqliteTables(connection.cursor(), "ada")


async def add(tables: SqliteTables, number: int, **details: Any) -> Conversation:
    made = Conversation(
        id=ids.new(ConversationId),
        owner="ada",
        branch=ids.new(BranchId),
        created_at=0,
        touched_at=number,
        **details,
    )
    await tables.add_conversation(made)
    await tables.add_branch(
        Branch(id=made.branch, conversation=made.id, preview=f"said {number}", length=number)
    )
    return made


async def mixed(tables: SqliteTables) -> list[Conversation]:
    """Chats of all kinds, several of them last used at the same time."""
    kinds = product(((), ("a",), ("a", "b")), (False, True), (False, True), ("", "shop"), (True, False))
    made = [
        await add(
            tables, number // 3, tags=tags, pinned=pinned, archived=archived, scope=scope, is_listed=is_listed
        )
        for number, (tags, pinned, archived, scope, is_listed) in enumerate(kinds)
    ]
    for each in made[::7]:
        await tables.save_conversation(replace(each, state=ConversationState.DELETED, purge_at=9))
    return [found for each in made if (found := await tables.conversation(each.id)) is not None]


CHOICES = [
    ChatFilter(scope=scope, tag=tag, archived=archived, pinned=pinned, deleted=deleted)
    for scope, tag, archived, pinned, deleted in product(
        (None, "", "shop"), (None, "a", "b", "c"), (None, False, True), (None, False, True), (False, True)
    )
]


@pytest.mark.parametrize(("few", "looked_back"), [(0, 0), (0, 5), (0, 2_000), (500, 2_000)])
async def test_list_with_any_filter_and_page_size_returns_the_matching_chats_in_order(
    tables: SqliteTables, few: int, looked_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "FEW", few)
    monkeypatch.setattr(catalogue, "LOOKED_BACK", looked_back)
    chats = await mixed(tables)
    for wanted in CHOICES:
        expected = sorted(
            (each for each in chats if wanted.matches(each)),
            key=lambda each: (each.touched_at, each.id),
            reverse=True,
        )
        assert [each.conversation for each in await tables.listed_chats(wanted, None, ALL)] == expected, (
            wanted
        )
        paged: list[ChatEntry] = []
        while page := await tables.listed_chats(wanted, ListPosition.after(paged[-1]) if paged else None, 2):
            paged += page
        assert [each.conversation for each in paged] == expected, wanted


STEPS = 50
"""Instructions of SQLite's machine between two looks at it."""


async def cost(connection: apsw.Connection, tables: SqliteTables, wanted: ChatFilter, at: int = 600) -> int:
    """What the page behind a time costs, in steps of SQLite's machine."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    connection.set_progress_handler(step, STEPS)
    page = await tables.listed_chats(wanted, ListPosition(at, ids.new(ConversationId)), 20)
    connection.set_progress_handler(None)
    assert len(page) == 20
    return count


@pytest.mark.parametrize(
    "wanted",
    [
        ChatFilter(),
        ChatFilter(scope="shop"),
        ChatFilter(archived=None),
        ChatFilter(archived=True),
        ChatFilter(pinned=True, archived=None),
        ChatFilter(deleted=True, archived=None),
        ChatFilter(tag="rare", archived=None),
        ChatFilter(tag="common", archived=None),
    ],
    ids=lambda wanted: " ".join(f"{each}" for each in (wanted.scope, wanted.tag, wanted.archived)),
)
async def test_list_page_costs_the_same_among_many_chats_as_among_few(
    connection: apsw.Connection, tables: SqliteTables, wanted: ChatFilter
) -> None:
    async def grow(first: int, last: int) -> None:
        for number in range(first, last):
            rare = ("rare",) if number < 40 else ()
            made = await add(
                tables,
                number % 1_000,
                scope="shop" if number % 2 else "",
                archived=number % 3 == 0,
                pinned=number < 80,
                tags=("common", *rare),
            )
            if number % 5 == 0:
                await tables.save_conversation(replace(made, state=ConversationState.DELETED, purge_at=9))

    await grow(0, 600)
    few = await cost(connection, tables, wanted)
    await grow(600, 4_000)
    many = await cost(connection, tables, wanted)
    assert many <= 3 * few + 2


@pytest.mark.parametrize("scope", [None, "shop"])
async def test_list_by_a_tag_of_old_chats_does_not_scan_newer_chats(
    connection: apsw.Connection, tables: SqliteTables, scope: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, "FEW", 20)
    monkeypatch.setattr(catalogue, "LOOKED_BACK", 100)
    for number in range(400):
        await add(tables, number, scope="shop", tags=("old",) if number < 60 else ())
    wanted = ChatFilter(tag="old", scope=scope, archived=None)
    few = await cost(connection, tables, wanted, at=10_000)
    for number in range(400, 4_000):
        await add(tables, number, scope="shop")
    many = await cost(connection, tables, wanted, at=10_000)
    assert many <= 3 * few + 2


@pytest.fixture
async def lived_in(path: Path) -> Path:
    """A file in which everything has happened, and that nobody has open."""
    lived = await populate(await SqliteStore.open(path))
    await lived.ledger.close()
    return path


async def findings(path: Path) -> list[Finding]:
    store = await ReadOnlySqlite.open(path)
    try:
        return (await store.inspect(check, CheckRequest(at_rest=True))).findings
    finally:
        await store.close()


def damage(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    assert connection.total_changes() > 0
    connection.close()


A_MADE_BRANCH = "(SELECT ref FROM branch WHERE start > 0 AND length = start LIMIT 1)"


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        (
            "UPDATE branch SET bytes = bytes - 1 WHERE ref = (SELECT min(ref) FROM branch WHERE bytes > 1)",
            "has a wrong byte count; the usage of its owner is wrong",
        ),
        ("UPDATE owner SET bytes = bytes + 1", "The usage of 'ann' is recorded as "),
        (
            "INSERT INTO owner (owner, bytes) VALUES ('nobody', 16384)",
            "The usage of 'nobody' is recorded as 16384 bytes in 0 chats, not 0 in 0",
        ),
        ("UPDATE owner SET bytes = 0", "The usage of 'ann' is recorded as 0 bytes"),
        (
            "INSERT INTO turn SELECT 9999, randomblob(16), 9999, 1, NULL, 0, 1, 1, body, NULL, NULL "
            "FROM turn LIMIT 1",
            "is on a missing branch.",
        ),
        (
            f"INSERT INTO turn SELECT 9999, randomblob(16), {A_MADE_BRANCH}, 1, NULL, 0, 1, 1, body, NULL, "
            "NULL FROM turn LIMIT 1",
            "has a number before the start of its branch",
        ),
        (
            "INSERT INTO origin SELECT 9999, conversation, base, source, through, line FROM origin LIMIT 1",
            "refers to a missing branch",
        ),
        (f"UPDATE origin SET through = 0 WHERE branch = {A_MADE_BRANCH}", "a purge may remove the base"),
        (
            "UPDATE origin SET line = unhex(hex(substr(line, 1, 16)) || '0000000000000777' || "
            f"hex(substr(line, 25))) WHERE branch = {A_MADE_BRANCH}",
            "it reads another branch",
        ),
        (
            "INSERT INTO journal VALUES (randomblob(16), 0, x'7b7d')",
            "A journal refers to missing attempt turn_",
        ),
        (
            "INSERT INTO event_log VALUES (randomblob(16), 0, x'00')",
            "An event log refers to missing attempt turn_",
        ),
        ("INSERT INTO item_flag VALUES (randomblob(16), 0, 'ann', 0, 0, 1, 1)", "match no stored turn"),
        (
            "INSERT INTO item_flag SELECT id, 0, 'ann', 0, 0, branch, number + 1 FROM turn LIMIT 1",
            "match no stored turn",
        ),
        ("INSERT INTO conversation_tag VALUES ('ann', 'a', randomblob(16))", "differs from its tags"),
        ("UPDATE conversation SET tags = '[\"a\"]' WHERE ref = 1", "differs from its tags"),
        (
            "INSERT INTO attempt_input VALUES (9999, randomblob(16), x'7b7d')",
            "An input refers to missing attempt turn_",
        ),
        (
            "UPDATE attempt SET ended = 0 WHERE id = (SELECT id FROM attempt WHERE journaled = 0 LIMIT 1)",
            "is in the wrong table for its state",
        ),
        ("INSERT INTO turn_words (rowid, words) VALUES (9999, 'left')", "words of missing turns"),
        (
            "INSERT INTO title_words (rowid, words) VALUES (9999, 'left')",
            "words of missing titles",
        ),
        ("UPDATE search_mark SET turn = 9999", "later turns cannot be found"),
    ],
)
async def test_check_reports_each_disagreement_between_tables(
    lived_in: Path, statement: str, message: str
) -> None:
    assert await findings(lived_in) == []
    damage(lived_in, statement)
    [finding] = await findings(lived_in)
    assert finding.rule is Rule.STORE
    assert message in finding.message


@pytest.mark.parametrize(
    ("statement", "message"),
    [
        ("UPDATE conversation SET state = 'odd' WHERE conversation_key = 'plain'", "KeyError('odd')"),
        (
            "UPDATE conversation SET metadata = '[' WHERE conversation_key = 'plain'",
            "ValidationError",
        ),
        ("UPDATE branch SET pending = x'7b' WHERE pending IS NOT NULL", "A stored document cannot be read"),
        (
            """UPDATE branch SET pending = CAST('{"v":1,"items":[5]}' AS BLOB) WHERE pending IS NOT NULL""",
            "A stored item cannot be read",
        ),
        (
            'UPDATE attempt SET input = CAST(\'{"v":1,"input":[5]}\' AS BLOB)'
            " WHERE journaled = 0 AND state = 'failed'",
            "A stored item cannot be read",
        ),
        ("UPDATE attempt SET input = x'7b' WHERE journaled = 0 AND state = 'failed'", "A stored document"),
        ("UPDATE attempt SET input = NULL WHERE journaled = 0 AND state = 'failed'", "cannot be read"),
        ("UPDATE attempt SET state = 'odd' WHERE journaled = 0 AND state = 'failed'", "'odd' is not a valid"),
        ("UPDATE journal SET record = x'7b' WHERE number = 0", "Its journal cannot be read"),
        (f"UPDATE origin SET line = x'00' WHERE branch = {A_MADE_BRANCH}", "Its origin cannot be read"),
        (
            "UPDATE turn SET kind = 7, checksum = NULL WHERE number = 3 AND branch = 1",
            "Turn 3 cannot be read: IndexError",
        ),
        ("UPDATE turn SET body = x'00' WHERE number = 2 AND branch = 1", "does not match its checksum"),
    ],
)
async def test_check_reports_an_unreadable_row_once_and_continues(
    lived_in: Path, statement: str, message: str
) -> None:
    damage(lived_in, statement)
    found = [finding for finding in await findings(lived_in) if finding.rule is Rule.DOCUMENT]
    assert len(found) == 1, found
    assert message in found[0].message


async def test_check_reports_damage_of_the_file_found_by_sqlite(lived_in: Path) -> None:
    connection = apsw.Connection(str(lived_in))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.pragma("writable_schema", 1)
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'conversation_listed'")
    connection.pragma("writable_schema", "RESET")
    connection.close()
    assert any("SQLite integrity check:" in finding.message for finding in await findings(lived_in))


def test_check_of_every_disagreement_has_a_query() -> None:
    assert {*ODD, *ODD_WORDS} < set(QUERIES)
