"""The block of a turn: run as one, or with a runner; once."""

from __future__ import annotations

import pytest

from turnledger import Ledger, RunningTurn
from turnledger.errors import InvalidInput, TurnReplayed

pytestmark = pytest.mark.anyio


async def answer(turn: RunningTurn) -> None:
    turn.emit("yes")


async def test_a_block_that_was_run_cannot_be_run_again() -> None:
    async with await Ledger.open("memory:") as ledger:
        block = (await ledger.conversation()).turn("q")
        turn = await block.run(answer)
        assert turn.id == block.id
        with pytest.raises(InvalidInput):
            await block.run(answer)


async def test_a_replay_of_another_turn_inside_the_runner_is_not_taken_for_ones_own() -> None:
    async with await Ledger.open("memory:") as ledger:
        other = await ledger.conversation()
        await other.run(answer, "q", idempotency_key="i")

        async def asks_elsewhere(turn: RunningTurn) -> None:
            async with other.turn("q", idempotency_key="i"):
                pytest.fail("the block was run")

        chat = await ledger.conversation()
        with pytest.raises(TurnReplayed):
            await chat.run(asks_elsewhere, "q")
        assert await chat.turns() == []
