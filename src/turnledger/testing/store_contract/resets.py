"""Resets: a key moves on to a fresh conversation, by policy or on request; all who reset it at once agree."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.chat import Chat
from turnledger.engine.conversations.resolve import resolve_now
from turnledger.engine.lifecycle.create import reset
from turnledger.engine.turn.begin import begin
from turnledger.errors import (
    ConversationDeleted,
    ConversationNotFound,
    IdempotencyMismatch,
    InvalidInput,
    TurnReplayed,
)
from turnledger.model.attempt import AttemptState
from turnledger.model.conversation import ConversationState
from turnledger.model.retention import ResetPolicy
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Fate, When
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.stage import Contract, Stage, StageProcess, exchange, said, soon

IDLE = ResetPolicy.idle(3600)
LONG = 3600.0
NOON = 1_700_049_600_000
"""Noon in UTC, 15 November 2023."""


async def run_by_key(process: StageProcess, text: str, answer: str = "Yes.", **policies: object) -> None:
    model = ScriptedModel([answer])
    await soon(process.ledger.run(model, text, conversation_key="k", **policies))  # type: ignore[arg-type]


async def named(process: StageProcess) -> Chat:
    """What the key names, without any policy having its way."""
    return await process.chat(conversation_key="k", create=False)


class Resets(Contract):
    # On request.

    async def test_a_reset_gives_the_key_to_an_empty_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", title="T")
        await exchange(old, "q0", "a0")
        new = await there.ledger.reset("k")
        assert new.is_new
        assert new.id != old.id
        for process in (here, there):
            again = await process.chat(conversation_key="k")
            assert (again.id, again.is_new) == (new.id, False)
        assert await said(new) == []
        assert await said(await there.chat(old)) == ["q0", "a0"]

    async def test_the_old_conversation_is_listed_with_the_key_it_had(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", title="T")
        stage.clock.advance(1)
        new = await here.ledger.reset("k")
        listed = {each.id: each for each in await here.listed()}
        assert listed[new.id].conversation_key == "k"
        assert listed[old.id].conversation_key is None
        assert listed[old.id].former_conversation_key == "k"
        assert listed[old.id].title == "T"

    @pytest.mark.parametrize("says_which", [False, True])
    async def test_concurrent_resets_converge(self, stage: Stage, says_which: bool) -> None:
        """Both have seen the old conversation under the key before either has written."""
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        replaces = old.id if says_which else None
        with here.store.hold(reset) as one, there.store.hold(reset) as other:
            tasks = [stage.start(each.ledger.reset("k", replaces=replaces)) for each in (here, there)]
            await stage.reach(one, tasks[0])
            await stage.reach(other, tasks[1])
            other.release()
            one.release()
            first, second = await soon(asyncio.gather(*tasks))
        assert first.id == second.id != old.id
        assert sorted([first.is_new, second.is_new]) == [False, True]
        assert len(await here.listed()) == 2

    async def test_concurrent_resets_of_a_key_that_nobody_has_converge(self, stage: Stage) -> None:
        here, there = await stage.processes()
        with here.store.hold(reset) as one, there.store.hold(resolve_now) as other:
            resetting = stage.start(here.ledger.reset("k"))
            opening = stage.start(there.chat(conversation_key="k"))
            await stage.reach(one, resetting)
            await stage.reach(other, opening)
            other.release()
            opened = await soon(opening)
            one.release()
            made = await soon(resetting)
        assert made.id == opened.id
        assert opened.is_new
        assert not made.is_new

    async def test_resets_one_after_another_are_as_many(self, stage: Stage) -> None:
        here = await stage.process()
        chats = [await here.ledger.reset("k") for _ in range(3)]
        assert len({chat.id for chat in chats}) == 3
        assert all(chat.is_new for chat in chats)

    async def test_a_reset_that_says_which_one_is_meant_can_be_repeated(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        new = await here.ledger.reset("k", replaces=old.id)
        for process in (here, there):
            again = await process.ledger.reset("k", replaces=old.id)
            assert (again.id, again.is_new) == (new.id, False)

    @pytest.mark.parametrize("fate", Fate)
    async def test_a_reset_whose_answer_was_lost_happens_once(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k")
        here.store.lose_answer(reset, fate)
        new = await soon(here.ledger.reset("k"))
        assert new.is_new
        assert {each.id for each in await here.listed()} == {old.id, new.id}
        assert (await here.chat(conversation_key="k")).id == new.id

    async def test_what_never_had_the_key_cannot_be_replaced(self, stage: Stage) -> None:
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
    async def test_a_reset_frees_an_expired_key(self, stage: Stage, is_marked: bool) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", expires_after=60)
        stage.clock.advance(60)
        if is_marked:
            await here.tend()
        new = await there.ledger.reset("k")
        assert new.is_new
        assert (await here.chat(conversation_key="k")).id == new.id
        assert (await new.info()).expires_after == 60_000
        assert old.id != new.id

    async def test_deleting_the_old_conversation_leaves_the_key_with_the_new_one(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        new = await here.ledger.reset("k")
        await old.delete()
        await there.tend()
        assert (await there.chat(conversation_key="k")).id == new.id
        with pytest.raises(ConversationDeleted):
            await there.chat(old)

    # Under turns that run, wait and are tried again.

    async def test_a_turn_that_runs_commits_to_the_old_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        holder = await stage.hold_lane(old, "q0")
        new = await there.ledger.reset("k")
        await run_by_key(there, "q1", "a1")
        await holder.finish()
        assert await said(old) == ["q0", "Working done."]
        assert await said(new) == ["q1", "a1"]

    async def test_a_handle_keeps_its_conversation(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        new = await there.ledger.reset("k")
        await exchange(old, "q", "a")
        assert await said(old) == ["q", "a"]
        assert await said(new) == []

    @pytest.mark.parametrize("is_keyed", [False, True])
    async def test_turns_that_wait_stay_where_they_stand_in_line(self, stage: Stage, is_keyed: bool) -> None:
        here, there = await stage.processes()
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
        assert await said(old) == ["q0", "a0 done.", "q1", "a1", "q2", "a2"]
        assert await said(new) == []
        assert await stage.tickets(old) == []

    async def test_a_ticket_whose_answer_was_lost_is_still_in_its_line(self, stage: Stage) -> None:
        here, there = await stage.processes()
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
        assert await said(old) == ["q0", "a0 done.", "q1", "a1"]

    @pytest.mark.parametrize("by", ["key", "old handle", "new handle"])
    async def test_a_retry_belongs_to_the_conversation_it_began_in(self, stage: Stage, by: str) -> None:
        here, there = await stage.processes()
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

    async def test_a_retry_after_the_old_conversation_was_deleted_says_so(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k")
        await exchange(old, "q", idempotency_key="i")
        await here.ledger.reset("k")
        await old.delete()
        with pytest.raises(ConversationDeleted):
            await run_by_key(here, "q", idempotency_key="i")

    async def test_a_key_of_another_conversation_is_no_retry(self, stage: Stage) -> None:
        here = await stage.process()
        await exchange(await here.chat(conversation_key="k"), "q", idempotency_key="i")
        await here.ledger.reset("k")
        with pytest.raises(IdempotencyMismatch):
            await soon(here.ledger.run(ScriptedModel(), "q", conversation_key="j", idempotency_key="i"))

    # By policy.

    async def test_a_key_moves_on_after_its_idle_time(self, stage: Stage) -> None:
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
        assert await said(old) == ["q0", "a0", "q1", "a1"]
        assert await said(new) == ["q2", "a2"]
        stage.clock.advance(LONG)
        third = await here.chat(conversation_key="k")
        assert third.is_new

    async def test_a_key_moves_on_at_its_hour(self, stage: Stage) -> None:
        here = await stage.process()
        stage.clock.advance((NOON - stage.clock.now_ms()) / 1000)
        old = await here.chat(conversation_key="k", reset=ResetPolicy.daily(4, "America/New_York"))
        stage.clock.advance(20 * 3_600)
        await exchange(old, "q0", "a0")
        stage.clock.advance(3_599.999)
        assert (await here.chat(conversation_key="k")).id == old.id
        stage.clock.advance(0.001)
        assert (await here.chat(conversation_key="k")).id != old.id

    async def test_concurrent_requests_for_a_key_that_is_over_converge(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", reset=IDLE)
        stage.clock.advance(LONG)
        with here.store.hold(begin) as one, there.store.hold(resolve_now) as other:
            running = stage.start(run_by_key(here, "q", "a"))
            opening = stage.start(there.chat(conversation_key="k"))
            await stage.reach(one, running)
            await stage.reach(other, opening)
            other.release()
            one.release()
            opened = await soon(opening)
            await soon(running)
        assert opened.id != old.id
        assert await said(opened) == ["q", "a"]
        assert len(await here.listed()) == 2

    async def test_while_a_turn_runs_its_conversation_is_not_over(self, stage: Stage) -> None:
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
        assert await said(old) == ["q0", "a0 done.", "q1", "a1"]

    async def test_a_turn_that_began_is_an_interaction_though_it_failed(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE)
        stage.clock.advance(LONG - 1)
        with pytest.raises(RuntimeError):
            await exchange_broken(old)
        stage.clock.advance(LONG - 1)
        assert (await here.chat(conversation_key="k")).id == old.id

    async def test_metadata_and_house_keeping_are_no_interactions(self, stage: Stage) -> None:
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

    async def test_a_settled_key_with_a_policy_pays_nothing_for_it(self, stage: Stage) -> None:
        here = await stage.process()
        await here.chat(conversation_key="k", reset=IDLE)
        here.store.trips.clear()
        await here.chat(conversation_key="k", reset=IDLE)
        await here.ledger.run(ScriptedModel(["a"]), "q", conversation_key="k", reset=IDLE)
        assert here.store.trips == ["resolve_settled", "begin", "commit"]

    async def test_who_may_not_create_gets_what_the_key_names(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE)
        stage.clock.advance(LONG)
        assert (await named(here)).id == old.id

    async def test_a_policy_needs_a_key(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        with pytest.raises(InvalidInput):
            await here.ledger.conversation(chat.id, reset=IDLE)
        with pytest.raises(InvalidInput):
            await here.ledger.conversation(reset=IDLE)

    # Turns that do not count as use.

    @pytest.mark.parametrize("way", ["completed", "stopped", "kept after a failure"])
    async def test_a_system_write_puts_off_no_reset(self, stage: Stage, way: str) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE, expires_after=10 * LONG)
        touched = (await old.info()).touched_at
        stage.clock.advance(LONG - 1)
        if way == "completed":
            await exchange(old, "note", "noted", interaction=False)
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

    async def test_a_system_write_resets_nothing(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE)
        stage.clock.advance(LONG)
        await run_by_key(here, "note", "noted", interaction=False)
        assert await said(old) == ["note", "noted"]
        await run_by_key(here, "q", "a")
        assert await said(old) == ["note", "noted"]
        assert await said(await named(here)) == ["q", "a"]

    @pytest.mark.parametrize("interaction", [False, True])
    async def test_what_recovery_keeps_of_a_turn_counts_from_its_end(
        self, stage: Stage, interaction: bool
    ) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k", reset=IDLE)
        opened = stage.clock.now_ms()
        stage.clock.advance(1_000)
        await here.store.beat()
        await stage.hold_lane(old, "q", [Tool("pay")], on_failure="keep", interaction=interaction)
        await stage.bury_others(there)
        same = await there.chat(old)
        assert [turn.kind for turn in await same.turns()] == [TurnKind.INTERRUPTED]
        assert (await same.info()).touched_at == (stage.clock.now_ms() if interaction else opened)

    async def test_a_system_write_that_is_resumed_and_settled_is_still_one(self, stage: Stage) -> None:
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

    async def test_a_policy_frees_a_key_whose_conversation_has_expired(self, stage: Stage) -> None:
        here = await stage.process()
        old = await here.chat(conversation_key="k", reset=IDLE, expires_after=2 * LONG)
        stage.clock.advance(2 * LONG)
        await here.tend()
        new = await here.chat(conversation_key="k")
        assert new.is_new
        info = await new.info()
        assert (info.state, info.reset_policy) == (ConversationState.LIVE, IDLE)
        assert new.id != old.id

    async def test_a_stop_reaches_a_turn_that_outlived_a_reset(self, stage: Stage) -> None:
        here, there = await stage.processes()
        old = await here.chat(conversation_key="k")
        holder = await stage.hold_lane(old, "q")
        await there.ledger.reset("k")
        ended = await soon((await there.chat(old)).stop())
        assert ended is not None
        assert ended.state is AttemptState.KEPT
        assert holder.model.seen


async def _has_ticket(stage: Stage, chat: Chat) -> bool:
    tickets = await stage.tickets(chat)
    return bool(tickets) and stage.begins[tickets[0].attempt] >= 2


async def exchange_broken(chat: Chat, **policies: object) -> None:
    """Run a turn whose model fails after its tool has acted."""
    model = ScriptedModel([Tool("pay", "paid"), RuntimeError("broken")])
    await soon(chat.run(model, "note", **policies))  # type: ignore[arg-type]
