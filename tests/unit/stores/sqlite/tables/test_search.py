"""The full-text index: when turns are indexed, what a purge removes, and damaged turns.

User text is data to SQLite, never part of its query language.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable, turn
from tests.unit.stores.sqlite.operations import purge_ended
from turnledger import Ledger, Limits
from turnledger.engine.conversations import search as engine_search
from turnledger.engine.conversations.search import Hit, index_some, is_index_complete
from turnledger.model.item import message
from turnledger.model.text.search import TITLES, Phrase, contains, parse_query, words_of
from turnledger.stores.sql import search as sql_search
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.migrations import MIGRATIONS, add_functions, migrate
from turnledger.stores.sqlite.tables import search as sqlite_search
from turnledger.stores.sqlite.tables.records import sql_text
from turnledger.stores.sqlite.tables.search import match_query, terms_of
from turnledger.stores.sqlite.tables.whole import SqliteWholeStore
from turnledger.testing.gates import GatedStore

QUIET = Limits(lease_time=600.0)


@pytest.fixture
async def ledger(store: SqliteStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store, limits=QUIET) as ledger:
        yield ledger


async def run_turn(ledger: Ledger, text: str, conversation_key: str = "chat", owner: str = "local") -> None:
    async with ledger.for_owner(owner).turn(text, conversation_key=conversation_key) as turn:
        turn.emit("Yes.")


async def search_in_pages(ledger: Ledger, text: str, limit: int) -> list[Hit]:
    page = await ledger.search(text, limit=limit)
    found = [*page.hits]
    while page.next is not None:
        page = await ledger.search(text, limit=limit, cursor=page.next)
        found += page.hits
    return found


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


async def test_search_indexes_the_words_that_a_commit_left_out(ledger: Ledger, path: Path) -> None:
    await run_turn(ledger, "A heron?")
    assert rows(path, "SELECT count(*) FROM turn_words_docsize") == [(0,)]
    assert len((await ledger.search("heron")).hits) == 1
    assert rows(path, "SELECT count(*) FROM turn_words_docsize") == [(1,)]


async def test_search_indexes_turns_in_steps_of_bounded_size(
    ledger: Ledger, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sql_search, "BYTES_AT_ONCE", 2_000)
    for _ in range(3):
        await run_turn(ledger, "long " * 300)
    await ledger.conversation(title="Named")
    done = [await store.transact_whole(index_some, 10) for _ in range(4)]
    assert done == [3, 1, 0, 0]
    assert await store.read_whole(is_index_complete, None)


async def test_indexing_runs_one_statement_per_turn_and_few_per_step(
    ledger: Ledger, store: SqliteStore
) -> None:
    turns, statements = 40, 0

    async def index(whole: Any, limit: int) -> int:
        execute = whole._execute

        def count(*given: Any) -> Any:
            nonlocal statements
            statements += 1
            return execute(*given)

        whole._execute = count
        return await whole.index_texts(limit)

    for number in range(turns):
        await run_turn(ledger, f"Heron {number}")
    assert await store.transact_whole(index, turns) == turns
    assert statements <= turns + 12


async def test_search_index_does_not_contain_the_text(ledger: Ledger, path: Path) -> None:
    await run_turn(ledger, "Zwiebelkuchen")
    assert len((await ledger.search("zwiebel")).hits) == 1
    kept = [str(row) for row in rows(path, "SELECT * FROM turn_words_docsize")]
    assert not any("wiebel" in row for row in kept)
    assert rows(path, "SELECT words FROM turn_words") == [(None,)]


async def test_flagged_turn_is_indexed_again_only_if_it_was_indexed(ledger: Ledger, path: Path) -> None:
    chat = await ledger.conversation()
    async with chat.turn("Which cat?") as turn:
        turn.emit("A lynx.")
    await chat.flag(turn.id, [1], to_user=False)
    assert rows(path, "SELECT turn FROM turn_due") == []
    assert (await ledger.search("lynx")).hits == ()
    await chat.flag(turn.id, [1], to_user=True)
    assert rows(path, "SELECT turn FROM turn_due") == [(1,)]
    assert len((await ledger.search("lynx")).hits) == 1
    assert rows(path, "SELECT turn FROM turn_due") == []


async def test_purged_turns_are_removed_from_the_search_index(
    ledger: Ledger, store: SqliteStore, path: Path
) -> None:
    await run_turn(ledger, "An egret?", "kept")
    chat = await ledger.conversation(conversation_key="gone", title="Birds")
    for text in ("A heron?", "Another?"):
        async with chat.turn(text) as turn:
            turn.emit("Yes.")
    assert len((await ledger.search("heron")).hits) == 1
    await chat.flag(turn.id, [1], to_user=False)
    assert rows(path, "SELECT turn FROM turn_due") == [(3,)]
    assert rows(path, "SELECT turn, has_remains FROM search_mark") == [(3, 0)]
    await chat.delete(purge=True)
    assert len((await ledger.search("heron")).hits) == 0
    assert await store.transact_whole(purge_ended, None)
    assert rows(path, "SELECT id FROM turn_words_docsize") == [(1,)]
    assert rows(path, "SELECT id FROM title_words_docsize") == []
    assert rows(path, "SELECT turn FROM turn_due") == []
    assert rows(path, "SELECT turn, has_remains FROM search_mark") == [(1, 1)]


async def test_title_by_words_is_found_by_its_turn_and_not_indexed(ledger: Ledger, path: Path) -> None:
    await run_turn(ledger, "A heron by the lake")
    assert rows(path, "SELECT title, title_due FROM conversation") == [("A heron by the lake", 0)]
    [hit] = (await ledger.search("heron")).hits
    assert hit.turn is not None
    chat = await ledger.conversation(conversation_key="chat")
    await chat.update(title="A heron by the lake")
    [hit] = (await ledger.search("heron")).hits
    assert hit.turn is None
    await chat.update(title="")  # back to the first words
    [hit] = (await ledger.search("heron")).hits
    assert hit.turn is not None
    assert rows(path, "SELECT count(*) FROM title_words_docsize") == [(0,)]


async def test_imported_title_by_words_is_not_due(ledger: Ledger, path: Path) -> None:
    await run_turn(ledger, "A heron by the lake")
    chat = await ledger.conversation(conversation_key="chat")
    assert [report async for report in ledger.for_owner("ben").import_lines(ledger.export(chat.id))]
    imported = rows(path, "SELECT named_by, title_due FROM conversation WHERE owner = 'ben'")
    assert imported == [("words", 0)]


async def test_title_is_due_until_indexed_and_not_after_other_changes(ledger: Ledger, path: Path) -> None:
    chat = await ledger.conversation(title="A heron")
    await chat.update(tags=["birds"])
    assert rows(path, "SELECT title_due FROM conversation") == [(1,)]
    assert len((await ledger.search("heron")).hits) == 1
    await chat.update(tags=["lakes"])
    assert rows(path, "SELECT title_due FROM conversation") == [(0,)]


async def test_search_finds_other_turns_next_to_a_damaged_one(ledger: Ledger, path: Path) -> None:
    await run_turn(ledger, "A heron?", "one")
    await run_turn(ledger, "An egret?", "two")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE turn SET body = x'00' WHERE ref = 1")
    connection.close()
    page = await ledger.search("egret")
    assert (len(page.hits), page.is_complete) == (1, True)


async def test_search_skips_a_turn_damaged_after_it_was_indexed(ledger: Ledger, path: Path) -> None:
    await run_turn(ledger, "A heron?", "one")
    await run_turn(ledger, "A heron!", "two")
    assert len((await ledger.search("heron")).hits) == 2
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE turn SET body = x'00' WHERE ref = 1")
    connection.close()
    assert [hit.snippet for hit in (await ledger.search("heron")).hits] == ["A heron!"]


async def test_search_of_a_store_that_refuses_writes_returns_an_incomplete_result(path: Path) -> None:
    store = GatedStore(await SqliteStore.open(path))
    async with await Ledger.over(store, limits=QUIET) as ledger:
        await run_turn(ledger, "A heron?", "one")
        assert len((await ledger.search("heron")).hits) == 1
        await run_turn(ledger, "Another heron?", "two")
        store.refuse(index_some)
        page = await ledger.search("heron")
        assert (len(page.hits), page.is_complete) == (1, False)


async def test_search_finds_turns_and_titles_from_before_the_index_existed() -> None:
    connection = apsw.Connection(":memory:")
    add_functions(connection)
    before = MIGRATIONS.index("0007_search.sql")
    for name in MIGRATIONS[:before]:
        connection.execute(sql_text(f"migrations/{name}"))
    connection.pragma("user_version", before)
    connection.execute(
        "INSERT INTO conversation (id, owner, branch, state, internal, title, title_due, revision,"
        " created_at, touched_at) VALUES (?, 'ann', ?, 'live', 0, 'A heron', 1, 1, 1, 1)",
        (bytes(16), bytes(16)),
    )
    connection.execute(
        "INSERT INTO branch (id, conversation, fence, length) VALUES (?, ?, 1, 1)", (bytes(16), bytes(16))
    )
    connection.execute(
        "INSERT INTO turn (id, branch, number, kind, created_at, committed_at, body)"
        " VALUES (?, 1, 1, 0, 1, 1, ?)",
        (bytes(16), turn(input=[message("user", "A heron?")]).body),
    )
    migrate(connection, ":memory:")
    whole = SqliteWholeStore(connection.cursor())
    assert not await whole.is_index_complete()
    assert await whole.index_texts(10) == 2
    found = await whole.of("ann").search(None, parse_query("heron"), None, 10)
    assert [each.place for each in found] == [TITLES + 1, 1]


async def test_search_finds_turns_of_many_blocks_in_order(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_search, "BLOCK", 3)
    for number in range(10):
        await run_turn(ledger, f"heron {number}", str(number))
        await run_turn(ledger, "egret" if number % 4 else "heron 10", "other")
    hits = (await ledger.search("heron", limit=50)).hits
    assert [hit.snippet for hit in hits] == [f"heron {number}" for number in (9, 10, *range(8, -1, -1))]
    paged = [hit.snippet for hit in await search_in_pages(ledger, "her", 2)]
    assert [each for each in paged if each != "heron 10"] == [
        f"heron {number}" for number in range(9, -1, -1)
    ]
    assert len((await ledger.search("5 her")).hits) == 1
    blocks = rows(path, "SELECT turns FROM search_block")
    assert blocks == [(3,)] * 6 + [(2,)]


async def test_search_finds_turns_whose_refs_were_reused_in_order(
    ledger: Ledger, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_search, "BLOCK", 2)
    for number in range(7):
        await run_turn(ledger, f"heron {number}", str(number))
    assert len((await ledger.search("heron")).hits) == 7
    for number in range(3, 7):
        await (await ledger.conversation(conversation_key=str(number))).delete(purge=True)
    await store.transact_whole(purge_ended, None)
    for number in range(7, 10):
        await run_turn(ledger, f"heron {number}", str(number))
    assert [hit.snippet for hit in await search_in_pages(ledger, "heron", 1)] == [
        f"heron {number}" for number in (9, 8, 7, 2, 1, 0)
    ]


async def test_search_finds_titles_of_many_blocks_in_order_for_any_order_of_changes(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_search, "BLOCK", 3)
    chats = [await ledger.conversation() for _ in range(20)]
    order = [*range(0, 20, 2), *range(19, 0, -2), 4, 19, 4]
    for number in order:
        await chats[number].update(title=f"heron {order.index(number)} {number}")
        assert (await ledger.search(f"heron {number}")).is_complete
    paged = [str(hit.conversation.id) for hit in await search_in_pages(ledger, "her", 2)]
    assert paged == [str(chat.id) for chat in reversed(chats)]
    assert (await ledger.search("egret her")).hits == ()


async def test_search_index_keeps_titles_in_bounded_blocks(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite_search, "BLOCK", 3)
    for number in range(9):
        await ledger.conversation(title=f"heron {number}")
    assert len((await ledger.search("heron")).hits) == 9
    assert rows(path, "SELECT first, titles FROM title_block") == [(0, 3), (4, 3), (7, 3)]


async def test_search_of_one_owner_does_not_wait_for_turns_of_another(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in range(40):
        await run_turn(ledger, f"A heron {number}", owner="ann")
    await run_turn(ledger, "An egret of mine", "one", owner="bob")
    await run_turn(ledger, "A heron of mine", "two", owner="bob")
    monkeypatch.setattr(engine_search, "AT_ONCE", 4)
    monkeypatch.setattr(engine_search, "OTHERS_STEPS", 1)
    page = await ledger.for_owner("bob").search("heron")
    assert [hit.snippet for hit in page.hits] == ["A heron of mine"]
    assert page.is_complete
    assert rows(path, "SELECT turn FROM search_mark") == [(4,)]
    assert rows(path, "SELECT count(*) FROM search_block WHERE owner = 'bob'") == [(1,)]
    page = await ledger.for_owner("bob").search("heron")  # which looks through nothing twice
    assert rows(path, "SELECT turn FROM search_mark") == [(8,)]
    assert len(page.hits) == 1


async def test_search_finds_turns_indexed_out_of_order_once(
    ledger: Ledger, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine_search, "AT_ONCE", 1)
    monkeypatch.setattr(engine_search, "OTHERS_STEPS", 0)
    monkeypatch.setattr(engine_search, "SEARCH_STEPS", 1)
    for number in range(4):
        await run_turn(ledger, f"A heron {number}", str(number), owner="bob")
        await run_turn(ledger, f"An egret {number}", owner="ann")
    page = await ledger.for_owner("bob").search("heron")
    assert ([hit.snippet for hit in page.hits], page.is_complete) == (["A heron 3"], False)
    assert await engine_search.index_texts(ledger._process.store, 100)
    page = await ledger.for_owner("bob").search("heron")
    assert [hit.snippet for hit in page.hits] == ["A heron 3", "A heron 2", "A heron 1", "A heron 0"]
    assert rows(path, "SELECT count(*) FROM turn_words_docsize") == [(8,)]
    assert await ledger.check() == []


TYPED = st.text() | st.text("aAb \"'*-+^:(){}é東京\x00") | st.sampled_from(["NEAR(a b)", "a OR b", "words:a"])


@pytest.fixture(scope="module")
def index() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE w"
        " USING fts5(words, content='', contentless_delete=1, detail='none', tokenize='ascii')"
    )
    return connection


def finds(
    index: apsw.Connection, texts: list[str], typed: str, owner: str = "ann", scope: str = "", block: int = 7
) -> bool:
    index.execute("DELETE FROM w WHERE rowid = 1")
    index.execute("INSERT INTO w (rowid, words) VALUES (1, ?)", (terms_of("ann", "", 7, texts),))
    query = match_query(owner, scope, block, parse_query(typed))
    return bool(index.execute("SELECT rowid FROM w WHERE w MATCH ?", (query,)).fetchall())


@repeatable
@given(texts=st.lists(TYPED, max_size=3), typed=TYPED)
def test_search_index_finds_exactly_the_texts_with_the_words(
    index: apsw.Connection, texts: list[str], typed: str
) -> None:
    sought = parse_query(typed)
    single = [Phrase((word,)) for phrase in sought for word in phrase.words]
    if single:
        single[-1] = Phrase(single[-1].words, sought[-1].is_open)
        words = [word for text in texts for word in words_of(text)]
        assert finds(index, texts, typed) == all(contains(phrase, words) for phrase in single)


@repeatable
@given(typed=TYPED)
def test_search_index_finds_any_text_by_itself_only_for_its_owner_and_scope(
    index: apsw.Connection, typed: str
) -> None:
    if len(parse_query(typed)) > 0:
        assert finds(index, [typed], typed)
        assert not finds(index, [typed], typed, owner="ben")
        assert not finds(index, [typed], typed, scope="shop")
        assert not finds(index, [typed], typed, block=0x77)


def test_search_terms_of_texts_without_words_are_empty() -> None:
    assert terms_of("ann", "shop", 7, ["", "…", "🙂"]) == ""
    assert terms_of("ann", "shop", 7, []) == ""
