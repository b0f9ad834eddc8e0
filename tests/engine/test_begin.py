"""Begin: a turn finds or creates its conversation; requests with one idempotency_key run one turn."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.engine.test_resent import talk
from tests.engine.views import BOOM, read_all, running, spoken
from turnledger.chat import Chat
from turnledger.engine.attempt.dead_process import WithdrawRequest, withdraw
from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import (
    ConversationDeleted,
    ConversationNotFound,
    IdempotencyMismatch,
    InvalidInput,
    LedgerClosed,
    MalformedItems,
    MissingToolResults,
    NoNewInput,
    TurnAttached,
    TurnFailed,
    TurnNotFound,
    TurnReplayed,
    TurnStopped,
)
from turnledger.model.ids import TurnId
from turnledger.model.item import message, result_of
from turnledger.model.turn import AttemptState, BeginKind, TurnKind
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Stage,
    StageProcess,
    call,
    chain,
    chats_of,
    exchange,
    message_texts,
    soon,
)

every_way = pytest.mark.parametrize("way", ["turn", "resent"])


def request_turn(process: StageProcess, way: str, text: str = "q", **options: Any) -> TurnBlock:
    """Request a turn of the conversation named in the options."""
    chats = chats_of(process.ledger, options)
    return chats.turn(text, **options) if way == "turn" else chats.resent(talk(text), **options)


async def began(block: TurnBlock, answer: str = "a") -> BeginKind:
    """Have it answered, and return where it began."""
    async with block as turn:
        where = turn.began
        turn.emit(answer)
    assert turn.began is where
    return where


class TestBegin:
    @every_way
    async def test_first_turn_of_a_key_creates_the_conversation_and_the_next_continues_it(
        self, here: StageProcess, there: StageProcess, way: str
    ) -> None:
        assert (
            await soon(began(request_turn(here, way, "q1", conversation_key="k"), "a1")) is BeginKind.CREATED
        )
        assert await soon(began(there.ledger.turn("q2", conversation_key="k"), "a2")) is BeginKind.CONTINUED
        chat = await there.chat(conversation_key="k", create=False)
        resent = here.ledger.resent(talk("q1", "a1", "q2", "a2", "q3"), conversation=chat.id)
        assert await soon(began(resent, "a3")) is BeginKind.CONTINUED
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]

    async def test_turn_that_replaces_another_begins_as_branched(self, here: StageProcess) -> None:
        chat = await here.chat(conversation_key="k")
        first, _ = await chain(chat, 2)
        assert await soon(began(chat.edit(first.id, "other"), "b")) is BeginKind.BRANCHED
        assert await soon(began(chat.regenerate(), "c")) is BeginKind.BRANCHED
        resent = here.ledger.resent(talk("another"), conversation_key="k", sent="full")
        assert await soon(began(resent)) is BeginKind.BRANCHED
        assert await message_texts(chat) == ["another", "a"]

    @every_way
    async def test_two_concurrent_first_turns_of_a_key_create_one_conversation(
        self, stage: Stage, here: StageProcess, there: StageProcess, way: str
    ) -> None:
        with here.store.hold(begin) as gate:
            late = stage.start(began(request_turn(here, way, "q2", conversation_key="k")))
            await stage.reach(gate, late)
            assert (
                await soon(began(request_turn(there, way, "q1", conversation_key="k"))) is BeginKind.CREATED
            )
        assert await soon(late) is BeginKind.CONTINUED
        assert len(await here.list_chats()) == 1

    @every_way
    async def test_turn_without_create_on_an_unknown_key_is_refused_and_creates_nothing(
        self, here: StageProcess, way: str
    ) -> None:
        for options in ({}, {"idempotency_key": "i"}):
            with pytest.raises(ConversationNotFound):
                await soon(began(request_turn(here, way, conversation_key="k", create=False, **options)))
        assert await here.list_chats() == []
        await soon(began(request_turn(here, way, conversation_key="k")))
        block = here.ledger.turn("q2", conversation_key="k", create=False)
        assert await soon(began(block)) is BeginKind.CONTINUED

    @every_way
    async def test_turn_whose_conversation_is_deleted_before_begin_is_refused(
        self, stage: Stage, here: StageProcess, there: StageProcess, way: str
    ) -> None:
        """It was there when the request was read, and is gone by the time it begins."""
        for by_key in (True, False):
            chat = await there.chat(conversation_key="k")
            named = {"conversation_key": "k", "create": False} if by_key else {"conversation": chat.id}
            with here.store.hold(begin) as gate:
                late = stage.start(began(request_turn(here, way, **named)))
                await stage.reach(gate, late)
                await chat.delete()
            with pytest.raises(ConversationNotFound if by_key else ConversationDeleted):
                await soon(late)
        assert await here.list_chats() == []

    async def test_known_conversation_key_takes_the_same_store_trips_as_an_id(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        for named in ({"conversation_key": "k"}, {"conversation": chat.id}):
            here.store.operations.clear()
            await soon(began(here.ledger.turn("q", **named)))
            assert here.store.operations == ["begin", "commit"]
            here.store.operations.clear()
            await soon(began(here.ledger.resent(talk("q"), sent="new", **named)))
            assert here.store.operations == ["current", "begin", "commit"]

    # With a runner.

    async def test_turn_block_of_every_kind_can_be_run_with_a_runner(self, here: StageProcess) -> None:
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
        assert await message_texts(chat) == ["q1", "a1", "other", "b2"]

    @pytest.mark.parametrize("way", ["edit", "regenerate", "resent"])
    async def test_runner_under_one_idempotency_key_runs_once(self, stage: Stage, way: str) -> None:
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

    async def test_replay_by_key_names_the_conversation_of_the_original_commit(self, stage: Stage) -> None:
        here, there = await stage.processes()
        keys = {"conversation_key": "k", "idempotency_key": "i"}
        await soon(began(here.ledger.turn("q", **keys)))  # type: ignore[arg-type]
        old = await here.chat(conversation_key="k")
        await here.ledger.reset("k")
        with pytest.raises(TurnReplayed) as replay:
            await soon(began(there.ledger.turn("q", **keys)))  # type: ignore[arg-type]
        assert replay.value.conversation == old.id


NEVER = ScriptedModel()
"""A model that must not be run: it has no script."""


async def attach(chat: Chat, input: str, idempotency_key: str) -> TurnAttached:
    """Request a turn that already runs."""
    with pytest.raises(TurnAttached) as attached:
        await soon(chat.turn(input, idempotency_key=idempotency_key, attach=True).run(NEVER))
    return attached.value


class TestAttach:
    async def test_attached_request_follows_the_running_turn_to_its_outcome(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        other = same
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

    async def test_attached_request_leaves_no_ticket_and_no_turn_of_its_own(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        await attach(chat, "q", "i")
        assert await stage.tickets(chat) == []
        assert set(here.ledger._process.attempts) == {await running(chat)}
        await holder.finish()

    async def test_queued_request_attaches_to_its_turn_once_that_begins(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        gate = Gate()
        model = ScriptedModel(["a", gate])
        first = await stage.queue(chat, model, "q", idempotency_key="i")
        second = await stage.queue(chat, NEVER, "q", idempotency_key="i", attach=True)
        await holder.finish()
        await stage.reach(gate, first)
        here.ledger._process.waiters.notify(chat.id)  # or its next look, a quarter of a lease time later
        with pytest.raises(TurnAttached) as attached:
            await soon(second)
        gate.release()
        assert attached.value.turn == (await soon(first)).id
        assert await stage.tickets(chat) == []

    @pytest.mark.parametrize(
        ("policy", "state", "kind"),
        [("keep", AttemptState.KEPT, TurnKind.INTERRUPTED), ("discard", AttemptState.DISCARDED, None)],
    )
    async def test_outcome_of_a_stopped_turn_reports_kept_or_discarded(
        self, stage: Stage, chat: Chat, same: Chat, policy: str, state: AttemptState, kind: TurnKind | None
    ) -> None:
        await stage.hold_lane(chat, on_stop=policy)
        turn = await running(chat)
        waiting = stage.start(same.outcome(turn))
        assert await chat.stop() == await soon(waiting)
        ended = await soon(chat.outcome(turn))
        assert (ended.state, ended.turn and ended.turn.kind) == (state, kind)

    async def test_outcome_of_a_failed_turn_reports_the_failure_and_later_the_settled_turn(
        self, chat: Chat
    ) -> None:
        await fail(chat, ScriptedModel([Tool("pay", "paid"), BOOM]), "q")
        [aside] = await chat.attempts()
        ended = await soon(chat.outcome(aside.attempt.id))
        assert (ended.state, ended.turn, ended.failure) == (AttemptState.FAILED, None, aside.attempt.failure)
        await exchange(chat, "next")
        ended = await soon(chat.outcome(aside.attempt.id))
        assert (ended.state, ended.turn) == (AttemptState.SETTLED, (await chat.turns())[0])
        fork = await chat.fork()
        assert await soon(fork.outcome(aside.attempt.id)) == ended

    async def test_outcome_of_a_turn_in_a_dead_process_ends_it_as_process_died(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await stage.hold_lane(chat, "q")
        turn = await running(chat)
        await stage.bury_others(there)
        ended = await soon(same.outcome(turn))
        assert (ended.state, ended.failure and ended.failure.code) == (AttemptState.FAILED, "process_died")
        await exchange(same, "next")

    async def test_outcome_of_a_queued_turn_waits_for_its_commit(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        holder = await stage.hold_lane(chat)
        queued = await stage.queue(chat, ScriptedModel(["a"]), "q")
        [ticket] = await stage.tickets(chat)
        waiting = stage.start(same.outcome(ticket.attempt))
        await holder.finish()
        assert (await soon(waiting)).turn == await soon(queued)

    async def test_outcome_of_a_turn_withdrawn_from_the_queue_raises_turn_not_found(
        self, stage: Stage, chat: Chat
    ) -> None:
        holder = await stage.hold_lane(chat)
        queued = await stage.queue(chat, NEVER, "q")
        [ticket] = await stage.tickets(chat)
        waiting = stage.start(chat.outcome(ticket.attempt))
        await asyncio.sleep(0)
        queued.cancel()
        with pytest.raises(TurnNotFound):
            await soon(waiting)
        await holder.finish()

    async def test_outcome_of_a_turn_of_another_conversation_or_owner_raises_turn_not_found(
        self, here: StageProcess
    ) -> None:
        chat, other = await here.chat(), await here.chat()
        turn = await exchange(chat, "q")
        await fail(chat, ScriptedModel([BOOM]), "q")
        [aside] = await chat.attempts()
        foreign = await here.chat(owner="mallory")
        for stranger in (other, foreign):
            for id in (turn.id, aside.attempt.id, here.ledger._process.ids.new(TurnId)):
                with pytest.raises(TurnNotFound):
                    await soon(stranger.outcome(id))

    async def test_outcome_of_the_own_turn_inside_its_block_is_refused(self, chat: Chat) -> None:
        async with chat.turn("q") as turn:
            with pytest.raises(InvalidInput, match="Leave its block"):
                await chat.outcome(turn.id)
            turn.emit("a")

    async def test_outcome_raises_when_its_conversation_is_deleted_or_its_ledger_closed(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await stage.hold_lane(chat)
        turn = await running(chat)
        waiting = stage.start(same.outcome(turn))
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


class TestOnce:
    async def test_replay_returns_the_old_turn_after_the_conversation_moved_on(self, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a", idempotency_key="i")
        await exchange(chat, "q1", "a1")
        assert await soon(chat.run(NEVER, "q", idempotency_key="i")) == turn
        assert await message_texts(chat) == ["q", "a", "q1", "a1"]

    async def test_a_replay_does_not_wait_for_a_running_turn(self, stage: Stage, chat: Chat) -> None:
        turn = await exchange(chat, "q", "a", idempotency_key="i")
        holder = await stage.hold_lane(chat, "q1")
        assert await soon(chat.run(NEVER, "q", idempotency_key="i")) == turn
        assert await stage.tickets(chat) == []
        await holder.finish()

    @pytest.mark.parametrize("elsewhere", [False, True])
    async def test_attached_request_raises_the_failure_of_its_turn(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, elsewhere: bool
    ) -> None:
        process = there if elsewhere else here
        same = await process.chat(chat)
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        begun = process.store.operations.count("begin")
        attached = stage.start(same.run(NEVER, "q", idempotency_key="i"))
        await stage.until_run(process, begin, begun + 1)
        holder.task.cancel()
        with pytest.raises(TurnFailed, match="cancelled"):
            await soon(attached)

    async def test_idempotency_key_of_another_conversation_is_refused(self, here: StageProcess) -> None:
        chat, other = await here.chat(), await here.chat()
        await exchange(chat, "q", idempotency_key="i")
        with pytest.raises(IdempotencyMismatch):
            await other.run(NEVER, "q", idempotency_key="i")
        assert await other.turns() == []

    async def test_idempotency_key_of_a_running_turn_with_another_input_is_refused(
        self, stage: Stage, chat: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        with pytest.raises(IdempotencyMismatch):
            await soon(chat.run(NEVER, "another", idempotency_key="i"))
        await holder.finish()

    async def test_idempotency_key_of_a_discarded_turn_raises_turn_stopped_and_runs_no_turn(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat
    ) -> None:
        await stage.hold_lane(chat, "q", idempotency_key="i")
        await soon(chat.stop(policy="discard"))
        for process in (here, there):
            with pytest.raises(TurnStopped):
                await soon((await process.chat(chat)).run(NEVER, "q", idempotency_key="i"))
        assert await chat.turns() == []

    async def test_idempotency_key_of_a_kept_turn_replays_the_interrupted_turn(
        self, stage: Stage, chat: Chat
    ) -> None:
        await stage.hold_lane(chat, "q", idempotency_key="i")
        await soon(chat.stop())
        turn = await soon(chat.run(NEVER, "q", idempotency_key="i"))
        assert turn.kind is TurnKind.INTERRUPTED
        assert await chat.turns() == [turn]

    @pytest.mark.parametrize("is_withdrawn", [False, True])
    async def test_queued_request_raises_the_failure_of_the_attempt_that_began_meanwhile(
        self,
        stage: Stage,
        here: StageProcess,
        there: StageProcess,
        chat: Chat,
        same: Chat,
        is_withdrawn: bool,
    ) -> None:
        """Two requests with one key wait; the first runs and fails before the second looks again. Then the
        ticket of the second may be gone, as that of a dead process."""
        holder = await stage.hold_lane(chat, "q0")
        first = await stage.queue(chat, ScriptedModel([BOOM]), "q", idempotency_key="i")
        second = await stage.queue(same, NEVER, "q", idempotency_key="i")
        with there.store.hold(begin):
            await holder.finish()
            with pytest.raises(RuntimeError):
                await soon(first)
            [ticket] = await stage.tickets(chat)
            if is_withdrawn:
                request = WithdrawRequest(ticket.lease, (ticket.attempt,), stage.clock.now_ms())
                await here.store.transact(withdraw, request, chat.owner)
        with pytest.raises(TurnFailed, match="the model broke"):
            await soon(second)
        assert await stage.tickets(chat) == []
        assert (await exchange(chat, "q", "a", idempotency_key="i")).text == "a"

    async def test_request_queued_behind_the_same_request_attaches_to_it(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        holder = await stage.hold_lane(chat, "q0")
        first = await stage.queue(chat, ScriptedModel(["a"]), "q", idempotency_key="i")
        second = await stage.queue(same, NEVER, "q", idempotency_key="i")
        await holder.finish()
        assert await soon(first) == await soon(second)
        assert await message_texts(chat) == ["q0", "Working done.", "q", "a"]

    async def test_attached_request_that_runs_anew_after_a_death_waits_as_long_as_a_new_one(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await stage.hold_lane(chat, "q", idempotency_key="i")
        attached = stage.start(same.run(ScriptedModel(["a"]), "q", idempotency_key="i"))
        await stage.until_run(there, begin, 1)
        third = await stage.process()
        with there.store.hold(begin) as gate:
            await stage.bury_others(third)
            await stage.reach(gate, attached)
            holder = await stage.hold_lane(await third.chat(chat), "q0")
        await stage.until_run(there, begin, 2)
        [ticket] = await stage.tickets(chat)
        assert ticket.deadline == stage.clock.now_ms() + LIMITS.queue_wait * 1000
        await holder.finish()
        assert (await soon(attached)).text == "a"

    async def test_retry_queued_after_its_attempt_failed_runs_again(self, stage: Stage, chat: Chat) -> None:
        """The failed attempt of its key began before the retry, so its failure is not shared."""
        await fail(chat, ScriptedModel([BOOM]), "q", idempotency_key="i")
        holder = await stage.hold_lane(chat, "q0")
        retry = await stage.queue(chat, ScriptedModel(["a"]), "q", idempotency_key="i")
        await holder.finish()
        assert (await soon(retry)).text == "a"

    async def test_retry_without_an_id_runs_in_the_conversation_of_the_first_attempt(
        self, here: StageProcess, there: StageProcess
    ) -> None:
        with pytest.raises(RuntimeError):
            async with here.ledger.turn("q", idempotency_key="i") as failing:
                raise RuntimeError
        turn = await soon(there.ledger.run(ScriptedModel(["a"]), "q", idempotency_key="i"))
        chat = await here.ledger.conversation(failing.conversation.id)
        assert await chat.turns() == [turn]
        assert len(await here.list_chats()) == 1

    @pytest.mark.parametrize("answer", ["a", BOOM])
    async def test_retry_after_its_conversation_was_deleted_raises_and_starts_no_turn(
        self, here: StageProcess, there: StageProcess, answer: str | RuntimeError
    ) -> None:
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

    async def test_idempotency_key_of_a_failed_turn_is_forgotten_after_its_retention(
        self, stage: Stage, here: StageProcess, chat: Chat
    ) -> None:
        await fail(chat, ScriptedModel([BOOM]), "q", idempotency_key="i")
        stage.clock.advance(CLAIM_KEPT_MS / 1000 - 1)
        await here.tend()
        with pytest.raises(IdempotencyMismatch):
            await chat.run(NEVER, "another", idempotency_key="i")
        stage.clock.advance(2)
        await here.tend()
        await exchange(chat, "another", idempotency_key="i")

    async def test_idempotency_key_of_a_running_turn_outlives_its_retention(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q", idempotency_key="i")
        stage.clock.advance(10 * CLAIM_KEPT_MS / 1000)
        await here.tend()
        attached = stage.start(chat.run(NEVER, "q", idempotency_key="i"))
        assert await holder.finish() == await soon(attached)

    async def test_input_with_answers_is_admitted_only_where_it_is_allowed(self, chat: Chat) -> None:
        copied = [message("user", "q"), call("look", "c"), result_of(call("look", "c"), "r")]
        with pytest.raises(MalformedItems, match="only models"):
            chat.turn(copied)
        assert await soon(began(chat.turn(copied, admits_answers=True))) is BeginKind.CONTINUED
        with pytest.raises(MissingToolResults):
            await soon(began(chat.turn(copied[:2], admits_answers=True)))
        with pytest.raises(NoNewInput):
            chat.turn(message("assistant", "a"), admits_answers=True)
        [turn] = await chat.turns()
        assert [item.type for item in turn.input] == ["message", "function_call", "function_call_output"]
