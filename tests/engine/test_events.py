"""Events are numbered without gaps and read the same during and after a turn, from any number."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from tests.engine.views import (
    BOOM,
    SCRIPT,
    SMALL,
    Ends,
    Reading,
    check_read_back,
    check_shape,
    flushed_chunks,
    hold,
    read_all,
    resumed_at_every_number,
    running,
    spoken,
    wire,
)
from turnledger.chat import Chat
from turnledger.engine.attempt.end import end
from turnledger.engine.attempt.stored_events import read_turn_log
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.process import flush
from turnledger.engine.turn.commit import commit
from turnledger.engine.turn.running_turn import RunningTurn, record
from turnledger.errors import (
    ConversationDeleted,
    InvalidInput,
    LedgerClosed,
    OutcomeUnknown,
    Superseded,
    TooManyReaders,
    TurnNotFound,
)
from turnledger.model.event import Event, ItemDone, TurnFinished
from turnledger.model.ids import TurnId
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Fate, Gate, When
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Tool
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import LIMITS, Stage, StageProcess, call, exchange, soon

UNKNOWN = TurnId("turn_000000000001700080000000000000ff")


class TestEvents:
    async def test_running_turn_can_be_read_from_any_event_number(self, stage: Stage, chat: Chat) -> None:
        events: list[Event] = []
        holder = await hold(stage, chat, on_event=events.append)
        id, so_far = await running(chat), len(events)
        readings = [Reading(stage, chat, id, after) for after in range(so_far + 8)]
        for after, reading in enumerate(readings[:so_far]):
            assert wire((await reading.until(so_far))[: so_far - after]) == wire(events[after:so_far])
        await holder.finish()
        check_shape(events)
        for after, reading in enumerate(readings):
            assert wire(await soon(reading.task)) == wire(events[after:] or events[-1:])

    async def test_turn_in_another_process_is_read_as_far_as_it_was_flushed(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        events: list[Event] = []
        gates = [Gate(), Gate()]
        script = [*SCRIPT, gates[0], "More, ", Tool("book"), "and more.", gates[1], " Done."]
        task = stage.start(chat.run(ScriptedModel(script), "q", on_event=events.append))
        await stage.reach(gates[0], task)
        id, elsewhere = await running(chat), same
        readings = [Reading(stage, elsewhere, id, after) for after in range(12)]
        assert wire(await readings[0].until(1)) == wire(events[:1])
        for gate in gates:
            await stage.reach(gate, task)
            await here.flush()
            so_far = len(events)
            for after, reading in enumerate(readings):
                if after < so_far:
                    assert wire(await reading.until(so_far)) == wire(events[after:so_far])
            gate.release()
        await soon(task)
        for after, reading in enumerate(readings):
            assert wire(await soon(reading.task)) == wire(events[after:])
        assert await flushed_chunks(there, id) == 0

    async def test_flush_writes_one_row_and_none_without_new_events(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await hold(stage, chat, [str(number) for number in range(100)])
        id = await running(chat)
        await here.flush()
        await here.flush()
        assert await flushed_chunks(here, id) == 1
        await holder.finish()
        assert await flushed_chunks(here, id) == 0

    @pytest.mark.parametrize("finder", ["the timer", "the reader"])
    async def test_reader_of_a_turn_in_a_dead_process_receives_process_died_and_ends(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, finder: str
    ) -> None:
        await hold(stage, chat)
        id, elsewhere = await running(chat), same
        await here.flush()
        reading = Reading(stage, elsewhere, id)
        so_far = len(await reading.until(10))
        if finder == "the timer":
            await stage.bury_others(there)
        else:
            stage.clock.advance(LIMITS.lease_time)
            there.store.announce()
        events = await soon(reading.task)
        check_shape(events)
        assert len(events) == so_far + 1
        assert isinstance(events[-1], TurnFinished)
        assert (events[-1].state, events[-1].failure and events[-1].failure.code) == (
            "failed",
            "process_died",
        )
        await resumed_at_every_number(stage, elsewhere, id, events)
        await exchange(elsewhere, "next")
        await resumed_at_every_number(stage, elsewhere, id, events)

    @pytest.mark.parametrize("flushed", [(0, 1, 2), (1, 2), (2,), (0,), (1,), ()])
    async def test_flushed_text_of_a_dead_process_is_kept_exactly_once(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, flushed: tuple[int, ...]
    ) -> None:
        """Recorded and flushed in any order: no text twice, and none lost that is on disk."""
        gates = [Gate(), Gate(), Gate()]

        async def runner(turn: RunningTurn) -> None:
            turn.emit("One ")
            await gates[0].pass_through()
            turn.emit("two. ")
            await turn.add(call("look", "c"))
            await gates[1].pass_through()
            turn.emit("Three")
            await gates[2].pass_through()

        task = stage.start(chat.run(runner, "q", on_failure="keep"))
        await stage.reach(gates[0], task)
        id = await running(chat)
        for place, gate in enumerate(gates):
            await stage.reach(gate, task)
            if place in flushed:
                await here.flush()
            if place < 2:
                gate.release()
        elsewhere = await there.chat(chat)
        await stage.bury_others(there)
        [turn] = await elsewhere.turns()
        recorded = ["One two. ", "function_call", "function_call_output"]
        kept = [*recorded, "Three"] if 2 in flushed else recorded
        assert [item.text or item.type for item in turn.output] == kept
        events = await read_all(elsewhere, id)
        check_shape(events)
        assert spoken(events) == turn.text
        if 2 not in flushed:
            items = [bytes(each.item) for each in events if isinstance(each, ItemDone)]
            assert items == [item.raw for item in turn.output]
        await resumed_at_every_number(stage, elsewhere, id, events)

    async def test_flushed_text_of_a_failed_attempt_is_kept_as_its_partial_text(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await hold(stage, chat, ["So ", "far."])
        await here.flush()
        await stage.bury_others(there)
        [aside] = await same.attempts()
        assert aside.attempt.partial == "So far."

    async def test_flush_of_a_superseded_turn_ends_the_turn_as_superseded(self, stage: Stage) -> None:
        here, there = await stage.processes()
        here.store.ignores_hints = True
        chat = await here.chat()
        holder = await hold(stage, chat)
        reading = Reading(stage, chat, await running(chat))
        await stage.bury_others(there)
        await here.flush()
        with pytest.raises(Superseded):
            await soon(holder.task)
        events = await soon(reading.task)
        check_shape(events)
        assert isinstance(events[-1], TurnFinished)
        assert events[-1].state is AttemptState.FAILED

    @pytest.mark.parametrize("fate", [None, *Fate])
    async def test_flush_that_fails_is_repeated_and_leaves_the_turn_unharmed(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat, fate: Fate | None
    ) -> None:
        events: list[Event] = []
        gates = [Gate(), Gate()]
        script: list[Step] = ["One ", gates[0], "two", gates[1], " three"]
        task = stage.start(chat.run(ScriptedModel(script), "q", on_event=events.append))
        await stage.reach(gates[0], task)
        id = await running(chat)
        reading = Reading(stage, same, id)
        if fate is None:
            here.store.refuse(flush)
        else:
            here.store.lose_answer(flush, fate)
        await here.flush()
        gates[0].release()
        await stage.reach(gates[1], task)
        await here.flush()
        await here.flush()
        assert wire(await reading.until(3)) == wire(events)
        gates[1].release()
        await soon(task)
        assert wire(await soon(reading.task)) == wire(events)

    async def test_commit_does_not_wait_for_a_running_flush(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await hold(stage, chat)
        id = await running(chat)
        with here.store.hold(flush) as gate:
            flushing = stage.start(here.flush())
            await stage.reach(gate, flushing)
            turn = await holder.finish()
        await soon(flushing)
        assert await flushed_chunks(here, id) == 0
        assert await chat.turns() == [turn]

    async def test_slow_reader_receives_every_event_and_delays_no_other_reader(self, stage: Stage) -> None:
        here = await stage.process(SMALL)
        chat = await here.chat()
        gate, go_on = Gate(), Gate()
        words = [f"{number} " for number in range(700)]
        task = stage.start(chat.run(ScriptedModel([*words[:3], gate, *words[3:]]), "q"))
        await stage.reach(gate, task)
        id = await running(chat)
        events: list[Event] = []

        async def read_slowly() -> None:
            async for event in chat.events(id):
                events.append(event)
                if event.number == 2:
                    await go_on.pass_through()

        slow = stage.start(read_slowly())
        await stage.reach(go_on, slow)
        swift = Reading(stage, chat, id)
        gate.release()
        await soon(task)
        check_shape(await soon(swift.task))
        assert len(events) == 2
        go_on.release()
        await soon(slow)
        assert wire(events) == wire(swift.events) == wire(await read_all(chat, id))
        assert spoken(events) == "".join(words)

    async def test_reader_of_a_queued_turn_receives_its_events_once_it_begins(
        self, stage: Stage, chat: Chat, either: Chat
    ) -> None:
        holder = await hold(stage, chat)
        waiting = await stage.queue(chat, ScriptedModel(["Second."]), "second")
        [ticket] = await stage.tickets(chat)
        reading = Reading(stage, either, ticket.attempt)
        await holder.finish()
        await soon(waiting)
        events = await soon(reading.task)
        check_shape(events)
        assert spoken(events) == "Second."

    async def test_reader_of_a_withdrawn_queued_turn_ends_without_events(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await hold(stage, chat)
        waiting = await stage.queue(chat, ScriptedModel(["Second."]), "second")
        [ticket] = await stage.tickets(chat)
        readings = []
        for process in (here, there):
            with process.store.hold(read_turn_log, When.AFTER) as gate:
                readings.append(Reading(stage, await process.chat(chat), ticket.attempt))
                await stage.reach(gate, readings[-1].task)
        waiting.cancel()
        for reading in readings:
            assert await soon(reading.task) == []

    async def test_reader_of_a_stopped_queued_turn_receives_only_the_end(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await hold(stage, chat)
        await stage.queue(chat, ScriptedModel(["Second."]), "second")
        [ticket] = await stage.tickets(chat)
        reading = Reading(stage, same, ticket.attempt)
        await soon(chat.stop(ticket.attempt))
        assert await soon(reading.task) == [TurnFinished(number=1, state=AttemptState.DISCARDED)]

    async def test_reader_of_a_turn_in_doubt_waits_for_its_outcome(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await hold(stage, chat)
        id = await running(chat)
        readings = [Reading(stage, await each.chat(chat), id) for each in (here, there)]
        await readings[0].until(10)
        here.store.lose_answer(commit, Fate.WRITTEN)
        with here.store.hold(commit) as gate:
            holder.gate.release()
            await stage.reach(gate, holder.task)
            assert not any(reading.task.done() for reading in readings)
        await soon(holder.task)
        ours, theirs = [await soon(reading.task) for reading in readings]
        assert wire(ours) == wire(theirs) == wire(await read_all(chat, id))

    async def test_reader_of_a_turn_of_another_conversation_or_owner_raises_turn_not_found(
        self, stage: Stage, here: StageProcess, there: StageProcess
    ) -> None:
        chat, other = await here.chat(owner="ann"), await here.chat(owner="ann")
        foreign = await here.chat(owner="ben")
        done = await exchange(chat, "q")
        await hold(stage, chat)
        await stage.queue(chat, ScriptedModel(["Second."]), "second")
        [ticket] = await stage.tickets(chat)
        failed = await here.chat(owner="ann")
        await fail(failed, ScriptedModel([BOOM]), "q")
        [aside] = await failed.attempts()
        for turn in (done.id, await running(chat), ticket.attempt, aside.attempt.id, UNKNOWN):
            for process in (here, there):
                for stranger in (other, foreign):
                    with pytest.raises(TurnNotFound):
                        await read_all(await process.chat(stranger), turn)

    async def test_readers_raise_ledger_closed_when_the_ledger_closes(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await hold(stage, chat)
        await stage.queue(chat, ScriptedModel(["Second."]), "second")
        [ticket] = await stage.tickets(chat)
        id, elsewhere = await running(chat), same
        readings = [Reading(stage, elsewhere, id), Reading(stage, elsewhere, ticket.attempt)]
        await readings[0].until(1)
        await there.ledger.close()
        readings.append(Reading(stage, chat, id))
        await readings[2].until(10)
        await here.ledger.close()
        for reading in readings:
            with pytest.raises(LedgerClosed):
                await soon(reading.task)
        with pytest.raises(LedgerClosed):
            await read_all(chat, id)

    @pytest.mark.parametrize("purge", [False, True])
    async def test_reader_of_a_deleted_conversation_raises_conversation_deleted(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat, either: Chat, purge: bool
    ) -> None:
        done = await exchange(chat, "q")
        holder = await hold(stage, chat)
        id = await running(chat)
        await here.flush()
        reading = Reading(stage, same, id)
        await reading.until(2)
        await either.delete(purge=purge)
        with pytest.raises(ConversationDeleted):
            await soon(reading.task)
        with pytest.raises(ConversationDeleted):
            await soon(holder.task)
        with pytest.raises(ConversationDeleted):
            await read_all(chat, done.id)
        assert bool(await flushed_chunks(here, id)) is not purge

    async def test_readers_beyond_the_limit_are_refused_until_one_leaves(self, stage: Stage) -> None:
        here = await stage.process(SMALL)
        chat = await here.chat()
        holder = await hold(stage, chat)
        id = await running(chat)
        readings = [Reading(stage, chat, id) for _ in range(2)]
        for reading in readings:
            await reading.until(5)
        with pytest.raises(TooManyReaders):
            await read_all(chat, id)
        readings[0].task.cancel()
        await asyncio.wait((readings[0].task,))
        third = Reading(stage, chat, id)
        await third.until(5)
        await holder.finish()
        assert wire(await soon(third.task)) == wire(await soon(readings[1].task))
        process = here.ledger._process
        assert (process.readers, process.live_readers, process.begin_waiters) == (0, {}, {})

    async def test_negative_event_number_is_refused(self, chat: Chat) -> None:
        with pytest.raises(InvalidInput):
            chat.events(UNKNOWN, after=-1)


ENDS = Ends()


@ENDS.act(AttemptState.COMPLETED)
async def completes(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await soon(chat.run(ScriptedModel(SCRIPT), "q", on_event=sink))


@ENDS.act(AttemptState.COMPLETED)
async def answers_in_one_go(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await soon(chat.run(ScriptedModel(["Yes."]), "q", on_event=sink))


@ENDS.act(AttemptState.COMPLETED)
async def leaves_a_call(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await soon(chat.run(ScriptedModel(["Hm.", Ask("your_turn")]), "q", on_event=sink))


@ENDS.block(AttemptState.COMPLETED)
async def adds_an_answer(turn: RunningTurn) -> None:
    await turn.add({"role": "assistant", "content": "Yes."})


@ENDS.block(AttemptState.COMPLETED)
async def puts_a_call_behind_its_text(turn: RunningTurn) -> None:
    turn.emit("Let me see.")
    turn.put(call("look", "c"), call("look", "d"))


@ENDS.block(AttemptState.COMPLETED)
async def puts_a_call_and_no_text(turn: RunningTurn) -> None:
    await turn.add({"role": "assistant", "content": "Hm."})
    turn.put(call("look", "c"))


@ENDS.act(AttemptState.KEPT)
async def fails_behind_what_it_put(stage: Stage, chat: Chat, sink: EventSink) -> None:
    async def put_and_break(turn: RunningTurn) -> None:
        turn.emit("Let me see.")
        turn.put(call("look", "c"))
        raise BOOM

    await fail(chat, put_and_break, "q", on_failure="keep", on_event=sink)


@ENDS.act(AttemptState.COMPLETED)
async def emits_while_it_adds(stage: Stage, chat: Chat, sink: EventSink) -> None:
    here, _ = stage._processes
    async with chat.turn("q", on_event=sink) as turn:
        turn.emit("before ")
        with here.store.hold(record) as gate:
            adding = stage.start(turn.add(call("look", "c"), {"role": "assistant", "content": "own"}))
            await stage.reach(gate, adding)
            turn.emit("meanwhile ")
        await adding
        turn.emit("after")
        await turn.add({"type": "function_call_output", "call_id": "c", "output": "found"})


@ENDS.block(AttemptState.KEPT)
async def is_stopped_and_kept(turn: RunningTurn) -> None:
    turn.emit("Let me ")
    turn.emit("see")
    await turn.add(call("look", "c"))
    turn.emit("Half")
    turn.stop()


@ENDS.block(AttemptState.KEPT)
async def is_stopped_while_it_thinks(turn: RunningTurn) -> None:
    turn.emit("Let me see")
    await turn.add({"type": "reasoning", "summary": []})
    turn.stop()


@ENDS.act(AttemptState.KEPT)
async def fails_and_is_kept(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await fail(chat, ScriptedModel([*SCRIPT, BOOM]), "q", on_failure="keep", on_event=sink)


@ENDS.act(AttemptState.FAILED)
async def fails(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await fail(chat, ScriptedModel([*SCRIPT, BOOM]), "q", on_event=sink)


@ENDS.act(AttemptState.FAILED)
async def fails_and_is_settled(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await fails(stage, chat, sink)
    await exchange(chat, "next")
    assert (await chat.turns())[0].kind is TurnKind.SETTLED


@ENDS.act(AttemptState.FAILED)
async def fails_and_is_forgotten(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await fail(chat, ScriptedModel([*SCRIPT, BOOM]), "q", on_failure="forget", on_event=sink)
    await exchange(chat, "next")


@ENDS.act(AttemptState.FAILED)
async def fails_and_is_resumed(stage: Stage, chat: Chat, sink: EventSink) -> None:
    model = ScriptedModel([*SCRIPT, BOOM], [*SCRIPT, "again"])
    await fail(chat, model, "q", idempotency_key="i", on_event=sink)
    await soon(chat.run(model, "q", idempotency_key="i"))


@ENDS.act(AttemptState.COMPLETED)
async def resumes(stage: Stage, chat: Chat, sink: EventSink) -> None:
    model = ScriptedModel([*SCRIPT, BOOM], [*SCRIPT, "again"])
    await fail(chat, model, "q", idempotency_key="i")
    await soon(chat.run(model, "q", idempotency_key="i", on_event=sink))


@ENDS.block(AttemptState.DISCARDED)
async def is_discarded(turn: RunningTurn) -> None:
    await ScriptedModel(SCRIPT)(turn)
    turn.stop("discard")


@ENDS.act(AttemptState.DISCARDED)
async def is_discarded_and_settled(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await is_discarded(stage, chat, sink)
    await exchange(chat, "next")


async def _before_it_knows(
    stage: Stage,
    chat: Chat,
    ending: Coroutine[Any, Any, None],
    meanwhile: Callable[[Chat], Awaitable[object]],
) -> None:
    """Act in another process after a turn has ended and before its holder knows."""
    here, there = stage._processes
    with here.store.hold(end, When.AFTER) as gate:
        here.store.lose_answer(end, Fate.WRITTEN)
        task = stage.start(ending)
        await stage.reach(gate, task)
        await meanwhile(await there.chat(chat))
    await soon(task)


@ENDS.act(AttemptState.DISCARDED)
async def is_discarded_and_settled_before_it_knows(stage: Stage, chat: Chat, sink: EventSink) -> None:
    discarding = is_discarded(stage, chat, sink)
    await _before_it_knows(stage, chat, discarding, lambda other: exchange(other, "next"))
    assert (await chat.turns())[0].kind is TurnKind.SETTLED


@ENDS.act(AttemptState.FAILED)
async def fails_and_is_resumed_before_it_knows(stage: Stage, chat: Chat, sink: EventSink) -> None:
    model = ScriptedModel([*SCRIPT, BOOM], [*SCRIPT, "again"])
    failing = fail(chat, model, "q", idempotency_key="i", on_event=sink)
    await _before_it_knows(stage, chat, failing, lambda other: other.run(model, "q", idempotency_key="i"))
    [attempt] = await chat.attempts()
    assert attempt.attempt.state is AttemptState.RESUMED


class TestEventEnds:
    @ENDS.each
    async def test_events_read_after_the_end_equal_the_events_sent_live(
        self, stage: Stage, act: Any, state: AttemptState
    ) -> None:
        await check_read_back(stage, act, state)

    @pytest.mark.parametrize("act", [fails, is_discarded])
    async def test_events_of_a_settled_turn_read_the_same_in_forks_copies_and_after_cleanup(
        self, stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, act: Any
    ) -> None:
        first = await exchange(chat, "first")
        events: list[Event] = []
        await soon(act(stage, chat, events.append))
        await exchange(chat, "next")
        settled = next(turn for turn in await chat.turns() if turn.kind is TurnKind.SETTLED)
        fork = await chat.fork()
        async with chat.edit(first.id, "first, but better") as turn:
            turn.emit("Yes.")
        [copy] = [turn for turn in await chat.turns() if turn.kind is TurnKind.SETTLED]
        assert copy.id != settled.id

        async def everybody_reads_the_same() -> None:
            for reader, id in ((chat, settled.id), (fork, settled.id), (chat, copy.id)):
                assert wire(await read_all(await there.chat(reader), id)) == wire(events)

        await everybody_reads_the_same()
        stage.clock.advance(LIMITS.attempts_kept + 1)
        await here.tend()
        assert await chat.attempts() == []
        await everybody_reads_the_same()

    async def test_events_of_a_record_in_doubt_are_sent_with_the_end(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        events: list[Event] = []
        ids: list[TurnId] = []
        here.store.lose_answer(record, *[Fate.WRITTEN] * 5)

        async def runner(turn: RunningTurn) -> None:
            ids.append(turn.id)
            turn.emit("Let me see.")
            await turn.add(call("look", "c"))

        with pytest.raises(OutcomeUnknown):
            await chat.run(runner, "q", on_failure="keep", on_event=events.append)
        [kept] = await chat.turns()
        assert [item.text or item.type for item in kept.output] == [
            "Let me see.",
            "function_call",
            "function_call_output",
        ]
        check_shape(events)
        assert wire(await read_all(chat, ids[0])) == wire(events)
