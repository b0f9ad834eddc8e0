"""A failover to an asynchronous standby loses unsynced writes while the processes live on."""

from __future__ import annotations

import asyncio

import pytest

from turnledger import Ledger, RunningTurn
from turnledger.errors import TurnStopped
from turnledger.testing.machine import MemoryMachine


async def test_turn_stays_rolled_back_when_a_failover_loses_its_stop() -> None:
    machine, has_begun = MemoryMachine(), asyncio.Event()

    async def answer(turn: RunningTurn) -> None:
        turn.emit("Yes.")

    async def hang(turn: RunningTurn) -> None:
        turn.emit("Half")
        has_begun.set()
        try:
            await asyncio.Future()
        finally:
            machine.fail_over()

    async with await Ledger.over(await machine.open()) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        hanging = asyncio.create_task(chat.run(hang, "first"))
        await has_begun.wait()
        await chat.update(title="Lane")  # a durable write, which makes the begin before it durable, too
        await chat.run(answer, "second", on_busy="rollback")
        with pytest.raises(TurnStopped):
            await hanging
        assert [turn.input[0].text for turn in await chat.turns()] == ["second"]


async def test_copied_effect_that_others_may_have_read_survives_a_failover() -> None:
    """A turn after any turn copies the effects that its line would leave out, as turns of their own."""
    machine = MemoryMachine()

    async def answer(turn: RunningTurn) -> None:
        turn.emit("Yes.")

    async def act(turn: RunningTurn) -> None:
        call = {"type": "function_call", "call_id": "c", "name": "act", "arguments": "{}"}
        await turn.call(call, lambda: asyncio.sleep(0, "done"))
        raise LookupError

    async with await Ledger.over(await machine.open()) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        first = await chat.run(answer, "first")
        await chat.run(answer, "second")
        with pytest.raises(LookupError):
            await chat.run(act, "third")
        await chat.run(answer, "fourth")  # settles what the third has done

        async def turns() -> set[str]:
            lines = [await chat.turns(branch=each.branch.id) for each in await chat.branches()]
            return {turn.id for line in lines for turn in line}

        async with chat.turn("beside", after=first.id) as turn:
            shown = await turns()
            machine.fail_over()
            assert await turns() == shown
            turn.emit("Yes.")
