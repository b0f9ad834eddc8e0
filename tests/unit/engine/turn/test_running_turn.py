"""A running turn has a well-formed draft that agrees with its journal, whoever is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.unit.engine.stage import HandClock
from tests.unit.model.shapes import assistant, call, reasoning
from turnledger import Ledger, Limits, OnBusy, TurnKind
from turnledger.chat import Chat
from turnledger.engine.turn.running_turn import Draft, RunningTurn, record
from turnledger.errors import EmptyTurn, InvalidInput, MalformedItems, OutcomeUnknown, TurnEnded
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.stores.memory import MemoryStore
from turnledger.testing.gates import Fate, GatedStore


async def test_a_retry_goes_on_from_a_journal_that_ends_in_reasoning() -> None:
    seen: list[tuple[Item, ...]] = []

    async def think_and_break(turn: RunningTurn) -> None:
        await turn.add(reasoning())
        raise ValueError("broken")

    async def go_on(turn: RunningTurn) -> None:
        seen.append(turn.items)
        await turn.add(assistant())

    async with await Ledger.over(MemoryStore(), clock=HandClock(), random=Random(1)) as ledger:
        with pytest.raises(ValueError, match="broken"):
            await ledger.run(think_and_break, "Hello", conversation_key="k", idempotency_key="i")
        turn = await ledger.run(go_on, "Hello", conversation_key="k", idempotency_key="i")
    assert len(seen) == 1
    assert turn.text == "Hi"


async def test_a_turn_can_be_stopped_whatever_calls_it_holds() -> None:
    async with await Ledger.over(MemoryStore(), clock=HandClock(), random=Random(1)) as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            await turn.add(call("a"), call("b", "shell_call"), call("c", "custom_tool_call"))
            turn.stop()
        assert [item.call_id for item in (await chat.turns())[0].output] == ["a", "b", "c"] * 2


@pytest.mark.parametrize("call_id", ["", 5])
async def test_no_call_can_close_the_lane_for_ever(call_id: str | int) -> None:
    async with await Ledger.over(MemoryStore(), clock=HandClock(), random=Random(1)) as ledger:
        chat = await ledger.conversation()
        with suppress(MalformedItems):  # it may be refused, at any point
            async with chat.turn("Hello") as turn:
                await turn.add({"type": "shell_call", "call_id": call_id})
                turn.stop()
        async with chat.turn("Again", on_busy=OnBusy.REJECT) as turn:
            turn.emit("Hi")


@pytest.mark.parametrize("details", [{"model": object()}, {"long": "x" * 1000}, 5])
async def test_details_that_cannot_be_kept_fail_the_turn_and_free_the_lane(details: Any) -> None:
    limits = Limits(turn_bytes=1000)
    async with await Ledger.over(MemoryStore(), clock=HandClock(), random=Random(1), limits=limits) as ledger:
        chat = await ledger.conversation()
        with pytest.raises(InvalidInput, match="details"):
            async with chat.turn("Hello") as turn:
                turn.emit("Hi")
                turn.details = details
        assert [each.attempt.failure.code for each in await chat.attempts() if each.attempt.failure] == [
            "invalid_input"
        ]
        async with chat.turn("Again", on_busy=OnBusy.REJECT) as turn:
            turn.emit("Hi")


async def test_details_are_kept_with_the_commit_and_only_with_it() -> None:
    async with await Ledger.over(MemoryStore(), clock=HandClock(), random=Random(1)) as ledger:
        chat = await ledger.conversation()
        async with chat.turn("Hello") as turn:
            turn.emit("Hi")
            turn.details["model"] = "m"
        async with chat.turn("Again") as turn:
            assert [each.details for each in turn.history] == [{"model": "m"}]
            turn.emit("Half")
            turn.details["model"] = "m"
            turn.stop()
        assert [each.details for each in await chat.turns()] == [{"model": "m"}, {}]


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
