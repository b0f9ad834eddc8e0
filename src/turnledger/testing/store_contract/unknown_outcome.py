"""An error from a write is an unknown outcome, which the engine resolves before it reports anything."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from turnledger.engine.attempt.end import end
from turnledger.engine.conversations.resolve import resolve_now
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit, resolve_doubt
from turnledger.engine.turn.running_turn import record
from turnledger.errors import CommitOutcomeUnknown, ConversationBusy, TurnFailed
from turnledger.model.turn import AttemptState
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, exchange, said, soon

IMPATIENT = replace(LIMITS, doubt_patience=0.0)


every_fate = pytest.mark.parametrize("fate", Fate)


class UnknownOutcome(Contract):
    @every_fate
    async def test_a_commit_whose_answer_is_lost_is_committed_once(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "q0", "a0")
        here.store.lose_answer(commit, fate)
        turn = await exchange(chat, "q1", "a1")
        assert await said(chat) == ["q0", "a0", "q1", "a1"]
        assert (await (await there.chat(chat)).turns())[-1] == turn
        await exchange(await there.chat(chat), "q2", on_busy="reject")
        assert await chat.attempts() == []

    async def test_commit_repeated_after_it_succeeded_returns_the_same_turn(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        transact, requests = here.store.transact, []

        async def record_commits(operation: Any, request: Any, *sync: Any) -> Any:
            if operation is commit:
                requests.append(request)
            return await transact(operation, request, *sync)

        monkeypatch.setattr(here.store, "transact", record_commits)
        turn = await exchange(chat, "q0", "a0")
        assert await there.store.transact(commit, requests[0]) == turn
        turns = [turn, await exchange(chat, "q1", "a1")]
        assert await there.store.transact(commit, requests[0]) == turn
        assert await chat.turns() == turns

    async def test_a_store_that_is_out_of_reach_for_a_moment_costs_no_finished_turn(
        self, stage: Stage
    ) -> None:
        here = await stage.process()
        chat = await here.chat()
        here.store.refuse(commit)
        await exchange(chat, "q0", "a0")
        assert await said(chat) == ["q0", "a0"]

    @every_fate
    @pytest.mark.parametrize("first", [Fate.LOST, Fate.LATE])
    async def test_a_second_commit_whose_answer_is_lost_is_committed_once(
        self, stage: Stage, first: Fate, fate: Fate
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.lose_answer(commit, first, fate)
        turn = await exchange(chat, "q", "a")
        assert await chat.turns() == [turn]
        await exchange(await there.chat(chat), "q2", on_busy="reject")

    @every_fate
    async def test_a_resolution_whose_answer_is_lost_is_repeated(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.lose_answer(commit, Fate.LOST)
        here.store.lose_answer(resolve_doubt, fate)
        turn = await exchange(chat, "q", "a")
        assert await chat.turns() == [turn]
        await exchange(await there.chat(chat), "q2", on_busy="reject")

    @every_fate
    async def test_the_caller_is_told_when_patience_ends_and_the_lane_stays_closed(
        self, stage: Stage, fate: Fate
    ) -> None:
        here, there = await stage.processes(limits=IMPATIENT)
        chat = await here.chat()
        here.store.lose_answer(commit, fate)
        here.store.refuse(resolve_doubt)
        with pytest.raises(CommitOutcomeUnknown):
            await exchange(chat, "q", "a")
        if fate is Fate.WRITTEN:
            assert await said(chat) == ["q", "a"]
        else:
            with pytest.raises(ConversationBusy):
                await exchange(await there.chat(chat), "q1", on_busy="reject")
            assert await chat.turns() == []

    @every_fate
    async def test_tending_brings_the_lane_to_rest(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes(limits=IMPATIENT)
        chat = await here.chat()
        here.store.lose_answer(commit, fate)
        here.store.refuse(resolve_doubt)
        with pytest.raises(CommitOutcomeUnknown):
            await exchange(chat, "q", "a")
        here.store.refuse(resolve_doubt)
        await here.tend()
        await here.tend()
        if fate is Fate.LOST:
            assert await chat.turns() == []
            [aside] = await chat.attempts()
            assert aside.attempt.state is AttemptState.FAILED
        else:
            assert await said(chat) == ["q", "a"]
        before = await chat.turns()
        await exchange(await there.chat(chat), "q1", on_busy="reject")
        assert (await chat.turns())[:-1] == before

    @every_fate
    async def test_a_retry_learns_the_outcome(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process(IMPATIENT)
        chat = await here.chat()
        model = ScriptedModel([Tool("pay"), "Paid."], [Tool("pay"), "Paid."])
        here.store.lose_answer(commit, fate)
        here.store.refuse(resolve_doubt)
        with pytest.raises(CommitOutcomeUnknown):
            await soon(chat.run(model, "q", idempotency_key="i"))
        await here.tend()
        turn = await soon(chat.run(model, "q", idempotency_key="i"))
        assert turn.text == "Paid."
        assert model.executed == {"pay": 1}
        assert await chat.turns() == [turn]

    async def test_who_waits_for_a_turn_in_doubt_is_told_when_it_is_known(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=IMPATIENT)
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        begun = there.store.trips.count("begin")
        attached = stage.start((await there.chat(chat)).run(ScriptedModel(), "q", idempotency_key="i"))
        await stage.until_run(there, begin, begun + 1)
        waiting = await stage.queue(chat, ScriptedModel(["a1"]), "q1")
        here.store.lose_answer(commit, Fate.LOST)
        here.store.refuse(resolve_doubt)
        with pytest.raises(CommitOutcomeUnknown):
            await holder.finish()
        assert not attached.done()
        assert not waiting.done()
        await here.tend()
        with pytest.raises(TurnFailed):
            await soon(attached)
        await soon(waiting)
        assert await said(chat) == ["q1", "a1"]

    @every_fate
    async def test_a_process_that_dies_in_doubt_is_buried_by_another(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes(limits=IMPATIENT)
        chat = await here.chat()
        here.store.lose_answer(commit, fate)
        here.store.refuse(resolve_doubt)
        with pytest.raises(CommitOutcomeUnknown):
            await exchange(chat, "q", "a")
        await stage.bury_others(there)
        turn = await exchange(await there.chat(chat), "q1", "a1", on_busy="reject")
        await here.tend()  # a late write can appear now, and must not
        assert (await chat.turns())[-1] == turn
        assert await said(chat) == (["q", "a"] if fate is Fate.WRITTEN else []) + ["q1", "a1"]

    @every_fate
    async def test_a_begin_whose_answer_is_lost_begins_once(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        model = ScriptedModel(["a"])
        here.store.lose_answer(begin, fate)
        await soon(chat.run(model, "q", idempotency_key="i"))
        assert len(model.seen) == 1
        assert await said(chat) == ["q", "a"]
        assert await chat.attempts() == []
        await exchange(await there.chat(chat), "q1", on_busy="reject")

    @every_fate
    async def test_a_ticket_whose_answer_is_lost_is_one_ticket(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        there.store.lose_answer(begin, fate)
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a1"]), "q1")
        assert len(await stage.tickets(chat)) == 1
        await holder.finish()
        await soon(waiting)
        assert await said(chat) == ["q0", "Working done.", "q1", "a1"]

    @every_fate
    async def test_a_record_whose_answer_is_lost_is_recorded_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        here.store.lose_answer(record, fate)
        model = ScriptedModel(
            ["Looking.", Tool("look"), RuntimeError("boom")], ["Looking.", Tool("look"), "Done."]
        )
        with pytest.raises(RuntimeError):
            await soon(chat.run(model, "q", idempotency_key="i"))
        [aside] = await chat.attempts()
        types = [item.type for item in aside.journal.items]
        assert types == ["message", "function_call", "function_call_output"]
        await soon(chat.run(model, "q", idempotency_key="i"))
        assert model.executed == {"look": 1}

    @every_fate
    async def test_an_end_whose_answer_is_lost_ends_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        chat = await here.chat()
        here.store.lose_answer(end, fate)
        with pytest.raises(RuntimeError):
            await soon(chat.run(ScriptedModel(["Half", RuntimeError("boom")]), "q", on_failure="keep"))
        [turn] = await chat.turns()
        assert turn.text == "Half"
        await exchange(chat, "q1", on_busy="reject")

    @every_fate
    async def test_a_new_conversation_whose_answer_is_lost_is_one(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        here.store.lose_answer(resolve_now, fate, fate)
        by_key = await here.chat(conversation_key="k")
        unnamed = await here.chat()
        assert {each.id for each in await here.listed()} == {by_key.id, unnamed.id}
