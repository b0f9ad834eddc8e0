"""What happened, happened: a tool that acted is never hidden from the model, unless the request said so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.unfinished import OUTCOME_UNKNOWN
from turnledger.engine.ports import Runner
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import NoNewInput
from turnledger.model.attempt import AttemptState
from turnledger.model.messages.calls import NOT_STARTED
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.scripted_model import Ask, ScriptedModel, Think, Tool
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    answer_to,
    call,
    exchange,
    said,
    soon,
    user,
)

BOOM = RuntimeError("the model broke")
PAID = {"role": "tool", "tool_call_id": "call_0", "content": "paid"}


async def fail(chat: Chat, runner: Runner, text: str = "Pay.", *, on_failure: str = "settle") -> None:
    with pytest.raises(RuntimeError):
        await soon(chat.run(runner, text, on_failure=on_failure))


async def three_calls(turn: RunningTurn) -> None:
    """One call is answered, one started, one neither, and one is read-only."""
    one, two, three, look = (call(name, f"c_{name}") for name in ("one", "two", "three", "look"))
    await turn.add(one, two, three, look)
    await turn.start(one)
    await turn.add(answer_to("c_one", "done"))
    await turn.start(two)
    await turn.start(look, read_only=True)
    await turn.add(answer_to("c_look", "seen"))
    turn.emit("Half")
    raise BOOM


def results(turn: Turn) -> dict[str | None, str]:
    return {item.call_id: item.fields["output"] for item in turn.items if item.is_result}


def kinds(turns: list[Turn]) -> list[str]:
    return [turn.kind.value for turn in turns]


class WhatHappened(Contract):
    async def test_the_next_turn_settles_what_a_failed_one_did(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "Hello")
        await fail(chat, ScriptedModel(["I pay.", Tool("pay", "paid"), "Next,", BOOM]))
        assert kinds(await chat.turns()) == ["completed"]
        model = ScriptedModel(["Yes."])
        await soon((await there.chat(chat)).run(model, "Did you pay?"))
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]
        told = model.seen[0][2:]
        assert [message["role"] for message in told] == ["user", "assistant", "tool", "developer", "user"]
        assert told[0] == user("Pay.")
        assert told[1]["tool_calls"][0]["function"]["name"] == "pay"
        assert told[2] == PAID
        assert "the model broke" in told[3]["content"]
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.SETTLED
        assert (await chat.turns())[1].id == aside.attempt.id

    async def test_it_is_settled_once(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await exchange(chat, "q1")
        await exchange(chat, "q2")
        assert kinds(await chat.turns()) == ["settled", "completed", "completed"]

    async def test_each_failed_turn_is_settled_by_the_one_after_it(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await fail(chat, ScriptedModel([Tool("pay", "one"), BOOM]))
        await fail(chat, ScriptedModel([Tool("pay", "two"), BOOM]))
        await exchange(chat, "q")
        turns = await chat.turns()
        assert kinds(turns) == ["settled", "settled", "completed"]
        assert [results(turn) for turn in turns[:2]] == [{"call_0": "one"}, {"call_0": "two"}]
        assert [turn.parent for turn in turns] == [None, turns[0].id, turns[1].id]

    async def test_only_calls_that_may_have_acted_are_told(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await fail(chat, three_calls)
        await exchange(chat, "q")
        settled = (await chat.turns())[0]
        assert results(settled) == {"c_one": "done", "c_two": OUTCOME_UNKNOWN}
        assert [item.call_id for item in settled.items if item.is_call] == ["c_one", "c_two"]
        assert "Half" not in await said(chat)

    async def test_reasoning_is_told_with_the_call_it_led_to_and_only_then(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        look = Tool("look", read_only=True)
        await fail(chat, ScriptedModel([Think("a"), look, Think("b"), Tool("pay"), Think("c"), BOOM]))
        await exchange(chat, "q")
        items = (await chat.turns())[0].output
        assert [item.type for item in items] == [
            "reasoning",
            "function_call",
            "function_call_output",
            "message",
        ]
        assert items[0].fields["summary"][0]["text"] == "b"

    async def test_read_only_tools_leave_nothing_to_settle(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await fail(chat, ScriptedModel([Tool("look", read_only=True), BOOM]))
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert model.seen == [[user("q")]]
        assert kinds(await chat.turns()) == ["completed"]

    async def test_forget_drops_it(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await fail(chat, ScriptedModel([Tool("pay"), BOOM]), on_failure="forget")
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert model.seen == [[user("q")]]
        [aside] = await chat.attempts()
        assert aside.journal.items == []

    async def test_what_a_stopped_and_discarded_turn_did_waits_likewise(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await stage.hold_lane(chat, "Pay.", [Tool("pay", "paid"), "Half"], idempotency_key="i")
        ended = await soon(chat.stop(policy="discard"))
        assert ended is not None
        assert ended.state is AttemptState.DISCARDED
        assert await chat.turns() == []
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert PAID in model.seen[0]
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_forget_is_about_failure_and_not_about_a_stop(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await stage.hold_lane(chat, "Pay.", [Tool("pay", "paid")], on_failure="forget")
        await soon(chat.stop(policy="discard"))
        await exchange(chat, "q")
        assert kinds(await chat.turns()) == ["settled", "completed"]

    async def test_what_a_rolled_back_turn_did_is_told_to_the_one_that_rolled_it_back(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, "Pay.", [Tool("pay", "paid")])
        model = ScriptedModel(["a"])
        await soon((await there.chat(chat)).run(model, "Stop!", on_busy="rollback"))
        assert PAID in model.seen[0]

    @pytest.mark.parametrize("way", ["failure", "stop"])
    async def test_keep_states_what_is_known_of_each_call(self, stage: Stage, way: str) -> None:
        chat = await (await stage.process()).chat()
        if way == "failure":
            await fail(chat, three_calls, on_failure="keep")
        else:
            await soon(chat.run(_stopping(three_calls), "Pay."))
        [turn] = await chat.turns()
        assert turn.kind is TurnKind.INTERRUPTED
        assert results(turn) == {
            "c_one": "done",
            "c_look": "seen",
            "c_two": OUTCOME_UNKNOWN,
            "c_three": NOT_STARTED,
        }
        assert turn.output[-1].fields["status"] == "incomplete"
        await exchange(chat, "q")

    async def test_what_a_dead_process_did_is_settled(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, "Pay.", [Tool("pay", "paid")])
        await stage.bury_others(there)
        model = ScriptedModel(["a"])
        await soon((await there.chat(chat)).run(model, "q"))
        assert PAID in model.seen[0]

    async def test_a_refused_request_settles_nothing(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "Hello")
        await fail(chat, ScriptedModel([Tool("pay"), BOOM]))
        before, attempts = await chat.turns(), await chat.attempts()
        with pytest.raises(NoNewInput):
            await chat.run(ScriptedModel(), " ")
        assert await chat.turns() == before
        assert await chat.attempts() == attempts
        await exchange(chat, "q")
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]

    async def test_a_settled_turn_answers_the_calls_that_its_input_answered(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1"), Ask("ask", call_id="c2")]), "Hello"))
        with pytest.raises(RuntimeError):
            await chat.run(
                ScriptedModel([Tool("pay", "paid"), BOOM]), [answer_to("c1", "one"), answer_to("c2", "two")]
            )
        await exchange(chat, "q")
        turns = await chat.turns()
        assert kinds(turns) == ["completed", "settled", "completed"]
        assert results(turns[1]) == {"c1": "one", "c2": "two", "call_0": "paid"}
        assert results(turns[2]) == {}

    async def test_effects_outlive_the_keeping_of_attempts(self, stage: Stage) -> None:
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

    async def test_why_a_settled_turn_failed_outlives_its_attempt(self, stage: Stage) -> None:
        here = await stage.process(replace(LIMITS, attempts_kept=60.0))
        chat = await here.chat()
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await exchange(chat, "q")
        settled, _ = await chat.turns()
        told = await soon(chat.stop(settled.id))
        assert told is not None
        assert (told.state, told.turn) == (AttemptState.SETTLED, settled)
        assert told.failure is not None
        assert str(BOOM) in told.failure.message
        stage.clock.advance(61)
        await here.tend()
        assert await chat.attempts() == []
        assert await soon(chat.stop(settled.id)) == told


def _stopping(runner: Runner) -> Runner:
    async def run(turn: RunningTurn) -> None:
        with pytest.raises(RuntimeError):
            await runner(turn)
        turn.stop()

    return run
