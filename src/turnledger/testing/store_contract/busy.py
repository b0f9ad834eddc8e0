"""While another turn runs: reject, interrupt and rollback."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.errors import ConversationBusy, MalformedItems, NoNewInput, TurnStopped
from turnledger.model.attempt import AttemptState
from turnledger.model.item import message
from turnledger.model.turn import TurnKind
from turnledger.testing.scripted_model import Ask, ScriptedModel
from turnledger.testing.store_contract.stage import Contract, Stage, answer_to, exchange, said, soon, user


class Busy(Contract):
    async def test_reject_refuses_at_once_and_changes_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        model = ScriptedModel()
        for each in (chat, await there.chat(chat)):
            with pytest.raises(ConversationBusy):
                await soon(each.run(model, "q1", on_busy="reject"))
        assert model.seen == []
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert await said(chat) == ["q0", "Working done."]

    async def test_reject_runs_on_a_free_lane(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q0", on_busy="reject")
        await exchange(chat, "q1", on_busy="reject")
        assert len(await chat.turns()) == 2

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_interrupt_keeps_the_running_turn_and_goes_on_from_it(
        self, stage: Stage, elsewhere: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0", ["Half"], on_stop="discard")
        model = ScriptedModel(["a1"])
        same = await (there if elsewhere else here).chat(chat)
        second = await soon(same.run(model, "q1", on_busy="interrupt"))
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        first, last = await chat.turns()
        assert last == second
        assert first == stopped.value.turn
        assert first.kind is TurnKind.INTERRUPTED
        assert first.output == (message("assistant", "Half", status="incomplete"),)
        assert model.seen == [[user("q0"), {"role": "assistant", "content": "Half"}, user("q1")]]

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_rollback_discards_the_running_turn(self, stage: Stage, elsewhere: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0", ["Half"])
        model = ScriptedModel(["a1"])
        same = await (there if elsewhere else here).chat(chat)
        await soon(same.run(model, "q1", on_busy="rollback"))
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        assert stopped.value.turn is None
        assert model.seen == [[user("q1")]]
        assert await said(chat) == ["q1", "a1"]
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.DISCARDED
        assert aside.attempt.partial == "Half"

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_who_interrupts_goes_before_those_who_wait(self, stage: Stage, policy: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await stage.hold_lane(chat, "q0", on_stop="discard")
        waiting = [
            await stage.queue(chat, ScriptedModel(["a1"]), "q1"),
            await stage.queue(same, ScriptedModel(["a2"]), "q2"),
        ]
        await soon(same.run(ScriptedModel(["a3"]), "q3", on_busy=policy))
        await soon(asyncio.gather(*waiting))
        inputs = [turn.input[0].text for turn in await chat.turns()]
        assert inputs[-3:] == ["q3", "q1", "q2"]

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_interrupting_a_free_lane_just_runs(self, stage: Stage, policy: str) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q0", "a0")
        await exchange(chat, "q1", "a1", on_busy=policy)
        assert await said(chat) == ["q0", "a0", "q1", "a1"]

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_a_refused_request_does_not_stop_the_running_turn(self, stage: Stage, policy: str) -> None:
        chat = await (await stage.process()).chat()
        holder = await stage.hold_lane(chat, "q0")
        refused = stage.start(chat.run(ScriptedModel(), "  ", on_busy=policy))
        with pytest.raises(NoNewInput):
            await soon(refused)
        assert not holder.task.done()
        assert (await holder.finish()).kind is TurnKind.COMPLETED

    async def test_results_for_calls_that_the_running_turn_closed_do_not_interrupt_it(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q0"))
        holder = await stage.hold_lane(chat, "never mind")
        with pytest.raises(MalformedItems):
            await soon(chat.run(ScriptedModel(), [answer_to("c1", "late")], on_busy="interrupt"))
        assert (await holder.finish()).kind is TurnKind.COMPLETED
