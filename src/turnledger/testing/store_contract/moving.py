"""Undo, switch and siblings: which branch a conversation shows, without running a turn."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.errors import BranchNotFound, ConversationBusy, TurnNotFound, TurnStopped
from turnledger.model.ids import BranchId
from turnledger.testing.gates import Fate, When
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.stage import (
    Contract,
    Stage,
    answer_to,
    asked,
    chain,
    exchange,
    play,
    said,
    soon,
    tell,
)
from turnledger.testing.store_contract.what_happened import BOOM, PAID, fail, kinds, results

UNKNOWN = BranchId("branch_01890a5d000070008000000000000000")
every_fate = pytest.mark.parametrize("fate", Fate)


async def shown(chat: Chat) -> BranchId:
    return (await chat.info()).branch


async def places_of(chat: Chat, turn: str) -> list[str]:
    """What was asked in the turns at the place of this one."""
    return [each.turn.input[-1].text for each in await chat.siblings(turn)]


class Moving(Contract):
    async def test_undo_takes_back_the_last_turn_and_it_can_be_shown_again(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 3), await shown(chat)
        await soon(chat.undo())
        assert await (await there.chat(chat)).turns() == before[:2]
        await soon((await there.chat(chat)).undo())
        assert await chat.turns() == before[:1]
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "other"))
        assert [message["content"] for message in model.seen[0]] == ["q1", "a1", "other"]
        await chat.switch(old)
        assert await (await there.chat(chat)).turns() == before

    async def test_the_first_turn_can_be_undone_and_then_there_is_none(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        with pytest.raises(TurnNotFound):
            await soon(chat.undo())
        [first] = await chain(chat, 1)
        await soon(chat.undo())
        assert await chat.turns() == []
        with pytest.raises(TurnNotFound):
            await soon(chat.undo())
        other = await exchange(chat, "other")
        assert (other.number, other.parent) == (1, None)
        assert [each.turn.id for each in await chat.siblings(other.id)] == [first.id, other.id]

    async def test_an_interrupted_turn_can_be_undone(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await chain(chat, 1)
        await stage.hold_lane(chat, "q2", ["Half"])
        await soon(chat.stop())
        assert kinds(await chat.turns()) == ["completed", "interrupted"]
        await soon(chat.undo())
        assert kinds(await chat.turns()) == ["completed"]

    async def test_undo_brings_back_the_calls_that_waited(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        await soon(chat.undo())
        again = await exchange(chat, [answer_to("c1", "two")])  # type: ignore[arg-type]
        assert results(again) == {"c1": "two"}

    @pytest.mark.parametrize("waits", [False, True])
    async def test_undo_hides_no_settled_turn(self, stage: Stage, waits: bool) -> None:
        chat = await (await stage.process()).chat()
        before = await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        if not waits:
            await exchange(chat, "q3")
            await soon(chat.undo())
            assert kinds(await chat.turns()) == ["completed", "completed", "settled"]
        await soon(chat.undo())
        turns = await chat.turns()
        assert turns[0] == before[0]
        assert kinds(turns) == ["completed", "settled"]
        assert [turn.number for turn in turns] == [1, 2]
        await soon(chat.undo())
        assert kinds(await chat.turns()) == ["settled"]
        with pytest.raises(TurnNotFound):
            await soon(chat.undo())
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert PAID in model.seen[0]

    async def test_undo_hides_them_if_it_is_told_to_forget(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        before = await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        await soon(chat.undo(forget=True))
        assert await chat.turns() == before[:1]
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "q"))
        assert PAID not in model.seen[0]
        await soon(chat.undo())
        await soon(chat.undo())
        assert await chat.turns() == []

    @every_fate
    async def test_an_undo_whose_answer_is_lost_is_done_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 3)
        here.store.lose_answer(begin, fate, fate, fate)
        await soon(chat.undo())
        assert await asked(chat) == ["q1", "q2"]
        await exchange(chat, "q3", on_busy="reject")

    @every_fate
    async def test_a_queued_undo_whose_answer_is_lost_is_done_once(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 2)
        holder = await stage.hold_lane(chat, "q3")
        undoing = await stage.line_up(chat, (await there.chat(chat)).undo())
        there.store.lose_answer(begin, fate, fate)
        await holder.finish()
        await soon(undoing)
        assert await asked(chat) == ["q1", "q2"]
        assert await stage.tickets(chat) == []
        await exchange(chat, "q4", on_busy="reject")

    # Switching.

    async def test_only_branches_of_the_conversation_can_be_shown(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        await chain(chat, 1)
        await chain(other, 1)
        forked = await chat.fork()
        found = await chat.info()
        for branch in (UNKNOWN, await shown(other), await shown(forked)):
            with pytest.raises(BranchNotFound):
                await soon(chat.switch(branch))
        assert await chat.info() == found
        await exchange(chat, "q2", on_busy="reject")

    async def test_switching_to_the_branch_that_is_shown_changes_nothing(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "q3")
        switching = await stage.line_up(chat, chat.switch(await shown(chat)))
        waiting = [
            await stage.queue(await each.chat(chat), ScriptedModel(["a"]), text)
            for each, text in ((there, "q4"), (here, "q5"))
        ]
        await holder.finish()
        await soon(switching)
        await soon(asyncio.gather(*waiting))
        assert (await chat.turns())[:2] == before
        assert await asked(chat) == ["q1", "q2", "q3", "q4", "q5"]

    async def test_two_who_switch_to_one_branch_leave_nobody_waiting(self, stage: Stage) -> None:
        """The second finds it shown already, and its ticket must not stand in anybody's way."""
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        await tell(chat.edit(before[1].id, "other"))
        holder = await stage.hold_lane(chat, "more")
        switching = [
            await stage.line_up(chat, (await each.chat(chat)).switch(old)) for each in (here, there, here)
        ]
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "next")
        await holder.finish()
        await soon(asyncio.gather(*switching))
        await soon(waiting)
        assert await asked(chat) == ["q1", "q2", "next"]
        assert await stage.tickets(chat) == []

    @every_fate
    async def test_a_switch_whose_answer_is_lost_is_done(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        await tell(chat.edit(before[1].id, "other"))
        here.store.lose_answer(begin, fate, fate, fate)
        await soon(chat.switch(old))
        assert await chat.turns() == before
        await exchange(chat, "next", on_busy="reject")

    @pytest.mark.parametrize("way", ["on", "back", "undo", "edit"])
    async def test_a_switch_whose_answer_is_lost_is_not_done_again_over_a_later_move(
        self, stage: Stage, way: str
    ) -> None:
        """Somebody else moves the conversation on, or back to where it was, before the one who switched it
        learns that it was done."""
        here, there = await stage.processes()
        chat = await here.chat()
        turns, first = await chain(chat, 2), await shown(chat)
        await tell(chat.edit(turns[1].id, "second"))
        second = await shown(chat)
        await tell(chat.edit((await chat.turns())[1].id, "third"))
        third, same = await shown(chat), await there.chat(chat)
        here.store.lose_answer(begin, *[Fate.WRITTEN] * 3)
        with here.store.hold(begin, When.AFTER) as gate:
            switching = stage.start(chat.switch(first))
            await stage.reach(gate, switching)
            assert await shown(same) == first
            if way == "undo":
                await soon(same.undo())
            elif way == "edit":
                await tell(same.edit(turns[0].id, "other"))
            else:
                await soon(same.switch(second if way == "on" else third))
            expected = await shown(same)
        await soon(switching)
        assert await shown(same) == expected
        await exchange(chat, "next", on_busy="reject")

    @every_fate
    async def test_a_queued_switch_whose_answer_is_lost_is_done(self, stage: Stage, fate: Fate) -> None:
        """Its branch is shown while it waits, and what runs there leads away from it."""
        here, there = await stage.processes()
        chat = await here.chat()
        turns, old = await chain(chat, 2), await shown(chat)
        holder = await stage.hold(lambda model: chat.edit(turns[1].id, "other").run(model))
        switching = await stage.line_up(chat, (await there.chat(chat)).switch(old))
        there.store.lose_answer(begin, fate, fate)
        await holder.finish()
        await soon(switching)
        assert await chat.turns() == turns
        assert await stage.tickets(chat) == []

    async def test_a_branch_goes_on_where_it_was_left(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        edited, new = await tell(chat.edit(before[1].id, "other")), await shown(chat)
        await exchange(chat, "here")
        for _ in range(2):
            await soon((await there.chat(chat)).switch(old))
            await exchange(chat, "there")
            await soon(chat.switch(new))
            await exchange(await there.chat(chat), "here")
        assert await asked(chat) == ["q1", "other", "here", "here", "here"]
        assert (await chat.turns())[1] == edited
        await soon(chat.switch(old))
        assert await asked(chat) == ["q1", "q2", "there", "there"]

    # While another turn runs.

    @pytest.mark.parametrize("what", ["undo", "switch"])
    @pytest.mark.parametrize("policy", ["queue", "reject", "interrupt", "rollback"])
    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_they_take_the_lane_as_a_turn_does(
        self, stage: Stage, what: str, policy: str, elsewhere: bool
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        await tell(chat.edit(before[1].id, "other"))
        new = await shown(chat)
        holder = await stage.hold_lane(chat, "running", ["Half"], on_stop="discard")
        same = await (there if elsewhere else here).chat(chat)
        moving = same.undo(on_busy=policy) if what == "undo" else same.switch(old, on_busy=policy)
        if policy == "reject":
            with pytest.raises(ConversationBusy):
                await soon(moving)
            assert await shown(chat) == new
            await holder.finish()
            return
        if policy == "queue":
            task = await stage.line_up(chat, moving)
            assert await shown(chat) == new
            await holder.finish()
            await soon(task)
        else:
            await soon(moving)
            with pytest.raises(TurnStopped):
                await soon(holder.task)
        if what == "switch":
            assert await chat.turns() == before
            await soon(chat.switch(new))
        undone = {"queue": ["q1", "other"], "interrupt": ["q1", "other"], "rollback": ["q1"]}
        left = {"queue": ["q1", "other", "running"], "interrupt": ["q1", "other", "running"]}
        assert await asked(chat) == (undone if what == "undo" else left).get(policy, ["q1", "other"])

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_what_is_refused_stops_no_running_turn(self, stage: Stage, policy: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        [first] = await chain(chat, 1)
        await tell(chat.edit(first.id, "other"))
        holder = await stage.hold_lane(chat, "running")
        same = await there.chat(chat)
        with pytest.raises(BranchNotFound):
            await soon(same.switch(UNKNOWN, on_busy=policy))
        with pytest.raises(TurnNotFound):
            await tell(same.edit(first.id, "again", on_busy=policy))
        with pytest.raises(TurnNotFound):
            await tell(same.regenerate(first.id, on_busy=policy))
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert await asked(chat) == ["other", "running"]

    async def test_an_undo_that_rolls_back_the_only_turn_is_refused(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        holder = await stage.hold_lane(chat, "running")
        with pytest.raises(TurnNotFound):
            await soon(chat.undo(on_busy="rollback"))
        await holder.finish()
        assert await asked(chat) == ["running"]

    async def test_an_undo_that_interrupts_takes_back_what_it_interrupted(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await stage.hold_lane(chat, "running")
        await soon(chat.undo(on_busy="interrupt"))
        assert await chat.turns() == []

    # Siblings.

    @pytest.mark.parametrize("place", [0, 1])
    async def test_siblings_are_all_turns_made_at_a_place(self, stage: Stage, place: int) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 3)
        made, branches = [turns[place]], [await shown(chat)]
        for number in range(3):
            made.append(await tell(chat.edit(made[-1].id, f"edit {number}")))
            branches.append(await shown(chat))
            await exchange(chat, "more")
        made.append(await tell(chat.regenerate(made[-1].id)))
        branches.append(await shown(chat))
        expected = list(zip(made, branches, strict=True))
        for turn, branch in expected:
            await soon(chat.switch(branch))
            assert [(each.turn, each.branch) for each in await chat.siblings(turn.id)] == expected
        few = await chat.siblings(made[-1].id, limit=2)
        assert len(few) == 2
        assert made[-1] in [each.turn for each in few]

    async def test_a_turn_that_nothing_else_was_made_for_is_its_only_sibling(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 3)
        await tell(chat.edit(turns[2].id, "other"))
        for turn in turns[:2]:
            assert await places_of(chat, turn.id) == [turn.input[0].text]
        assert await places_of(chat, (await chat.turns())[2].id) == ["q3", "other"]

    async def test_siblings_show_the_branch_that_is_current_where_it_has_the_turn(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 3)
        await tell(chat.edit(turns[0].id, "other"))
        other = await shown(chat)
        await soon(chat.switch((await chat.siblings((await chat.turns())[0].id))[0].branch))
        await tell(chat.edit(turns[2].id, "third"))
        found = await chat.siblings(turns[0].id)
        assert [each.branch for each in found] == [await shown(chat), other]

    async def test_an_undone_turn_is_a_sibling_of_what_came_instead(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turns = await chain(chat, 2)
        await soon(chat.undo())
        other = await exchange(chat, "other")
        found = await chat.siblings(other.id)
        assert [each.turn for each in found] == [turns[1], other]
        await soon(chat.switch(found[0].branch))
        assert await chat.turns() == turns
        assert [each.turn for each in await chat.siblings(turns[1].id)] == [turns[1], other]

    async def test_settled_turns_between_do_not_part_siblings(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        await exchange(chat, "q1")
        second = await exchange(chat, "q2")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        third = await exchange(chat, "q3")
        old = await shown(chat)
        edited = await tell(chat.edit(second.id, "other"))
        again = await tell(chat.regenerate(edited.id))
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]
        expected = [second, edited, again]
        assert [each.turn for each in await chat.siblings(again.id)] == expected
        await soon(chat.switch(old))
        assert [each.turn for each in await chat.siblings(second.id)] == expected
        assert [each.turn for each in await chat.siblings(third.id)] == [third]
        for each in await chat.siblings(second.id):
            await soon(chat.switch(each.branch))
            assert each.turn in await chat.turns()

    async def test_what_failed_is_nobodys_sibling(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        [first] = await chain(chat, 1)
        with pytest.raises(RuntimeError):
            await soon(play(chat.edit(first.id, "other"), ScriptedModel(["Half", BOOM])))
        assert await places_of(chat, first.id) == ["q1"]
        assert await said(chat) == ["q1", "a1"]
