"""Undo, switch, siblings and forks: which branch a conversation shows."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from tests.engine.views import SCRIPT, check_shape, read_all, results, shown, spoken, wire
from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.errors import (
    BranchNotFound,
    ConversationBusy,
    ConversationDeleted,
    ConversationExpired,
    HistoryDiverged,
    IdempotencyMismatch,
    InvalidInput,
    TurnNotFound,
    TurnStopped,
)
from turnledger.model.ids import BranchId
from turnledger.testing.gates import Fate, When
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.branches import purge_all, sibling_inputs
from turnledger.testing.store_contract.effects import BOOM, PAID, fail, kinds
from turnledger.testing.store_contract.stage import (
    Stage,
    StageProcess,
    answer_to,
    chain,
    exchange,
    input_texts,
    run_block,
    soon,
)

UNKNOWN = BranchId("branch_01890a5d000070008000000000000000")
every_fate = pytest.mark.parametrize("fate", Fate)


class TestMoves:
    async def test_undo_removes_the_last_turn_and_a_switch_shows_it_again(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        before, old = await chain(chat, 3), await shown(chat)
        await soon(chat.undo())
        assert await same.turns() == before[:2]
        await soon(same.undo())
        assert await chat.turns() == before[:1]
        model = ScriptedModel(["a"])
        await soon(chat.run(model, "other"))
        assert [message["content"] for message in model.seen[0]] == ["q1", "a1", "other"]
        await chat.switch(old)
        assert await same.turns() == before

    async def test_undo_of_the_first_turn_empties_the_history_and_a_further_undo_is_refused(
        self, chat: Chat
    ) -> None:
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

    async def test_undo_makes_the_answered_calls_pending_again(self, chat: Chat) -> None:
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        await soon(chat.undo())
        again = await exchange(chat, [answer_to("c1", "two")])  # type: ignore[arg-type]
        assert results(again) == {"c1": "two"}

    @pytest.mark.parametrize("waits", [False, True])
    async def test_undo_keeps_settled_turns(self, chat: Chat, waits: bool) -> None:
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

    @every_fate
    async def test_undo_whose_answer_is_lost_is_done_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 3)
        here.store.lose_answer(begin, fate, fate, fate)
        await soon(chat.undo())
        assert await input_texts(chat) == ["q1", "q2"]
        await exchange(chat, "q3", on_busy="reject")

    @every_fate
    async def test_queued_undo_whose_answer_is_lost_is_done_once(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        await chain(chat, 2)
        holder = await stage.hold_lane(chat, "q3")
        undoing = await stage.line_up(chat, same.undo())
        there.store.lose_answer(begin, fate, fate)
        await holder.finish()
        await soon(undoing)
        assert await input_texts(chat) == ["q1", "q2"]
        assert await stage.tickets(chat) == []
        await exchange(chat, "q4", on_busy="reject")

    # Switching.

    async def test_switch_to_a_branch_of_another_conversation_raises_branch_not_found(
        self, here: StageProcess
    ) -> None:
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

    async def test_switch_to_the_current_branch_changes_nothing_and_frees_the_queue(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
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
        assert await input_texts(chat) == ["q1", "q2", "q3", "q4", "q5"]

    async def test_concurrent_switches_to_one_branch_leave_no_ticket_behind(self, stage: Stage) -> None:
        """The second finds it shown already, and its ticket must not stand in anybody's way."""
        here, there = await stage.processes()
        chat = await here.chat()
        before, old = await chain(chat, 2), await shown(chat)
        await run_block(chat.edit(before[1].id, "other"))
        holder = await stage.hold_lane(chat, "more")
        switching = [
            await stage.line_up(chat, (await each.chat(chat)).switch(old)) for each in (here, there, here)
        ]
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "next")
        await holder.finish()
        await soon(asyncio.gather(*switching))
        await soon(waiting)
        assert await input_texts(chat) == ["q1", "q2", "next"]
        assert await stage.tickets(chat) == []

    @pytest.mark.parametrize("way", ["on", "back", "undo", "edit"])
    async def test_switch_whose_answer_is_lost_is_not_repeated_over_a_later_move(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, way: str
    ) -> None:
        """Somebody else moves the conversation on, or back to where it was, before the one who switched it
        learns that it was done."""
        turns, first = await chain(chat, 2), await shown(chat)
        await run_block(chat.edit(turns[1].id, "second"))
        second = await shown(chat)
        await run_block(chat.edit((await chat.turns())[1].id, "third"))
        third, same = await shown(chat), await there.chat(chat)
        here.store.lose_answer(begin, *[Fate.WRITTEN] * 3)
        with here.store.hold(begin, When.AFTER) as gate:
            switching = stage.start(chat.switch(first))
            await stage.reach(gate, switching)
            assert await shown(same) == first
            if way == "undo":
                await soon(same.undo())
            elif way == "edit":
                await run_block(same.edit(turns[0].id, "other"))
            else:
                await soon(same.switch(second if way == "on" else third))
            expected = await shown(same)
        await soon(switching)
        assert await shown(same) == expected
        await exchange(chat, "next", on_busy="reject")

    @every_fate
    async def test_queued_switch_whose_answer_is_lost_is_done(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        """Its branch is shown while it waits, and what runs there leads away from it."""
        turns, old = await chain(chat, 2), await shown(chat)
        holder = await stage.hold(lambda model: chat.edit(turns[1].id, "other").run(model))
        switching = await stage.line_up(chat, same.switch(old))
        there.store.lose_answer(begin, fate, fate)
        await holder.finish()
        await soon(switching)
        assert await chat.turns() == turns
        assert await stage.tickets(chat) == []

    async def test_branch_shown_again_continues_from_its_last_turn(
        self, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        before, old = await chain(chat, 2), await shown(chat)
        edited, new = await run_block(chat.edit(before[1].id, "other")), await shown(chat)
        await exchange(chat, "here")
        for _ in range(2):
            await soon(same.switch(old))
            await exchange(chat, "there")
            await soon(chat.switch(new))
            await exchange(same, "here")
        assert await input_texts(chat) == ["q1", "other", "here", "here", "here"]
        assert (await chat.turns())[1] == edited
        await soon(chat.switch(old))
        assert await input_texts(chat) == ["q1", "q2", "there", "there"]

    # While another turn runs.

    @pytest.mark.parametrize("what", ["undo", "switch"])
    @pytest.mark.parametrize("policy", ["queue", "reject", "interrupt", "rollback"])
    async def test_undo_and_switch_follow_the_on_busy_policy(
        self, stage: Stage, what: str, policy: str, chat: Chat, either: Chat
    ) -> None:
        before, old = await chain(chat, 2), await shown(chat)
        await run_block(chat.edit(before[1].id, "other"))
        new = await shown(chat)
        holder = await stage.hold_lane(chat, "running", ["Half"], on_stop="discard")
        moving = either.undo(on_busy=policy) if what == "undo" else either.switch(old, on_busy=policy)
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
        assert await input_texts(chat) == (undone if what == "undo" else left).get(policy, ["q1", "other"])

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_refused_switch_or_edit_does_not_stop_the_running_turn(
        self, stage: Stage, chat: Chat, same: Chat, policy: str
    ) -> None:
        [first] = await chain(chat, 1)
        await run_block(chat.edit(first.id, "other"))
        holder = await stage.hold_lane(chat, "running")
        with pytest.raises(BranchNotFound):
            await soon(same.switch(UNKNOWN, on_busy=policy))
        with pytest.raises(TurnNotFound):
            await run_block(same.edit(first.id, "again", on_busy=policy))
        with pytest.raises(TurnNotFound):
            await run_block(same.regenerate(first.id, on_busy=policy))
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert await input_texts(chat) == ["other", "running"]

    async def test_undo_that_would_roll_back_the_only_turn_is_refused(self, stage: Stage, chat: Chat) -> None:
        holder = await stage.hold_lane(chat, "running")
        with pytest.raises(TurnNotFound):
            await soon(chat.undo(on_busy="rollback"))
        await holder.finish()
        assert await input_texts(chat) == ["running"]

    # Siblings.

    @pytest.mark.parametrize("place", [0, 1])
    async def test_siblings_lists_every_turn_made_at_one_place(self, chat: Chat, place: int) -> None:
        turns = await chain(chat, 3)
        made, branches = [turns[place]], [await shown(chat)]
        for number in range(3):
            made.append(await run_block(chat.edit(made[-1].id, f"edit {number}")))
            branches.append(await shown(chat))
            await exchange(chat, "more")
        made.append(await run_block(chat.regenerate(made[-1].id)))
        branches.append(await shown(chat))
        expected = list(zip(made, branches, strict=True))
        for turn, branch in expected:
            await soon(chat.switch(branch))
            assert [(each.turn, each.branch) for each in await chat.siblings(turn.id)] == expected
        few = await chat.siblings(made[-1].id, limit=2)
        assert len(few) == 2
        assert made[-1] in [each.turn for each in few]

    async def test_siblings_names_the_current_branch_for_a_turn_on_it(self, chat: Chat) -> None:
        turns = await chain(chat, 3)
        await run_block(chat.edit(turns[0].id, "other"))
        other = await shown(chat)
        await soon(chat.switch((await chat.siblings((await chat.turns())[0].id))[0].branch))
        await run_block(chat.edit(turns[2].id, "third"))
        found = await chat.siblings(turns[0].id)
        assert [each.branch for each in found] == [await shown(chat), other]

    async def test_siblings_includes_the_undone_turn_and_its_replacement(self, chat: Chat) -> None:
        turns = await chain(chat, 2)
        await soon(chat.undo())
        other = await exchange(chat, "other")
        found = await chat.siblings(other.id)
        assert [each.turn for each in found] == [turns[1], other]
        await soon(chat.switch(found[0].branch))
        assert await chat.turns() == turns
        assert [each.turn for each in await chat.siblings(turns[1].id)] == [turns[1], other]

    async def test_siblings_are_found_across_settled_turns(self, chat: Chat) -> None:
        await exchange(chat, "q1")
        second = await exchange(chat, "q2")
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        third = await exchange(chat, "q3")
        old = await shown(chat)
        edited = await run_block(chat.edit(second.id, "other"))
        again = await run_block(chat.regenerate(edited.id))
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]
        expected = [second, edited, again]
        assert [each.turn for each in await chat.siblings(again.id)] == expected
        await soon(chat.switch(old))
        assert [each.turn for each in await chat.siblings(second.id)] == expected
        assert [each.turn for each in await chat.siblings(third.id)] == [third]
        for each in await chat.siblings(second.id):
            await soon(chat.switch(each.branch))
            assert each.turn in await chat.turns()


ONCE: dict[str, Any] = {"idempotency_key": "once"}


class TestUndoneOnce:
    async def test_undo_repeated_under_one_key_removes_one_turn(self, chat: Chat, same: Chat) -> None:
        await chain(chat, 3)
        made = await soon(chat.undo(**ONCE))
        again = await soon(same.undo(**ONCE))
        assert again.id == made.id
        assert await input_texts(chat) == ["q1", "q2"]
        await soon(chat.undo(idempotency_key="twice"))
        assert await input_texts(chat) == ["q1"]

    async def test_concurrent_undos_under_one_key_remove_one_turn(
        self, stage: Stage, chat: Chat, same: Chat
    ) -> None:
        await chain(chat, 3)
        holder = await stage.hold_lane(chat, "q4")
        undoing = [await stage.line_up(chat, each.undo(**ONCE)) for each in (chat, same, chat)]
        assert len(await stage.tickets(chat)) == 3
        await holder.finish()
        made = {(await soon(each)).id for each in undoing}
        assert len(made) == 1
        assert await input_texts(chat) == ["q1", "q2", "q3"]
        assert await stage.tickets(chat) == []
        await exchange(chat, "q5", on_busy="reject")

    async def test_idempotency_key_of_an_undo_is_refused_for_another_request(self, chat: Chat) -> None:
        first = await chain(chat, 2)
        await soon(chat.undo(**ONCE))
        others: tuple[Callable[[], Coroutine[Any, Any, Any]], ...] = (
            lambda: chat.undo(forget=True, **ONCE),
            lambda: chat.undo(first[0].id, **ONCE),
            lambda: chat.switch(first[0].branch, **ONCE),
            lambda: chat.fork(**ONCE),
            lambda: run_block(chat.turn("q", **ONCE)),
            lambda: run_block(chat.regenerate(**ONCE)),
        )
        for other in others:
            with pytest.raises(IdempotencyMismatch):
                await soon(other())
        await exchange(chat, "q2", idempotency_key="turn")
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.undo(idempotency_key="turn"))
        assert await input_texts(chat) == ["q1", "q2"]

    async def test_idempotency_key_of_a_refused_undo_is_not_claimed(self, chat: Chat) -> None:
        with pytest.raises(TurnNotFound):
            await soon(chat.undo(**ONCE))
        await chain(chat, 1)
        await soon(chat.undo(**ONCE))
        assert await chat.turns() == []

    async def test_undo_that_names_a_turn_removes_only_that_turn(self, chat: Chat, same: Chat) -> None:
        turns = await chain(chat, 3)
        results = await asyncio.gather(
            *(soon(each.undo(turns[2].id)) for each in (chat, same, chat)), return_exceptions=True
        )
        assert [type(each) for each in results].count(HistoryDiverged) == 2
        assert await input_texts(chat) == ["q1", "q2"]
        await soon(same.undo(turns[1].id))
        assert await input_texts(chat) == ["q1"]

    @pytest.mark.parametrize("on_busy", ["interrupt", "rollback"])
    async def test_undo_that_names_an_earlier_turn_is_refused_and_stops_no_turn(
        self, stage: Stage, chat: Chat, on_busy: str
    ) -> None:
        turns = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "q3")
        with pytest.raises(HistoryDiverged):
            await soon(chat.undo(turns[0].id, on_busy=on_busy))
        await holder.finish()
        assert await input_texts(chat) == ["q1", "q2", "q3"]

    async def test_undo_that_names_the_running_turn_stops_and_removes_it(
        self, stage: Stage, chat: Chat
    ) -> None:
        await chain(chat, 1)
        await stage.hold_lane(chat, "q2", ["Half"])
        [running] = await chat.attempts()
        await soon(chat.undo(running.attempt.id, on_busy="interrupt"))
        assert await input_texts(chat) == ["q1"]


