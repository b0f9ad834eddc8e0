"""One at a time: committed turns form a chain across processes; the queue is ordered and bounded.

The fence decides: a superseded holder writes nothing, a late one that was not superseded may still commit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias

import pytest

from turnledger.chat import Chat
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.attempt.dead_process import take_over, withdraw
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import Superseded
from turnledger.model.item import Item
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import TurnKind
from turnledger.testing.gates import Fate, Gate, When
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    call,
    exchange,
    soon,
)


class Lanes(Contract):
    async def test_concurrent_turns_of_two_processes_form_a_chain(self, stage: Stage) -> None:
        processes = await stage.processes(2)
        chat = await processes[0].chat()
        models: dict[str, ScriptedModel] = {}
        runs = []
        for number in range(8):
            same = await processes[number % 2].chat(chat)
            models[f"q{number}"] = model = ScriptedModel([f"a{number}"])
            runs.append(stage.start(same.run(model, f"q{number}")))
        await soon(asyncio.gather(*runs))
        turns = await chat.turns()
        assert [turn.number for turn in turns] == list(range(1, 9))
        assert [turn.parent for turn in turns] == [None, *(turn.id for turn in turns[:-1])]
        past: list[Item] = []
        for turn in turns:
            question = turn.input[0].text
            assert models[question].seen == [messages_of([*past, *turn.input])]
            past += turn.items

    async def test_waiting_turns_run_in_ticket_order(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        holder = await stage.hold_lane(chat, "q0")
        waiting = [
            await stage.queue(each, ScriptedModel([f"a{number}"]), f"q{number}")
            for number, each in enumerate((same, chat, same, chat), 1)
        ]
        numbers = [ticket.number for ticket in await stage.tickets(chat)]
        assert numbers == sorted(set(numbers))
        await holder.finish()
        await soon(asyncio.gather(*waiting))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2", "q3", "q4"]


HolderAction: TypeAlias = Callable[[Stage, StageProcess, Chat, Gate], Coroutine[Any, Any, None]]
"""Runs a turn that waits at the gate before it writes."""


async def journal(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    async with chat.turn("mine") as turn:
        await gate.pass_through()
        await turn.add(call("look", "c1"))


async def start_tool(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    async with chat.turn("mine") as turn:
        await turn.add(call("pay", "c1"))
        await gate.pass_through()
        await turn.start(call("pay", "c1"))


async def commit_turn(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    await chat.run(ScriptedModel(["Mine.", gate]), "mine")


async def hold_commit(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    with here.store.hold(commit) as held:
        task = stage.start(chat.run(ScriptedModel(["Mine."]), "mine"))
        await stage.reach(held, task)
        await gate.pass_through()
        held.release()
        await task


async def lose_commit_answer(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    here.store.lose_answer(commit, Fate.LOST)
    await chat.run(ScriptedModel(["Mine.", gate]), "mine")


async def fail(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    await chat.run(ScriptedModel(["Mine.", gate, RuntimeError("too late")]), "mine", on_failure="keep")


async def stop(stage: Stage, here: StageProcess, chat: Chat, gate: Gate) -> None:
    async with chat.turn("mine") as turn:
        turn.emit("Mine.")
        await gate.pass_through()
        turn.stop("keep")
    assert turn.turn is None


ACTS: list[tuple[HolderAction, type[Exception] | None]] = [
    (journal, Superseded),
    (start_tool, Superseded),
    (commit_turn, Superseded),
    (hold_commit, Superseded),
    (fail, RuntimeError),
    (stop, None),
]


every_act = pytest.mark.parametrize(("act", "problem"), ACTS, ids=[act.__name__ for act, _ in ACTS])


class Fences(Contract):
    @every_act
    async def test_superseded_holder_changes_nothing(
        self, stage: Stage, act: HolderAction, problem: type[Exception] | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        gate = Gate()
        holder = stage.start(act(stage, here, chat, gate))
        await stage.reach(gate, holder)
        await stage.bury_others(there)
        same = await there.chat(chat)
        await exchange(same, "theirs", "Theirs.")
        before, attempts = await same.turns(), await same.attempts()
        gate.release()
        await expect_end(holder, problem)
        assert await same.turns() == before
        assert await same.attempts() == attempts
        await exchange(same, "next", on_busy="reject")

    async def test_takeover_with_an_older_fence_does_nothing(self, stage: Stage) -> None:
        """The holder, unsure of its commit, raises its fence while another process prepares the takeover."""
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.lose_answer(commit, Fate.LOST)
        await there.tend()
        stage.clock.advance(LIMITS.lease_time)
        with here.store.hold(resolve_doubt) as doubt, there.store.hold(take_over) as taking:
            task = stage.start(chat.run(ScriptedModel(["Mine."]), "mine"))
            await stage.reach(doubt, task)
            burying = stage.start(there.tend())
            await stage.reach(taking, burying)
            with here.store.hold(commit) as second:
                doubt.release()
                await stage.reach(second, task)
                taking.release()
                await soon(burying)
        turn = await soon(task)
        assert await chat.turns() == [turn]

    async def test_holder_that_beats_again_before_takeover_keeps_lane_and_tickets(self, stage: Stage) -> None:
        """A takeover names the beat it judged by, not only the fence."""
        here, there = await stage.processes()
        chat, waiting = await here.chat(), await here.chat()
        holder = await stage.hold_lane(chat, "mine")
        other = await stage.hold_lane(await there.chat(waiting), "theirs")
        queued = await stage.queue(waiting, ScriptedModel(["mine, too"]), "mine, too")
        here.store.ignores_hints = True
        await there.tend()
        stage.clock.advance(LIMITS.lease_time)
        await there.store.beat()
        with there.store.hold(take_over) as taking, there.store.hold(withdraw) as withdrawing:
            burying = stage.start(there.tend())
            await stage.reach(taking, burying)
            await here.store.beat()
            taking.release()
            await stage.reach(withdrawing, burying)
        await soon(burying)
        assert len(await stage.tickets(waiting)) == 1
        here.store.ignores_hints = False
        turns = [await holder.finish(), await other.finish(), await soon(queued)]
        assert [*await chat.turns(), *await waiting.turns()] == turns

    async def test_tickets_of_a_dead_process_are_skipped_and_removed(self, stage: Stage) -> None:
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        with there.store.hold(begin, When.AFTER) as gate:
            await stage.reach(gate, stage.start((await there.chat(chat)).run(ScriptedModel(), "q1")))
            assert len(await stage.tickets(chat)) == 1
            await third.tend()
            stage.clock.advance(LIMITS.lease_time)
            await here.store.beat()
            await third.tend()
            assert await stage.tickets(chat) == []
            await holder.finish()
            await exchange(await third.chat(chat), "q2", on_busy="reject")
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]

    async def test_dead_process_is_taken_over_once_by_concurrent_processes(self, stage: Stage) -> None:
        here, there, third = await stage.processes(3)
        chat = await here.chat()
        await stage.hold_lane(chat, "mine", ["Half"], on_failure="keep")
        await there.tend()
        await third.tend()
        stage.clock.advance(LIMITS.lease_time)
        await third.store.beat()
        await there.tend()
        await third.tend()
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.INTERRUPTED]


async def expect_end(task: asyncio.Task[None], problem: type[Exception] | None) -> None:
    [result] = await soon(asyncio.gather(task, return_exceptions=True))
    # A hint may end the holder before it writes.
    assert (type(result) if result else None) in (problem, Superseded)
