"""Once: the same idempotency_key with the same body yields one committed turn and the same answer.

After a write with an unknown outcome, repeating it has no further effect.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import IdempotencyMismatch
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import Contract, Stage, exchange, message_texts, soon

NEVER = ScriptedModel()
"""Fails when it is run: it has no script."""


class Idempotency(Contract):
    async def test_committed_turn_is_replayed_in_every_process(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        turn = await exchange(chat, "q", "a", idempotency_key="i")
        assert await soon(chat.run(NEVER, "q", idempotency_key="i")) == turn
        assert await soon(same.run(NEVER, "q", idempotency_key="i")) == turn
        assert await chat.turns() == [turn]

    async def test_replay_has_the_stored_details_of_the_turn(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        async with chat.turn("q", idempotency_key="i") as turn:
            turn.emit("a")
            turn.details = {"model": "m", "usage": {"total_tokens": 3}, "finish_reason": None}
        again = await soon(same.run(NEVER, "q", idempotency_key="i"))
        assert again.details == {"model": "m", "usage": {"total_tokens": 3}, "finish_reason": None}
        assert turn.turn == again

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_repeated_request_attaches_to_the_running_turn(self, stage: Stage, elsewhere: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await (there if elsewhere else here).chat(chat)
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        attached = stage.start(same.run(NEVER, "q", idempotency_key="i"))
        rejecting = stage.start(same.run(NEVER, "q", idempotency_key="i", on_busy="reject"))
        turn = await holder.finish()
        assert await soon(attached) == turn
        assert await soon(rejecting) == turn
        assert await chat.turns() == [turn]

    async def test_concurrent_requests_with_one_key_create_one_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        models = [ScriptedModel(["a"]), ScriptedModel(["a"])]
        with here.store.hold(begin) as one, there.store.hold(begin) as other:
            tasks = [
                stage.start(each.ledger.run(model, "q", idempotency_key="i"))
                for each, model in zip((here, there), models, strict=True)
            ]
            await stage.reach(one, tasks[0])
            await stage.reach(other, tasks[1])
            one.release()
            other.release()
            first, second = await soon(asyncio.gather(*tasks))
        assert first == second
        assert sum(len(model.seen) for model in models) == 1
        assert len(await here.list_chats()) == 1

    async def test_key_with_another_body_is_refused(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turn = await exchange(chat, "q", idempotency_key="i")
        with pytest.raises(IdempotencyMismatch):
            await chat.run(NEVER, "another", idempotency_key="i")
        assert await chat.turns() == [turn]

    async def test_key_is_kept_for_a_day_after_its_turn(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turn = await exchange(chat, "q", "a", idempotency_key="i")
        stage.clock.advance(CLAIM_KEPT_MS / 1000 - 1)
        await here.tend()
        assert await soon(chat.run(NEVER, "q", idempotency_key="i")) == turn
        stage.clock.advance(2)
        await here.tend()
        assert (await exchange(chat, "q", "again", idempotency_key="i")).text == "again"


every_fate = pytest.mark.parametrize("fate", Fate)


class UnknownOutcome(Contract):
    @every_fate
    async def test_commit_with_a_lost_answer_commits_once(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "q0", "a0")
        here.store.lose_answer(commit, fate)
        turn = await exchange(chat, "q1", "a1")
        assert await message_texts(chat) == ["q0", "a0", "q1", "a1"]
        assert (await (await there.chat(chat)).turns())[-1] == turn
        await exchange(await there.chat(chat), "q2", on_busy="reject")
        assert await chat.attempts() == []

    async def test_commit_repeated_after_success_returns_the_same_turn(
        self, stage: Stage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        transact, requests = here.store.transact, []

        async def record_commits(operation: Any, request: Any, *others: Any) -> Any:
            if operation is commit:
                requests.append(request)
            return await transact(operation, request, *others)

        monkeypatch.setattr(here.store, "transact", record_commits)
        turn = await exchange(chat, "q0", "a0")
        assert await there.store.transact(commit, requests[0], chat.owner) == turn
        turns = [turn, await exchange(chat, "q1", "a1")]
        assert await there.store.transact(commit, requests[0], chat.owner) == turn
        assert await chat.turns() == turns

    @every_fate
    async def test_begin_with_a_lost_answer_begins_once(self, stage: Stage, fate: Fate) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        model = ScriptedModel(["a"])
        here.store.lose_answer(begin, fate)
        await soon(chat.run(model, "q", idempotency_key="i"))
        assert len(model.seen) == 1
        assert await message_texts(chat) == ["q", "a"]
        assert await chat.attempts() == []
        await exchange(await there.chat(chat), "q1", on_busy="reject")
