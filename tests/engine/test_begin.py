"""A turn finds or creates its conversation as it begins; the same request attaches to a running turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.test_resent import talk
from tests.engine.views import read_all, running, spoken
from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import (
    ConversationDeleted,
    ConversationNotFound,
    HistoryDiverged,
    InvalidInput,
    LedgerClosed,
    NoNewInput,
    TurnAttached,
    TurnNotFound,
    TurnReplayed,
)
from turnledger.model.ids import TurnId
from turnledger.model.retention import ResetPolicy
from turnledger.model.turn import AttemptState, Began, TurnKind
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import Stage, StageProcess, chain, exchange, said, soon

every_fate = pytest.mark.parametrize("fate", Fate)


every_way = pytest.mark.parametrize("way", ["turn", "resent"])


def ask(process: StageProcess, way: str, text: str = "q", **options: Any) -> TurnBlock:
    """Ask for a turn of a conversation that is named by the options."""
    if way == "turn":
        return process.ledger.turn(text, **options)
    return process.ledger.resent(talk(text), **options)


async def began(block: TurnBlock, answer: str = "a") -> Began:
    """Have it answered, and return where it began."""
    async with block as turn:
        where = turn.began
        turn.emit(answer)
    assert turn.began is where
    return where


class TestBegin:
    @every_way
    async def test_the_first_turn_of_a_key_creates_and_the_next_continues(
        self, stage: Stage, way: str
    ) -> None:
        here, there = await stage.processes()
        assert await soon(began(ask(here, way, "q1", conversation_key="k"), "a1")) is Began.CREATED
        assert await soon(began(there.ledger.turn("q2", conversation_key="k"), "a2")) is Began.CONTINUED
        chat = await there.chat(conversation_key="k", create=False)
        resent = here.ledger.resent(talk("q1", "a1", "q2", "a2", "q3"), conversation=chat.id)
        assert await soon(began(resent, "a3")) is Began.CONTINUED
        assert await said(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]

    @every_way
    async def test_a_turn_without_a_name_creates(self, stage: Stage, way: str) -> None:
        here = await stage.process()
        assert await soon(began(ask(here, way))) is Began.CREATED
        assert len(await here.listed()) == 1

    async def test_a_conversation_that_was_opened_first_is_continued(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        assert await soon(began(chat.turn("q"))) is Began.CONTINUED

    async def test_what_goes_in_the_place_of_another_has_branched(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        first, _ = await chain(chat, 2)
        assert await soon(began(chat.edit(first.id, "other"), "b")) is Began.BRANCHED
        assert await soon(began(chat.regenerate(), "c")) is Began.BRANCHED
        resent = here.ledger.resent(talk("another"), conversation_key="k", sent="full")
        assert await soon(began(resent)) is Began.BRANCHED
        assert await said(chat) == ["another", "a"]

    async def test_a_key_that_is_over_by_its_policy_is_given_to_one_that_is_created(
        self, stage: Stage
    ) -> None:
        here = await stage.process()
        named = {"conversation_key": "k", "reset": ResetPolicy.idle(60)}
        assert await soon(began(here.ledger.turn("q", **named))) is Began.CREATED  # type: ignore[arg-type]
        stage.clock.advance(60)
        assert await soon(began(here.ledger.resent(talk("q"), **named))) is Began.CREATED  # type: ignore[arg-type]
        assert len(await here.listed()) == 2

    @every_way
    async def test_of_two_first_turns_of_a_key_one_creates(self, stage: Stage, way: str) -> None:
        here, there = await stage.processes()
        with here.store.hold(begin) as gate:
            late = stage.start(began(ask(here, way, "q2", conversation_key="k")))
            await stage.reach(gate, late)
            assert await soon(began(ask(there, way, "q1", conversation_key="k"))) is Began.CREATED
        assert await soon(late) is Began.CONTINUED
        assert len(await here.listed()) == 1

    @every_way
    @every_fate
    async def test_a_begin_whose_answer_is_lost_has_created_one(
        self, stage: Stage, way: str, fate: Fate
    ) -> None:
        here = await stage.process()
        here.store.lose_answer(begin, fate, fate, fate)
        assert await soon(began(ask(here, way, conversation_key="k"))) is Began.CREATED
        assert await said(await here.chat(conversation_key="k", create=False)) == ["q", "a"]
        assert len(await here.listed()) == 1

    @every_way
    async def test_what_may_not_create_is_refused_and_leaves_nothing(self, stage: Stage, way: str) -> None:
        here = await stage.process()
        for options in ({}, {"idempotency_key": "i"}):
            with pytest.raises(ConversationNotFound):
                await soon(began(ask(here, way, conversation_key="k", create=False, **options)))
        assert await here.listed() == []
        await soon(began(ask(here, way, conversation_key="k")))
        block = here.ledger.turn("q2", conversation_key="k", create=False)
        assert await soon(began(block)) is Began.CONTINUED

    @every_way
    async def test_what_was_deleted_before_its_begin_is_not_made_again(self, stage: Stage, way: str) -> None:
        """It was there when the request was read, and is gone by the time it begins."""
        here, there = await stage.processes()
        for by_key in (True, False):
            chat = await there.chat(conversation_key="k")
            named = {"conversation_key": "k", "create": False} if by_key else {"conversation": chat.id}
            with here.store.hold(begin) as gate:
                late = stage.start(began(ask(here, way, **named)))
                await stage.reach(gate, late)
                await chat.delete()
            with pytest.raises(ConversationNotFound if by_key else ConversationDeleted):
                await soon(late)
        assert await here.listed() == []

    @every_way
    async def test_a_refused_turn_makes_no_conversation(self, stage: Stage, way: str) -> None:
        here = await stage.process()
        with pytest.raises(NoNewInput):
            await soon(began(ask(here, way, " ", conversation_key="k")))
        assert await here.listed() == []

    async def test_a_settled_key_costs_what_an_id_costs(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        for named in ({"conversation_key": "k"}, {"conversation": chat.id}):
            here.store.trips.clear()
            await soon(began(here.ledger.turn("q", **named)))
            assert here.store.trips == ["begin", "commit"]
            here.store.trips.clear()
            await soon(began(here.ledger.resent(talk("q"), sent="new", **named)))
            assert here.store.trips == ["current", "begin", "commit"]

    async def test_a_history_that_diverged_is_refused_by_name_as_well(self, stage: Stage) -> None:
        here = await stage.process()
        await chain(await here.chat(conversation_key="k"), 2)
        block = here.ledger.resent(talk("q1", "no", "q2"), conversation_key="k", on_divergence="reject")
        with pytest.raises(HistoryDiverged):
            await soon(began(block))

    # With a runner.

    async def test_every_turn_can_be_run_with_a_runner(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")

        async def run(block: TurnBlock, answer: str) -> None:
            turn = await soon(block.run(ScriptedModel([answer])))
            assert turn.text == answer
            assert turn == (await chat.turns())[-1]

        await run(here.ledger.turn("q1", conversation_key="k"), "a1")
        await run(chat.turn("q2"), "a2")
        await run(chat.resent(talk("q1", "a1", "q2", "a2", "q3")), "a3")
        await run(chat.regenerate(), "b3")
        await run(chat.edit((await chat.turns())[1].id, "other"), "b2")
        assert await said(chat) == ["q1", "a1", "other", "b2"]

    @pytest.mark.parametrize("way", ["edit", "regenerate", "resent"])
    async def test_a_runner_is_run_once_under_an_idempotency_key(self, stage: Stage, way: str) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first = await exchange(chat, "q", "a")

        def block(process: StageProcess) -> TurnBlock:
            if way == "resent":
                named = process.ledger.resent
                return named(talk("q", "a", "q2"), conversation=chat.id, idempotency_key="i")
            same = chats[process.ledger]
            if way == "edit":
                return same.edit(first.id, "other", idempotency_key="i")
            return same.regenerate(first.id, idempotency_key="i")

        chats = {each.ledger: await each.chat(chat) for each in (here, there)}
        turn = await soon(block(here).run(ScriptedModel(["b"])))
        for process in (here, there):
            assert await soon(block(process).run(ScriptedModel())) == turn
        with pytest.raises(TurnReplayed) as replay:
            await soon(began(block(there)))
        assert (replay.value.turn, replay.value.conversation) == (turn, chat.id)

    async def test_a_replay_by_key_names_the_conversation_it_was_committed_to(self, stage: Stage) -> None:
        here, there = await stage.processes()
        asked = {"conversation_key": "k", "idempotency_key": "i"}
        await soon(began(here.ledger.turn("q", **asked)))  # type: ignore[arg-type]
        old = await here.chat(conversation_key="k")
        await here.ledger.reset("k")
        with pytest.raises(TurnReplayed) as replay:
            await soon(began(there.ledger.turn("q", **asked)))  # type: ignore[arg-type]
        assert replay.value.conversation == old.id


BOOM = RuntimeError("the model broke")


NEVER = ScriptedModel()
"""A model that must not be run: it has no script."""


async def attach(chat: Chat, input: str, idempotency_key: str) -> TurnAttached:
    """Ask for a turn that runs already."""
    with pytest.raises(TurnAttached) as attached:
        await soon(chat.turn(input, idempotency_key=idempotency_key, attach=True).run(NEVER))
    return attached.value


class TestAttach:
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
