"""Attaching: who finds the same request running can follow it, and learns the outcome that it shares."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.chat import Chat
from turnledger.errors import (
    ConversationDeleted,
    InvalidInput,
    LedgerClosed,
    TurnAttached,
    TurnNotFound,
    TurnReplayed,
)
from turnledger.model.attempt import AttemptState
from turnledger.model.ids import TurnId
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.readers import read_all, running, spoken
from turnledger.testing.store_contract.stage import Contract, Stage, exchange, soon

BOOM = RuntimeError("the model broke")
NEVER = ScriptedModel()
"""A model that must not be run: it has no script."""


async def attach(chat: Chat, input: str, idempotency_key: str) -> TurnAttached:
    """Ask for a turn that runs already."""
    with pytest.raises(TurnAttached) as attached:
        await soon(chat.turn(input, idempotency_key=idempotency_key, attach=True).run(NEVER))
    return attached.value


class Attaching(Contract):
    async def test_the_same_request_follows_the_turn_that_runs(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        other = await there.chat(chat)
        found = await attach(other, "q", "i")
        assert (found.turn, found.conversation) == (await running(chat), chat.id)
        assert (await attach(chat, "q", "i")).turn == found.turn
        waiting = stage.start(other.outcome(found.turn))
        reading = stage.start(read_all(other, found.turn))
        turn = await holder.finish()
        ended = await soon(waiting)
        assert (ended.state, ended.turn, ended.failure) == (AttemptState.COMPLETED, turn, None)
        assert spoken(await soon(reading)) == turn.text
        assert await chat.turns() == [turn]

    async def test_to_attach_is_to_run_where_nothing_runs_and_to_replay_what_is_committed(
        self, stage: Stage
    ) -> None:
        chat = await (await stage.process()).chat()
        turn = await exchange(chat, "q", "a", idempotency_key="i", attach=True)
        with pytest.raises(TurnReplayed) as replay:
            async with chat.turn("q", idempotency_key="i", attach=True):
                pytest.fail("the block was run")
        assert replay.value.turn == turn

    async def test_who_attaches_leaves_nothing_behind(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        await attach(chat, "q", "i")
        assert await stage.tickets(chat) == []
        assert set(here.ledger._process.mine) == {await running(chat)}
        await holder.finish()

    async def test_who_was_waiting_when_it_began_attaches_too(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        gate = Gate()
        model = ScriptedModel(["a", gate])
        first = await stage.queue(chat, model, "q", idempotency_key="i")
        second = await stage.queue(chat, NEVER, "q", idempotency_key="i", attach=True)
        await holder.finish()
        await stage.reach(gate, first)
        here.ledger._process.bells.ring(chat.id)  # or its next look, a quarter of a lease time later
        with pytest.raises(TurnAttached) as attached:
            await soon(second)
        gate.release()
        assert attached.value.turn == (await soon(first)).id
        assert await stage.tickets(chat) == []

    @pytest.mark.parametrize(
        ("policy", "state", "kind"),
        [("keep", AttemptState.KEPT, TurnKind.INTERRUPTED), ("discard", AttemptState.DISCARDED, None)],
    )
    async def test_a_stopped_turn_tells_what_became_of_it(
        self, stage: Stage, policy: str, state: AttemptState, kind: TurnKind | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, on_stop=policy)
        turn = await running(chat)
        waiting = stage.start((await there.chat(chat)).outcome(turn))
        assert await chat.stop() == await soon(waiting)
        ended = await soon(chat.outcome(turn))
        assert (ended.state, ended.turn and ended.turn.kind) == (state, kind)

    async def test_a_failed_turn_tells_why_and_so_does_what_is_settled_of_it(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([Tool("pay", "paid"), BOOM]), "q")
        [aside] = await chat.attempts()
        ended = await soon(chat.outcome(aside.attempt.id))
        assert (ended.state, ended.turn, ended.failure) == (
            AttemptState.FAILED,
            None,
            aside.attempt.failure,
        )
        await exchange(chat, "next")
        ended = await soon(chat.outcome(aside.attempt.id))
        assert (ended.state, ended.turn) == (AttemptState.SETTLED, (await chat.turns())[0])
        fork = await chat.fork()
        assert await soon(fork.outcome(aside.attempt.id)) == ended

    async def test_who_waits_for_a_dead_process_ends_its_turn(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat, "q")
        turn = await running(chat)
        other = await there.chat(chat)
        await stage.bury_others(there)
        ended = await soon(other.outcome(turn))
        assert (ended.state, ended.failure and ended.failure.code) == (AttemptState.FAILED, "process_died")
        await exchange(other, "next")

    async def test_the_outcome_of_a_queued_turn_is_waited_for(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        queued = await stage.queue(chat, ScriptedModel(["a"]), "q")
        [ticket] = await stage.tickets(chat)
        waiting = stage.start((await there.chat(chat)).outcome(ticket.attempt))
        await holder.finish()
        assert (await soon(waiting)).turn == await soon(queued)

    async def test_a_turn_that_is_withdrawn_from_the_queue_is_none(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        holder = await stage.hold_lane(chat)
        queued = await stage.queue(chat, NEVER, "q")
        [ticket] = await stage.tickets(chat)
        waiting = stage.start(chat.outcome(ticket.attempt))
        await asyncio.sleep(0)
        queued.cancel()
        with pytest.raises(TurnNotFound):
            await soon(waiting)
        await holder.finish()

    async def test_a_turn_of_another_conversation_or_owner_is_none(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        turn = await exchange(chat, "q")
        with pytest.raises(RuntimeError):
            await chat.run(ScriptedModel([BOOM]), "q")
        [aside] = await chat.attempts()
        foreign = await here.chat(owner="mallory")
        for stranger in (other, foreign):
            for id in (turn.id, aside.attempt.id, here.ledger._process.ids.new(TurnId)):
                with pytest.raises(TurnNotFound):
                    await soon(stranger.outcome(id))

    async def test_a_turn_cannot_wait_for_itself(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        async with chat.turn("q") as turn:
            with pytest.raises(InvalidInput, match="leave it"):
                await chat.outcome(turn.id)
            turn.emit("a")

    async def test_a_deletion_and_a_closing_are_told_to_who_waits(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await stage.hold_lane(chat)
        turn = await running(chat)
        waiting = stage.start((await there.chat(chat)).outcome(turn))
        await asyncio.sleep(0)
        await chat.delete()
        with pytest.raises(ConversationDeleted):
            await soon(waiting)
        second = await here.chat()
        await stage.hold_lane(second)
        waiting = stage.start((await there.chat(second)).outcome(await running(second)))
        await asyncio.sleep(0)
        await there.ledger.close()
        with pytest.raises(LedgerClosed):
            await soon(waiting)
