"""Resuming: a retry goes on after the last finished step, and never runs a tool that may have acted."""

from __future__ import annotations

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.unfinished import OUTCOME_UNKNOWN
from turnledger.engine.ports import Runner
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import TurnFailed
from turnledger.model.attempt import AttemptState
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Step, Think, Tool
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, call, exchange, said, soon

BOOM = RuntimeError("the model broke")


async def fail(chat: Chat, model: Runner, text: str = "q", *, on_failure: str = "settle") -> None:
    with pytest.raises(RuntimeError):
        await soon(chat.run(model, text, idempotency_key="i", on_failure=on_failure))


async def retry(chat: Chat, model: Runner, text: str = "q") -> Turn:
    return await soon(chat.run(model, text, idempotency_key="i"))


def results(turn: Turn) -> list[str]:
    return [item.fields["output"] for item in turn.items if item.is_result]


class Resuming(Contract):
    async def test_finished_steps_are_not_redone(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        whole: list[Step] = [Think("hm"), "I look.", Tool("look", "found"), Tool("pay", "paid"), "Done."]
        model = ScriptedModel([*whole[:3], BOOM], whole)
        await fail(chat, model)
        turn = await retry(await there.chat(chat), model)
        assert model.executed == {"look": 1, "pay": 1}
        assert results(turn) == ["found", "paid"]
        assert [item.type for item in turn.output] == [
            "reasoning",
            "message",
            "function_call",
            "function_call_output",
            "function_call",
            "function_call_output",
            "message",
        ]
        assert model.seen[1][-1] == {"role": "tool", "tool_call_id": "call_0", "content": "found"}
        assert turn.text == "I look.Done."
        assert await chat.turns() == [turn]

    async def test_the_resumed_attempt_is_told_as_such_and_leaves_no_effects_behind(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        model = ScriptedModel([Tool("pay"), BOOM], [Tool("pay"), "Done."])
        await fail(chat, model)
        turn = await retry(chat, model)
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.RESUMED
        assert aside.journal.items == []
        await exchange(chat, "next")
        assert [each.kind for each in await chat.turns()] == [TurnKind.COMPLETED, TurnKind.COMPLETED]
        assert (await chat.turns())[0] == turn

    async def test_a_call_that_was_not_started_is_run(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await self._fail_with(chat, started=False)
        model = ScriptedModel([Tool("pay", "paid"), "Done."])
        turn = await retry(chat, model)
        assert model.executed == {"pay": 1}
        assert results(turn) == ["paid"]

    async def test_a_call_of_unknown_outcome_is_stated_and_not_run_again(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await self._fail_with(chat, started=True)
        model = ScriptedModel([Tool("pay", "paid"), "Done."])
        turn = await retry(chat, model)
        assert model.executed == {}
        assert results(turn) == [OUTCOME_UNKNOWN]
        assert model.seen[0][-1]["content"] == OUTCOME_UNKNOWN

    async def _fail_with(self, chat: Chat, *, started: bool) -> None:
        async def runner(turn: RunningTurn) -> None:
            pay = call("pay", "call_0")
            await turn.add(pay)
            if started:
                await turn.start(pay)
            raise BOOM

        await fail(chat, runner)

    async def test_a_call_whose_tool_failed_is_of_unknown_outcome(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        model = ScriptedModel([Tool("pay", error=BOOM)], [Tool("pay"), "Done."])
        await fail(chat, model)
        assert results(await retry(chat, model)) == [OUTCOME_UNKNOWN]
        assert model.executed == {"pay": 1}

    async def test_a_turn_whose_process_died_in_a_tool_is_resumed_elsewhere(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        gate = Gate()
        script: list[Step] = [Tool("book", "booked"), Tool("pay", gate=gate), "Done."]
        model = ScriptedModel(script, script)
        task = stage.start(chat.run(model, "q", idempotency_key="i"))
        await stage.reach(gate, task)
        await stage.bury_others(there)
        turn = await retry(await there.chat(chat), model)
        assert model.executed == {"book": 1, "pay": 1}
        assert results(turn) == ["booked", OUTCOME_UNKNOWN]

    @pytest.mark.parametrize("attach", [False, True])
    async def test_a_retry_may_be_the_one_that_finds_the_process_dead(
        self, stage: Stage, attach: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        gate = Gate()
        model = ScriptedModel([Tool("pay", "paid"), gate], [Tool("pay", "paid"), "Done."])
        task = stage.start(chat.run(model, "q", idempotency_key="i"))
        await stage.reach(gate, task)
        await there.tend()  # it has seen the other alive
        stage.clock.advance(LIMITS.lease_time)
        same = await there.chat(chat)
        turn = await soon(same.run(model, "q", idempotency_key="i", attach=attach))
        assert (turn.text, model.executed) == ("Done.", {"pay": 1})
        assert await chat.turns() == [turn]
        assert await stage.tickets(chat) == []

    async def test_who_was_waiting_when_it_began_shares_its_death(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        holder = await stage.hold_lane(chat)
        gate = Gate()
        first = await stage.queue(chat, ScriptedModel([gate]), "q", idempotency_key="i")
        second = await stage.queue(same, ScriptedModel(["never said"]), "q", idempotency_key="i")
        await holder.finish()
        await stage.reach(gate, first)
        await stage.bury_others(there)
        with pytest.raises(TurnFailed):
            await soon(second)
        turn = await soon(same.run(ScriptedModel(["Done."]), "q", idempotency_key="i"))
        assert [each.id for each in await chat.turns()][1:] == [turn.id]

    async def test_a_retry_can_fail_and_be_resumed_again(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        whole: list[Step] = [Tool("one", "1"), Tool("two", "2"), Tool("three", "3"), "Done."]
        model = ScriptedModel([whole[0], BOOM], [*whole[:2], BOOM], whole)
        await fail(chat, model)
        await fail(chat, model)
        turn = await retry(chat, model)
        assert model.executed == {"one": 1, "two": 1, "three": 1}
        assert results(turn) == ["1", "2", "3"]

    async def test_repeated_call_ids_are_resumed_per_occurrence(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        first, second = Tool("pay", "paid 1", call_id="c"), Tool("pay", "paid 2", call_id="c")
        model = ScriptedModel([first, BOOM], [first, second, "Done."])
        await fail(chat, model)
        assert results(await retry(chat, model)) == ["paid 1", "paid 2"]
        assert model.executed == {"pay": 2}

    async def test_call_whose_result_is_recorded_returns_it_and_does_not_run_again(
        self, stage: Stage
    ) -> None:
        """The runner begins anew with every attempt, and does not look at the steps."""
        here, there = await stage.processes()
        chat = await here.chat()
        paid: list[str] = []
        told: list[str] = []

        async def pay_twice(turn: RunningTurn) -> None:
            for count in (1, 2):

                async def pay(count: int = count) -> str:
                    paid.append(f"paid {count}")
                    return paid[-1]

                told.append((await turn.call(call("pay", "c"), pay)).fields["output"])
                if len(told) < 4:
                    raise BOOM
            turn.emit("Done.")

        await fail(chat, pay_twice)
        assert (paid, told) == (["paid 1"], ["paid 1"])
        await fail(chat, pay_twice)
        assert (paid, told[1:]) == (["paid 1"], ["paid 1"])
        told.append("and another time")
        turn = await retry(await there.chat(chat), pay_twice)
        assert (paid, told[3:]) == (["paid 1", "paid 2"], ["paid 1", "paid 2"])
        assert results(turn) == ["paid 1", "paid 2"]

    async def test_call_of_unknown_outcome_returns_that_and_does_not_run_again(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        paid: list[str] = []

        async def pay() -> str:
            paid.append("paid")
            raise BOOM

        async def agent(turn: RunningTurn) -> None:
            result = await turn.call(call("pay", "c"), pay)
            turn.emit(result.fields["output"])

        await fail(chat, agent)
        turn = await retry(chat, agent)
        assert paid == ["paid"]
        assert turn.text == OUTCOME_UNKNOWN
        assert results(turn) == [OUTCOME_UNKNOWN]

    async def test_call_that_was_added_and_not_started_is_run_by_the_retry(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        paid: list[str] = []

        async def pay() -> str:
            paid.append("paid")
            return "paid"

        async def agent(turn: RunningTurn) -> None:
            if not turn.is_resumed:
                await turn.add(call("pay", "c"))
                raise BOOM
            await turn.call(call("pay", "c"), pay)
            await turn.call({**call("pay", "d").fields, "id": "another"}, pay)
            turn.emit("Done.")

        await fail(chat, agent)
        turn = await retry(chat, agent)
        assert paid == ["paid", "paid"]
        assert [item.call_id for item in turn.output if item.is_result] == ["c", "d"]

    async def test_a_turn_that_broke_off_after_reasoning_can_be_resumed(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        model = ScriptedModel([Think("hm"), BOOM], [Think("hm"), "Done."])
        await fail(chat, model)
        turn = await retry(chat, model)
        assert [item.type for item in turn.output] == ["reasoning", "message"]

    async def test_a_retry_starts_afresh_when_the_conversation_has_moved_on(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        look = Tool("look", "found", read_only=True)
        model = ScriptedModel([look, BOOM], [look, "Done."])
        await fail(chat, model)
        await exchange(chat, "q1", "a1")
        turn = await retry(chat, model)
        assert model.executed == {"look": 2}
        assert [message["content"] for message in model.seen[1]] == ["q1", "a1", "q"]
        assert [each.id for each in await chat.turns()][-1] == turn.id
        assert await said(chat) == ["q1", "a1", "q", "Done."]

    async def test_a_retry_of_a_settled_turn_is_answered_by_it(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        model = ScriptedModel([Tool("pay"), BOOM])
        await fail(chat, model)
        await exchange(chat, "next")
        turn = await retry(chat, model)
        assert turn.kind is TurnKind.SETTLED
        assert model.executed == {"pay": 1}
        assert [each.kind for each in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]

    async def test_forget_lets_a_retry_run_the_tools_again(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        model = ScriptedModel([Tool("pay"), BOOM], [Tool("pay"), "Done."])
        await fail(chat, model, on_failure="forget")
        await retry(chat, model)
        assert model.executed == {"pay": 2}

    async def test_a_resumed_retry_does_not_hide_what_another_failed_turn_has_done(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        look = Tool("look", "found", read_only=True)
        model = ScriptedModel([look, BOOM], [look, "Done."])
        await fail(chat, model)
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([Tool("pay", "paid"), BOOM]), "pay")
        await retry(chat, model)
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert {"role": "tool", "tool_call_id": "call_0", "content": "paid"} in model.seen[1]
