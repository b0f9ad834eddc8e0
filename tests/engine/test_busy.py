"""While another turn runs: wait, reject, interrupt or roll back, also when the branch changes meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.views import results, shown
from turnledger.engine.turn.commit import commit
from turnledger.errors import ConversationBusy, MalformedItems, NoNewInput, TurnNotFound, TurnStopped
from turnledger.model.item import message
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.stage import (
    Stage,
    answer_to,
    asked,
    chain,
    exchange,
    play,
    said,
    soon,
    tell,
    user,
)
from turnledger.testing.store_contract.what_happened import BOOM, PAID, kinds


class TestBusy:
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


elsewhere = pytest.mark.parametrize("elsewhere", [False, True])


class TestBusyBranches:
    @elsewhere
    async def test_an_edit_waits_for_the_running_turn_and_sees_its_own_place(
        self, stage: Stage, elsewhere: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running")
        model = ScriptedModel(["Edited."])
        same = await (there if elsewhere else here).chat(chat)
        editing = await stage.line_up(chat, play(same.edit(before[1].id, "other"), model))
        await holder.finish()
        turn = await soon(editing)
        assert model.seen[0][-1] == user("other")
        assert len(model.seen[0]) == 3
        assert await chat.turns() == [before[0], turn]

    async def test_a_rejected_edit_changes_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running")
        for each in (chat, await there.chat(chat)):
            for block in (
                each.edit(before[1].id, "other", on_busy="reject"),
                each.regenerate(on_busy="reject"),
            ):
                with pytest.raises(ConversationBusy):
                    await tell(block)
        await holder.finish()
        assert await asked(chat) == ["q1", "q2", "running"]

    @elsewhere
    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_an_edit_may_stop_the_running_turn(
        self, stage: Stage, policy: str, elsewhere: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        holder = await stage.hold_lane(chat, "running", [Tool("pay", "paid"), "Half"])
        same = await (there if elsewhere else here).chat(chat)
        model = ScriptedModel(["Edited."])
        await soon(play(same.edit(before[1].id, "other", on_busy=policy), model))
        with pytest.raises(TurnStopped):
            await soon(holder.task)
        # What was stopped had acted, kept or rolled back: that comes along.
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]
        assert PAID in model.seen[0]
        await soon(chat.switch(old))
        last = "interrupted" if policy == "interrupt" else "settled"
        assert kinds(await chat.turns()) == ["completed", "completed", last]

    @pytest.mark.parametrize("how", ["edit", "regenerate", "regenerate by name"])
    async def test_who_interrupts_may_replace_the_very_turn_that_runs(self, stage: Stage, how: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        block = chat.turn("running")
        await stage.hold(lambda model: play(block, model))
        if how == "edit":
            with pytest.raises(NoNewInput):
                await tell(same.edit(block.id, " ", on_busy="interrupt"))
            replacing = same.edit(block.id, "other", on_busy="interrupt")
        else:
            replacing = same.regenerate(block.id if "name" in how else None, on_busy="interrupt")
        turn = await tell(replacing)
        assert await chat.turns() == [turn]
        assert await asked(chat) == ["other" if how == "edit" else "running"]
        assert [each.turn.id for each in await chat.siblings(turn.id)] == [block.id, turn.id]

    async def test_who_interrupts_an_edit_may_replace_it_and_answer_what_waits_there(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        told = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        block = chat.edit(told.id, "other")
        await stage.hold(lambda model: play(block, model))
        turn = await tell(chat.edit(block.id, [answer_to("c1", "two")], on_busy="interrupt"))
        assert results(turn) == {"c1": "two"}
        assert (await chat.turns())[1:] == [turn]

    @elsewhere
    @pytest.mark.parametrize("by", ["edit", "kept edit", "undo", "switch"])
    async def test_who_waits_goes_along_when_the_conversation_moves(
        self, stage: Stage, by: str, elsewhere: bool
    ) -> None:
        """In their order, in either process, and without a clock that has to run out first."""
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        before, old = await chain(chat, 2), await shown(chat)
        await tell(chat.edit(before[1].id, "second"))
        line = await chat.turns()
        block = chat.edit(line[1].id, "third")
        waiting: list[asyncio.Task[Any]] = []
        if by in ("edit", "kept edit"):
            holder = await stage.hold(lambda model: play(block, model))
        else:
            holder = await stage.hold_lane(chat, "running")
            moving = (same if elsewhere else chat).undo() if by == "undo" else same.switch(old)
            waiting.append(await stage.line_up(chat, moving))
        models = [ScriptedModel(["a"]) for _ in range(4)]
        for number, model in enumerate(models):
            using = (chat, same)[number % 2 if elsewhere else 0]
            waiting.append(await stage.queue(using, model, f"wait {number}"))
        if by == "kept edit":
            await soon(chat.stop(block.id))
        else:
            await holder.finish()
        await soon(asyncio.gather(*waiting))
        start = {"edit": "third", "kept edit": "third", "undo": "second", "switch": "q2"}[by]
        assert await asked(same) == ["q1", start, *(f"wait {number}" for number in range(4))]
        assert models[0].seen[0][-1] == user("wait 0")
        assert await stage.tickets(chat) == []

    async def test_a_front_ticket_stays_in_front_when_the_queue_moves(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 2)
        block = chat.edit(before[1].id, "other")
        here.store.is_deaf = True
        holder = await stage.hold(lambda model: play(block, model))
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "behind")
        front = await stage.queue(await there.chat(chat), ScriptedModel(["a"]), "front", on_busy="interrupt")
        here.store.is_deaf = False
        here.store.announce()
        with pytest.raises(TurnStopped):
            await soon(holder.task)
        await soon(asyncio.gather(front, waiting))
        assert await asked(chat) == ["q1", "other", "front", "behind"]

    async def test_a_queue_that_moves_twice_keeps_its_order(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        before, old = await chain(chat, 2), await shown(chat)
        holder = await stage.hold_lane(chat, "running")
        waiting: list[asyncio.Task[Any]] = [
            await stage.line_up(chat, play(chat.edit(before[1].id, "other"), ScriptedModel(["a"]))),
            await stage.queue(same, ScriptedModel(["a"]), "one"),
            await stage.line_up(chat, same.switch(old)),
            await stage.queue(chat, ScriptedModel(["a"]), "two"),
            await stage.line_up(chat, same.undo()),
            await stage.queue(same, ScriptedModel(["a"]), "three"),
            await stage.queue(chat, ScriptedModel(["a"]), "four"),
        ]
        await holder.finish()
        await soon(asyncio.gather(*waiting))
        assert await asked(chat) == ["q1", "q2", "running", "three", "four"]

    async def test_a_switch_that_waits_for_an_edit_comes_after_it(self, stage: Stage) -> None:
        """Although the branch it asks for is shown while it waits."""
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        block = chat.edit(before[1].id, "other")
        holder = await stage.hold(lambda model: play(block, model))
        switching = await stage.line_up(chat, (await there.chat(chat)).switch(old))
        assert not switching.done()
        await holder.finish()
        await soon(switching)
        assert await chat.turns() == before

    @elsewhere
    async def test_of_two_edits_at_once_the_second_finds_the_line_of_the_first(
        self, stage: Stage, elsewhere: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await (there if elsewhere else here).chat(chat)
        before = await chain(chat, 3)
        block = chat.edit(before[1].id, "first")
        holder = await stage.hold(lambda model: play(block, model))
        gone = await stage.line_up(chat, tell(same.edit(before[2].id, "never")))
        still = await stage.line_up(chat, tell(same.edit(before[0].id, "second")))
        await holder.finish()
        with pytest.raises(TurnNotFound):
            await soon(gone)
        turn = await soon(still)
        assert await chat.turns() == [turn]
        assert await stage.tickets(chat) == []

    async def test_many_edits_at_once_all_happen_one_after_another(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        [first] = await chain(chat, 1)
        second = await exchange(chat, "q2")
        edits = [(chat, same)[number % 2].edit(second.id, f"edit {number}") for number in range(2)]
        ends = await soon(asyncio.gather(*(tell(each) for each in edits), return_exceptions=True))
        # The line of the second is gone once the first has come: nobody overwrites anybody unseen.
        assert sorted(type(each).__name__ for each in ends) == ["Turn", "TurnNotFound"]
        plain = [tell((chat, same)[number % 2].regenerate()) for number in range(6)]
        turns = await soon(asyncio.gather(*plain))
        assert len({turn.id for turn in turns}) == 6
        assert (await chat.turns())[0] == first
        last = (await chat.turns())[1]
        assert len(await chat.siblings(last.id)) == 8

    async def test_a_plain_turn_never_commits_behind_a_line_that_is_shown_no_more(self, stage: Stage) -> None:
        """Its lane was taken over while it slept, and the conversation has moved since."""
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        before = await chain(chat, 2)
        with here.store.hold(commit) as gate:
            late = stage.start(chat.run(ScriptedModel(["Late."]), "late"))
            await stage.reach(gate, late)
            here.store.is_deaf = True
            await stage.bury_others(there)
            edited = await tell(same.edit(before[1].id, "other"))
        with pytest.raises(Exception, match="lane"):
            await soon(late)
        assert await same.turns() == [before[0], edited]

    async def test_an_edit_that_slept_moves_no_pointer(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        before = await chain(chat, 2)
        with here.store.hold(commit) as gate:
            late = stage.start(tell(chat.edit(before[1].id, "late")))
            await stage.reach(gate, late)
            here.store.is_deaf = True
            await stage.bury_others(there)
            turn = await exchange(same, "q3")
        with pytest.raises(Exception, match="lane"):
            await soon(late)
        assert await same.turns() == [*before, turn]

    async def test_an_edit_that_gives_up_waiting_leaves_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running")
        editing = await stage.line_up(chat, tell((await there.chat(chat)).edit(before[1].id, "other")))
        undoing = await stage.line_up(chat, (await there.chat(chat)).undo())
        for task in (editing, undoing):
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await soon(task)
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert await asked(chat) == ["q1", "q2", "running"]

    async def test_a_queued_edit_can_be_stopped(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running")
        block = chat.edit(before[1].id, "other", idempotency_key="i")
        editing = await stage.line_up(chat, tell(block))
        await soon(chat.stop(block.id))
        with pytest.raises(TurnStopped):
            await soon(editing)
        with pytest.raises(TurnStopped):
            await tell(chat.edit(before[1].id, "other", idempotency_key="i"))
        await holder.finish()
        assert await asked(chat) == ["q1", "q2", "running"]

    async def test_who_was_waiting_with_the_key_of_an_edit_shares_its_failure(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running")
        first = await stage.line_up(
            chat,
            play(
                chat.edit(before[1].id, "other", idempotency_key="i"),
                ScriptedModel([Tool("pay", "paid"), BOOM]),
            ),
        )
        second = await stage.line_up(chat, tell(same.edit(before[1].id, "other", idempotency_key="i")))
        await holder.finish()
        ends = await soon(asyncio.gather(first, second, return_exceptions=True))
        assert [type(each).__name__ for each in ends] == ["RuntimeError", "TurnFailed"]
        await exchange(chat, "next")
        assert kinds(await chat.turns())[-2:] == ["settled", "completed"]