class TestSwitchedOnce:
    async def test_switch_repeated_late_under_one_key_does_not_move_the_branch(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turns = await chain(chat, 2)
        old = await shown(chat)
        await run_block(chat.edit(turns[1].id, "other"))
        new = await shown(chat)
        await soon(chat.switch(old, **ONCE))
        await soon(same.switch(new))
        assert (await soon(same.switch(old, **ONCE))).id == old
        assert await shown(chat) == new
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.switch(new, **ONCE))

    async def test_branches_are_listed_newest_first_and_in_pages(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat, other = await here.chat(), await here.chat()
        turns = await chain(chat, 2)
        for text in ("other", "another"):
            await run_block(chat.edit(turns[1].id, text))
            await soon(chat.switch(turns[0].branch))
        first = await run_block(chat.edit(turns[0].id, "first"))
        same = await there.chat(chat)
        listed = await same.branches()
        assert [each.base for each in listed] == [None, turns[0].id, turns[0].id, None]
        assert [each.is_current for each in listed] == [True, False, False, False]
        assert [each.branch.length for each in listed] == [1, 2, 2, 2]
        assert listed[0].branch.id == first.branch
        assert listed[-1].branch.id == turns[0].branch
        pages = [await same.branches(limit=3)]
        pages.append(await same.branches(limit=3, before=pages[0][-1].branch.id))
        assert [*pages[0], *pages[1]] == listed
        for wrong in (UNKNOWN, (await other.info()).branch):
            with pytest.raises(BranchNotFound):
                await same.branches(before=wrong)

    async def test_turns_of_another_branch_can_be_read_without_a_switch(self, here: StageProcess) -> None:
        chat, other = await here.chat(), await here.chat()
        turns = await chain(chat, 3)
        await run_block(chat.edit(turns[1].id, "other"))
        assert await chat.turns(branch=turns[0].branch) == turns
        assert await chat.turns(branch=turns[0].branch, before=3, limit=1) == turns[1:2]
        assert await input_texts(chat) == ["q1", "other"]
        for wrong in (UNKNOWN, (await other.info()).branch):
            with pytest.raises(BranchNotFound):
                await chat.turns(branch=wrong)

    async def test_page_of_turns_stays_within_most_bytes_and_holds_at_least_one_turn(
        self, chat: Chat
    ) -> None:
        turns = [await exchange(chat, f"q{number}", "x" * 1_000 * number) for number in range(1, 13)]
        every = [len(turn.body) for turn in turns]
        for room in (1, every[-1], sum(every[-2:]), sum(every[-9:]) + 1, sum(every) - 1, sum(every)):
            fits = max(count for count in range(1, 13) if count == 1 or sum(every[-count:]) <= room)
            assert await chat.turns(most_bytes=room) == turns[-fits:]
            assert await chat.turns(most_bytes=room, limit=2) == turns[-min(fits, 2) :]
        assert await chat.turns(most_bytes=1, before=5) == turns[3:4]
        assert await chat.turns(most_bytes=1, before=1) == []


class TestForkedOnce:
    async def test_fork_repeated_under_one_key_returns_the_same_conversation(
        self, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        turns = await chain(chat, 2)
        made = await soon(chat.fork(turns[0].id, title="T", metadata={"a": "b", "c": "d"}, **ONCE))
        await exchange(chat, "q3")
        again = await soon(same.fork(turns[0].id, title="T", metadata={"c": "d", "a": "b"}, **ONCE))
        assert (again.id, made.is_new, again.is_new) == (made.id, True, False)
        changes: list[dict[str, Any]] = [{"title": "U"}, {"conversation_key": "k"}, {"metadata": {"a": "b"}}]
        for changed in changes:
            with pytest.raises(IdempotencyMismatch):
                await soon(chat.fork(turns[0].id, **{"title": "T", **changed}, **ONCE))
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.fork(turns[1].id, title="T", **ONCE))
        assert len((await here.ledger.list()).chats) == 2

    async def test_concurrent_forks_under_one_key_create_one_conversation(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await chain(chat, 2)
        made = await asyncio.gather(*(soon(each.fork(**ONCE)) for each in (chat, same, chat, same)))
        assert len({each.id for each in made}) == 1
        assert [each.is_new for each in made].count(True) == 1

    async def test_fork_repeated_after_the_fork_was_deleted_raises_conversation_deleted(
        self, chat: Chat
    ) -> None:
        await chain(chat, 1)
        made = await soon(chat.fork(**ONCE))
        await made.delete()
        with pytest.raises(ConversationDeleted):
            await soon(chat.fork(**ONCE))


class TestForks:
    @pytest.mark.parametrize("place", [None, 0, 1, 2])
    async def test_fork_starts_with_the_turns_of_its_source_and_continues_independently(
        self, here: StageProcess, there: StageProcess, place: int | None
    ) -> None:
        chat = await here.chat(title="T")
        before = await chain(chat, 3)
        forked = await soon(
            chat.fork(None if place is None else before[place].id, conversation_key="k", metadata={"a": "b"})
        )
        expected = before if place is None else before[: place + 1]
        assert forked.id != chat.id
        assert (await forked.info()).metadata == {"a": "b"}
        same = await there.ledger.conversation(conversation_key="k")
        assert same.id == forked.id
        assert await same.turns() == expected
        model = ScriptedModel(["a"])
        turn = await soon(same.run(model, "mine"))
        assert len(model.seen[0]) == 2 * len(expected) + 1
        assert turn.parent == expected[-1].id
        await exchange(chat, "theirs")
        assert await forked.turns() == [*expected, turn]
        assert await input_texts(chat) == ["q1", "q2", "q3", "theirs"]
        for limit in (1, 2, 3):
            assert await forked.turns(limit=limit) == [*expected, turn][-limit:]

    async def test_fork_does_not_inherit_title_visibility_or_expiry(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat(title="T", internal=True, expires_after=600)
        await chain(chat, 1)
        plain = await soon(chat.fork())
        found = await plain.info()
        assert (found.title, found.internal, found.expires_after) == (None, False, None)
        aside = await soon(chat.fork(title="U", internal=True, expires_after=60))
        assert [each.id for each in await there.list_chats()] == [plain.id]
        assert (await (await there.chat(aside)).info()).title == "U"
        stage.clock.advance(60)
        with pytest.raises(ConversationExpired):
            await aside.turns()
        assert len(await chat.turns()) == 1

    async def test_fork_of_an_empty_conversation_is_empty_and_usable(self, chat: Chat) -> None:
        forked = await soon(chat.fork())
        assert await forked.turns() == []
        first = await exchange(forked, "q1")
        assert (first.number, first.parent) == (1, None)
        assert await chat.turns() == []
        await soon(forked.undo())
        assert await forked.turns() == []

    async def test_fork_during_a_running_turn_leaves_that_turn_out(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running", [Tool("pay", "paid")])
        forked = await soon(same.fork())
        assert await forked.turns() == before
        turn = await holder.finish()
        assert await chat.turns() == [*before, turn]
        await exchange(forked, "mine", on_busy="reject")
        assert await input_texts(forked) == ["q1", "q2", "mine"]

    async def test_fork_settles_waiting_effects_in_both_conversations(self, chat: Chat) -> None:
        await chain(chat, 2)
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]))
        forked = await soon(chat.fork())
        assert kinds(await forked.turns()) == ["completed", "completed", "settled"]
        assert await forked.turns() == await chat.turns()
        for each in (chat, forked):
            model = ScriptedModel(["a"])
            await soon(each.run(model, "q"))
            assert PAID in model.seen[0]
            assert kinds(await each.turns()) == ["completed", "completed", "settled", "completed"]

    async def test_fork_at_a_turn_with_pending_calls_can_answer_them(self, chat: Chat) -> None:
        pending = await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        forked = await soon(chat.fork(pending.id))
        answered = await exchange(forked, [answer_to("c1", "two")])  # type: ignore[arg-type]
        assert results(answered) == {"c1": "two"}

    async def test_fork_of_a_fork_of_an_edited_history_reads_every_turn(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        line = await chain(chat, 3)
        for number in range(70):
            line[-1:] = [
                await run_block(chat.edit(line[-1].id, f"edit {number}")),
                await exchange(chat, "more"),
            ]
        chats = [chat]
        for number in range(5):
            forked = await soon(chats[-1].fork(line[-2].id))
            line = [*line[:-1], await exchange(forked, f"fork {number}")]
            assert await (await there.chat(forked)).turns(limit=1_000) == line
            assert await (await there.chat(forked)).turns(before=9, limit=3) == line[5:8]
            chats.append(forked)
        edited = await run_block(chats[-1].edit(line[4].id, "early"))
        assert await (await there.chat(chats[-1])).turns() == [*line[:4], edited]

    async def test_fork_with_a_taken_conversation_key_is_refused(self, here: StageProcess) -> None:
        chat = await here.chat(conversation_key="k")
        await chain(chat, 1)
        with pytest.raises(InvalidInput):
            await soon(chat.fork(conversation_key="k"))
        assert [each.id for each in await here.list_chats()] == [chat.id]
        await exchange(chat, "q2", on_busy="reject")

    # Siblings.

    async def test_siblings_in_a_fork_exclude_those_made_in_its_source(self, chat: Chat) -> None:
        turns = await chain(chat, 3)
        other = await run_block(chat.edit(turns[1].id, "source only"))
        await soon(chat.switch((await chat.siblings(other.id))[0].branch))
        forked = await soon(chat.fork(turns[1].id))
        first = await shown(forked)
        for turn in turns[:2]:
            assert await sibling_inputs(forked, turn.id) == [turn.input[0].text]
        mine = await exchange(forked, "mine")
        assert await sibling_inputs(forked, mine.id) == ["mine"]
        assert [each.turn for each in await forked.siblings(mine.id)] == [mine]
        at_point = await run_block(forked.edit(mine.id, "at the point"))
        assert await sibling_inputs(forked, at_point.id) == ["mine", "at the point"]
        before_point = await run_block(forked.edit(turns[1].id, "before the point"))
        found = await forked.siblings(before_point.id)
        assert [each.turn for each in found] == [turns[1], before_point]
        assert found[0].branch == first
        at_start = await run_block(forked.edit(turns[0].id, "at the start"))
        assert await sibling_inputs(forked, at_start.id) == ["q1", "at the start"]
        await soon(forked.switch(first))
        assert await forked.turns() == [*turns[:2], mine]
        assert await sibling_inputs(chat, turns[1].id) == ["q2", "source only"]

    async def test_fork_reads_the_events_of_shared_turns_only(self, there: StageProcess, chat: Chat) -> None:
        shared = await soon(chat.run(ScriptedModel(SCRIPT), "q1"))
        forked = await there.chat(await soon(chat.fork()))
        later, own = await exchange(chat, "q2"), await exchange(forked, "mine")
        events = await read_all(chat, shared.id)
        assert spoken(events)
        assert wire(await read_all(forked, shared.id)) == wire(events)
        check_shape(await read_all(forked, own.id))
        for each, elsewhere in ((forked, later), (chat, own)):
            with pytest.raises(TurnNotFound):
                await read_all(each, elsewhere.id)
        await chat.delete(purge=True)
        await purge_all(there, forked)
        assert wire(await read_all(forked, shared.id)) == wire(events)

    async def test_fork_undo_or_regeneration_of_a_deleted_or_expired_conversation_is_refused(
        self, stage: Stage, here: StageProcess
    ) -> None:
        chat = await here.chat(expires_after=60.0)
        [first] = await chain(chat, 1)
        gone = await here.chat()
        await gone.delete()
        with pytest.raises(ConversationDeleted):
            await soon(gone.fork())
        stage.clock.advance(61)
        with pytest.raises(ConversationExpired):
            await soon(chat.fork(first.id))
        for use in (
            lambda: chat.undo(),
            lambda: chat.siblings(first.id),
            lambda: run_block(chat.regenerate()),
        ):
            with pytest.raises(ConversationExpired):
                await soon(use())
