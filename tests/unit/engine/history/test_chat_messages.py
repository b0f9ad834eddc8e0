from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.unit.model.shapes import assistant, call, result, some_id, user
from turnledger import Chat, Context, Ledger
from turnledger.engine.history import history
from turnledger.engine.history.history import ENTRY_BYTES, BranchCache, History, said_in
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import Turn, TurnKind

CALLS = (
    {"type": "function_call", "call_id": "a", "name": "look", "arguments": "{}"},
    {"type": "message", "role": "assistant", "content": "Wait."},
    {"type": "function_call", "call_id": "b", "name": "look", "arguments": "{}"},
)


@pytest.fixture
async def ledger() -> AsyncIterator[Ledger]:
    async with await Ledger.open("memory:") as ledger:
        yield ledger


@pytest.fixture
async def chat(ledger: Ledger) -> Chat:
    return await ledger.conversation()


async def say(chat: Chat, text: str) -> None:
    async with chat.turn(text) as turn:
        turn.emit(f"{text}, indeed")


def as_json(turn: RunningTurn) -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = msgspec.json.decode(turn.messages_json)
    return made


async def test_messages_as_json_are_the_messages(chat: Chat) -> None:
    for number in range(6):
        async with chat.turn(f"q{number}", instructions="Be brief." if number == 2 else None) as turn:
            assert as_json(turn) == turn.messages
            turn.emit(f"a{number}")


async def test_results_stand_behind_the_message_of_their_call_though_that_is_in_the_turn_before(
    chat: Chat,
) -> None:
    await say(chat, "q1")
    async with chat.turn("q2") as turn:
        assert as_json(turn) == turn.messages
        await turn.add(*CALLS)
    results = [{"type": "function_call_output", "call_id": id, "output": id} for id in "ba"]
    async with chat.turn(results) as turn:
        assert as_json(turn) == turn.messages
        turn.emit("done")
    async with chat.turn("q4") as turn:
        assert as_json(turn) == turn.messages
        turn.emit("a4")


async def test_a_turn_adds_what_is_new_and_no_more(chat: Chat, monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[int] = []
    made = history.said_in
    monkeypatch.setattr(history, "said_in", lambda items: counted.append(1) or made(items))
    for number in range(5):
        async with chat.turn(f"q{number}") as turn:
            turn.messages_json  # noqa: B018
            turn.emit("a")
    assert len(counted) == 4


async def test_a_resumed_step_and_a_limited_context_are_shown(chat: Chat) -> None:
    await say(chat, "q1")
    await say(chat, "q2")
    async with chat.turn("q3", context=Context.last(1)) as turn:
        assert as_json(turn) == turn.messages
        assert len(turn.messages) == 3
        await turn.add({"type": "message", "role": "assistant", "content": "first"})
        assert as_json(turn) == turn.messages


async def test_what_is_hidden_from_the_model_is_not_in_it(chat: Chat) -> None:
    await say(chat, "q1")
    async with chat.turn("q2") as turn:
        turn.messages_json  # noqa: B018
        turn.emit("a2")
    (first, _) = await chat.turns()
    await chat.flag(first.id, 0, to_model=False)
    async with chat.turn("q3") as turn:
        assert as_json(turn) == turn.messages
        assert turn.messages[0]["role"] == "assistant"
        turn.emit("a3")


async def test_an_edit_goes_on_from_its_own_place(chat: Chat) -> None:
    for number in range(4):
        async with chat.turn(f"q{number}") as turn:
            turn.messages_json  # noqa: B018
            turn.emit(f"a{number}")
    turns = await chat.turns()
    async with chat.edit(turns[2].id, "other") as turn:
        assert as_json(turn) == turn.messages
        assert "q2" not in str(turn.messages)
        turn.emit("b2")


async def test_bytes_are_bounded_and_those_used_last_stay(chat: Chat) -> None:
    for number in range(3):
        await say(chat, f"q{number}")
    turns = await chat.turns()
    cache = BranchCache(ENTRY_BYTES + 400)
    said, rest = cache.said_through(History(turns))
    assert (msgspec.json.decode(b"[" + said + b"]")[0]["content"], list(rest)) == ("q0", [])
    assert cache._bytes == ENTRY_BYTES + len(said)
    other = some_id(BranchId, 2)
    for number in range(2):
        cache.keep(other, History(turns[:number]))
    assert (cache._said, len(cache._entries)) == ({}, 1)


@pytest.mark.parametrize(
    "item",
    [
        {"type": "message", "role": "user", "content": "text"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "text"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]},
        {"type": "message", "role": "user", "content": "text", "name": "Ada"},
        {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": "u"}]},
        {"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "no"}]},
        {"type": "message", "role": "user", "content": []},
    ],
)
def test_what_is_said_in_an_item_is_its_message(item: dict[str, Any]) -> None:
    items = (Item.of(item), message("assistant", "answer"))
    assert msgspec.json.decode(b"[" + said_in(items) + b"]") == messages_of(items)


def test_what_a_settled_turn_without_input_tells_goes_on_with_the_last_message() -> None:
    """What is settled of an edit may have no input: then a call comes directly behind an answer."""
    turns = [
        Turn.of(
            id=some_id(TurnId, number),
            branch=some_id(BranchId, 1),
            number=number,
            parent=some_id(TurnId, number - 1) if number > 1 else None,
            kind=TurnKind.COMPLETED if asked else TurnKind.SETTLED,
            created_at=1,
            committed_at=2,
            input=asked,
            output=told,
        )
        for number, asked, told in (
            (1, (user("q1"),), (assistant("a1"),)),
            (2, (), (call("a"), result("a"))),
            (3, (user("q3"),), (assistant("a3"),)),
        )
    ]
    whole = messages_of(item for turn in turns for item in turn.items)
    for known in ([], turns[:1], turns[:2]):
        histories = BranchCache(10_000)
        histories.said_through(History(known))
        for turn in turns[len(known) :]:
            histories.follow(turn)
        said, rest = histories.said_through(History(turns))
        assert (msgspec.json.decode(b"[" + said + b"]"), list(rest)) == (whole, [])
