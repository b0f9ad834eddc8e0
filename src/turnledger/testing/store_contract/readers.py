"""The readers of a turn: all receive the same events; a turn that nobody reads gives way to others."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.client_retries import record_deliveries
from turnledger.engine.attempt.give_way import give_way, note_read
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import TurnAttached, TurnStopped
from turnledger.hosting import Host, Retry
from turnledger.model.event import (
    ArgumentsDelta,
    Event,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnFinished,
    TurnStarted,
)
from turnledger.model.ids import TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import LIMITS, Contract, Stage, StageProcess, soon

RESULT = {"type": "function_call_output", "call_id": "c", "output": "rain"}


class Broken(Exception):
    """The runner failed."""


async def first_events(chat: Chat, id: TurnId, count: int) -> list[Event]:
    events: list[Event] = []
    async for event in chat.events(id):
        events.append(event)
        if len(events) == count:
            break
    return events


class Events(Contract):
    @pytest.mark.parametrize("ending", ["completed", "kept", "failed"])
    async def test_deltas_of_every_kind_are_read_alike_in_every_process(
        self, stage: Stage, ending: str
    ) -> None:
        here, there = await stage.processes()
        chat, sent = await here.chat(), list[Event]()
        same = await there.chat(chat)
        with pytest.raises(Broken) if ending == "failed" else nullcontext():
            async with chat.turn("q", on_event=sent.append) as turn:
                turn.emit_reasoning("Rain? ")
                turn.emit("Let me ")
                await here.flush()
                turn.emit("see.")
                turn.begin_call("c", "look")
                turn.emit_arguments("c", "{}")
                await here.flush()
                await turn.add()
                await turn.add(RESULT)
                turn.emit_refusal("I cannot say.")
                await here.flush()
                assert await soon(first_events(same, turn.id, len(sent))) == sent
                if ending == "kept":
                    turn.stop("keep")
                elif ending == "failed":
                    raise Broken
        kinds = {TurnStarted, ReasoningDelta, TextDelta, ItemAdded, ArgumentsDelta, ItemDone, RefusalDelta}
        assert {type(event) for event in sent} == kinds | {TurnFinished}
        assert [event.number for event in sent] == [*range(1, len(sent) + 1)]
        for reader in (chat, same):
            assert await soon(first_events(reader, turn.id, len(sent))) == sent
            assert [event async for event in reader.events(turn.id, after=5)] == sent[5:]
        if self.capabilities.survives_restart:
            reopened = await (await stage.restart()).ledger.conversation(chat.id)
            assert [event async for event in reopened.events(turn.id)] == sent

    async def test_adding_nothing_stores_nothing(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        async with chat.turn("q") as turn:
            await turn.add()
            turn.emit("a")
        assert "record" not in here.store.operations
        assert await here.ledger.check() == []


@dataclass(frozen=True)
class Abandoned:
    """A running turn whose client has left."""

    process: StageProcess
    chat: Chat
    block: TurnBlock
    task: asyncio.Task[Turn]
    gate: Gate

    @property
    def id(self) -> TurnId:
        return self.block.id

    async def goes_on(self) -> None:
        await self.process.tend()
        assert not self.task.done()
        self.gate.release()
        assert (await soon(self.task)).kind is TurnKind.COMPLETED

    async def was_kept(self) -> None:
        with pytest.raises(TurnStopped) as stopped:
            await soon(self.task)
        assert stopped.value.turn is not None
        assert (stopped.value.turn.kind, stopped.value.turn.text) == (TurnKind.INTERRUPTED, "Working")


async def abandoned(
    stage: Stage, process: StageProcess, *, leaves: bool = True, gives_way: bool = True
) -> Abandoned:
    gate = Gate()
    chat = await process.chat()
    block = chat.turn("first", idempotency_key="i", attach=True, gives_way=gives_way)
    task = stage.start(block.run(ScriptedModel(["Working", gate, " done."])))
    await stage.reach(gate, task)
    if leaves:
        Host(process.ledger).unread(block)
    return Abandoned(process, chat, block, task, gate)


class UnreadTurns(Contract):
    async def test_turn_that_nobody_reads_gives_way_to_a_request_here_and_is_kept(self, stage: Stage) -> None:
        turn = await abandoned(stage, await stage.process())
        await soon(turn.chat.run(ScriptedModel(["Yes."]), "second"))
        await turn.was_kept()
        assert [each.text for each in await turn.chat.turns()] == ["Working", "Yes."]

    async def test_turn_that_nobody_reads_gives_way_to_a_request_in_another_process(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        turn = await abandoned(stage, here)
        await soon((await there.chat(turn.chat)).run(ScriptedModel(["Yes."]), "second"))
        await turn.was_kept()

    async def test_turn_gives_way_to_a_request_that_waited_before_its_client_left(self, stage: Stage) -> None:
        here = await stage.process()
        turn = await abandoned(stage, here, leaves=False)
        waiting = await stage.queue(turn.chat, ScriptedModel(["Yes."]), "second")
        await here.tend()
        assert not turn.task.done()
        Host(here.ledger).unread(turn.block)
        await turn.was_kept()
        await soon(waiting)

    async def test_client_that_leaves_while_its_turn_waits_lets_it_give_way(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        holder = await stage.hold_lane(chat)
        block = chat.turn("second", gives_way=True)
        waiting = await stage.line_up(chat, block.run(ScriptedModel([Gate()])))
        Host(here.ledger).unread(block)
        last = await stage.queue(chat, ScriptedModel(["Yes."]), "third")
        await holder.finish()
        with pytest.raises(TurnStopped):
            await soon(waiting)
        assert (await soon(last)).text == "Yes."

    async def test_turn_goes_on_while_nobody_wants_its_lane(self, stage: Stage) -> None:
        await (await abandoned(stage, await stage.process())).goes_on()

    async def test_turn_without_that_policy_goes_on(self, stage: Stage) -> None:
        turn = await abandoned(stage, await stage.process(), gives_way=False)
        waiting = await stage.queue(turn.chat, ScriptedModel(["Yes."]), "second")
        await turn.goes_on()
        await soon(waiting)

    @pytest.mark.parametrize("is_elsewhere", [False, True])
    async def test_turn_goes_on_while_someone_reads_it_and_no_longer(
        self, stage: Stage, is_elsewhere: bool
    ) -> None:
        here, there = await stage.processes()
        turn = await abandoned(stage, here)
        await here.flush()
        same = await (there if is_elsewhere else here).chat(turn.chat)
        events: Any = same.events(turn.id)
        await soon(anext(events))
        waiting = await stage.queue(turn.chat, ScriptedModel(["Yes."]), "second")
        await here.tend()
        assert not turn.task.done()
        await events.aclose()
        stage.clock.advance(LIMITS.lease_time / 2)
        await here.tend()
        await turn.was_kept()
        await soon(waiting)

    @pytest.mark.parametrize("is_elsewhere", [False, True])
    async def test_turn_goes_on_for_a_caller_that_waits_for_its_outcome(
        self, stage: Stage, is_elsewhere: bool
    ) -> None:
        here, there = await stage.processes()
        turn = await abandoned(stage, here)
        same = await (there if is_elsewhere else here).chat(turn.chat)
        outcome = stage.start(same.outcome(turn.id))
        await stage.until_run(there if is_elsewhere else here, note_read, 1)
        waiting = await stage.queue(turn.chat, ScriptedModel(["Yes."]), "second")
        await turn.goes_on()
        assert (await soon(outcome)).turn is not None
        await soon(waiting)

    async def test_retry_is_not_cut_off_between_begin_and_its_first_read(self, stage: Stage) -> None:
        here, there = await stage.processes()
        turn = await abandoned(stage, here)
        same = await there.chat(turn.chat)
        with pytest.raises(TurnAttached):
            await same.run(ScriptedModel(), "first", idempotency_key="i", attach=True)
        waiting = await stage.queue(turn.chat, ScriptedModel(["Yes."]), "second")
        await here.tend()
        assert not turn.task.done()
        stage.clock.advance(LIMITS.lease_time / 2)
        await here.tend()
        await turn.was_kept()
        await soon(waiting)

    async def test_turn_goes_on_for_its_retry_while_the_loss_of_its_answer_is_still_being_written(
        self, stage: Stage
    ) -> None:
        here, gate, same = await stage.process(), Gate(), Retry(b"first", None)
        chat = await here.chat()
        block = chat.turn("first", retry=same, gives_way=True)
        task = stage.start(block.run(ScriptedModel(["Working", gate, " done."])))
        await stage.reach(gate, task)
        waiting = await stage.queue(chat, ScriptedModel(), "first", retry=same)
        with here.store.hold(record_deliveries) as writing:
            Host(here.ledger).lost(block)
            await writing.arrived()
            Host(here.ledger).unread(block)
            tending = stage.start(here.tend())
            for _ in range(50):  # far enough to decide
                await asyncio.sleep(0)
        await soon(tending)
        gate.release()
        assert await soon(waiting) == await soon(task)

    @pytest.mark.parametrize("fate", Fate)
    async def test_decision_of_unknown_outcome_is_repeated(self, stage: Stage, fate: Fate) -> None:
        here = await stage.process()
        turn = await abandoned(stage, here)
        here.store.lose_answer(give_way, fate)
        await soon(turn.chat.run(ScriptedModel(["Yes."]), "second"))
        await turn.was_kept()
