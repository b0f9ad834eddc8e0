"""Resets, expiry and retention by time: what counts as interaction, and when a wall clock is trusted."""

from __future__ import annotations

import asyncio
from dataclasses import replace as limited
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    ConversationNotFound,
    InvalidInput,
    TurnReplayed,
)
from turnledger.hosting import Host
from turnledger.model.conversation import ConversationState, Ticket
from turnledger.model.ids import TurnId
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.retention import Lifetimes
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Fate, When
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.conversation_keys import IDLE, LONG, run_by_key
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.rows.kit import IDS, do, read, write
from turnledger.testing.store_contract.stage import LIMITS, Stage, StageProcess, exchange, message_texts, soon
from turnledger.testing.store_contract.work import Agent, work

NOON = 1_700_049_600_000
"""Noon in UTC, 15 November 2023."""


async def named(process: StageProcess) -> Chat:
    """What the key names, without any policy having its way."""
    return await process.chat(conversation_key="k", create=False)


class TestResets:
    # On request.

    async def test_reset_moves_the_key_to_a_new_empty_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", title="T")
        await exchange(old, "q0", "a0")
        new = await there.ledger.reset("k")
        assert new.is_new
        assert new.id != old.id
        for process in (here, there):
            again = await process.chat(conversation_key="k")
            assert (again.id, again.is_new) == (new.id, False)
        assert await message_texts(new) == []
        assert await message_texts(await there.chat(old)) == ["q0", "a0"]

    async def test_reset_keeps_the_expiry_that_the_caller_chose_over_that_of_its_scope(
        self, stage: Stage
    ) -> None:
        lifetimes = Lifetimes(expires_after=60, reset=ResetPolicy.idle(10))
        here = await stage.process(limited(LIMITS, lifetimes=lifetimes))
        chosen = await here.chat(conversation_key="chosen", expires_after=30)
        default = await here.chat(conversation_key="default")
        stage.clock.advance(10)
        for key, old, seconds in (("chosen", chosen, 30), ("default", default, 60)):
            await here.ledger.run(ScriptedModel(["Yes."]), "q", conversation_key=key)
            moved = await here.chat(conversation_key=key, create=False)
            assert moved.id != old.id
            assert (await moved.info()).expires_after == seconds * 1000
        again = await here.ledger.reset("chosen")
        assert (await again.info()).expires_after == 30_000

    async def test_reset_lists_the_old_conversation_under_its_former_key(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", title="T")
        stage.clock.advance(1)
        new = await here.ledger.reset("k")
        listed = {each.id: each for each in await here.list_chats()}
        assert listed[new.id].conversation_key == "k"
        assert listed[old.id].conversation_key is None
        assert listed[old.id].former_conversation_key == "k"
        assert listed[old.id].title == "T"

    async def test_reset_that_names_the_replaced_conversation_is_idempotent(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        new = await here.ledger.reset("k", replaces=old.id)
        for process in (here, there):
            again = await process.ledger.reset("k", replaces=old.id)
            assert (again.id, again.is_new) == (new.id, False)

    async def test_reset_that_replaces_a_conversation_without_the_key_is_refused(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(conversation_key="k"), await here.chat(conversation_key="j")
        hers = await here.chat(conversation_key="k", owner="ann")
        with pytest.raises(InvalidInput):
            await here.ledger.reset("k", replaces=other.id)
        with pytest.raises(ConversationNotFound):
            await here.ledger.reset("k", replaces=hers.id)
        assert (await here.chat(conversation_key="k")).id == chat.id
        assert (await here.chat(conversation_key="k", owner="ann")).id == hers.id

    @pytest.mark.parametrize("is_marked", [False, True])
    async def test_reset_of_an_expired_conversation_moves_the_key_and_keeps_the_expiry_setting(
        self, stage: Stage, here: StageProcess, there: StageProcess, is_marked: bool
    ) -> None:
        old = await here.chat(conversation_key="k", expires_after=60)
        stage.clock.advance(60)
        if is_marked:
            await here.tend()
        new = await there.ledger.reset("k")
        assert new.is_new
        assert (await here.chat(conversation_key="k")).id == new.id
        assert (await new.info()).expires_after == 60_000
        assert old.id != new.id

    async def test_deletion_of_a_reset_conversation_leaves_the_key_with_the_new_one(
        self, here: StageProcess, there: StageProcess
    ) -> None:
        old = await here.chat(conversation_key="k")
        new = await here.ledger.reset("k")
        await old.delete()
        await there.tend()
        assert (await there.chat(conversation_key="k")).id == new.id
        with pytest.raises(ConversationDeleted):
            await there.chat(old)

    # Under turns that run, wait and are tried again.

    async def test_reset_during_a_running_turn_commits_it_to_the_old_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        holder = await stage.hold_lane(old, "q0")
        new = await there.ledger.reset("k")
        await run_by_key(there, "q1", "a1")
        await holder.finish()
        assert await message_texts(old) == ["q0", "Working done."]
        assert await message_texts(new) == ["q1", "a1"]

    @pytest.mark.parametrize("is_keyed", [False, True])
    async def test_reset_leaves_queued_turns_in_the_queue_of_the_old_conversation(
        self, stage: Stage, here: StageProcess, there: StageProcess, is_keyed: bool
    ) -> None:
        old = await here.chat(conversation_key="k")
        holder = await stage.hold_lane(old, "q0", ["a0"])
        waiting = []
        for number in (1, 2):
            key = f"i{number}" if is_keyed else None
            model = ScriptedModel([f"a{number}"])
            waiting.append(
                stage.start(there.ledger.run(model, f"q{number}", conversation_key="k", idempotency_key=key))
            )

            async def is_waiting(count: int = number) -> bool:
                tickets = [ticket.attempt for ticket in await stage.tickets(old)]
                return len(tickets) == count and all(stage.begins[each] >= 2 for each in tickets)

            await stage.until(is_waiting)
        new = await here.ledger.reset("k")
        await holder.finish()
        await soon(asyncio.gather(*waiting))
        assert await message_texts(old) == ["q0", "a0 done.", "q1", "a1", "q2", "a2"]
        assert await message_texts(new) == []
        assert await stage.tickets(old) == []

    async def test_ticket_whose_answer_was_lost_stays_in_the_old_conversation_after_a_reset(
        self, stage: Stage, here: StageProcess, there: StageProcess
    ) -> None:
        old = await here.chat(conversation_key="k")
        holder = await stage.hold_lane(old, "q0", ["a0"])
        there.store.lose_answer(begin, Fate.WRITTEN)
        with there.store.hold(begin, When.AFTER) as gate:
            waiting = stage.start(there.ledger.run(ScriptedModel(["a1"]), "q1", conversation_key="k"))
            await stage.reach(gate, waiting)
            # It has its ticket, and does not know.
            new = await here.ledger.reset("k")
            blocking = await stage.hold_lane(new, "other")
        await stage.until(lambda: _has_ticket(stage, old))
        await holder.finish()
        await soon(waiting)
        await blocking.finish()
        assert await message_texts(old) == ["q0", "a0 done.", "q1", "a1"]

    @pytest.mark.parametrize("by", ["key", "old handle", "new handle"])
    async def test_retry_after_a_reset_resumes_in_the_conversation_it_began_in(
        self, here: StageProcess, there: StageProcess, by: str
    ) -> None:
        old = await here.chat(conversation_key="k")
        failing = ScriptedModel([Tool("pay", "paid"), RuntimeError("broken")])
        with pytest.raises(RuntimeError):
            await soon(here.ledger.run(failing, "q", conversation_key="k", idempotency_key="i"))
        new = await there.ledger.reset("k")
        # A whole answer, so that what it does not do again shows.
        model = ScriptedModel([Tool("pay", "paid"), "Done."])
        if by == "key":
            turn = await soon(there.ledger.run(model, "q", conversation_key="k", idempotency_key="i"))
        else:
            turn = await soon((old if by == "old handle" else new).run(model, "q", idempotency_key="i"))
        assert await old.turns() == [turn]
        assert await new.turns() == []
        again = await soon(there.ledger.run(ScriptedModel(), "q", conversation_key="k", idempotency_key="i"))
        assert again == turn

    # By policy.

    async def test_idle_policy_moves_the_key_after_the_idle_time(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", reset=IDLE)
        await exchange(old, "q0", "a0")
        stage.clock.advance(LONG - 1)
        await run_by_key(there, "q1", "a1")
        stage.clock.advance(LONG - 1)
        assert (await there.chat(conversation_key="k")).id == old.id
        stage.clock.advance(1)
        await run_by_key(there, "q2", "a2")
        new = await here.chat(conversation_key="k")
        assert await message_texts(old) == ["q0", "a0", "q1", "a1"]
        assert await message_texts(new) == ["q2", "a2"]
        stage.clock.advance(LONG)
        third = await here.chat(conversation_key="k")
        assert third.is_new

    async def test_daily_policy_moves_the_key_at_its_hour(self, stage: Stage, here: StageProcess) -> None:
        stage.clock.advance((NOON - stage.clock.now_ms()) / 1000)
        old = await here.chat(conversation_key="k", reset=ResetPolicy.daily(4, "America/New_York"))
        stage.clock.advance(20 * 3_600)
        await exchange(old, "q0", "a0")
        stage.clock.advance(3_599.999)
        assert (await here.chat(conversation_key="k")).id == old.id
        stage.clock.advance(0.001)
        assert (await here.chat(conversation_key="k")).id != old.id

    async def test_idle_policy_does_not_move_the_key_while_a_turn_runs(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", reset=IDLE)
        holder = await stage.hold_lane(old, "q0", ["a0"])
        stage.clock.advance(2 * LONG)
        await here.store.beat()
        waiting = stage.start(run_by_key(there, "q1", "a1"))
        await stage.until(lambda: _has_ticket(stage, old))
        assert (await there.chat(conversation_key="k")).id == old.id
        await holder.finish()
        await soon(waiting)
        assert await message_texts(old) == ["q0", "a0 done.", "q1", "a1"]

    async def test_idle_time_is_not_restarted_by_metadata_reads_or_maintenance(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE)
        stage.clock.advance(LONG - 1)
        await old.update(title="T")
        await old.turns()
        await here.tend()
        await here.chat(conversation_key="k", reset=ResetPolicy.idle(LONG + 0.5))
        stage.clock.advance(1)
        assert (await here.chat(conversation_key="k")).id == old.id
        stage.clock.advance(1)
        assert (await here.chat(conversation_key="k")).id != old.id

    async def test_reset_policy_on_a_known_key_makes_no_extra_trip_to_the_store(self, stage: Stage) -> None:
        here = await stage.process()
        await here.chat(conversation_key="k", reset=IDLE)
        here.store.operations.clear()
        await here.chat(conversation_key="k", reset=IDLE)
        await here.ledger.run(ScriptedModel(["a"]), "q", conversation_key="k", reset=IDLE)
        assert here.store.operations == ["resolve_settled", "begin", "commit"]

    # Turns that do not count as use.

    @pytest.mark.parametrize("way", ["completed", "enqueued", "stopped", "kept after a failure"])
    async def test_turn_without_interaction_does_not_postpone_the_reset(self, stage: Stage, way: str) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE, expires_after=10 * LONG)
        touched = (await old.info()).touched_at
        stage.clock.advance(LONG - 1)
        if way == "completed":
            await exchange(old, "note", "noted", interaction=False)
        elif way == "enqueued":
            id = await old.enqueue("note", interaction=False)
            work(stage, here, Agent())
            await soon(old.outcome(id))
        elif way == "stopped":
            async with old.turn("note", interaction=False) as turn:
                turn.emit("noted")
                turn.stop()
        else:
            with pytest.raises(RuntimeError):
                await exchange_broken(old, interaction=False, on_failure="keep")
        assert len(await old.turns()) == 1
        assert (await old.info()).touched_at == touched
        stage.clock.advance(1)
        assert (await here.chat(conversation_key="k")).id != old.id

    async def test_turn_without_interaction_does_not_trigger_the_reset(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE)
        stage.clock.advance(LONG)
        await run_by_key(here, "note", "noted", interaction=False)
        assert await message_texts(old) == ["note", "noted"]
        await run_by_key(here, "q", "a")
        assert await message_texts(old) == ["note", "noted"]
        assert await message_texts(await named(here)) == ["q", "a"]

    @pytest.mark.parametrize("interaction", [False, True])
    async def test_interrupted_turn_of_a_dead_process_counts_as_interaction_from_its_end(
        self, stage: Stage, here: StageProcess, there: StageProcess, interaction: bool
    ) -> None:
        old = await here.chat(conversation_key="k", reset=IDLE)
        opened = stage.clock.now_ms()
        stage.clock.advance(1_000)
        await here.store.beat()
        await stage.hold_lane(old, "q", [Tool("pay")], on_failure="keep", interaction=interaction)
        await stage.bury_others(there)
        same = await there.chat(old)
        assert [turn.kind for turn in await same.turns()] == [TurnKind.INTERRUPTED]
        assert (await same.info()).touched_at == (stage.clock.now_ms() if interaction else opened)

    async def test_turn_without_interaction_stays_so_when_resumed_or_settled(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE)
        touched = (await old.info()).touched_at
        note = {"idempotency_key": "i", "interaction": False}
        stage.clock.advance(100)
        for _ in range(2):
            with pytest.raises(RuntimeError):
                await exchange_broken(old, **note)
        stage.clock.advance(100)
        turn = await exchange(old, "note", "Done.", **note)
        with pytest.raises(TurnReplayed):
            async with old.turn("note", **note):  # type: ignore[arg-type]
                raise AssertionError("it ran again")
        assert await old.turns() == [turn]
        with pytest.raises(RuntimeError):
            await exchange_broken(old, interaction=False)
        await exchange(old, "next", interaction=False)
        assert [each.kind for each in await old.turns()] == [
            TurnKind.COMPLETED,
            TurnKind.SETTLED,
            TurnKind.COMPLETED,
        ]
        assert (await old.info()).touched_at == touched

    async def test_reset_policy_moves_the_key_of_an_expired_conversation(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE, expires_after=2 * LONG)
        stage.clock.advance(2 * LONG)
        await here.tend()
        new = await here.chat(conversation_key="k")
        assert new.is_new
        info = await new.info()
        assert (info.state, info.reset_policy) == (ConversationState.LIVE, IDLE)
        assert new.id != old.id


async def _has_ticket(stage: Stage, chat: Chat) -> bool:
    tickets = await stage.tickets(chat)
    return bool(tickets) and stage.begins[tickets[0].attempt] >= 2


async def exchange_broken(chat: Chat, **policies: object) -> None:
    """Run a turn whose model fails after its tool has acted."""
    model = ScriptedModel([Tool("pay", "paid"), RuntimeError("broken")])
    await soon(chat.run(model, "note", **policies))  # type: ignore[arg-type]


class TestInteraction:
    @pytest.mark.parametrize("way", ["fails", "is discarded", "dies"])
    async def test_conversation_whose_turn_outran_its_expiry_survives_and_runs_the_queued_turn(
        self, stage: Stage, here: StageProcess, there: StageProcess, way: str
    ) -> None:
        """The end of a turn counts as interaction, and what waits behind it runs."""
        chat = await here.chat(expires_after=60, conversation_key="k")
        holder = await stage.hold_lane(chat, "q0")
        same = await there.chat(chat)
        waiting = await stage.queue(same, ScriptedModel(["a1"]), "q1")
        stage.clock.advance(3600)
        await here.store.beat()
        await there.tend()
        if way == "fails":
            holder.task.cancel()
        elif way == "is discarded":
            await soon(chat.stop(policy="discard"))
        else:
            await stage.bury_others(there)
        assert (await soon(waiting)).input[-1].text == "q1"
        await there.tend()
        assert (await there.chat(conversation_key="k")).id == chat.id
        assert await message_texts(same) == ["q1", "a1"]

    @pytest.mark.parametrize("way", ["fails", "is discarded", "is discarded in the queue"])
    async def test_end_of_a_failed_or_stopped_turn_counts_as_interaction(
        self, stage: Stage, here: StageProcess, way: str
    ) -> None:
        chat = await here.chat(expires_after=60, conversation_key="k", reset=ResetPolicy.idle(60))
        holder = await stage.hold_lane(chat, "q")
        waiting = await stage.queue(chat, ScriptedModel(["a"]), "q1")
        stage.clock.advance(3600)
        if way == "is discarded in the queue":
            await soon(chat.stop((await stage.tickets(chat))[0].attempt))
        waiting.cancel()
        await asyncio.wait((waiting,))
        if way == "is discarded":
            await soon(chat.stop(policy="discard"))
        else:
            holder.task.cancel()
            await asyncio.wait((holder.task,))
        assert (await chat.info()).touched_at == stage.clock.now_ms()
        stage.clock.advance(59)
        await here.tend()
        assert (await here.chat(conversation_key="k")).id == chat.id

    @pytest.mark.parametrize("way", ["runs", "waits"])
    async def test_stop_of_a_turn_without_interaction_does_not_count_as_interaction(
        self, stage: Stage, way: str
    ) -> None:
        limits = limited(LIMITS, retain_for=60.0)
        here, there = await stage.process(), await stage.process(limits)
        chat = await here.chat(owner="ann")
        await exchange(chat, "q0", "a0")
        used = (await chat.info()).touched_at
        stage.clock.advance(3600)
        holder = await stage.hold_lane(chat, "q1", interaction=False)
        waiting = await stage.queue(chat, ScriptedModel(["a2"]), "q2", interaction=False)
        [ticket] = await stage.tickets(chat)
        ended = await soon(chat.stop(None if way == "runs" else ticket.attempt, policy="discard"))
        assert ended is not None
        (holder.task if way == "waits" else waiting).cancel()
        await asyncio.wait((holder.task, waiting))
        assert (await chat.info()).touched_at == used
        assert [each.conversation for each in (await there.ledger.retain()).retired] == [chat.id]

    async def test_conversation_with_a_queued_turn_is_neither_expired_reset_nor_retired(
        self, stage: Stage
    ) -> None:
        """Between the turn before it and its own begin, nothing runs."""
        limits = limited(LIMITS, retain_for=60.0, retain_bytes=0, unlisted_kept=60.0)
        here, there = await stage.process(), await stage.process(limits)
        details: dict[str, Any] = {"expires_after": 60, "reset": ResetPolicy.idle(60)}
        chat = await here.chat(conversation_key="k", **details)
        await exchange(chat, "q0", "a0")
        unlisted = await here.chat(conversation_key="u")
        await write(here.store, do("save_conversation", replace(await unlisted.info(), is_listed=False)))
        for each in (chat, unlisted):
            ticket = Ticket(
                attempt=IDS.new(TurnId),
                conversation=each.id,
                branch=(await each.info()).branch,
                lease=here.ledger._process.lease,
                deadline=stage.clock.now_ms() + 1,
            )
            await write(here.store, do("add_ticket", ticket, owner=each.owner))
        stage.clock.advance(3600)
        await here.store.beat()
        await there.tend()
        await there.ledger.retain()
        assert (await there.chat(conversation_key="k", **details)).id == chat.id
        assert len(await (await there.chat(chat)).turns()) == 1
        assert [each.id for each in await there.list_chats()] == [chat.id]
        assert (await unlisted.info()).state is ConversationState.LIVE


HOUR = 3600.0
DAY = 24 * HOUR
YEARS = 3650 * DAY


SHORT = limited(
    LIMITS, restore_time=10 * HOUR, attempts_kept=10 * HOUR, retain_for=10 * HOUR, tokens_kept=10 * HOUR
)


OURS: dict[str, Any] = {"expires_after": 10 * HOUR}
LONG_IDLE = ResetPolicy.idle(10 * HOUR)
JUMPS = pytest.mark.parametrize("seconds", [2 * HOUR, 11 * HOUR, YEARS, -2 * HOUR, -DAY, -YEARS])


class Kept:
    """Something of each kind that time ends."""

    def __init__(self, process: StageProcess) -> None:
        self.process = process

    async def make(self, name: str) -> None:
        here = self.process
        self.name = name
        self.lasting = await here.chat(conversation_key=f"{name} l", owner="ann")
        await exchange(self.lasting, "q", "a")
        self.expiring = await here.chat(conversation_key=f"{name} e", **OURS)
        await exchange(self.expiring, "q", "a", idempotency_key=name)
        self.keyed = await here.chat(conversation_key=f"{name} k", reset=LONG_IDLE)
        self.deleted = await here.chat()
        await exchange(self.deleted, "q", "a")
        await fail(self.lasting, ScriptedModel([RuntimeError()]), "failing")
        await self.deleted.delete()
        self.token, _ = await Host(here.ledger).tokens.create(
            owner="ann", scopes=["chats:read"], lifetime=1.0
        )

    async def all_there(self, process: StageProcess | None = None) -> None:
        """Everything is as it was."""
        process = process or self.process
        await process.tend()
        await process.ledger.retain()
        assert len(await (await process.chat(self.lasting)).turns()) == 1
        assert len(await (await process.chat(self.expiring)).turns()) == 1
        assert (await process.chat(conversation_key=f"{self.name} k")).id == self.keyed.id
        assert len(await (await process.chat(self.lasting)).attempts()) == 1
        assert (await soon(self._replay(process))).input[-1].text == "q"
        assert self.deleted.id in [each.id for each in await process.list_chats(deleted=True)]
        tokens = await read(process.store, do("tokens", "ann", None, 99))
        assert self.token.id in [each.id for each in tokens]

    async def _replay(self, process: StageProcess) -> Any:
        chat = await process.chat(self.expiring)
        with pytest.raises(TurnReplayed) as replayed:
            async with chat.turn("q", idempotency_key=self.name):
                raise AssertionError("it ran again")
        return replayed.value.turn

    async def all_gone(self) -> None:
        """Everything has ended that time ends."""
        process = self.process
        await process.tend()
        await process.ledger.retain()
        for chat, problem in ((self.lasting, ConversationDeleted), (self.expiring, ConversationExpired)):
            with pytest.raises(problem):
                await process.chat(chat)
        with pytest.raises(ConversationDeleted):
            await process.ledger.restore(self.deleted.id)
        assert (await process.chat(conversation_key=f"{self.name} k")).id != self.keyed.id
        assert await read(process.store, do("all_claims", None, 99)) == []


def jump(stage: Stage, seconds: float) -> None:
    """Set the wall clock, and nothing else."""
    stage.clock.set_wall_clock(stage.clock.now_ms() + round(seconds * 1000))


class TestClocks:
    @JUMPS
    async def test_wall_clock_that_jumps_for_a_moment_ends_nothing(
        self, stage: Stage, seconds: float
    ) -> None:
        here = await stage.process(SHORT)
        before, meanwhile = Kept(here), Kept(here)
        await before.make("before")
        jump(stage, seconds)
        await before.all_there()
        await meanwhile.make("meanwhile")
        await meanwhile.all_there()
        stage.clock.advance(0.5)
        jump(stage, -seconds)
        for passed in (0.0, HOUR - 1, 2.0, HOUR):
            stage.clock.advance(passed)
            await here.store.beat()
            await before.all_there()
            await meanwhile.all_there()

    async def test_wall_clock_confirmed_for_an_hour_after_a_jump_ends_due_items(self, stage: Stage) -> None:
        """Not the jump itself, but an hour in which both clocks agree."""
        here = await stage.process(SHORT)
        kept = Kept(here)
        await kept.make("kept")
        jump(stage, 2 * DAY)
        await kept.all_there()
        for _ in range(4):
            stage.clock.advance((HOUR - 1) / 4)
            await kept.all_there()
        stage.clock.advance(1)
        await kept.all_gone()

    @JUMPS
    async def test_wall_clock_that_is_wrong_at_start_ends_nothing(self, stage: Stage, seconds: float) -> None:
        before = Kept(await stage.process(SHORT))
        await before.make("before")
        right = stage.clock.now_ms()
        stage.clock.restart(right + round(seconds * 1000))
        here = await stage.process(SHORT)
        meanwhile = Kept(here)
        await before.all_there(here)
        await meanwhile.make("meanwhile")
        stage.clock.advance(60)
        stage.clock.set_wall_clock(right + 60_000)
        for passed in (0.0, HOUR - 1, 2.0, HOUR):
            stage.clock.advance(passed)
            await before.all_there(here)
            await meanwhile.all_there()

    async def test_time_the_machine_slept_counts_towards_expiry(self, stage: Stage) -> None:
        here = await stage.process(SHORT)
        kept = Kept(here)
        await kept.make("kept")
        stage.clock.sleep(2 * DAY)
        await kept.all_gone()

    async def test_wall_clock_is_confirmed_across_short_lived_processes(self, stage: Stage) -> None:
        """None of them sees an hour pass; the store knows that it has."""
        kept = Kept(await stage.process(SHORT))
        await kept.make("kept")
        stage.clock.restart(stage.clock.now_ms() + round(2 * DAY * 1000))
        await kept.all_there(await stage.process(SHORT))
        stage.clock.advance(HOUR - 1)
        await kept.all_there(await stage.process(SHORT))
        stage.clock.advance(1)
        kept.process = await stage.process(SHORT)
        await kept.all_gone()
