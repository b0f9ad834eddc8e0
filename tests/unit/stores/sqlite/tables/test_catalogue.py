"""Lists in SQLite: whichever way a list is read, it is the same, and no page costs what all chats would."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tests.unit.stores.sqlite.operations import ids
from turnledger.model.catalogue import Listed, ListPosition, Wanted
from turnledger.model.conversation import Branch, Conversation, ConversationState
from turnledger.model.ids import BranchId, ConversationId
from turnledger.stores.sqlite.migrations import migrate
from turnledger.stores.sqlite.tables import catalogue
from turnledger.stores.sqlite.tables.tables import SqliteTables

ALL = 1_000


@pytest.fixture
def connection() -> Iterator[apsw.Connection]:
    connection = apsw.Connection(":memory:")
    migrate(connection, ":memory:")
    yield connection
    connection.close()


@pytest.fixture
def tables(connection: apsw.Connection) -> SqliteTables:
    return SqliteTables(connection.cursor())


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
    return [found for each in made if (found := await tables.conversation("ada", each.id)) is not None]


CHOICES = [
    Wanted(owner="ada", scope=scope, tag=tag, archived=archived, pinned=pinned, deleted=deleted)
    for scope, tag, archived, pinned, deleted in product(
        (None, "", "shop"), (None, "a", "b", "c"), (None, False, True), (None, False, True), (False, True)
    )
]


@pytest.mark.parametrize("looked_back", [0, 5, 2_000])
@pytest.mark.parametrize("few", [0, 3, 500], ids=["all are common", "some are", "all are rare"])
async def test_every_list_is_what_it_says_and_every_page_a_part_of_it(
    tables: SqliteTables, few: int, looked_back: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "FEW", few)
    monkeypatch.setattr(catalogue, "LOOKED_BACK", looked_back)
    chats = await mixed(tables)
    for wanted in CHOICES:
        expected = sorted(
            (each for each in chats if wanted.fits(each)),
            key=lambda each: (each.touched_at, each.id),
            reverse=True,
        )
        assert [each.conversation for each in await tables.listed(wanted, None, ALL)] == expected, wanted
        paged: list[Listed] = []
        while page := await tables.listed(wanted, ListPosition.behind(paged[-1]) if paged else None, 2):
            paged += page
        assert [each.conversation for each in paged] == expected, wanted


async def test_what_is_said_of_a_chat_comes_from_the_branch_it_shows(tables: SqliteTables) -> None:
    made = await add(tables, 3)
    assert await tables.listed(Wanted(owner="ada"), None, 1) == [Listed(made, 3, "said 3", is_running=False)]


async def test_tags_are_filed_and_taken_out_again(tables: SqliteTables, connection: apsw.Connection) -> None:
    made = await add(tables, 1, tags=("a", "b"))
    filed = "SELECT tag FROM conversation_tag ORDER BY tag"
    assert [tag for (tag,) in connection.execute(filed)] == ["a", "b"]
    await tables.save_conversation(replace(made, tags=("b", "c")))
    assert [tag for (tag,) in connection.execute(filed)] == ["b", "c"]
    await tables.save_conversation(replace(made, tags=()))
    assert [tag for (tag,) in connection.execute(filed)] == []


STEPS = 50
"""Instructions of SQLite's machine between two looks at it."""


async def cost(connection: apsw.Connection, tables: SqliteTables, wanted: Wanted, at: int = 600) -> int:
    """What the page behind a time costs, in steps of SQLite's machine."""
    count = 0

    def step() -> bool:
        nonlocal count
        count += 1
        return False

    connection.set_progress_handler(step, STEPS)
    page = await tables.listed(wanted, ListPosition(at, ids.new(ConversationId)), 20)
    connection.set_progress_handler(None)
    assert len(page) == 20
    return count


@pytest.mark.parametrize(
    "wanted",
    [
        Wanted(owner="ada"),
        Wanted(owner="ada", scope="shop"),
        Wanted(owner="ada", archived=None),
        Wanted(owner="ada", archived=True),
        Wanted(owner="ada", pinned=True, archived=None),
        Wanted(owner="ada", deleted=True, archived=None),
        Wanted(owner="ada", tag="rare", archived=None),
        Wanted(owner="ada", tag="common", archived=None),
    ],
    ids=lambda wanted: " ".join(f"{each}" for each in (wanted.scope, wanted.tag, wanted.archived)),
)
async def test_a_page_costs_the_same_among_many_chats_as_among_few(
    connection: apsw.Connection, tables: SqliteTables, wanted: Wanted
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
async def test_a_tag_that_only_old_chats_have_is_not_sought_in_all_others(
    connection: apsw.Connection, tables: SqliteTables, scope: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "FEW", 20)
    monkeypatch.setattr(catalogue, "LOOKED_BACK", 100)
    for number in range(400):
        await add(tables, number, scope="shop", tags=("old",) if number < 60 else ())
    wanted = Wanted(owner="ada", tag="old", scope=scope, archived=None)
    few = await cost(connection, tables, wanted, at=10_000)
    for number in range(400, 4_000):
        await add(tables, number, scope="shop")
    many = await cost(connection, tables, wanted, at=10_000)
    assert many <= 3 * few + 2
