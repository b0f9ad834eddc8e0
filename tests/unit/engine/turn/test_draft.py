"""The draft says what the journal says, whoever is cancelled; and half characters find their other half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger import Ledger, TurnKind
from turnledger.chat import Chat
from turnledger.engine.turn.running_turn import Draft, record
from turnledger.errors import EmptyTurn, InvalidInput, MalformedItems, OutcomeUnknown, TurnEnded
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.stores.memory import MemoryStore
from turnledger.testing.gates import Fate, GatedStore

CALL = {"type": "function_call", "call_id": "c", "name": "pay", "arguments": "{}"}


@pytest.fixture
def store() -> GatedStore:
    return GatedStore(MemoryStore())


@pytest.fixture
async def chat(store: GatedStore) -> AsyncIterator[Chat]:
    async with await Ledger.over(store) as ledger:
        yield await ledger.conversation()


async def test_a_cancelled_add_that_was_written_is_a_step(store: GatedStore, chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.emit("Let me see. ")
        with store.hold(record) as gate:
            adding = asyncio.create_task(turn.add(CALL))
            await gate.arrived()
            adding.cancel()
            await asyncio.sleep(0)
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert [item.type for item in turn.steps] == ["message", "function_call"]
        assert turn.text == ""

        async def pay() -> str:
            return "paid"

        await turn.call(CALL, pay)
    [committed] = await chat.turns()
    assert [item.type for item in committed.output] == ["message", "function_call", "function_call_output"]


async def test_a_turn_whose_record_is_lost_for_good_can_only_be_left(store: GatedStore, chat: Chat) -> None:
    store.lose_answer(record, *[Fate.WRITTEN] * 5)
    with pytest.raises(OutcomeUnknown):
        async with chat.turn("q", on_failure="keep") as turn:
            with pytest.raises(OutcomeUnknown):
                await turn.add(CALL)
            with pytest.raises(TurnEnded):
                await turn.add(CALL)
    [kept] = await chat.turns()
    assert kept.kind is TurnKind.INTERRUPTED
    assert [item.type for item in kept.output] == ["function_call", "function_call_output"]


@pytest.mark.parametrize(
    ("emitted", "shown", "text"),
    [
        (["a", "b"], ["a", "b"], "ab"),
        (["\ud83d", "\ude00!"], ["", "\U0001f600!"], "\U0001f600!"),
        (["x\ud83d", "y"], ["x", "\ufffdy"], "x\ufffdy"),
        (["\ude00"], ["\ufffd"], "\ufffd"),
        (["\ud83d"], [""], ""),
    ],
)
def test_halves_of_characters_are_joined_or_replaced(emitted: list[str], shown: list[str], text: str) -> None:
    draft = Draft((), (), Journal(), 1000)
    assert [draft.emit(each) for each in emitted] == shown
    assert draft.text == text


async def test_one_lost_answer_is_enough_to_be_in_doubt(store: GatedStore, chat: Chat) -> None:
    """The store is out of reach at the last try; what the first one wrote may be there all the same."""
    store.lose_answer(record, Fate.LATE)
    store.refuse(record, times=4)
    with pytest.raises(OutcomeUnknown):
        async with chat.turn("q") as turn:
            await turn.add(CALL)


async def test_what_is_put_comes_behind_everything_and_is_left_to_the_client(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.put()
        await turn.add({"role": "assistant", "content": "First."})
        turn.emit("Then.")
        turn.put(CALL, {**CALL, "call_id": "d"})
        assert [item.text for item in turn.steps] == ["First."]
    [committed] = await chat.turns()
    assert [item.text or item.call_id for item in committed.output] == ["First.", "Then.", "c", "d"]
    results = [{"type": "function_call_output", "call_id": each, "output": "paid"} for each in "cd"]
    async with chat.turn(results) as turn:
        turn.emit("Thanks.")


async def test_nothing_can_follow_what_is_put(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        await turn.add({**CALL, "call_id": "before"})
        turn.put(CALL)
        with pytest.raises(InvalidInput, match="nothing can follow"):
            turn.emit("more")
        with pytest.raises(InvalidInput, match="nothing can follow"):
            await turn.add({"role": "assistant", "content": "more"})
        with pytest.raises(InvalidInput, match="nothing can follow"):
            turn.put(CALL)
        with pytest.raises(InvalidInput, match="nothing can follow"):
            await turn.start({**CALL, "call_id": "before"})
    [committed] = await chat.turns()
    assert [item.call_id for item in committed.output] == ["before", "c"]


async def test_what_would_break_the_history_is_not_put_and_the_answer_goes_on(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        with pytest.raises(MalformedItems):
            turn.put({"type": "function_call_output", "call_id": "never asked", "output": ""})
        turn.emit("Sorry.")
    assert [turn.text for turn in await chat.turns()] == ["Sorry."]


async def test_a_turn_that_is_stopped_leaves_nothing_of_what_it_put(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        turn.emit("Let me")
        turn.put(CALL)
        turn.stop()
    [kept] = await chat.turns()
    assert [item.type for item in kept.output] == ["message"]


def test_what_is_put_counts_as_much_as_what_is_said() -> None:
    draft = Draft((), (), Journal(), 100)
    with pytest.raises(MalformedItems, match="grown past 100"):
        draft.end_with((Item.of({**CALL, "arguments": "x" * 100}),))
    with pytest.raises(EmptyTurn):
        draft.whole()
