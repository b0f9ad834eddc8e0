"""One at a time: committed turns form a chain across processes, and the queue is orderly and bounded.

The fence decides: a superseded holder writes nothing; a holder that was only late may still commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace as with_changes

from turnledger.chat import Chat
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.attempt.takeover import ForgetRequest, end_lease, forget, take_over
from turnledger.engine.lane.lease import all_leases, renew
from turnledger.engine.limits import Limits
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit, resolve_doubt
from turnledger.engine.turn.validation import turn_request
from turnledger.errors import (
    ConversationBusy,
    ConversationDeleted,
    ConversationExpired,
    QueueFull,
    Superseded,
    WaitEnded,
)
from turnledger.ledger import Ledger
from turnledger.model.item import Item
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Fate, Gate, GatedStore, When
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import (
    LIMITS,
    SHORT_WAIT,
    Contract,
    OpenStore,
    Stage,
    StageProcess,
    call,
    exchange,
    said,
    soon,
    user,
)


class OneAtATime(Contract):
    async def test_a_second_process_waits_and_then_sees_the_turn_of_the_first(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "first")
        model = ScriptedModel(["Second."])
        waiting = await stage.queue(await there.chat(chat), model, "second")
        assert model.seen == [], "tokens were spent before the lane was free"
        first = await holder.finish()
        second = await soon(waiting)
        assert second.parent == first.id
        assert model.seen == [
            [user("first"), {"role": "assistant", "content": "Working done."}, user("second")]
        ]

    async def test_concurrent_turns_of_two_processes_form_a_chain(self, stage: Stage) -> None:
        processes = await stage.processes(2)
        chat = await processes[0].chat()
        models: dict[str, ScriptedModel] = {}
        runs = []
        for number in range(8):
            same = await processes[number % 2].chat(chat)
            models[f"q{number}"] = model = ScriptedModel([f"a{number}"])
            runs.append(stage.start(same.run(model, f"q{number}")))
        await soon(asyncio.gather(*runs))
        turns = await chat.turns()
        assert [turn.number for turn in turns] == list(range(1, 9))
        assert [turn.parent for turn in turns] == [None, *(turn.id for turn in turns[:-1])]
        past: list[Item] = []
        for turn in turns:
            question = turn.input[0].text
            assert models[question].seen == [messages_of([*past, *turn.input])]
            past += turn.items

    async def test_waiting_turns_run_in_the_order_of_their_tickets(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        holder = await stage.hold_lane(chat, "q0")
        waiting = [
            await stage.queue(each, ScriptedModel([f"a{number}"]), f"q{number}")
            for number, each in enumerate((same, chat, same, chat), 1)
        ]
        numbers = [ticket.number for ticket in await stage.tickets(chat)]
        assert numbers == sorted(set(numbers))
        await holder.finish()
        await soon(asyncio.gather(*waiting))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2", "q3", "q4"]

    async def test_a_new_request_does_not_pass_those_that_wait(self, stage: Stage) -> None:
        """The lane is free for a moment, and the one who waits for it has not heard of it yet."""
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a1"]), "q1")
        with there.store.hold(begin):
            await holder.finish()
            late = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
        await soon(asyncio.gather(waiting, late))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2"]

    async def test_the_queue_is_bounded(self, stage: Stage) -> None:
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

    async def test_the_wait_is_bounded(self, stage: Stage) -> None:
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

    async def test_a_ticket_past_its_deadline_is_skipped(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=SHORT_WAIT)
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        await stage.queue(await there.chat(chat), ScriptedModel(), "q1")
        with there.store.hold(begin):
            stage.clock.advance(SHORT_WAIT.queue_wait)
            late = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
            await holder.finish()
            await soon(late)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]

    async def test_a_cancelled_wait_withdraws_its_ticket_and_the_queue_moves_on(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        cancelled = await stage.queue(chat, ScriptedModel(), "q1")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a2"]), "q2")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(cancelled)
        assert len(await stage.tickets(chat)) == 1
        await holder.finish()
        await soon(waiting)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]

    async def test_a_failed_turn_lets_the_next_one_in(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a1"]), "q1")
        holder.task.cancel()
        await soon(waiting)
        assert await said(chat) == ["q1", "a1"]

    async def test_conversations_do_not_wait_for_each_other(self, stage: Stage) -> None:
        here = await stage.process()
        holder = await stage.hold_lane(await here.chat())
        await exchange(await here.chat(), "Hello", on_busy="reject")
        await holder.finish()

    async def test_a_snapshot_does_not_change_under_a_running_turn(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "q0", "a0")
        async with chat.turn("q1") as turn:
            seen = turn.history
            turn.emit("a1")
        await exchange(await there.chat(chat), "q2")
        assert [each.input[0].text for each in seen] == ["q0"]
        assert [item.text for item in turn.items] == ["q0", "a0", "q1"]


Act: TypeAlias = Callable[[Stage, StageProcess, Chat, Gate], Coroutine[Any, Any, None]]
"""Runs a turn that waits at the gate before it writes."""


async def journals(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    async with chat.turn("mine") as turn:
        await gate.pass_through()
        await turn.add(call("look", "c1"))


async def starts_a_tool(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    async with chat.turn("mine") as turn:
        await turn.add(call("pay", "c1"))
        await gate.pass_through()
        await turn.start(call("pay", "c1"))


async def commits(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    await chat.run(ScriptedModel(["Mine.", gate]), "mine")


async def is_held_at_its_commit(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    with here.store.hold(commit) as held:
        task = stage.start(chat.run(ScriptedModel(["Mine."]), "mine"))
        await stage.reach(held, task)
        await gate.pass_through()
        held.release()
        await task


async def loses_its_commit(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    here.store.lose_answer(commit, Fate.LOST)
    await chat.run(ScriptedModel(["Mine.", gate]), "mine")


async def fails(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    await chat.run(ScriptedModel(["Mine.", gate, RuntimeError("too late")]), "mine", on_failure="keep")


async def stops(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    async with chat.turn("mine") as turn:
        turn.emit("Mine.")
        await gate.pass_through()
        turn.stop("keep")
    assert turn.turn is None


ACTS: list[tuple[Act, type[Exception] | None]] = [
    (journals, Superseded),
    (starts_a_tool, Superseded),
    (commits, Superseded),
    (is_held_at_its_commit, Superseded),
    (fails, RuntimeError),
    (stops, None),
]


every_act = pytest.mark.parametrize(("act", "problem"), ACTS, ids=[act.__name__ for act, _ in ACTS])


class Fences(Contract):
    @every_act
    async def test_a_superseded_holder_changes_nothing(
        self, stage: Stage, act: Act, problem: type[Exception] | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        gate = Gate()
        holder = stage.start(act(stage, here, chat, gate))
        await stage.reach(gate, holder)
        await stage.bury_others(there)
        same = await there.chat(chat)
        await exchange(same, "theirs", "Theirs.")
        before, attempts = await same.turns(), await same.attempts()
        gate.release()
        await _ends_with(holder, problem)
        assert await same.turns() == before
        assert await same.attempts() == attempts
        await exchange(same, "next", on_busy="reject")

    @every_act
    async def test_a_superseded_holder_does_not_disturb_the_new_one(
        self, stage: Stage, act: Act, problem: type[Exception] | None
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
        await _ends_with(holder, problem)
        turn = await theirs.finish()
        assert turn.kind is TurnKind.COMPLETED
        assert (await same.turns())[-1] == turn

    @pytest.mark.parametrize(
        "act", [journals, starts_a_tool, commits, is_held_at_its_commit, loses_its_commit]
    )
    @pytest.mark.parametrize("way", ["expired", "deleted", "purged"])
    async def test_a_superseded_holder_learns_that_its_conversation_is_gone(
        self, stage: Stage, act: Act, way: str
    ) -> None:
        here, there = await stage.processes()
        here.store.is_deaf = True
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

    async def test_a_waiting_turn_takes_over_from_a_silent_holder(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, "mine", [Tool("pay", "paid")])
        model = ScriptedModel(["Theirs."])
        waiting = await stage.queue(await there.chat(chat), model, "theirs")
        stage.clock.advance(LIMITS.lease_time)
        there.store.announce()
        await soon(waiting)
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert {"role": "tool", "tool_call_id": "call_0", "content": "paid"} in model.seen[0]

    @pytest.mark.parametrize("policy", ["settle", "keep"])
    async def test_what_others_told_of_a_superseded_turn_is_never_passed_off_as_its_commit(
        self, stage: Stage, policy: str
    ) -> None:
        """The settled or kept turn has the id of the attempt, but not the answer that its caller gave."""
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "mine", [Tool("pay", "paid"), "Paid."], on_failure=policy)
        await stage.bury_others(there)
        await exchange(await there.chat(chat), "theirs")
        before = await chat.turns()
        assert [turn.input[0].text for turn in before] == ["mine", "theirs"]
        holder.gate.release()
        with pytest.raises(Superseded):
            await soon(holder.task)
        assert await chat.turns() == before

    async def test_a_holder_that_was_only_late_may_still_commit(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "mine")
        await there.tend()
        stage.clock.advance(10 * LIMITS.lease_time)
        await holder.finish()
        assert await said(chat) == ["mine", "Working done."]

    async def test_a_holder_that_beats_again_just_in_time_is_left_alone(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "mine")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["Theirs."]), "theirs")
        with there.store.hold(begin) as gate:
            stage.clock.advance(LIMITS.lease_time)
            there.store.announce()
            await stage.reach(gate, waiting)
            await here.store.beat()
        await stage.until_run(there, begin, 3)
        await holder.finish()
        await soon(waiting)
        assert await said(chat) == ["mine", "Working done.", "theirs", "Theirs."]

    async def test_the_fence_rises_with_every_begin_doubt_and_takeover(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
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
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a4"]), "q4")
        stage.clock.advance(LIMITS.lease_time)
        there.store.announce()
        await soon(waiting)
        fences.append(await stage.fence(chat))
        await chat.delete()
        assert fences == [0, 1, 3, 5, 8]

    async def test_a_takeover_that_saw_an_older_fence_does_nothing(self, stage: Stage) -> None:
        """A holder in doubt about its commit raises its own fence while another prepares to bury it."""
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.lose_answer(commit, Fate.LOST)
        await there.tend()
        stage.clock.advance(LIMITS.lease_time)
        with here.store.hold(resolve_doubt) as doubt, there.store.hold(take_over) as taking:
            task = stage.start(chat.run(ScriptedModel(["Mine."]), "mine"))
            await stage.reach(doubt, task)
            burying = stage.start(there.tend())
            await stage.reach(taking, burying)
            with here.store.hold(commit) as second:
                doubt.release()
                await stage.reach(second, task)
                taking.release()
                await soon(burying)
        turn = await soon(task)
        assert await chat.turns() == [turn]

    async def test_a_lease_that_is_renewed_keeps_its_lane(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "mine")
        for _ in range(3):
            await there.tend()
            stage.clock.advance(LIMITS.lease_time)
            await here.store.beat()
        await there.tend()
        with pytest.raises(ConversationBusy):
            await exchange(await there.chat(chat), "theirs", on_busy="reject")
        await holder.finish()

    async def test_a_holder_that_beats_again_before_it_is_taken_over_keeps_its_lane_and_tickets(
        self, stage: Stage
    ) -> None:
        """Whoever takes over names the beat it judged by, not only the fence."""
        here, there = await stage.processes()
        chat, waiting = await here.chat(), await here.chat()
        holder = await stage.hold_lane(chat, "mine")
        other = await stage.hold_lane(await there.chat(waiting), "theirs")
        queued = await stage.queue(waiting, ScriptedModel(["mine, too"]), "mine, too")
        here.store.is_deaf = True
        await there.tend()
        stage.clock.advance(LIMITS.lease_time)
        await there.store.beat()
        with there.store.hold(take_over) as taking, there.store.hold(forget) as forgetting:
            burying = stage.start(there.tend())
            await stage.reach(taking, burying)
            await here.store.beat()
            taking.release()
            await stage.reach(forgetting, burying)
        await soon(burying)
        assert len(await stage.tickets(waiting)) == 1
        here.store.is_deaf = False
        turns = [await holder.finish(), await other.finish(), await soon(queued)]
        assert [*await chat.turns(), *await waiting.turns()] == turns

    async def test_a_holder_that_was_buried_and_came_back_is_not_taken_for_what_it_was(
        self, stage: Stage
    ) -> None:
        """A judgement by an old beat that is still on its way does not fit the process that came back."""
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        await stage.hold_lane(chat, "q0")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a2"]), "q2")
        await third.tend()
        stage.clock.advance(LIMITS.lease_time)
        with there.store.hold(begin) as judging:
            there.store.announce()
            await stage.reach(judging, waiting)
            await there.store.transact(renew, there.ledger._process.lease)
            await third.tend()
            assert await chat.turns() == []
            holder = await stage.hold_lane(chat, "q1", on_busy="interrupt")
        await there.tend()
        turns = [await holder.finish(), await soon(waiting)]
        assert await chat.turns() == turns

    async def test_a_refused_begin_first_looks_for_processes_known_to_be_dead(self, stage: Stage) -> None:
        """Neither its queue nor its running turn counts any more."""
        limits = replace(LIMITS, queue_length=1)
        for refusal in ({}, {"on_busy": "reject"}):
            here, there = await stage.processes(limits=limits)
            chat = await here.chat()
            await stage.hold_lane(chat, "q0")
            await stage.queue(chat, ScriptedModel(), "q1")
            with pytest.raises(ConversationBusy):
                await exchange(await there.chat(chat), "q2", **refusal)
            here.store.is_deaf = True
            there.store.gone.add(here.ledger._process.lease)
            turn = await exchange(await there.chat(chat), "q2", **refusal)
            assert await chat.turns() == [turn]

    async def test_a_process_that_starts_buries_the_dead_before_its_first_begin(
        self, stage: Stage, open_store: OpenStore
    ) -> None:
        """However many there are."""
        dead, chats = await stage.processes(2), []
        for process in dead:
            chats.append(chat := await process.chat())
            await stage.hold_lane(chat, "q0")
            await stage.queue(chat, ScriptedModel(), "q1")
            process.store.is_deaf = True
        store = GatedStore(await open_store(), renews=False)
        store.gone = {process.ledger._process.lease for process in dead}
        async with await Ledger.over(store, limits=LIMITS, clock=stage.clock) as ledger:
            assert [lease.id for lease in await store.read(all_leases, None)] == [ledger._process.lease]
            for chat in chats:
                assert await stage.tickets(chat) == []
                assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.FAILED]

    async def test_the_tickets_of_a_dead_process_are_skipped_and_removed(self, stage: Stage) -> None:
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        with there.store.hold(begin, When.AFTER) as gate:
            await stage.reach(gate, stage.start((await there.chat(chat)).run(ScriptedModel(), "q1")))
            assert len(await stage.tickets(chat)) == 1
            await third.tend()
            stage.clock.advance(LIMITS.lease_time)
            await here.store.beat()
            await third.tend()
            assert await stage.tickets(chat) == []
            await holder.finish()
            await exchange(await third.chat(chat), "q2", on_busy="reject")
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]

    async def test_ticket_of_a_dead_process_withdrawn_twice_is_withdrawn_once(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        await stage.queue(await there.chat(chat), ScriptedModel(), "q1")
        there.store.is_deaf = True
        [ticket] = await stage.tickets(chat)
        request = ForgetRequest(ticket.lease, (ticket.attempt,), drop_lease=False, now=stage.clock.now_ms())
        for _ in range(2):
            await here.store.transact(forget, request)
            assert await stage.tickets(chat) == []
        turn = await holder.finish()
        assert await chat.turns() == [turn]

    async def test_a_dead_process_is_buried_once_by_whoever_comes_first(self, stage: Stage) -> None:
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        await stage.hold_lane(chat, "mine", ["Half"], on_failure="keep")
        await there.tend()
        await third.tend()
        stage.clock.advance(LIMITS.lease_time)
        await third.store.beat()
        await there.tend()
        await third.tend()
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.INTERRUPTED]

    async def test_tending_ends_what_names_the_own_lease_and_no_task_runs(self, stage: Stage) -> None:
        """The answer to a begin was lost for good, and the caller was told that the store is out of reach."""
        here, there = await stage.processes()
        chat = await here.chat()
        process = here.ledger._process
        request = turn_request(process, chat._target, "q0").begin
        await here.store.transact(begin, request)
        with pytest.raises(ConversationBusy):
            await exchange(await there.chat(chat), "q1", on_busy="reject")
        await here.tend()
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        await exchange(await there.chat(chat), "q1", on_busy="reject")

    async def test_begin_repeated_after_its_turn_was_ended_returns_how_it_ended(self, stage: Stage) -> None:
        here = await stage.process()
        for policy, state in (("keep", AttemptState.KEPT), ("settle", AttemptState.FAILED)):
            chat = await here.chat()
            request = turn_request(here.ledger._process, chat._target, "q0", on_failure=policy).begin
            await here.store.transact(begin, request)
            await here.tend()
            turns = await chat.turns()
            again = await here.store.transact(
                begin, with_changes(request, round=with_changes(request.round, is_repeated=True))
            )
            assert isinstance(again, SharedOutcome)
            assert again.ended is not None
            assert (again.attempt, again.ended.state) == (request.attempt, state)
            assert await chat.turns() == turns

    async def test_lease_that_a_running_turn_names_is_found_after_its_process_has_ended(
        self, stage: Stage
    ) -> None:
        """Without the lease, no timer would find the turn."""
        here, there = await stage.processes()
        chat, lease = await here.chat(), here.ledger._process.lease
        await here.store.transact(begin, turn_request(here.ledger._process, chat._target, "q0").begin)
        await here.store.transact(end_lease, lease)
        await there.tend()
        stage.clock.advance(LIMITS.lease_time)
        await there.tend()
        [aside] = await chat.attempts()
        assert aside.attempt.state is AttemptState.FAILED
        assert lease not in {each.id for each in await there.store.read(all_leases, None)}


async def _ends_with(task: asyncio.Task[None], problem: type[Exception] | None) -> None:
    [result] = await soon(asyncio.gather(task, return_exceptions=True))
    # Told by a hint, the holder ends before it does what it was about to do.
    assert (type(result) if result else None) in (problem, Superseded)
