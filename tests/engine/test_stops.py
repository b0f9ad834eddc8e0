"""Stops: acknowledged once the attempt is final, and applied even if the holder dies."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.attempt.stop import request_stop, updates_for
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import CommitOutcomeUnknown, InvalidInput, TurnStopped
from turnledger.ledger import OWNER
from turnledger.model.conversation import Within
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Fate, Gate, When
from turnledger.testing.scripted_model import ScriptedModel, Tool
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import LIMITS, Stage, StageProcess, exchange, message_texts, soon

every_place = pytest.mark.parametrize("elsewhere", [False, True])


class TestStops:
    async def test_stopped_turn_is_kept_by_default(self, stage: Stage, chat: Chat, either: Chat) -> None:
        holder = await stage.hold_lane(chat, "q", [Tool("look"), "Half"])
        ended = await soon(either.stop())
        assert ended.state is AttemptState.KEPT
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        [turn] = await chat.turns()
        assert turn == ended.turn == stopped.value.turn
        assert turn.kind is TurnKind.INTERRUPTED
        assert turn.text == "Half"
        assert await chat.attempts() == []

    @pytest.mark.parametrize("chosen", ["by the turn", "by the stop"])
    async def test_stopped_turn_is_discarded_by_policy_of_the_turn_or_the_stop(
        self, stage: Stage, chat: Chat, either: Chat, chosen: str
    ) -> None:
        by_turn = chosen == "by the turn"
        holder = await stage.hold_lane(chat, "q", ["Half"], on_stop="discard" if by_turn else "keep")
        ended = await soon(either.stop(policy=None if by_turn else "discard"))
        assert ended.state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped) as stopped:
            await soon(holder.task)
        assert stopped.value.turn is None
        assert await chat.turns() == []
        [aside] = await chat.attempts()
        assert (aside.attempt.state, aside.attempt.partial) == (AttemptState.DISCARDED, "Half")

    async def test_stop_recorded_during_the_commit_returns_the_completed_turn(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        here.store.ignores_hints = True
        with here.store.hold(commit) as gate:
            task = stage.start(chat.run(ScriptedModel(["Whole."]), "q"))
            await stage.reach(gate, task)
            stopping = stage.start(same.stop())
            await stage.until_run(there, request_stop, 1)
        ended = await soon(stopping)
        assert ended.state is AttemptState.COMPLETED
        assert ended.turn == await soon(task)

    async def test_first_of_two_stops_decides_the_policy(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        here.store.ignores_hints = True
        holder = await stage.hold_lane(chat, "q", ["Half"])
        first = stage.start(same.stop(policy="discard"))
        await stage.until_run(there, request_stop, 1)
        second = await soon(chat.stop(policy="keep"))
        assert second == await soon(first)
        assert second.state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped):
            await soon(holder.task)
        assert await chat.turns() == []

    @pytest.mark.parametrize("policy", ["keep", "discard"])
    async def test_stop_recorded_for_a_dead_process_is_applied_on_takeover(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, policy: str
    ) -> None:
        """The holder never receives the stop and dies; the process that takes over applies the stop."""
        here.store.ignores_hints = True
        other = "keep" if policy == "discard" else "forget"
        await stage.hold_lane(chat, "q", [Tool("pay", "paid")], on_failure=other)
        stopping = stage.start(same.stop(policy=policy))
        await stage.until_run(there, request_stop, 1)
        await stage.bury_others(there)
        ended = await soon(stopping)
        assert ended is not None
        if policy == "keep":
            assert ended.state is AttemptState.KEPT
            assert [turn.kind for turn in await same.turns()] == [TurnKind.INTERRUPTED]
        else:
            assert ended.state is AttemptState.DISCARDED
            assert await same.turns() == []
            await exchange(same, "next")
            assert [turn.kind for turn in await same.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]

    async def test_stop_takes_over_the_turn_of_a_silent_holder(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        here.store.ignores_hints = True
        await stage.hold_lane(chat, "q", ["Half"], on_stop="discard")
        stopping = stage.start(same.stop())
        await stage.until_run(there, request_stop, 1)
        await there.tend()  # the lease is seen at its beat
        stage.clock.advance(LIMITS.lease_time)
        there.store.announce()
        ended = await soon(stopping)
        assert ended.state is AttemptState.DISCARDED

    async def test_queued_turn_can_be_stopped_before_it_runs(
        self, stage: Stage, chat: Chat, either: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q0")
        model = ScriptedModel()
        waiting = await stage.queue(chat, model, "q1", idempotency_key="i")
        [ticket] = await stage.tickets(chat)
        ended = await soon(either.stop(ticket.attempt))
        assert ended.state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped):
            await soon(waiting)
        with pytest.raises(TurnStopped):
            await soon(either.run(model, "q1", idempotency_key="i"))
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert model.seen == []
        assert await message_texts(chat) == ["q0", "Working done."]
        [aside] = await chat.attempts()
        assert (aside.attempt.id, aside.attempt.state) == (ticket.attempt, AttemptState.DISCARDED)

    @pytest.mark.parametrize("other", ["runs", "is committed"])
    async def test_stop_of_a_queued_copy_leaves_the_idempotency_key_with_the_first_attempt(
        self, stage: Stage, here: StageProcess, there: StageProcess, other: str
    ) -> None:
        chat, gate = await here.chat(), Gate()
        holder = await stage.hold_lane(chat)
        first = await stage.queue(chat, ScriptedModel(["a", gate]), "q", idempotency_key="once")
        there.store.ignores_hints = True
        copy = await stage.queue(
            await there.chat(chat), ScriptedModel(["never"]), "q", idempotency_key="once"
        )
        await holder.finish()
        await stage.reach(gate, first)
        if other == "is committed":
            gate.release()
            await soon(first)
        [ticket] = await stage.tickets(chat)
        stage.clock.advance(1.0)
        stopped = await soon(chat.stop(ticket.attempt))
        assert stopped.state is AttemptState.DISCARDED
        assert (await chat.info()).touched_at == stage.clock.now_ms()
        asides = {aside.attempt.id: aside.attempt.idempotency_key for aside in await chat.attempts()}
        assert asides[ticket.attempt] == "once"
        gate.release()
        turn = await soon(first)
        assert await exchange(chat, "q", idempotency_key="once") == turn
        copy.cancel()

    @pytest.mark.parametrize("is_keyed", [False, True])
    async def test_queued_turn_at_any_place_raises_turn_stopped_at_once(
        self, stage: Stage, chat: Chat, either: Chat, is_keyed: bool
    ) -> None:
        """The bell of a lane is for its first; a stop is for the one it names."""
        holder = await stage.hold_lane(chat, "q0")
        first = await stage.queue(chat, ScriptedModel(["a1"]), "q1")
        second = await stage.queue(chat, ScriptedModel(), "q2", idempotency_key="i" if is_keyed else None)
        third = await stage.queue(chat, ScriptedModel(["a3"]), "q3")
        ticket = (await stage.tickets(chat))[1]
        await soon(either.stop(ticket.attempt))
        with pytest.raises(TurnStopped):
            await soon(second)
        assert not first.done()
        assert not third.done()
        await holder.finish()
        await soon(first)
        await soon(third)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q3"]

    async def test_queued_turn_that_is_stopped_passes_its_wake_up_to_the_next(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        """It was notified that the lane is free, in place of the next in the queue."""
        holder = await stage.hold_lane(same, "q0")
        first = await stage.queue(chat, ScriptedModel(), "q1")
        second = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
        here.store.ignores_hints = True
        await soon(same.stop((await stage.tickets(chat))[0].attempt))
        await holder.finish()
        here.store.ignores_hints = False
        here.store.announce()
        with pytest.raises(TurnStopped):
            await soon(first)
        assert (await soon(second)).text == "a2"

    async def test_stop_reaches_a_turn_whose_begin_has_no_answer_yet(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        model = ScriptedModel(["Half", Gate()])
        with here.store.hold(begin, When.AFTER) as gate:
            task = stage.start(chat.run(model, "q"))
            await stage.reach(gate, task)
            stopping = stage.start(same.stop())
            await soon(_wait_for_early_stop(here))
        ended = await soon(stopping)
        assert ended.state is AttemptState.KEPT
        with pytest.raises(TurnStopped):
            await soon(task)

    async def test_stop_waits_for_a_begin_that_has_not_reached_the_store(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        block = chat.turn("q", on_stop="discard")

        async def run() -> None:
            async with block as turn:
                await ScriptedModel(["Half", Gate()])(turn)

        with here.store.hold(begin) as gate:
            task = stage.start(run())
            await stage.reach(gate, task)
            stopping = stage.start(chat.stop(block.id))
            await stage.until_run(here, request_stop, 2)
            assert not stopping.done()
        ended = await soon(stopping)
        assert ended.state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped):
            await soon(task)

    async def test_failed_lookup_of_stops_is_repeated(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q")
        here.store.refuse(updates_for, times=2)
        ended = await soon(same.stop())
        assert ended is not None
        with pytest.raises(TurnStopped):
            await soon(holder.task)

    @pytest.mark.parametrize("fate", Fate)
    async def test_stop_of_a_turn_in_doubt_returns_the_resolved_turn(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, fate: Fate
    ) -> None:
        """The commit is looked up until its outcome is certain; here a lost one is repeated."""
        here.store.lose_answer(commit, fate)
        with here.store.hold(resolve_doubt) as gate:
            task = stage.start(chat.run(ScriptedModel(["Whole."]), "q"))
            await stage.reach(gate, task)
            [attempt] = here.ledger._process.running
            stopping = stage.start(same.stop(attempt))
            await stage.until_run(there, request_stop, 1)
        ended = await soon(stopping)
        assert ended.state is AttemptState.COMPLETED
        assert await same.turns() == [ended.turn] == [await soon(task)]

    @pytest.mark.parametrize("fate", Fate)
    async def test_stop_of_a_turn_left_in_doubt_is_applied_when_the_doubt_is_resolved(
        self, stage: Stage, fate: Fate
    ) -> None:
        here, there = await stage.processes(limits=replace(LIMITS, doubt_patience=0.0))
        chat = await here.chat()
        same = await there.chat(chat)
        here.store.lose_answer(commit, fate)
        here.store.refuse(resolve_doubt)
        with pytest.raises(CommitOutcomeUnknown) as unknown:
            await exchange(chat, "q", "Whole.")
        assert unknown.value.code == "commit_outcome_unknown"
        [attempt] = here.ledger._process.doubts
        stopping = stage.start(same.stop(attempt, policy="discard"))
        await stage.until_run(there, request_stop, 1)
        await here.tend()
        ended = await soon(stopping)
        assert ended is not None
        is_there = fate is not Fate.LOST
        # A commit that appears late preceded the lookup of the stop, and won.
        assert ended.state is (AttemptState.COMPLETED if is_there else AttemptState.DISCARDED)
        assert [turn.text for turn in await same.turns()] == (["Whole."] if is_there else [])
        await exchange(same, "next", on_busy="reject")

    async def test_stop_on_an_idle_conversation_returns_none(self, chat: Chat) -> None:
        assert await soon(chat.stop()) is None
        turn = await exchange(chat, "q")
        assert await soon(chat.stop()) is None
        ended = await soon(chat.stop(turn.id))
        assert (ended.state, ended.turn) == (AttemptState.COMPLETED, turn)

    async def test_stop_of_a_turn_of_another_conversation_returns_none(self, stage: Stage) -> None:
        here = await stage.process()
        chat, other = await here.chat(), await here.chat()
        turn = await exchange(chat, "q")
        holder = await stage.hold_lane(chat, "q1")
        [running] = await chat.attempts()
        assert await soon(other.stop(running.attempt.id)) is None
        assert await soon(other.stop(turn.id)) is None
        await holder.finish()


async def _wait_for_early_stop(process: StageProcess) -> None:
    """Wait until a stop has arrived for a turn that does not run yet."""
    while not process.ledger._process.early_stops:
        await asyncio.sleep(0)


class TestStopsByKey:
    @every_place
    async def test_running_turn_is_stopped_by_its_key_in_any_chat(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, elsewhere: bool
    ) -> None:
        holder = await stage.hold_lane(chat, "q", ["Half"], idempotency_key="k")
        [running] = await chat.attempts()
        ended = await soon((there if elsewhere else here).ledger.stop("k", policy="discard"))
        assert ended is not None
        assert (ended.state, ended.id) == (AttemptState.DISCARDED, running.attempt.id)
        with pytest.raises(TurnStopped):
            await soon(holder.task)

    @every_place
    async def test_queued_turn_is_stopped_by_its_key(self, stage: Stage, elsewhere: bool) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        waiting = await stage.line_up(chat, chat.run(ScriptedModel(["never"]), "q", idempotency_key="k"))
        [ticket] = await stage.tickets(chat)
        ended = await soon((there if elsewhere else here).ledger.stop("k"))
        assert (ended.state, ended.id) == (AttemptState.DISCARDED, ticket.attempt)
        with pytest.raises(TurnStopped):
            await soon(waiting)
        await holder.finish()
        with pytest.raises(TurnStopped):
            await soon(chat.run(ScriptedModel(["never"]), "q", idempotency_key="k"))
        assert len(await chat.turns()) == 1

    async def test_one_stop_ends_all_requests_that_wait_under_a_key(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        holder = await stage.hold_lane(chat)
        waiting = [
            await stage.line_up(each, each.run(ScriptedModel(["never"]), "q", idempotency_key="k"))
            for each in (chat, same)
        ]
        await soon(here.ledger.stop("k"))
        await holder.finish()
        for each in waiting:
            with pytest.raises(TurnStopped):
                await soon(each)
        assert len(await chat.turns()) == 1

    async def test_ended_turn_reports_the_outcome_that_won(self, stage: Stage) -> None:
        process = await stage.process()
        chat = await process.chat()
        turn = await soon(chat.run(ScriptedModel(["a"]), "q", idempotency_key="k"))
        ended = await soon(process.ledger.stop("k"))
        assert (ended.state, ended.turn, ended.id) == (AttemptState.COMPLETED, turn, turn.id)

    async def test_queued_retry_of_a_failed_turn_is_stopped(self, stage: Stage) -> None:
        process = await stage.process()
        chat = await process.chat()
        await fail(chat, ScriptedModel([RuntimeError("boom")]), "q", idempotency_key="k")
        assert (await soon(process.ledger.stop("k"))).state is AttemptState.FAILED
        holder = await stage.hold_lane(chat)
        waiting = await stage.line_up(chat, chat.run(ScriptedModel(["never"]), "q", idempotency_key="k"))
        assert (await soon(process.ledger.stop("k"))).state is AttemptState.DISCARDED
        with pytest.raises(TurnStopped):
            await soon(waiting)
        await holder.finish()

    async def test_keys_of_other_owners_and_narrowed_callers_are_unknown(self, stage: Stage) -> None:
        process = await stage.process()
        ledger = process.ledger
        narrow = ledger.for_owner(OWNER, within=Within("shop"))
        chat = await narrow.conversation()
        holder = await stage.hold_lane(chat, "q", ["Half"], idempotency_key="k")
        elsewhere = Within("elsewhere")
        for caller in (ledger, ledger.for_owner("bob"), ledger.for_owner(OWNER, within=elsewhere)):
            assert await soon(caller.stop("k")) is None
        assert (await soon(narrow.stop("k"))).state is AttemptState.KEPT
        with pytest.raises(TurnStopped):
            await soon(holder.task)

    async def test_key_of_a_move_names_no_turn(self, stage: Stage) -> None:
        process = await stage.process()
        chat = await process.chat()
        await exchange(chat, "q")
        await chat.undo(idempotency_key="k")
        assert await soon(process.ledger.stop("k")) is None

    async def test_turn_cannot_stop_itself_by_its_key(self, stage: Stage) -> None:
        process = await stage.process()
        chat = await process.chat()
        async with chat.turn("q", idempotency_key="k") as turn:
            with pytest.raises(InvalidInput, match="inside the block"):
                await process.ledger.stop("k")
            turn.emit("a")
        assert turn.state is AttemptState.COMPLETED
