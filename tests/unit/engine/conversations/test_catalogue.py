"""The catalogue: pages without gaps, the list of a caller who sees one chat, and unchanged entries."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.unit.model.shapes import some_id
from turnledger import Ledger, Within
from turnledger.engine.conversations.resolve import is_entered, named_by_words, new_conversation
from turnledger.model.conversation import Conversation, NamedBy
from turnledger.model.ids import BranchId, ConversationId
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def ledger(clock: FakeClock) -> AsyncIterator[Ledger]:
    async with await Ledger.over(MemoryStore(), clock=clock) as ledger:
        yield ledger


async def titles(ledger: Ledger, **wanted: object) -> tuple[str, bool]:
    """The titles on a page, and whether another follows."""
    page = await ledger.catalogue.list(**wanted)  # type: ignore[arg-type]
    return "".join(each.conversation.title or "" for each in page.chats), page.next is not None


async def test_what_has_lapsed_leaves_no_gap_and_no_page_that_is_not_there(
    ledger: Ledger, clock: FakeClock
) -> None:
    for title in "abcdef":
        clock.advance(1)
        await ledger.conversation(title=title, expires_after=60 if title in "bcd" else None)
    clock.advance(57)
    assert await titles(ledger, limit=2) == ("fe", True)
    page = await ledger.catalogue.list(limit=2)
    assert await titles(ledger, limit=2, cursor=page.next) == ("da", False)


async def test_what_runs_does_not_lapse(ledger: Ledger, clock: FakeClock) -> None:
    chat = await ledger.conversation(title="a", expires_after=60)
    async with chat.turn("q") as turn:
        clock.advance(100)
        assert await titles(ledger) == ("a", False)
        turn.emit("a")
    clock.advance(61)
    assert await titles(ledger) == ("", False)


async def test_who_may_see_one_chat_is_listed_that_one(ledger: Ledger) -> None:
    chats = {title: await ledger.conversation(title=title, scope="shop", tags=[title]) for title in "abc"}
    one = Within(chat=chats["b"].id)
    assert await titles(ledger, within=one) == ("b", False)
    assert await titles(ledger, within=one, tag="b") == ("b", False)
    assert await titles(ledger, within=one, tag="a") == ("", False)
    assert await titles(ledger, within=one, scope="shop") == ("b", False)
    assert await titles(ledger, within=one, scope="desk") == ("", False)
    assert await titles(ledger, within=one, owner="eve") == ("", False)
    behind_all = (await ledger.catalogue.list(limit=2)).next
    assert await titles(ledger, within=one, cursor=behind_all) == ("", False)
    await chats["b"].update(archived=True)
    assert await titles(ledger, within=one) == ("", False)
    assert await titles(ledger, within=one, archived=None) == ("b", False)


async def test_what_is_handed_out_is_nobodys_but_the_callers(ledger: Ledger) -> None:
    await ledger.conversation(title="a", metadata={"a": "b"})
    (listed,) = (await ledger.catalogue.list()).chats
    listed.conversation.metadata["a"] = "changed"
    (again,) = (await ledger.catalogue.list()).chats
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
def test_a_chat_that_is_listed_and_has_a_title_needs_no_more(
    details: dict[str, object], entered: bool
) -> None:
    assert is_entered(conversation(**details)) is entered


def test_what_has_no_words_is_named_by_nobody() -> None:
    named = named_by_words(conversation(), "Words")
    assert (named.title, named.named_by) == ("Words", NamedBy.WORDS)
    unnamed = named_by_words(named, None)
    assert (unnamed.title, unnamed.named_by) == (None, None)
