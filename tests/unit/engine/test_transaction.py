"""A running turn always has a well-formed draft to show, also one that goes on where another failed."""

from contextlib import suppress
from random import Random

import pytest

from tests.unit.engine.stage import HandClock
from tests.unit.model.shapes import assistant, call, reasoning
from turnledger import Ledger, OnBusy
from turnledger.engine.transaction import RunningTurn
from turnledger.errors import MalformedItems
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
