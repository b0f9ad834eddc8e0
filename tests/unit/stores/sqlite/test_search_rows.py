"""Search in the file: what is looked through when, what a purge leaves, and what a damaged turn does."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import pytest

from turnledger import Ledger, Limits
from turnledger.engine.searching import index_some, is_all_known
from turnledger.stores.sqlite import SqliteStore, search_rows
from turnledger.testing.gates import GatedStore

QUIET = Limits(lease_time=600.0)


@pytest.fixture
async def ledger(store: SqliteStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store, limits=QUIET) as ledger:
        yield ledger


async def say(ledger: Ledger, text: str, conversation_key: str = "chat") -> None:
    async with ledger.turn(text, conversation_key=conversation_key) as turn:
        turn.emit("Yes.")


def rows(path: Path, query: str) -> list[tuple[object, ...]]:
    connection = apsw.Connection(str(path))
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


async def test_a_commit_writes_no_words_and_a_search_does(ledger: Ledger, path: Path) -> None:
    await say(ledger, "A heron?")
    assert rows(path, "SELECT count(*) FROM turn_words_docsize") == [(0,)]
    assert len((await ledger.search("heron")).hits) == 1
    assert rows(path, "SELECT count(*) FROM turn_words_docsize") == [(1,)]


async def test_turns_are_looked_through_in_steps_of_some_size(
    ledger: Ledger, store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_rows, "BYTES_AT_ONCE", 2_000)
    for _ in range(3):
        await say(ledger, "long " * 300)
    await ledger.conversation(title="Named")
    done = [await store.transact(index_some, 10) for _ in range(4)]
    assert done == [3, 1, 0, 0]
    assert await store.read(is_all_known, None)


async def test_the_text_is_not_in_the_index(ledger: Ledger, path: Path) -> None:
    await say(ledger, "Zwiebelkuchen")
    assert len((await ledger.search("zwiebel")).hits) == 1
    kept = [str(row) for row in rows(path, "SELECT * FROM turn_words_docsize")]
    assert not any("wiebel" in row for row in kept)
    assert rows(path, "SELECT words FROM turn_words") == [(None,)]


async def test_a_purge_takes_the_words_along(ledger: Ledger, path: Path) -> None:
    chat = await ledger.conversation(title="Gone")
    async with chat.turn("A heron?") as turn:
        turn.emit("Yes.")
    await chat.flag(turn.id, [1], to_user=False)
    await say(ledger, "An egret?")
    assert len((await ledger.search("heron")).hits) == 1
    connection = apsw.Connection(str(path))
    connection.execute("DELETE FROM turn")
    connection.close()
    assert rows(path, "SELECT count(*) FROM turn_words_docsize") == [(0,)]
    assert rows(path, "SELECT count(*) FROM turn_due") == [(0,)]
    assert rows(path, "SELECT turn FROM search_mark") == [(0,)]


async def test_a_title_of_first_words_is_found_by_those(ledger: Ledger, path: Path) -> None:
    await say(ledger, "A heron by the lake")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE conversation SET title = 'A heron', named_by = 'words'")
    assert len((await ledger.search("heron")).hits) == 1
    assert rows(path, "SELECT count(*) FROM title_words_docsize") == [(0,)]
    connection.execute("UPDATE conversation SET named_by = 'person', title = title")
    connection.close()
    [hit] = (await ledger.search("heron")).hits
    assert hit.turn is None


async def test_a_damaged_turn_keeps_no_other_from_being_found(ledger: Ledger, path: Path) -> None:
    await say(ledger, "A heron?", "one")
    await say(ledger, "An egret?", "two")
    connection = apsw.Connection(str(path))
    connection.execute("UPDATE turn SET body = x'00' WHERE ref = 1")
    connection.close()
    page = await ledger.search("egret")
    assert (len(page.hits), page.is_complete) == (1, True)


async def test_a_store_that_cannot_be_written_to_is_searched_as_it_is(path: Path) -> None:
    store = GatedStore(await SqliteStore.open(path))
    async with await Ledger.over(store, limits=QUIET) as ledger:
        await say(ledger, "A heron?", "one")
        assert len((await ledger.search("heron")).hits) == 1
        await say(ledger, "Another heron?", "two")
        store.refuse(index_some)
        page = await ledger.search("heron")
        assert (len(page.hits), page.is_complete) == (1, False)


async def test_what_was_there_before_search_is_found(path: Path) -> None:
    async with await Ledger.over(await SqliteStore.open(path), limits=QUIET) as ledger:
        await ledger.conversation(title="An old heron")
        await say(ledger, "A heron?")
    connection = apsw.Connection(str(path))
    names = ("title_given", "title_changed", "item_hidden", "item_shown", "turn_purged")
    for name in names:
        connection.execute(f"DROP TRIGGER {name}")
    for name in ("turn_words", "title_words", "search_mark", "turn_due"):
        connection.execute(f"DROP TABLE {name}")
    connection.pragma("user_version", 6)
    connection.close()
    async with await Ledger.over(await SqliteStore.open(path), limits=QUIET) as ledger:
        assert [hit.turn is None for hit in (await ledger.search("heron")).hits] == [True, False]
