"""Reasoning, refusals and arguments of calls are read the same during and after a turn, from any number."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import pytest

from tests.engine.views import (
    BOOM,
    Ends,
    Reading,
    check_read_back,
    check_shape,
    read_all,
    resumed_at_every_number,
    running,
    wire,
)
from turnledger.chat import Chat
from turnledger.engine.events.live_log import EventSink
from turnledger.engine.limits import Limits
from turnledger.engine.process import TRIES
from turnledger.engine.turn.running_turn import RunningTurn, record
from turnledger.errors import InvalidInput, MalformedItems, StoreUnavailable
from turnledger.model.event import (
    ArgumentsDelta,
    Event,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnFinished,
    TurnResumed,
)
from turnledger.model.item import Item, call_of, message, reasoning, refusal, result_of
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Gate
from turnledger.testing.store_contract.effects import fail
from turnledger.testing.store_contract.stage import LIMITS, Stage, StageProcess, call, exchange, soon

ROME = call_of("function_call", "c", "look", '{"city": "Rome"}')
RESULT = result_of(ROME, "found")
SIGNED = Item.of({**ROME.fields, "signature": "s"})
THOUGHT = reasoning("Where to \U0001f600?")


def think(turn: RunningTurn) -> None:
    turn.emit_reasoning("Where ")
    turn.emit_reasoning("to \U0001f600?")


def ask(turn: RunningTurn, call_id: str = "c") -> None:
    turn.begin_call(call_id, "look")
    turn.emit_arguments(call_id, '{"city": ')
    turn.emit_arguments(call_id, '"Rome"}')


async def find() -> str:
    return "found"


ENDS = Ends()


@ENDS.block(AttemptState.COMPLETED, [THOUGHT, message("assistant", "To Rome.")])
async def thinks_and_answers(turn: RunningTurn) -> None:
    think(turn)
    turn.emit("To ")
    turn.emit("Rome.")


@ENDS.block(
    AttemptState.COMPLETED, [reasoning("Where to \U0001f600? Yes."), message("assistant", "To Rome.")]
)
async def thinks_between_texts(turn: RunningTurn) -> None:
    turn.emit("To ")
    think(turn)
    turn.emit("Rome.")
    turn.emit_reasoning(" Yes.")


@ENDS.block(AttemptState.COMPLETED, [THOUGHT, refusal("I cannot.")])
async def refuses(turn: RunningTurn) -> None:
    think(turn)
    turn.emit_refusal("I can")
    turn.emit_refusal("not.")


@ENDS.block(
    AttemptState.COMPLETED,
    [
        message("assistant", "Let me see."),
        ROME,
        call_of("custom_tool_call", "d", "run", "ls -l"),
        call_of("function_call", "e", "wait"),
    ],
)
async def leaves_interleaved_calls(turn: RunningTurn) -> None:
    turn.emit("Let me see.")
    turn.begin_call("c", "look")
    turn.begin_call("d", "run", type="custom_tool_call")
    turn.emit_arguments("c", '{"city": ')
    turn.emit_arguments("d", "ls")
    turn.emit_arguments("d", " -l")
    turn.emit_arguments("c", '"Rome"}')
    turn.begin_call("e", "wait")
    turn.emit_arguments("c", "")


@ENDS.block(AttemptState.COMPLETED, [*[THOUGHT, "message", ROME, RESULT] * 3, "message"])
async def runs_the_calls_it_opened(turn: RunningTurn) -> None:
    for number in range(3):
        think(turn)
        turn.emit(f"Step {number}. ")
        ask(turn)
        await turn.call(ROME, find)
    turn.emit("Done.")


@ENDS.block(
    AttemptState.COMPLETED,
    [
        ROME,
        RESULT,
        call_of("function_call", "e", "look", '{"city": 2}'),
        "function_call_output",
        call_of("function_call", "d", "look", '{"city": 1}'),
    ],
)
async def streams_calls_in_parallel(turn: RunningTurn) -> None:
    for call_id in ("c", "d", "e"):
        turn.begin_call(call_id, "look")
    for call_id in ("c", "d", "e"):
        turn.emit_arguments(call_id, '{"city": ')
    turn.emit_arguments("c", '"Rome"}')
    await turn.call(ROME, find)
    turn.emit_arguments("d", "1}")
    turn.emit_arguments("e", "2}")
    await turn.add({"type": "function_call_output", "call_id": "e", "output": "found"})


@ENDS.block(AttemptState.COMPLETED, [SIGNED])
async def puts_a_call_with_more_fields(turn: RunningTurn) -> None:
    ask(turn)
    turn.put(SIGNED)


@ENDS.block(AttemptState.COMPLETED, ["reasoning", "reasoning", "function_call", RESULT, "message"])
async def adds_other_items_than_it_emitted(turn: RunningTurn) -> None:
    summary = {"type": "reasoning", "id": "r", "summary": [{"type": "summary_text", "text": "In short"}]}
    think(turn)
    await turn.add(summary)
    turn.emit_reasoning("Again.")
    ask(turn)
    await turn.add({**ROME.fields, "arguments": "{}"})
    await turn.add({"type": "function_call_output", "call_id": "c", "output": "found"})
    turn.emit_refusal("No")
    turn.put({**refusal("No, never.").fields, "id": "m"})


@ENDS.act(AttemptState.COMPLETED)
async def emits_while_it_adds(stage: Stage, chat: Chat, sink: EventSink) -> None:
    here, _ = stage._processes
    async with chat.turn("q", on_event=sink) as turn:
        think(turn)
        turn.emit("before ")
        ask(turn)
        with here.store.hold(record) as gate:
            adding = stage.start(turn.add())
            await stage.reach(gate, adding)
            turn.emit_reasoning("meanwhile")
            turn.emit("meanwhile ")
            with pytest.raises(MalformedItems):
                turn.emit_arguments("c", "more")
        await adding
        await turn.add({"type": "function_call_output", "call_id": "c", "output": "found"})
        turn.emit("after")


@ENDS.block(AttemptState.KEPT, [THOUGHT, message("assistant", "Let me see", status="incomplete")])
async def is_stopped_within_a_call(turn: RunningTurn) -> None:
    think(turn)
    turn.emit("Let me see")
    ask(turn)
    turn.begin_call("d", "look")
    turn.emit_arguments("d", '{"ci')
    turn.stop()


@ENDS.block(AttemptState.KEPT, ["message", "function_call", "function_call_output"])
async def is_stopped_while_it_thinks(turn: RunningTurn) -> None:
    turn.emit("First.")
    await turn.call(call("look", "c"), find)
    think(turn)
    turn.stop()


@ENDS.block(AttemptState.KEPT, [])
async def is_stopped_after_its_reasoning_was_added(turn: RunningTurn) -> None:
    think(turn)
    await turn.add()
    turn.stop()


@ENDS.block(AttemptState.KEPT, [ROME, "function_call_output", reasoning("So:"), "message"])
async def is_stopped_between_two_thoughts(turn: RunningTurn) -> None:
    ask(turn)
    await turn.add()
    think(turn)
    await turn.add()  # its item never comes: the result of the call does
    turn.emit_reasoning("So:")
    turn.emit("Half")
    turn.stop()


@ENDS.block(AttemptState.KEPT, [])
async def is_stopped_after_a_thought_that_was_given(turn: RunningTurn) -> None:
    await turn.add(reasoning("Given."))
    think(turn)
    turn.stop()


@ENDS.block(AttemptState.KEPT, [THOUGHT, refusal("I can", status="incomplete")])
async def is_stopped_within_a_refusal(turn: RunningTurn) -> None:
    think(turn)
    turn.emit_refusal("I can")
    turn.stop()


@ENDS.act(AttemptState.KEPT)
async def fails_and_is_kept(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await fail(chat, thinks_asks_and_breaks, "q", on_failure="keep", on_event=sink)


async def thinks_asks_and_breaks(turn: RunningTurn) -> None:
    think(turn)
    ask(turn)
    await turn.call(ROME, find)
    think(turn)
    turn.emit("Half")
    ask(turn, "d")
    raise BOOM


@ENDS.act(AttemptState.FAILED)
async def fails(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await fail(chat, thinks_asks_and_breaks, "q", on_event=sink)


@ENDS.act(AttemptState.FAILED)
async def fails_and_is_settled(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await fails(stage, chat, sink)
    await exchange(chat, "next")
    assert (await chat.turns())[0].kind is TurnKind.SETTLED


@ENDS.block(AttemptState.DISCARDED)
async def is_discarded(turn: RunningTurn) -> None:
    think(turn)
    ask(turn)
    turn.stop("discard")


@ENDS.block(
    AttemptState.COMPLETED,
    [THOUGHT, "message", ROME, RESULT, message("assistant", "Kept."), "function_call"],
)
async def is_resumed(turn: RunningTurn) -> None:
    think(turn)
    turn.emit("Step. ")
    ask(turn)
    await turn.call(ROME, find)
    think(turn)
    turn.emit("Lost ")
    ask(turn, "d")
    turn._open.void_since_last_item()
    turn.emit("Kept.")
    ask(turn, "d")


@ENDS.block(AttemptState.COMPLETED, [message("assistant", "Kept.")])
async def is_resumed_with_text_alone(turn: RunningTurn) -> None:
    turn.emit("Lost ")
    turn._open.void_since_last_item()
    turn.emit("Kept.")


async def _take_up(chat: Chat, sink: EventSink, end: Callable[[RunningTurn], None]) -> None:
    async def run(turn: RunningTurn) -> None:
        if turn.is_resumed:
            turn.emit("Done.")
            end(turn)
            return
        think(turn)
        turn.emit("Let ")
        turn.emit("me look. ")
        await turn.call(ROME, find)
        await turn.add(message("assistant", "Found. "), reasoning(""))
        turn.emit_refusal("Not that.")
        await turn.add(ROME)
        raise BOOM

    await fail(chat, run, "q", idempotency_key="i")
    await soon(chat.run(run, "q", idempotency_key="i", on_event=sink))


@ENDS.act(AttemptState.COMPLETED)
async def takes_up_a_failed_attempt(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await _take_up(chat, sink, lambda turn: None)


@ENDS.act(AttemptState.KEPT)
async def takes_up_a_failed_attempt_and_is_stopped(stage: Stage, chat: Chat, sink: EventSink) -> None:
    await _take_up(chat, sink, lambda turn: turn.stop())


@ENDS.act(AttemptState.FAILED)
async def takes_up_a_failed_attempt_and_fails(stage: Stage, chat: Chat, sink: EventSink) -> None:
    def break_down(turn: RunningTurn) -> None:
        raise BOOM

    with pytest.raises(RuntimeError):
        await _take_up(chat, sink, break_down)


@ENDS.each
async def test_events_of_every_kind_are_read_after_the_end_as_they_were_sent(
    stage: Stage, act: Any, state: AttemptState
) -> None:
    await check_read_back(stage, act, state)


async def test_retry_sends_the_text_of_each_item_that_it_takes_over_as_one_delta(stage: Stage) -> None:
    events = await check_read_back(stage, takes_up_a_failed_attempt, AttemptState.COMPLETED)
    texts = [event.text for event in events if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta)]
    assert texts == ["Where to \U0001f600?", "Let me look. ", "Found. ", "Not that.", "Done."]
    for event, done in pairwise(events):
        if isinstance(event, TextDelta | RefusalDelta | ReasoningDelta):
            assert isinstance(done, ItemDone)
            assert Item(done.item).body == event.text


async def test_turn_sends_each_kind_of_delta_and_at_last_its_items(stage: Stage) -> None:
    async def act(stage: Stage, chat: Chat, sink: EventSink) -> None:
        async with chat.turn("q", on_event=sink) as turn:
            think(turn)
            turn.emit("Let me see.")
            ask(turn)

    events = await check_read_back(stage, act, AttemptState.COMPLETED)
    assert [type(event) for event in events[1:]] == [
        ReasoningDelta,
        ReasoningDelta,
        TextDelta,
        ItemAdded,
        ArgumentsDelta,
        ArgumentsDelta,
        *[ItemDone] * 3,
        TurnFinished,
    ]
    opened, first = events[4], events[5]
    assert isinstance(opened, ItemAdded)
    assert Item(opened.item) == call_of("function_call", "c", "look")
    assert isinstance(first, ArgumentsDelta)
    assert (first.call_id, first.text) == ("c", '{"city": ')


@pytest.mark.parametrize("reader_events", [1_000, 4])
async def test_running_turn_of_every_kind_is_read_from_any_number_here_and_elsewhere(
    stage: Stage, reader_events: int
) -> None:
    limits = Limits(
        lease_time=LIMITS.lease_time,
        queue_wait=LIMITS.queue_wait,
        flush_every=LIMITS.flush_every,
        reader_events=reader_events,
    )
    here, there = await stage.processes(limits=limits)
    chat = await here.chat()
    events: list[Event] = []
    gates = [Gate() for _ in range(5)]

    async def run(turn: RunningTurn) -> None:
        turn.emit("First, ")
        await gates[0].pass_through()
        turn.emit("text. ")
        think(turn)
        turn.begin_call("c", "look")
        turn.begin_call("d", "look")
        turn.emit_arguments("c", '{"ci')
        await gates[1].pass_through()
        turn.emit_arguments("d", "{}")
        turn.emit_arguments("c", 'ty": "Rome"}')
        for number in range(600):
            turn.emit_reasoning(f"{number} ")
        await gates[2].pass_through()
        await turn.call(ROME, find)
        await turn.add()
        turn._open.void_since_last_item()
        await gates[3].pass_through()
        await turn.add({"type": "function_call_output", "call_id": "d", "output": "x"})
        turn.emit("Done.")
        await gates[4].pass_through()

    task = stage.start(chat.run(run, "q", on_event=events.append))
    await stage.reach(gates[0], task)
    id, elsewhere = await running(chat), await there.chat(chat)
    afters = [0, 1, 2, 5, 7, 300, 615, 616, 617, 618, 620]
    readings = [(Reading(stage, each, id, after), after) for after in afters for each in (chat, elsewhere)]
    for gate in gates:
        await stage.reach(gate, task)
        await here.flush()
        so_far = len(events)
        for reading, after in readings:
            if after < so_far:
                assert wire(await reading.until(so_far)) == wire(events[after:so_far])
        gate.release()
    await soon(task)
    check_shape(events)
    assert sum(isinstance(event, TurnResumed) for event in events) == 1
    for reading, after in readings:
        assert wire(await soon(reading.task)) == wire(events[after:] or events[-1:])
    assert wire(await read_all(elsewhere, id)) == wire(events)


@pytest.mark.parametrize("flushed", [(0, 1, 2, 3), (1, 3), (3,), (2,), (0,), (1,)])
async def test_flushed_parts_of_a_dead_process_are_kept_well_formed_and_read_the_same(
    stage: Stage, here: StageProcess, there: StageProcess, chat: Chat, same: Chat, flushed: Sequence[int]
) -> None:
    """Recorded and flushed in any order: no part twice, none lost that is on disk, and no half call."""
    gates = [Gate() for _ in range(4)]

    async def run(turn: RunningTurn) -> None:
        turn.emit_reasoning("Hm. ")
        turn.emit("One ")
        await gates[0].pass_through()
        turn.emit_reasoning("Yes. ")
        turn.emit("two. ")
        ask(turn)
        await turn.call(ROME, find)
        await gates[1].pass_through()
        think(turn)
        await gates[2].pass_through()
        turn.emit("Three")
        ask(turn, "d")
        await gates[3].pass_through()

    task = stage.start(chat.run(run, "q", on_failure="keep"))
    await stage.reach(gates[0], task)
    id = await running(chat)
    for place, gate in enumerate(gates):
        await stage.reach(gate, task)
        if place in flushed:
            await here.flush()
        if place < 3:
            gate.release()
    seen = Reading(stage, same, id)
    await stage.bury_others(there)
    [turn] = await same.turns()
    journaled = [reasoning("Hm. Yes. "), "One two. ", "function_call", "function_call_output"]
    half = [reasoning("Where to \U0001f600?"), "Three"] if 3 in flushed else []
    shown = [item if item.is_reasoning else item.text or item.type for item in turn.output]
    assert shown == [*journaled, *half]
    events = await read_all(same, id)
    check_shape(events)
    done = [bytes(event.item) for event in events if isinstance(event, ItemDone)]
    assert done == [item.raw for item in turn.output]
    assert wire(await soon(seen.task)) == wire(events)
    await resumed_at_every_number(stage, same, id, events)


async def test_halves_of_a_character_are_joined_in_every_kind(stage: Stage, chat: Chat) -> None:
    first, second = "\ud83d", "\ude00"
    async with chat.turn("q") as turn:
        for emit in (turn.emit_reasoning, turn.emit, turn.emit_refusal):
            emit(first)
        turn.begin_call("c", "look")
        turn.emit_arguments("c", first)
        turn.emit_arguments("c", second)
        for emit in (turn.emit_reasoning, turn.emit, turn.emit_refusal):
            emit(second)
    assert turn.turn is not None
    assert [item.body for item in turn.turn.output] == ["\U0001f600"] * 4


async def test_resumed_turn_drops_the_open_call_that_an_earlier_attempt_recorded(chat: Chat) -> None:
    async def run(turn: RunningTurn) -> None:
        ask(turn)
        result = await turn.call(ROME, find)
        if not turn.is_resumed:
            raise BOOM
        turn.emit(result.fields["output"])

    await fail(chat, run, "q", idempotency_key="i")
    turn = await soon(chat.run(run, "q", idempotency_key="i"))
    assert [item.type for item in turn.output] == ["function_call", "function_call_output", "message"]


async def test_call_can_be_continued_after_an_add_that_failed(stage: Stage, chat: Chat) -> None:
    process = stage._processes[0]
    async with chat.turn("q") as turn:
        turn.begin_call("c", "look")
        turn.emit_arguments("c", "{")
        with pytest.raises(MalformedItems):
            await turn.add({"type": "function_call_output", "call_id": "x", "output": ""})
        process.store.refuse(record, times=TRIES)
        with pytest.raises(StoreUnavailable):
            await turn.add()
        turn.emit_arguments("c", "}")
    assert turn.turn is not None
    assert [item.body for item in turn.turn.output] == ["{}"]


async def test_emitting_to_a_call_that_is_not_open_is_refused(chat: Chat) -> None:
    async with chat.turn("q") as turn:
        with pytest.raises(MalformedItems, match="begin_call"):
            turn.emit_arguments("c", "{}")
        ask(turn)
        with pytest.raises(MalformedItems, match="reused"):
            turn.begin_call("c", "look")
        with pytest.raises(MalformedItems, match="custom_tool_call"):
            turn.begin_call("d", "look", type="web_search_call")
        with pytest.raises(MalformedItems):
            turn.begin_call("", "look")
        turn.put(ROME)
        for late in (turn.emit_reasoning, turn.emit_refusal, turn.emit):
            with pytest.raises(InvalidInput):
                late("x")
        with pytest.raises(InvalidInput):
            turn.begin_call("d", "look")


async def test_turn_that_only_thinks_cannot_be_completed(chat: Chat) -> None:
    with pytest.raises(MalformedItems):
        async with chat.turn("q") as turn:
            think(turn)
    assert await chat.turns() == []


async def test_all_kinds_together_are_bounded_by_the_size_of_a_turn(stage: Stage) -> None:
    here = await stage.process(Limits(turn_bytes=2_000))
    chat = await here.chat()
    with pytest.raises(MalformedItems, match="2000 bytes"):
        async with chat.turn("q") as turn:
            turn.begin_call("c", "look")
            for _ in range(100):
                turn.emit("x" * 10)
                turn.emit_reasoning("x" * 10)
                turn.emit_arguments("c", "x" * 10)
