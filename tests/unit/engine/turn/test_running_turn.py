"""A running turn always has a well-formed draft to show, also one that goes on where another failed."""

from contextlib import suppress
from random import Random
from typing import Any

import pytest

from tests.unit.engine.stage import HandClock
from tests.unit.model.shapes import assistant, call, reasoning
from turnledger import Ledger, Limits, OnBusy
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.item import Item
from turnledger.stores.memory import MemoryStore


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
