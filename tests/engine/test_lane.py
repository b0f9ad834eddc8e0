"""The lane: the order of its queue, the fence of its holder, and requests that arrive while a turn runs."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from msgspec.structs import replace as with_changes

from tests.engine.views import results, shown
from turnledger.chat import Chat
from turnledger.engine.attempt.dead_process import WithdrawRequest, end_lease, withdraw
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.lane.lease_watch import all_leases, renew
from turnledger.engine.limits import Limits
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.engine.turn.validation import turn_request
from turnledger.errors import (
    ConversationBusy,
    ConversationDeleted,
    ConversationExpired,
    MalformedItems,
    MissingToolResults,
    NoNewInput,
    QueueFull,
    Superseded,
    TurnNotFound,
    TurnStopped,
    WaitEnded,
)
from turnledger.ledger import Ledger
from turnledger.model.item import message
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Fate, Gate, GatedStore
from turnledger.testing.scripted_model import Ask, ScriptedModel, Tool
from turnledger.testing.store_contract.effects import PAID, kinds
from turnledger.testing.store_contract.lanes import (
    HolderAction,
    commit_turn,
    every_act,
    expect_end,
    hold_commit,
    journal,
    lose_commit_answer,
    start_tool,
)
from turnledger.testing.store_contract.stage import (
    LIMITS,
    SHORT_WAIT,
    OpenStore,
    Stage,
    StageProcess,
    answer_to,
    chain,
    exchange,
    input_texts,
    message_texts,
    play,
    run_block,
    soon,
    user,
)


class TestQueue:
    async def test_new_request_does_not_overtake_queued_requests(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """The lane is free for a moment, and the waiting request has not been notified yet."""
        holder = await stage.hold_lane(chat, "q0")
        waiting = await stage.queue(same, ScriptedModel(["a1"]), "q1")
        with there.store.hold(begin):
            await holder.finish()
            late = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
        await soon(asyncio.gather(waiting, late))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2"]

    async def test_request_beyond_the_queue_length_is_refused(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=Limits(lease_time=LIMITS.lease_time, queue_length=2))
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        waiting = [await stage.queue(chat, ScriptedModel(["a"]), f"q{number}") for number in (1, 2)]
        with pytest.raises(QueueFull):
            await soon((await there.chat(chat)).run(ScriptedModel(), "q3"))
        assert len(await stage.tickets(chat)) == 2
        await holder.finish()
        await soon(asyncio.gather(*waiting))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2"]

    async def test_queued_request_beyond_the_queue_wait_is_refused_and_leaves_no_ticket(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes(limits=SHORT_WAIT)
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        model = ScriptedModel()
        waiting = await stage.queue(await there.chat(chat), model, "q1")
        stage.clock.advance(SHORT_WAIT.queue_wait)
        there.store.announce()
        with pytest.raises(WaitEnded):
            await soon(waiting)
        assert model.seen == []
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0"]

    async def test_cancelled_wait_withdraws_its_ticket_and_the_queue_continues(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        holder = await stage.hold_lane(chat, "q0")
        cancelled = await stage.queue(chat, ScriptedModel(), "q1")
        waiting = await stage.queue(same, ScriptedModel(["a2"]), "q2")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(cancelled)
        assert len(await stage.tickets(chat)) == 1
        await holder.finish()
        await soon(waiting)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]


class TestFences:
    @every_act
    async def test_superseded_turn_does_not_disturb_the_turn_that_replaced_it(
        self, stage: Stage, act: HolderAction, problem: type[Exception] | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        gate = Gate()
        holder = stage.start(act(stage, here, chat, gate))
        await stage.reach(gate, holder)
        await stage.bury_others(there)
        same = await there.chat(chat)
        theirs = await stage.hold_lane(same, "theirs", [Tool("pay", "paid")])
        gate.release()
        await expect_end(holder, problem)
        turn = await theirs.finish()
        assert turn.kind is TurnKind.COMPLETED
        assert (await same.turns())[-1] == turn

    @pytest.mark.parametrize("act", [journal, start_tool, commit_turn, hold_commit, lose_commit_answer])
    @pytest.mark.parametrize("way", ["expired", "deleted", "purged"])
    async def test_superseded_turn_raises_expired_or_deleted_when_its_conversation_is_gone(
        self, stage: Stage, here: StageProcess, there: StageProcess, act: HolderAction, way: str
    ) -> None:
        here.store.ignores_hints = True
        chat = await here.chat(expires_after=60)
        await exchange(chat, "q")
        gate = Gate()
        holder = stage.start(act(stage, here, chat, gate))
        await stage.reach(gate, holder)
        await stage.bury_others(there)
        if way == "expired":
            stage.clock.advance(61)
        else:
            await there.ledger.delete(chat.id, purge=way != "deleted")
        if way != "deleted":
            await there.tend()
        gate.release()
        with pytest.raises(ConversationExpired if way == "expired" else ConversationDeleted):
            await soon(holder)

    @pytest.mark.parametrize("policy", ["settle", "keep"])
    async def test_superseded_turn_raises_superseded_though_a_kept_or_settled_turn_has_its_id(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat, policy: str
    ) -> None:
        """The settled or kept turn has the id of the attempt, but not the answer that its caller gave."""
        holder = await stage.hold_lane(chat, "mine", [Tool("pay", "paid"), "Paid."], on_failure=policy)
        await stage.bury_others(there)
        await exchange(same, "theirs")
        before = await chat.turns()
        assert [turn.input[0].text for turn in before] == ["mine", "theirs"]
        holder.gate.release()
        with pytest.raises(Superseded):
            await soon(holder.task)
        assert await chat.turns() == before

    async def test_holder_with_an_overdue_lease_and_no_takeover_still_commits(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "mine")
        await there.tend()
        stage.clock.advance(10 * LIMITS.lease_time)
        await holder.finish()
        assert await message_texts(chat) == ["mine", "Working done."]

    async def test_holder_that_renews_its_lease_before_the_takeover_keeps_its_lane(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "mine")
        waiting = await stage.queue(same, ScriptedModel(["Theirs."]), "theirs")
        with there.store.hold(begin) as gate:
            stage.clock.advance(LIMITS.lease_time)
            there.store.announce()
            await stage.reach(gate, waiting)
            await here.store.beat()
        await stage.until_run(there, begin, 3)
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["mine", "Working done.", "theirs", "Theirs."]

    async def test_fence_rises_with_every_begin_doubt_and_takeover(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        fences = [await stage.fence(chat)]
        await exchange(chat, "q0")
        fences.append(await stage.fence(chat))
        here.store.lose_answer(commit, Fate.LOST)
        await exchange(chat, "q1")
        fences.append(await stage.fence(chat))
        await stage.hold_lane(chat, "q2")
        await stage.bury_others(there)
        fences.append(await stage.fence(chat))
        await stage.hold_lane(chat, "q3")
        waiting = await stage.queue(same, ScriptedModel(["a4"]), "q4")
        stage.clock.advance(LIMITS.lease_time)
        there.store.announce()
        await soon(waiting)
        fences.append(await stage.fence(chat))
        await chat.delete()
        assert fences == [0, 1, 3, 5, 8]

    async def test_holder_that_renews_its_lease_keeps_its_lane(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "mine")
        for _ in range(3):
            await there.tend()
            stage.clock.advance(LIMITS.lease_time)
            await here.store.beat()
        await there.tend()
        with pytest.raises(ConversationBusy):
            await exchange(same, "theirs", on_busy="reject")
        await holder.finish()

    async def test_takeover_based_on_an_old_beat_does_not_end_a_holder_that_came_back(
        self, stage: Stage
    ) -> None:
        """A takeover decided on an old beat does not apply to a process that has beaten since."""
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        await stage.hold_lane(chat, "q0")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a2"]), "q2")
        await third.tend()
        stage.clock.advance(LIMITS.lease_time)
        with there.store.hold(begin) as judging:
            there.store.announce()
            await stage.reach(judging, waiting)
            await there.store.transact_whole(renew, there.ledger._process.lease)
            await third.tend()
            assert await chat.turns() == []
            holder = await stage.hold_lane(chat, "q1", on_busy="interrupt")
        await there.tend()
        turns = [await holder.finish(), await soon(waiting)]
        assert await chat.turns() == turns

    async def test_begin_on_a_busy_lane_first_takes_over_from_processes_known_to_be_dead(
        self, stage: Stage
    ) -> None:
        """Neither its queue nor its running turn counts any more."""
        limits = replace(LIMITS, queue_length=1)
        for refusal in ({}, {"on_busy": "reject"}):
            here, there = await stage.processes(limits=limits)
            chat = await here.chat()
            await stage.hold_lane(chat, "q0")
            await stage.queue(chat, ScriptedModel(), "q1")
            with pytest.raises(ConversationBusy):
                await exchange(await there.chat(chat), "q2", **refusal)
            here.store.ignores_hints = True
            there.store.gone.add(here.ledger._process.lease)
            turn = await exchange(await there.chat(chat), "q2", **refusal)
            assert await chat.turns() == [turn]

    async def test_starting_process_takes_over_from_dead_processes_before_its_first_begin(
        self, stage: Stage, open_store: OpenStore
    ) -> None:
        """However many there are."""
        dead, chats = await stage.processes(2), []
        for process in dead:
            chats.append(chat := await process.chat())
            await stage.hold_lane(chat, "q0")
            await stage.queue(chat, ScriptedModel(), "q1")
            process.store.ignores_hints = True
        store = GatedStore(await open_store(), renews=False)
        store.gone = {process.ledger._process.lease for process in dead}
        async with await Ledger.over(store, limits=LIMITS, clock=stage.clock) as ledger:
            assert [lease.id for lease in await store.read_whole(all_leases, None)] == [ledger._process.lease]
            for chat in chats:
                assert await stage.tickets(chat) == []
                assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.FAILED]

    async def test_ticket_of_a_dead_process_is_withdrawn_idempotently(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q0")
        await stage.queue(same, ScriptedModel(), "q1")
        there.store.ignores_hints = True
        [ticket] = await stage.tickets(chat)
        request = WithdrawRequest(ticket.lease, (ticket.attempt,), stage.clock.now_ms())
        for _ in range(2):
            await here.store.transact(withdraw, request, chat.owner)
            assert await stage.tickets(chat) == []
        turn = await holder.finish()
        assert await chat.turns() == [turn]

    async def test_recovery_fails_an_attempt_of_the_own_lease_that_no_task_runs(
        self, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """The answer to a begin was lost for good, and the caller received `store_unavailable`."""
        process = here.ledger._process
        request = turn_request(process, chat._target, None, "q0").begin
        await here.store.transact(begin, request, chat.owner)
        with pytest.raises(ConversationBusy):
            await exchange(same, "q1", on_busy="reject")
        await here.tend()
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        await exchange(same, "q1", on_busy="reject")

    async def test_begin_repeated_after_its_turn_ended_returns_the_outcome(self, here: StageProcess) -> None:
        for policy, state in (("keep", AttemptState.KEPT), ("settle", AttemptState.FAILED)):
            chat = await here.chat()
            request = turn_request(here.ledger._process, chat._target, None, "q0", on_failure=policy).begin
            await here.store.transact(begin, request, chat.owner)
            await here.tend()
            turns = await chat.turns()
            repeated = with_changes(request, round=with_changes(request.round, is_repeated=True))
            again = await here.store.transact(begin, repeated, chat.owner)
            assert isinstance(again, SharedOutcome)
            assert (again.attempt, again.outcome.state) == (request.attempt, state)
            assert await chat.turns() == turns

    async def test_running_turn_whose_process_ended_its_lease_is_taken_over(self, stage: Stage) -> None:
        """Without the lease, no timer would find the turn."""
        here, there = await stage.processes()
        chat, lease = await here.chat(), here.ledger._process.lease
        request = turn_request(here.ledger._process, chat._target, None, "q0").begin
        await here.store.transact(begin, request, chat.owner)
        await here.store.transact_whole(end_lease, lease)
        await there.tend()
        stage.clock.advance(LIMITS.lease_time)
        await there.tend()
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        assert lease not in {each.id for each in await there.store.read_whole(all_leases, None)}


class TestBusy:
    async def test_reject_on_a_busy_lane_refuses_at_once_and_changes_nothing(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        holder = await stage.hold_lane(chat, "q0")
        model = ScriptedModel()
        for each in (chat, same):
            with pytest.raises(ConversationBusy):
                await soon(each.run(model, "q1", on_busy="reject"))
        assert model.seen == []
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert await message_texts(chat) == ["q0", "Working done."]

    async def test_interrupt_keeps_the_running_turn_and_continues_from_it(
        self, stage: Stage, chat: Chat, either: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q0", ["Half"], on_stop="discard")
        model = ScriptedModel(["a1"])
        second = await soon(either.run(model, "q1", on_busy="interrupt"))
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        first, last = await chat.turns()
        assert last == second
        assert first == stopped.value.turn
        assert first.kind is TurnKind.INTERRUPTED
        assert first.output == (message("assistant", "Half", status="incomplete"),)
        assert model.seen == [[user("q0"), {"role": "assistant", "content": "Half"}, user("q1")]]

    async def test_rollback_discards_the_running_turn(self, stage: Stage, chat: Chat, either: Chat) -> None:
        holder = await stage.hold_lane(chat, "q0", ["Half"])
        model = ScriptedModel(["a1"])
        await soon(either.run(model, "q1", on_busy="rollback"))
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        assert stopped.value.turn is None
        assert model.seen == [[user("q1")]]
        assert await message_texts(chat) == ["q1", "a1"]
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.DISCARDED
        assert aside.attempt.partial == "Half"

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_interrupting_request_goes_before_queued_requests(
        self, stage: Stage, chat: Chat, same: Chat, policy: str
    ) -> None:
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
    async def test_interrupt_of_a_free_lane_runs_at_once(self, chat: Chat, policy: str) -> None:
        await exchange(chat, "q0", "a0")
        await exchange(chat, "q1", "a1", on_busy=policy)
        assert await message_texts(chat) == ["q0", "a0", "q1", "a1"]

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_refused_request_does_not_stop_the_running_turn(
        self, stage: Stage, chat: Chat, policy: str
    ) -> None:
        holder = await stage.hold_lane(chat, "q0")
        refused = stage.start(chat.run(ScriptedModel(), "  ", on_busy=policy))
        with pytest.raises(NoNewInput):
            await soon(refused)
        assert not holder.task.done()
        assert (await holder.finish()).kind is TurnKind.COMPLETED

    async def test_interrupt_with_results_for_closed_calls_is_refused_and_the_turn_completes(
        self, stage: Stage, chat: Chat
    ) -> None:
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q0"))
        holder = await stage.hold_lane(chat, "never mind")
        with pytest.raises(MalformedItems):
            await soon(chat.run(ScriptedModel(), [answer_to("c1", "late")], on_busy="interrupt"))
        assert (await holder.finish()).kind is TurnKind.COMPLETED


elsewhere = pytest.mark.parametrize("elsewhere", [False, True])


class TestBusyBranches:
    async def test_edit_waits_for_the_running_turn_and_sees_only_turns_before_its_place(
        self, stage: Stage, chat: Chat, either: Chat
    ) -> None:
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running")
        model = ScriptedModel(["Edited."])
        editing = await stage.line_up(chat, play(either.edit(before[1].id, "other"), model))
        await holder.finish()
        turn = await soon(editing)
        assert model.seen[0][-1] == user("other")
        assert len(model.seen[0]) == 3
        assert await chat.turns() == [before[0], turn]

    async def test_edit_rejected_on_a_busy_lane_changes_nothing(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        before = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "running")
        for each in (chat, same):
            for block in (
                each.edit(before[1].id, "other", on_busy="reject"),
                each.regenerate(on_busy="reject"),
            ):
                with pytest.raises(ConversationBusy):
                    await run_block(block)
        await holder.finish()
        assert await input_texts(chat) == ["q1", "q2", "running"]

    @pytest.mark.parametrize("policy", ["interrupt", "rollback"])
    async def test_edit_that_stops_the_running_turn_settles_its_effects_on_both_branches(
        self, stage: Stage, chat: Chat, policy: str, either: Chat
    ) -> None:
        before, old = await chain(chat, 2), await shown(chat)
        holder = await stage.hold_lane(chat, "running", [Tool("pay", "paid"), "Half"])
        model = ScriptedModel(["Edited."])
        await soon(play(either.edit(before[1].id, "other", on_busy=policy), model))
        with pytest.raises(TurnStopped):
            await soon(holder.task)
        # The stopped turn had acted; its effects are carried over, whether it is kept or rolled back.
        assert kinds(await chat.turns()) == ["completed", "settled", "completed"]
        assert PAID in model.seen[0]
        await soon(chat.switch(old))
        last = "interrupted" if policy == "interrupt" else "settled"
        assert kinds(await chat.turns()) == ["completed", "completed", last]

    @pytest.mark.parametrize("how", ["edit", "regenerate", "regenerate by name"])
    async def test_edit_or_regeneration_that_interrupts_may_replace_the_running_turn(
        self, stage: Stage, chat: Chat, same: Chat, how: str
    ) -> None:
        block = chat.turn("running")
        await stage.hold(lambda model: play(block, model))
        if how == "edit":
            with pytest.raises(NoNewInput):
                await run_block(same.edit(block.id, " ", on_busy="interrupt"))
            replacing = same.edit(block.id, "other", on_busy="interrupt")
        else:
            replacing = same.regenerate(block.id if "name" in how else None, on_busy="interrupt")
        turn = await run_block(replacing)
        assert await chat.turns() == [turn]
        assert await input_texts(chat) == ["other" if how == "edit" else "running"]
        assert [each.turn.id for each in await chat.siblings(turn.id)] == [block.id, turn.id]

    async def test_edit_that_interrupts_an_edit_may_answer_only_the_calls_pending_there(
        self, stage: Stage, chat: Chat
    ) -> None:
        await soon(chat.run(ScriptedModel([Ask("ask", call_id="c1")]), "q1"))
        answered = await exchange(chat, [answer_to("c1", "one")])  # type: ignore[arg-type]
        block = chat.edit(answered.id, "other")
        holder = await stage.hold(lambda model: play(block, model))
        with pytest.raises(MissingToolResults):
            await run_block(chat.edit(block.id, [answer_to("c2", "two")], on_busy="interrupt"))
        assert not holder.task.done()
        turn = await run_block(chat.edit(block.id, [answer_to("c1", "two")], on_busy="interrupt"))
        assert results(turn) == {"c1": "two"}
        assert (await chat.turns())[1:] == [turn]

    @elsewhere
    @pytest.mark.parametrize("by", ["edit", "kept edit", "undo", "switch"])
    async def test_queue_follows_the_conversation_to_another_branch_in_order(
        self, stage: Stage, chat: Chat, same: Chat, by: str, elsewhere: bool
    ) -> None:
        """In their order, in either process, and without a clock that has to run out first."""
        before, old = await chain(chat, 2), await shown(chat)
        await run_block(chat.edit(before[1].id, "second"))
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
        assert await input_texts(same) == ["q1", start, *(f"wait {number}" for number in range(4))]
        assert models[0].seen[0][-1] == user("wait 0")
        assert await stage.tickets(chat) == []

    async def test_front_ticket_stays_in_front_when_the_queue_moves_to_another_branch(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        before = await chain(chat, 2)
        block = chat.edit(before[1].id, "other")
        here.store.ignores_hints = True
        holder = await stage.hold(lambda model: play(block, model))
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "behind")
        front = await stage.queue(same, ScriptedModel(["a"]), "front", on_busy="interrupt")
        here.store.ignores_hints = False
        here.store.announce()
        with pytest.raises(TurnStopped):
            await soon(holder.task)
        await soon(asyncio.gather(front, waiting))
        assert await input_texts(chat) == ["q1", "other", "front", "behind"]

    async def test_queue_that_moves_between_branches_twice_keeps_its_order(
        self, stage: Stage, chat: Chat, same: Chat
    ) -> None:
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
        assert await input_texts(chat) == ["q1", "q2", "running", "three", "four"]

    async def test_switch_queued_behind_an_edit_is_applied_after_the_edit(self, stage: Stage) -> None:
        """Although the requested branch is shown while the switch waits."""
        chat, same = await stage.shared_chat()
        before, old = await chain(chat, 2), await shown(chat)
        block = chat.edit(before[1].id, "other")
        holder = await stage.hold(lambda model: play(block, model))
        switching = await stage.line_up(chat, same.switch(old))
        assert not switching.done()
        await holder.finish()
        await soon(switching)
        assert await chat.turns() == before

    async def test_edit_queued_behind_an_edit_is_checked_against_the_new_line(
        self, stage: Stage, chat: Chat, either: Chat
    ) -> None:
        before = await chain(chat, 3)
        block = chat.edit(before[1].id, "first")
        holder = await stage.hold(lambda model: play(block, model))
        gone = await stage.line_up(chat, run_block(either.edit(before[2].id, "never")))
        still = await stage.line_up(chat, run_block(either.edit(before[0].id, "second")))
        await holder.finish()
        with pytest.raises(TurnNotFound):
            await soon(gone)
        turn = await soon(still)
        assert await chat.turns() == [turn]
        assert await stage.tickets(chat) == []

    async def test_edit_superseded_during_its_commit_does_not_change_the_current_branch(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        before = await chain(chat, 2)
        with here.store.hold(commit) as gate:
            late = stage.start(run_block(chat.edit(before[1].id, "late")))
            await stage.reach(gate, late)
            here.store.ignores_hints = True
            await stage.bury_others(there)
            turn = await exchange(same, "q3")
        with pytest.raises(Exception, match="took over this conversation"):
            await soon(late)
        assert await same.turns() == [*before, turn]
