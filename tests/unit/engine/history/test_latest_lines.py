from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.history.history import ENTRY_BYTES, LINE_BYTES, BranchCache, LatestLine
from turnledger.engine.turn.resend import current, guess_line
from turnledger.model.conversation import Branch, Conversation, Within
from turnledger.model.ids import BranchId, ConversationId
from turnledger.model.item import Item
from turnledger.model.retention import ResetPolicy
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.fake_clock import FakeClock

BRANCH = some_id(BranchId, 9)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with await Ledger.open("memory:") as ledger:
        yield ledger


def talk(*texts: str) -> list[dict[str, Any]]:
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


async def test_the_next_request_is_read_without_asking_the_store(ledger: Ledger, monkeypatch: Any) -> None:
    reads: list[Any] = []
    read = ledger._process.store.read

    async def counted(operation: Any, request: Any) -> Any:
        reads.append(operation)
        return await read(operation, request)

    monkeypatch.setattr(ledger._process.store, "read", counted)
    history = ["q1"]
    for number in (1, 2, 3):
        async with ledger.resent(talk(*history), conversation_key="k") as turn:
            turn.emit(f"a{number}")
        history += [f"a{number}", f"q{number + 1}"]
    assert reads.count(current) == 1


async def test_what_others_did_since_is_found_by_begin(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    chat = await ledger.conversation(conversation_key="k")
    async with chat.turn("q2") as turn:
        turn.emit("a2")
    async with ledger.resent(talk("q1", "a1", "q2", "a2", "q3"), conversation_key="k") as turn:
        assert [item.text for item in turn.input] == ["q3"]
        turn.emit("a3")
    assert len(await chat.turns()) == 3


async def test_flags_that_changed_since_count(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    async with ledger.resent(talk("q1", "a1", "q2"), conversation_key="k") as turn:
        turn.emit("a2")
    chat = await ledger.conversation(conversation_key="k")
    first, _ = await chat.turns()
    await chat.flag(first.id, to_user=False)
    async with ledger.resent(talk("q2", "a2", "q3"), conversation_key="k") as turn:
        assert [item.text for item in turn.input] == ["q3"]
        assert turn.began == "continued"
        turn.emit("a3")
    assert len(await chat.turns()) == 3


async def test_an_error_about_an_old_line_is_not_raised(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    chat = await ledger.conversation(conversation_key="k")
    async with chat.turn("q2") as turn:
        await turn.add({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"})
    result = [{"role": "tool", "tool_call_id": "c", "content": "seen"}]
    async with ledger.resent(result, conversation_key="k", sent="new") as turn:
        assert [item.type for item in turn.input] == ["function_call_output"]
        turn.emit("a3")


async def test_a_key_that_was_freed_names_a_new_conversation(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    chat = await ledger.conversation(conversation_key="k")
    await chat.delete()
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        assert turn.began == "created"
        turn.emit("b1")


def test_those_used_last_are_remembered() -> None:
    lines = BranchCache(2 * (ENTRY_BYTES + LINE_BYTES))
    conversations = [
        Conversation(
            id=some_id(ConversationId, number),
            owner="me",
            branch=some_id(BranchId, number),
            created_at=0,
            touched_at=0,
        )
        for number in (1, 2, 3)
    ]
    for place in (0, 1, 0, 2):
        shows = Branch(id=conversations[place].branch, conversation=conversations[place].id)
        lines.keep_line(conversations[place], LatestLine(shows, 0, is_answered=True))
    known = [guess_line(lines, Target("me", each.id)) is not None for each in conversations]
    assert known == [True, False, True]
    assert guess_line(lines, Target("me")) is None
    assert guess_line(lines, Target("you", conversations[0].id)) is None
    call = Item.of({"type": "function_call", "call_id": "c", "name": "f", "arguments": "x" * LINE_BYTES})
    large = Branch(id=conversations[1].branch, conversation=conversations[1].id, pending=(call,))
    lines.keep_line(conversations[1], LatestLine(large, 0, is_answered=True))
    known = [guess_line(lines, Target("me", each.id)) is not None for each in conversations]
    assert known == [False, True, False]


def test_a_scope_remembers_keys_of_its_own_and_shows_none_to_others() -> None:
    lines = BranchCache(1_000_000)
    shop = Conversation(
        id=some_id(ConversationId, 1),
        owner="me",
        branch=BRANCH,
        conversation_key="k",
        scope="shop",
        created_at=0,
        touched_at=0,
    )
    line = LatestLine(Branch(id=BRANCH, conversation=shop.id), 0, is_answered=True, scope="shop")
    lines.keep_line(shop, line)
    assert guess_line(lines, Target("me", None, "k", scope="shop")) == line
    assert guess_line(lines, Target("me", None, "k")) is None
    assert guess_line(lines, Target("me", shop.id)) == line
    assert guess_line(lines, Target("me", shop.id, within=Within("shop"))) == line
    assert guess_line(lines, Target("me", shop.id, within=Within("desk"))) is None


async def test_who_sees_one_scope_is_read_without_asking_the_store(ledger: Ledger, monkeypatch: Any) -> None:
    chat = await ledger.conversation(within=Within("shop"))
    async with chat.resent(talk("q1")) as turn:
        turn.emit("a1")

    async def never(operation: Any, request: Any) -> Any:
        raise AssertionError("it was known")

    monkeypatch.setattr(ledger._process.store, "read", never)
    async with ledger.resent(talk("q1", "a1", "q2"), conversation=chat.id, within=Within("shop")) as turn:
        assert [item.text for item in turn.input] == ["q2"]
        turn.emit("a2")


async def test_a_key_that_was_given_to_another_since_is_followed(ledger: Ledger) -> None:
    async with ledger.resent(talk("q1"), conversation_key="k") as turn:
        turn.emit("a1")
    before = turn.conversation.id
    fresh = await ledger.reset("k")
    async with ledger.resent(talk("q2"), conversation_key="k") as turn:
        turn.emit("a2")
    assert turn.conversation.id == fresh.id != before
    assert [each.text for each in await (await ledger.conversation(before)).turns()] == ["a1"]


async def test_a_key_that_is_over_by_a_policy_given_since_moves_on() -> None:
    clock = FakeClock()
    async with await Ledger.over(MemoryStore(Database()), clock=clock) as ledger:
        async with ledger.resent(talk("q1"), conversation_key="k") as turn:
            turn.emit("a1")
        before = turn.conversation.id
        clock.advance(60)
        idle = ResetPolicy.idle(30)
        async with ledger.resent(talk("q2"), conversation_key="k", reset=idle) as turn:
            turn.emit("a2")
        between = turn.conversation.id
        clock.advance(60)
        async with ledger.resent(talk("q3"), conversation_key="k") as turn:
            turn.emit("a3")
        assert len({before, between, turn.conversation.id}) == 3
