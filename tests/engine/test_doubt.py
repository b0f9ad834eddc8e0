"""Turns in doubt: a write of unknown outcome is resolved before the outcome is reported."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.limits import Limits
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.engine.wrapped_store import Write
from turnledger.errors import CommitOutcomeUnknown, ConversationBusy, TurnFailed
from turnledger.model.turn import AttemptState
from turnledger.testing.gates import Fate, GatedStore
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.power_loss import ACTIONS, Action
from turnledger.testing.store_contract.stage import LIMITS, Stage, StageProcess, exchange, message_texts, soon

every_fate = pytest.mark.parametrize("fate", Fate)


@pytest.fixture
def losing(monkeypatch: pytest.MonkeyPatch, fate: Fate) -> None:
    """Have all processes lose the answer of every other run of each operation but renewals of leases."""
    runs: Counter[tuple[GatedStore, Any]] = Counter()
    true = GatedStore.write

    async def losing(self: GatedStore, write: Write) -> Any:
        runs[self, write.operation] += 1
        if runs[self, write.operation] % 2 and write.operation is not renew:
            self.lose_answer(write.operation, fate)
        return await true(self, write)

    monkeypatch.setattr(GatedStore, "write", losing)


class TestDoubt:
    async def test_commit_refused_by_the_store_once_is_repeated_and_succeeds(
        self, here: StageProcess, chat: Chat
    ) -> None:
        here.store.refuse(commit)
        await exchange(chat, "q0", "a0")
        assert await message_texts(chat) == ["q0", "a0"]

    @every_fate
    @pytest.mark.parametrize("first", [Fate.LOST, Fate.LATE])
    async def test_commit_whose_answers_are_lost_twice_is_committed_once(
        self, here: StageProcess, chat: Chat, same: Chat, first: Fate, fate: Fate
    ) -> None:
        here.store.lose_answer(commit, first, fate)
        turn = await exchange(chat, "q", "a")
        assert await chat.turns() == [turn]
        await exchange(same, "q2", on_busy="reject")

    @every_fate
    async def test_resolution_of_a_doubt_whose_answer_is_lost_is_repeated(
        self, here: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        here.store.lose_answer(commit, Fate.LOST)
        here.store.lose_answer(resolve_doubt, fate)
        turn = await exchange(chat, "q", "a")
        assert await chat.turns() == [turn]
        await exchange(same, "q2", on_busy="reject")

    @every_fate
    async def test_ticket_whose_answer_is_lost_is_issued_once(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        holder = await stage.hold_lane(chat, "q0")
        there.store.lose_answer(begin, fate)
        waiting = await stage.queue(same, ScriptedModel(["a1"]), "q1")
        assert len(await stage.tickets(chat)) == 1
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q0", "Working done.", "q1", "a1"]

    @every_fate
    @pytest.mark.parametrize("action", ACTIONS, ids=lambda action: action.__name__)
    @pytest.mark.usefixtures("losing")
    async def test_action_whose_answers_are_lost_happens_once(
        self, stage: Stage, action: Action, fate: Fate
    ) -> None:
        check = await action(stage, await stage.process())
        later = await stage.process()
        await check(later)
        assert await later.ledger.check() == []


class TestUnresolved:
    """Doubts that their process could not resolve in time."""

    @pytest.fixture
    def limits(self) -> Limits:
        return replace(LIMITS, doubt_patience=0.0)

    @pytest.fixture
    async def unresolved(self, here: StageProcess, chat: Chat, fate: Fate) -> None:
        here.store.lose_answer(commit, fate)
        here.store.refuse(resolve_doubt)
        with pytest.raises(CommitOutcomeUnknown):
            await exchange(chat, "q", "a")

    @every_fate
    @pytest.mark.usefixtures("unresolved")
    async def test_doubt_beyond_its_patience_raises_outcome_unknown_and_keeps_the_lane_closed(
        self, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        if fate is Fate.WRITTEN:
            assert await message_texts(chat) == ["q", "a"]
        else:
            with pytest.raises(ConversationBusy):
                await exchange(same, "q1", on_busy="reject")
            assert await chat.turns() == []

    @every_fate
    @pytest.mark.usefixtures("unresolved")
    async def test_doubt_left_unresolved_is_resolved_by_recovery_and_frees_the_lane(
        self, here: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        here.store.refuse(resolve_doubt)
        await here.tend()
        await here.tend()
        if fate is Fate.LOST:
            assert await chat.turns() == []
            [aside] = await chat.attempts()
            assert aside.attempt.state is AttemptState.FAILED
        else:
            assert await message_texts(chat) == ["q", "a"]
        before = await chat.turns()
        await exchange(same, "q1", on_busy="reject")
        assert (await chat.turns())[:-1] == before

    @every_fate
    async def test_retry_of_a_turn_in_doubt_returns_one_turn_and_runs_its_tools_once(
        self, here: StageProcess, chat: Chat, fate: Fate
    ) -> None:
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

    async def test_requests_waiting_for_a_turn_in_doubt_continue_once_it_is_resolved(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        begun = there.store.operations.count("begin")
        attached = stage.start(same.run(ScriptedModel(), "q", idempotency_key="i"))
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
        assert await message_texts(chat) == ["q1", "a1"]

    @every_fate
    @pytest.mark.usefixtures("unresolved")
    async def test_doubt_of_a_dead_process_is_resolved_by_another_process(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        await stage.bury_others(there)
        turn = await exchange(same, "q1", "a1", on_busy="reject")
        await here.tend()  # a late write can appear now, and must not
        assert (await chat.turns())[-1] == turn
        assert await message_texts(chat) == (["q", "a"] if fate is Fate.WRITTEN else []) + ["q1", "a1"]
