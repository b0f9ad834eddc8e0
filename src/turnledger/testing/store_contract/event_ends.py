"""However a turn ends, what is read of it later is what was told when it ran, byte for byte."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.end import end
from turnledger.engine.turn.running_turn import RunningTurn, record
from turnledger.errors import (
    OutcomeUnknown,
)
from turnledger.model.attempt import AttemptState
from turnledger.model.event import Event, ItemDone, TurnFinished
from turnledger.model.ids import TurnId
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Fate, When
from turnledger.testing.scripted_model import Ask, ScriptedModel
from turnledger.testing.store_contract.readers import (
    BOOM,
    SCRIPT,
    check_shape,
    read_all,
    resumed_at_every_number,
    spoken,
    wire,
)
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, call, exchange, soon


async def completes(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    await soon(chat.run(ScriptedModel(SCRIPT), "q", on_event=told))


async def answers_in_one_go(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    await soon(chat.run(ScriptedModel(["Yes."]), "q", on_event=told))


async def leaves_a_call(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    await soon(chat.run(ScriptedModel(["Hm.", Ask("your_turn")]), "q", on_event=told))


async def adds_an_answer(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    async with chat.turn("q", on_event=told) as turn:
        await turn.add({"role": "assistant", "content": "Yes."})


async def puts_a_call_behind_its_text(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    async with chat.turn("q", on_event=told) as turn:
        turn.emit("Let me see.")
        turn.put(call("look", "c"), call("look", "d"))


async def puts_a_call_and_no_text(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    async with chat.turn("q", on_event=told) as turn:
        await turn.add({"role": "assistant", "content": "Hm."})
        turn.put(call("look", "c"))


async def fails_behind_what_it_put(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    async def put_and_break(turn: RunningTurn) -> None:
        turn.emit("Let me see.")
        turn.put(call("look", "c"))
        raise BOOM

    with pytest.raises(RuntimeError):
        await soon(chat.run(put_and_break, "q", on_failure="keep", on_event=told))


async def emits_while_it_adds(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    process = next(each for each in stage._processes if each.ledger._process is chat._process)
    async with chat.turn("q", on_event=told) as turn:
        turn.emit("before ")
        with process.store.hold(record) as gate:
            adding = stage.start(turn.add(call("look", "c"), {"role": "assistant", "content": "own"}))
            await stage.reach(gate, adding)
            turn.emit("meanwhile ")
        await adding
        turn.emit("after")
        await turn.add({"type": "function_call_output", "call_id": "c", "output": "found"})


async def is_stopped_and_kept(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    async with chat.turn("q", on_event=told) as turn:
        turn.emit("Let me ")
        turn.emit("see")
        await turn.add(call("look", "c"))
        turn.emit("Half")
        turn.stop()


async def is_stopped_while_it_thinks(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    async with chat.turn("q", on_event=told) as turn:
        turn.emit("Let me see")
        await turn.add({"type": "reasoning", "summary": []})
        turn.stop()


async def fails_and_is_kept(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    with pytest.raises(RuntimeError):
        await soon(chat.run(ScriptedModel([*SCRIPT, BOOM]), "q", on_failure="keep", on_event=told))


async def fails(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    with pytest.raises(RuntimeError):
        await soon(chat.run(ScriptedModel([*SCRIPT, BOOM]), "q", on_event=told))


async def fails_and_is_settled(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    await fails(stage, chat, told)
    await exchange(chat, "next")
    assert (await chat.turns())[0].kind is TurnKind.SETTLED


async def fails_and_is_forgotten(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    with pytest.raises(RuntimeError):
        await soon(chat.run(ScriptedModel([*SCRIPT, BOOM]), "q", on_failure="forget", on_event=told))
    await exchange(chat, "next")


async def fails_and_is_resumed(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    model = ScriptedModel([*SCRIPT, BOOM], [*SCRIPT, "again"])
    with pytest.raises(RuntimeError):
        await soon(chat.run(model, "q", idempotency_key="i", on_event=told))
    await soon(chat.run(model, "q", idempotency_key="i"))


async def resumes(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    model = ScriptedModel([*SCRIPT, BOOM], [*SCRIPT, "again"])
    with pytest.raises(RuntimeError):
        await soon(chat.run(model, "q", idempotency_key="i"))
    await soon(chat.run(model, "q", idempotency_key="i", on_event=told))


async def is_discarded(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    async with chat.turn("q", on_event=told) as turn:
        await ScriptedModel(SCRIPT)(turn)
        turn.stop("discard")


async def is_discarded_and_settled(stage: Stage, chat: Chat, told: Callable[[Event], None]) -> None:
    await is_discarded(stage, chat, told)
    await exchange(chat, "next")


async def _before_it_knows(
    stage: Stage,
    chat: Chat,
    ending: Coroutine[Any, Any, None],
    meanwhile: Callable[[Chat], Awaitable[object]],
) -> None:
    """Let something happen in another process when a turn has ended, and its holder has not heard of it."""
    process = next(each for each in stage._processes if each.ledger._process is chat._process)
    other = next(each for each in stage._processes if each is not process)
    with process.store.hold(end, When.AFTER) as gate:
        process.store.lose_answer(end, Fate.WRITTEN)
        task = stage.start(ending)
        await stage.reach(gate, task)
        await meanwhile(await other.chat(chat))
    await soon(task)


async def is_discarded_and_settled_before_it_knows(
    stage: Stage, chat: Chat, told: Callable[[Event], None]
) -> None:
    discarding = is_discarded(stage, chat, told)
    await _before_it_knows(stage, chat, discarding, lambda other: exchange(other, "next"))
    assert (await chat.turns())[0].kind is TurnKind.SETTLED


async def fails_and_is_resumed_before_it_knows(
    stage: Stage, chat: Chat, told: Callable[[Event], None]
) -> None:
    model = ScriptedModel([*SCRIPT, BOOM], [*SCRIPT, "again"])

    async def fail() -> None:
        with pytest.raises(RuntimeError):
            await chat.run(model, "q", idempotency_key="i", on_event=told)

    await _before_it_knows(stage, chat, fail(), lambda other: other.run(model, "q", idempotency_key="i"))
    [attempt] = await chat.attempts()
    assert attempt.attempt.state is AttemptState.RESUMED


ENDS = [
    (completes, AttemptState.COMPLETED),
    (answers_in_one_go, AttemptState.COMPLETED),
    (leaves_a_call, AttemptState.COMPLETED),
    (adds_an_answer, AttemptState.COMPLETED),
    (puts_a_call_behind_its_text, AttemptState.COMPLETED),
    (puts_a_call_and_no_text, AttemptState.COMPLETED),
    (emits_while_it_adds, AttemptState.COMPLETED),
    (resumes, AttemptState.COMPLETED),
    (is_stopped_and_kept, AttemptState.KEPT),
    (is_stopped_while_it_thinks, AttemptState.KEPT),
    (fails_and_is_kept, AttemptState.KEPT),
    (fails_behind_what_it_put, AttemptState.KEPT),
    (fails, AttemptState.FAILED),
    (fails_and_is_settled, AttemptState.FAILED),
    (fails_and_is_forgotten, AttemptState.FAILED),
    (fails_and_is_resumed, AttemptState.FAILED),
    (fails_and_is_resumed_before_it_knows, AttemptState.FAILED),
    (is_discarded, AttemptState.DISCARDED),
    (is_discarded_and_settled, AttemptState.DISCARDED),
    (is_discarded_and_settled_before_it_knows, AttemptState.DISCARDED),
]
every_end = pytest.mark.parametrize(("act", "state"), ENDS, ids=[act.__name__ for act, _ in ENDS])


class EventEnds(Contract):
    @every_end
    async def test_what_is_read_later_is_what_was_told(
        self, stage: Stage, act: Any, state: AttemptState
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        told: list[Event] = []
        turns: list[TurnId] = []

        def sink(event: Event) -> None:
            told.append(event)
            turns[:] = turns or list(here.ledger._process.mine)

        await soon(act(stage, chat, sink))
        check_shape(told)
        assert isinstance(told[-1], TurnFinished)
        assert told[-1].state is state
        for process in (here, there):
            assert wire(await read_all(await process.chat(chat), turns[0])) == wire(told)
        await resumed_at_every_number(stage, await there.chat(chat), turns[0], told)

    @pytest.mark.parametrize("act", [fails, is_discarded])
    async def test_a_settled_turn_is_read_the_same_by_everybody_at_all_times(
        self, stage: Stage, act: Any
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first = await exchange(chat, "first")
        told: list[Event] = []
        await soon(act(stage, chat, told.append))
        await exchange(chat, "next")
        settled = next(turn for turn in await chat.turns() if turn.kind is TurnKind.SETTLED)
        fork = await chat.fork()
        async with chat.edit(first.id, "first, but better") as turn:
            turn.emit("Yes.")
        [copy] = [turn for turn in await chat.turns() if turn.kind is TurnKind.SETTLED]
        assert copy.id != settled.id

        async def everybody_reads_the_same() -> None:
            for reader, id in ((chat, settled.id), (fork, settled.id), (chat, copy.id)):
                assert wire(await read_all(await there.chat(reader), id)) == wire(told)

        await everybody_reads_the_same()
        stage.clock.advance(LIMITS.attempts_kept + 1)
        await here.tend()
        assert await chat.attempts() == []
        await everybody_reads_the_same()

    async def test_the_items_that_were_told_are_the_output_of_the_turn(self, stage: Stage) -> None:
        chat = await (await stage.process()).chat()
        turn = await soon(chat.run(ScriptedModel(SCRIPT), "q"))
        events = await read_all(chat, turn.id)
        items = [bytes(event.item) for event in events if isinstance(event, ItemDone)]
        assert items == [item.raw for item in turn.output]
        assert spoken(events) == turn.text

    async def test_what_was_recorded_in_doubt_is_told_with_the_end(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        told: list[Event] = []
        ids: list[TurnId] = []
        here.store.lose_answer(record, *[Fate.WRITTEN] * 5)

        async def runner(turn: RunningTurn) -> None:
            ids.append(turn.id)
            turn.emit("Let me see.")
            await turn.add(call("look", "c"))

        with pytest.raises(OutcomeUnknown):
            await chat.run(runner, "q", on_failure="keep", on_event=told.append)
        [kept] = await chat.turns()
        assert [item.text or item.type for item in kept.output] == [
            "Let me see.",
            "function_call",
            "function_call_output",
        ]
        check_shape(told)
        assert wire(await read_all(chat, ids[0])) == wire(told)
