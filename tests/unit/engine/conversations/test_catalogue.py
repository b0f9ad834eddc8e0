"""Lists and search: pages are bounded, without gaps, and current."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from tests.unit.model.shapes import some_id
from turnledger import Ledger, Limits
from turnledger.engine.conversations import search as search_module
from turnledger.engine.conversations.resolve import new_conversation
from turnledger.engine.conversations.search import cursor_at, index_some, index_texts, place_of
from turnledger.engine.conversations.title import with_words_as_title
from turnledger.errors import InvalidInput
from turnledger.model.conversation import Conversation, TitleSource, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.text.search import TITLES, Phrase, SearchMatch
from turnledger.stores.memory import MemoryStore, MemoryTables
from turnledger.stores.memory.whole import MemoryWholeStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import GatedStore
from turnledger.types import Chats


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def ledger(clock: FakeClock) -> AsyncIterator[Ledger]:
    limits = Limits(lease_time=100_000.0)
    async with await Ledger.over(MemoryStore(), clock=clock, limits=limits) as ledger:
        yield ledger


async def titles(ledger: Chats, **wanted: object) -> tuple[str, bool]:
    """The titles on a page, and whether another follows."""
    page = await ledger.list(**wanted)  # type: ignore[arg-type]
    return "".join(each.conversation.title or "" for each in page.chats), page.next is not None


async def test_list_leaves_out_expired_chats_without_gaps_or_empty_pages(
    ledger: Ledger, clock: FakeClock
) -> None:
    for title in "abcdef":
        clock.advance(1)
        await ledger.conversation(title=title, expires_after=60 if title in "bcd" else None)
    clock.advance(57)
    assert await titles(ledger, limit=2) == ("fe", True)
    page = await ledger.list(limit=2)
    assert await titles(ledger, limit=2, cursor=page.next) == ("da", False)


async def test_list_keeps_a_chat_past_its_expiry_while_a_turn_runs(ledger: Ledger, clock: FakeClock) -> None:
    chat = await ledger.conversation(title="a", expires_after=60)
    async with chat.turn("q") as turn:
        clock.advance(100)
        assert await titles(ledger) == ("a", False)
        turn.emit("a")
    clock.advance(61)
    assert await titles(ledger) == ("", False)


async def test_list_within_one_chat_returns_only_that_chat(ledger: Ledger) -> None:
    chats = {
        title: await ledger.for_owner("local", scope="shop").conversation(title=title, tags=[title])
        for title in "abc"
    }
    seen = Within(chat=chats["b"].id)
    one = ledger.for_owner("local", within=seen)
    assert await titles(one) == ("b", False)
    assert await titles(one, tag="b") == ("b", False)
    assert await titles(one, tag="a") == ("", False)
    assert await titles(ledger.for_owner("local", scope="shop", within=seen)) == ("b", False)
    assert await titles(ledger.for_owner("local", scope="desk", within=seen)) == ("", False)
    assert await titles(ledger.for_owner("eve", within=seen)) == ("", False)
    behind_all = (await ledger.list(limit=2)).next
    assert await titles(one, cursor=behind_all) == ("", False)
    await chats["b"].update(archived=True)
    assert await titles(one) == ("", False)
    assert await titles(one, archived=None) == ("b", False)


async def test_listed_metadata_changed_by_the_caller_is_not_changed_in_the_store(ledger: Ledger) -> None:
    await ledger.conversation(title="a", metadata={"a": "b"})
    (listed,) = (await ledger.list()).chats
    listed.conversation.metadata["a"] = "changed"
    (again,) = (await ledger.list()).chats
    assert again.conversation.metadata == {"a": "b"}


def conversation(**details: object) -> Conversation:
    return new_conversation("ann", some_id(ConversationId, 1), some_id(BranchId, 1), 1, **details)


@pytest.mark.parametrize(
    ("details", "entered"),
    [
        ({"title": "T"}, True),
        ({"title": "T", "is_listed": False}, False),
        ({}, False),
        ({"internal": True, "is_listed": False}, True),
    ],
)
def test_chat_is_entered_in_the_catalogue_if_internal_or_listed_with_a_title(
    details: dict[str, object], entered: bool
) -> None:
    assert conversation(**details).is_entry_complete is entered


def test_title_by_words_is_removed_when_there_are_no_words() -> None:
    named = with_words_as_title(conversation(), "Words")
    assert (named.title, named.named_by) == ("Words", TitleSource.WORDS)
    unnamed = with_words_as_title(named, None)
    assert (unnamed.title, unnamed.named_by) == (None, None)


async def run_turn(ledger: Ledger, text: str, conversation_key: str = "chat") -> None:
    async with ledger.turn(text, conversation_key=conversation_key) as turn:
        turn.emit("Yes.")


@pytest.mark.parametrize("place", [1, 255, TITLES, TITLES + 1, 2 * TITLES - 1])
def test_search_cursor_leads_back_to_its_place(place: int) -> None:
    assert place_of(cursor_at(place)) == place


@pytest.mark.parametrize("cursor", ["", "0", "g", "A", "+1", "1_0", "٣", "f" * 16, "1" * 17])
def test_invalid_search_cursor_is_refused(cursor: str) -> None:
    with pytest.raises(InvalidInput, match="next"):
        place_of(cursor)


async def test_search_page_is_not_filled_by_one_long_chat(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(search_module, "MOST_EFFORT", 3)
    monkeypatch.setattr(search_module, "MORE_AT_ONCE", 2)
    await run_turn(ledger, "heron", "other")
    for _ in range(9):
        await run_turn(ledger, "heron", "long")
    found, cursor, pages = [], None, 0
    while pages == 0 or cursor is not None:
        page = await ledger.search("heron", cursor=cursor, limit=2)
        found += [hit.conversation.conversation_key for hit in page.hits]
        cursor, pages = page.next, pages + 1
    assert (found, pages) == (["long", "long", "other"], 2)


async def test_search_does_not_find_an_expired_chat(ledger: Ledger, clock: FakeClock) -> None:
    chat = await ledger.conversation(title="A heron", expires_after=60)
    async with chat.turn("heron") as turn:
        turn.emit("Yes.")
    assert len((await ledger.search("heron")).hits) == 1
    clock.advance(61)
    assert (await ledger.search("heron")).hits == ()


async def test_search_skips_index_entries_that_are_stale(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    await run_turn(ledger, "A heron?")
    [hit] = (await ledger.search("heron")).hits
    id, other = hit.conversation.id, ConversationId.trusted(bytes(16))
    stale = [
        SearchMatch(9, other),
        SearchMatch(8, other, hit.turn),
        SearchMatch(7, id),
        SearchMatch(6, id, TurnId.trusted(bytes(16))),
    ]

    async def search(
        self: MemoryTables,
        scope: str | None,
        sought: Sequence[Phrase],
        before: int | None,
        limit: int,
    ) -> list[SearchMatch]:
        return stale if before is None else []

    monkeypatch.setattr(MemoryTables, "search", search)
    page = await ledger.search("heron")
    assert (page.hits, page.next) == ((), None)


async def test_found_metadata_changed_by_the_caller_is_not_changed_in_the_store(ledger: Ledger) -> None:
    await ledger.conversation(title="A heron", metadata={"a": "b"})
    [hit] = (await ledger.search("heron")).hits
    hit.conversation.metadata["a"] = "changed"
    [again] = (await ledger.search("heron")).hits
    assert again.conversation.metadata == {"a": "b"}


async def test_search_without_words_makes_no_trip_to_the_store() -> None:
    store = GatedStore(MemoryStore())
    async with await Ledger.over(store) as ledger:
        before = len(store.operations)
        assert (await ledger.search('"…"')).hits == ()
        assert len(store.operations) == before


class Behind(MemoryWholeStore):
    """Has so much to be made findable, all of it of others."""

    left = 5

    def of(self, owner: str) -> MemoryTables:
        return BehindTables(self._db, self._log, owner)

    async def is_index_complete(self) -> bool:
        return Behind.left == 0

    async def index_texts(self, limit: int) -> int:
        Behind.left -= 1
        return limit


class BehindTables(MemoryTables):
    async def is_index_complete(self) -> bool:
        return Behind.left == 0


async def test_search_indexes_outstanding_turns_in_bounded_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnledger.stores.memory.store.MemoryWholeStore", Behind)
    monkeypatch.setattr(search_module, "OTHERS_STEPS", 3)
    store = GatedStore(MemoryStore())
    async with await Ledger.over(store, limits=Limits(lease_time=600.0)) as ledger:
        assert not (await ledger.search("heron")).is_complete
        assert Behind.left == 2
        assert (await ledger.search("heron")).is_complete
        await index_texts(store, 5)
    assert store.operations.count(index_some.__name__) == 5 + 1  # the last found nothing of the owner


async def test_search_hit_names_the_current_branch_where_that_has_the_turn(ledger: Ledger) -> None:
    chat = await ledger.conversation()
    for text in ("heron", "egret"):
        async with chat.turn(text) as turn:
            turn.emit("Yes.")
    await chat.undo()
    [shared], [gone] = [(await ledger.search(text)).hits for text in ("heron", "egret")]
    current = BranchId((await chat.info()).branch)
    assert shared.branch == current
    assert gone.branch != current


@pytest.mark.parametrize("limit", [1, 5])
async def test_search_within_one_chat_reveals_nothing_of_other_chats(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, limit: int
) -> None:
    monkeypatch.setattr(search_module, "MOST_EFFORT", 6)
    monkeypatch.setattr(search_module, "MORE_AT_ONCE", 2)

    async def run(owner: str, text: str, key: str) -> None:
        async with ledger.for_owner(owner).turn(text, conversation_key=key) as turn:
            turn.emit("Yes.")

    async def pages(owner: str, text: str, chat: str) -> list[tuple[int, bool]]:
        counts: list[tuple[int, bool]] = []
        cursor = None
        while not counts or cursor is not None:
            within = Within(chat=ConversationId(chat))
            page = await ledger.for_owner(owner, within=within).search(text, limit=limit, cursor=cursor)
            cursor = page.next
            counts.append((len(page.hits), cursor is not None))
        return counts

    async def page_counts(owner: str, others: int) -> list[list[tuple[int, bool]]]:
        for each in range(others):
            await run(owner, "A heron, a stork and a crane.", f"before {each}")
        await run(owner, "A heron.", "seen")
        await run(owner, "A stork.", "seen")
        seen = await ledger.for_owner(owner).conversation(conversation_key="seen")
        fork = await seen.fork()
        for each in range(others):
            await run(owner, "A heron, a stork and a crane.", f"after {each}")
        found = [await pages(owner, text, seen.id) for text in ("heron", "stork", "crane")]
        for _ in range(others):
            await run(owner, "A heron, a stork and a crane.", "seen")
        return [*found, *[await pages(owner, text, fork.id) for text in ("heron", "stork", "crane")]]

    assert await page_counts("ann", 8) == await page_counts("ben", 0)
