"""Requests of one idempotency_key: replayed, attached, refused or run, by what became of the first."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.turn.begin import begin
from turnledger.errors import ConversationDeleted, IdempotencyMismatch, TurnFailed, TurnStopped
from turnledger.model.turn import TurnKind
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import Stage, exchange, said, soon

BOOM = RuntimeError("the model broke")
NEVER = ScriptedModel()
"""A model that must not be run: it has no script."""


class TestOnce:
    async def test_a_replay_is_the_old_turn_also_when_the_conversation_has_moved_on(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a", idempotency_key="i")
        await exchange(chat, "q1", "a1")
        assert await soon(chat.run(NEVER, "q", idempotency_key="i")) == turn
        assert await said(chat) == ["q", "a", "q1", "a1"]

    async def test_a_replay_does_not_wait_for_a_running_turn(self, stage: Stage, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a", idempotency_key="i")
        holder = await stage.hold_lane(chat, "q1")
        assert await soon(chat.run(NEVER, "q", idempotency_key="i")) == turn
        assert await stage.tickets(chat) == []
        await holder.finish()

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_an_attached_request_shares_the_failure(self, stage: Stage, elsewhere: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        process = there if elsewhere else here
        same = await process.chat(chat)
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        begun = process.store.trips.count("begin")
        attached = stage.start(same.run(NEVER, "q", idempotency_key="i"))
        await stage.until_run(process, begin, begun + 1)
        holder.task.cancel()
        with pytest.raises(TurnFailed, match="cancelled"):
            await soon(attached)

    async def test_another_conversation_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        await exchange(chat, "q", idempotency_key="i")
        with pytest.raises(IdempotencyMismatch):
            await other.run(NEVER, "q", idempotency_key="i")
        assert await other.turns() == []

    async def test_a_mismatch_with_a_running_turn_is_refused(self, stage: Stage, chat: Chat) -> None:
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.run(NEVER, "another", idempotency_key="i"))
        await holder.finish()

    async def test_a_stopped_and_discarded_turn_is_not_run_again(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, "q", idempotency_key="i")
        await soon(chat.stop(policy="discard"))
        for process in (here, there):
            with pytest.raises(TurnStopped):
                await soon((await process.chat(chat)).run(NEVER, "q", idempotency_key="i"))
        assert await chat.turns() == []

    async def test_a_stopped_and_kept_turn_is_replayed(self, stage: Stage, chat: Chat) -> None:
        await stage.hold_lane(chat, "q", idempotency_key="i")
        await soon(chat.stop())
        turn = await soon(chat.run(NEVER, "q", idempotency_key="i"))
        assert turn.kind is TurnKind.INTERRUPTED
        assert await chat.turns() == [turn]

    async def test_a_waiting_request_shares_the_failure_of_the_attempt_that_began_meanwhile(
        self, stage: Stage
    ) -> None:
        """Two requests with one key wait; the first runs and fails before the second looks again."""
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        first = await stage.queue(chat, ScriptedModel([BOOM]), "q", idempotency_key="i")
        second = await stage.queue(await there.chat(chat), NEVER, "q", idempotency_key="i")
        with there.store.hold(begin):
            await holder.finish()
            with pytest.raises(RuntimeError):
                await soon(first)
        with pytest.raises(TurnFailed, match="the model broke"):
            await soon(second)
        assert await stage.tickets(chat) == []
        assert (await exchange(chat, "q", "a", idempotency_key="i")).text == "a"

    async def test_a_request_that_waits_behind_its_own_kind_attaches_to_it(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        holder = await stage.hold_lane(chat, "q0")
        first = await stage.queue(chat, ScriptedModel(["a"]), "q", idempotency_key="i")
        second = await stage.queue(same, NEVER, "q", idempotency_key="i")
        await holder.finish()
        assert await soon(first) == await soon(second)
        assert await said(chat) == ["q0", "Working done.", "q", "a"]

    async def test_a_retry_that_had_to_wait_still_runs(self, stage: Stage, chat: Chat) -> None:
        """The failed attempt of its key began before it came, so its failure is not shared."""
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([BOOM]), "q", idempotency_key="i")
        holder = await stage.hold_lane(chat, "q0")
        retry = await stage.queue(chat, ScriptedModel(["a"]), "q", idempotency_key="i")
        await holder.finish()
        assert (await soon(retry)).text == "a"

    async def test_a_retry_goes_to_the_conversation_it_first_began_in(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with pytest.raises(RuntimeError):
            async with here.ledger.turn("q", idempotency_key="i") as failing:
                raise RuntimeError
        turn = await soon(there.ledger.run(ScriptedModel(["a"]), "q", idempotency_key="i"))
        chat = await here.ledger.conversation(failing.conversation.id)
        assert await chat.turns() == [turn]
        assert len(await here.listed()) == 1

    @pytest.mark.parametrize("answer", ["a", BOOM])
    async def test_a_retry_after_a_deletion_reports_it_and_starts_nothing(
        self, stage: Stage, answer: str | RuntimeError
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat(conversation_key="k")
        await asyncio.gather(
            chat.run(ScriptedModel([answer]), "q", idempotency_key="i"), return_exceptions=True
        )
        await chat.delete()
        fresh = await there.chat(conversation_key="k")
        for process in (here, there):
            with pytest.raises(ConversationDeleted):
                await process.ledger.run(NEVER, "q", conversation_key="k", idempotency_key="i")
            await process.tend()
        assert await fresh.turns() == []

    async def test_the_key_of_a_failed_turn_is_forgotten_likewise(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([BOOM]), "q", idempotency_key="i")
        stage.clock.advance(CLAIM_KEPT_MS / 1000 - 1)
        await here.tend()
        with pytest.raises(IdempotencyMismatch):
            await chat.run(NEVER, "another", idempotency_key="i")
        stage.clock.advance(2)
        await here.tend()
        await exchange(chat, "another", idempotency_key="i")

    async def test_the_key_of_a_running_turn_is_not_forgotten(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        stage.clock.advance(10 * CLAIM_KEPT_MS / 1000)
        await here.tend()
        attached = stage.start(chat.run(NEVER, "q", idempotency_key="i"))
        assert await holder.finish() == await soon(attached)
