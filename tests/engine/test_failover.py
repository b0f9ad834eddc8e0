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
