"""The draft says what the journal says, whoever is cancelled; and half characters find their other half."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger import Ledger, TurnKind
from turnledger.chat import Chat
from turnledger.engine.draft import Draft
from turnledger.engine.recording import record
from turnledger.errors import OutcomeUnknown, TurnEnded
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
