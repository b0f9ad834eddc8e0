"""What happened, happened: the model sees every tool that acted, unless the request set `forget`."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.ports import Runner
from turnledger.model.turn import AttemptState, Turn
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, exchange, soon, user

BOOM = RuntimeError("the model broke")
PAID = {"role": "tool", "tool_call_id": "call_0", "content": "paid"}


async def fail(chat: Chat, runner: Runner, input: Any = "Pay.", **options: Any) -> None:
    with pytest.raises(RuntimeError):
        await soon(chat.run(runner, input, **options))


def kinds(turns: list[Turn]) -> list[str]:
    return [turn.kind.value for turn in turns]


class Effects(Contract):
    async def test_next_turn_settles_effects_of_a_failed_turn(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await exchange(chat, "Hello")
        await fail(chat, ScriptedModel(["I pay.", Tool("pay", "paid"), "Next,", BOOM]))
        assert kinds(await chat.turns()) == ["completed"]
        model = ScriptedModel(["Yes."])
        await soon(same.run(model, "Did you pay?"))
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]
        seen = model.seen[0][2:]
        assert [message["role"] for message in seen] == ["user", "assistant", "tool", "developer", "user"]
        assert seen[0] == user("Pay.")
        assert seen[1]["tool_calls"][0]["function"]["name"] == "pay"
        assert seen[2] == PAID
        assert "the model broke" in seen[3]["content"]
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.SETTLED
        assert (await chat.turns())[1].id == aside.attempt.id

    async def test_snapshot_shows_effects_that_wait_and_writes_nothing(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await exchange(chat, "q0")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        before = await chat.turns()
        shown = await soon(same.snapshot("next"))
        assert await chat.turns() == before
        model = ScriptedModel(["ok"])
        await soon(chat.run(model, "next"))
        assert shown.messages == model.seen[0]
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]

    async def test_effects_outlive_the_retention_of_attempts(self, stage: Stage) -> None:
        here = await stage.process(replace(LIMITS, attempts_kept=60.0))
        chat = await here.chat()
        await fail(chat, ScriptedModel([BOOM]), "nothing done")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        stage.clock.advance(61)
        await here.tend()
        [aside] = await chat.attempts()
        assert aside.attempt.input[0].text == "Pay."
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert PAID in model.seen[0]
        stage.clock.advance(61)
        await here.tend()
        assert await chat.attempts() == []
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_failure_of_a_settled_turn_outlives_its_attempt(self, stage: Stage) -> None:
        here = await stage.process(replace(LIMITS, attempts_kept=60.0))
        chat = await here.chat()
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await exchange(chat, "q")
        settled, _ = await chat.turns()
        attempt = await soon(chat.stop(settled.id))
        assert attempt is not None
        assert (attempt.state, attempt.turn) == (AttemptState.SETTLED, settled)
        assert attempt.failure is not None
        assert str(BOOM) in attempt.failure.message
        stage.clock.advance(61)
        await here.tend()
        assert await chat.attempts() == []
        assert await soon(chat.stop(settled.id)) == attempt
