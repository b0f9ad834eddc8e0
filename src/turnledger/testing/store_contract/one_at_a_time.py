"""One at a time: committed turns form a chain across processes, and the queue is orderly and bounded."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.engine.limits import Limits
from turnledger.engine.turn.begin import begin
from turnledger.errors import QueueFull, WaitEnded
from turnledger.model.item import Item
from turnledger.model.messages.messages import messages_of
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import (
    LIMITS,
    SHORT_WAIT,
    Contract,
    Stage,
    exchange,
    said,
    soon,
    user,
)


class OneAtATime(Contract):
    async def test_a_second_process_waits_and_then_sees_the_turn_of_the_first(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "first")
        model = ScriptedModel(["Second."])
        waiting = await stage.queue(await there.chat(chat), model, "second")
        assert model.seen == [], "tokens were spent before the lane was free"
        first = await holder.finish()
        second = await soon(waiting)
        assert second.parent == first.id
        assert model.seen == [
            [user("first"), {"role": "assistant", "content": "Working done."}, user("second")]
        ]

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

    async def test_waiting_turns_run_in_the_order_of_their_tickets(self, stage: Stage) -> None:
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

    async def test_a_new_request_does_not_pass_those_that_wait(self, stage: Stage) -> None:
        """The lane is free for a moment, and the one who waits for it has not heard of it yet."""
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a1"]), "q1")
        with there.store.hold(begin):
            await holder.finish()
            late = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
        await soon(asyncio.gather(waiting, late))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2"]

    async def test_the_queue_is_bounded(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=Limits(lease_time=LIMITS.lease_time, queue_length=2))
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        waiting = [await stage.queue(chat, ScriptedModel(["a"]), f"q{number}") for number in (1, 2)]
        with pytest.raises(QueueFull):
            await soon((await there.chat(chat)).run(ScriptedModel(), "q3"))
        assert len(await stage.tickets(chat)) == 2
        await holder.finish()
        await soon(asyncio.gather(*waiting))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2"]

    async def test_the_wait_is_bounded(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=SHORT_WAIT)
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        model = ScriptedModel()
        waiting = await stage.queue(await there.chat(chat), model, "q1")
        stage.clock.advance(SHORT_WAIT.queue_wait)
        there.store.announce()
        with pytest.raises(WaitEnded):
            await soon(waiting)
        assert model.seen == []
        assert await stage.tickets(chat) == []
        await holder.finish()
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0"]

    async def test_a_ticket_past_its_deadline_is_skipped(self, stage: Stage) -> None:
        here, there = await stage.processes(limits=SHORT_WAIT)
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        await stage.queue(await there.chat(chat), ScriptedModel(), "q1")
        with there.store.hold(begin):
            stage.clock.advance(SHORT_WAIT.queue_wait)
            late = await stage.queue(chat, ScriptedModel(["a2"]), "q2")
            await holder.finish()
            await soon(late)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]

    async def test_a_cancelled_wait_withdraws_its_ticket_and_the_queue_moves_on(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        cancelled = await stage.queue(chat, ScriptedModel(), "q1")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a2"]), "q2")
        cancelled.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(cancelled)
        assert len(await stage.tickets(chat)) == 1
        await holder.finish()
        await soon(waiting)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q2"]

    async def test_a_failed_turn_lets_the_next_one_in(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        waiting = await stage.queue(await there.chat(chat), ScriptedModel(["a1"]), "q1")
        holder.task.cancel()
        await soon(waiting)
        assert await said(chat) == ["q1", "a1"]

    async def test_conversations_do_not_wait_for_each_other(self, stage: Stage) -> None:
        here = await stage.process()
        holder = await stage.hold_lane(await here.chat())
        await exchange(await here.chat(), "Hello", on_busy="reject")
        await holder.finish()

    async def test_a_snapshot_does_not_change_under_a_running_turn(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await exchange(chat, "q0", "a0")
        async with chat.turn("q1") as turn:
            seen = turn.history
            turn.emit("a1")
        await exchange(await there.chat(chat), "q2")
        assert [each.input[0].text for each in seen] == ["q0"]
        assert [item.text for item in turn.items] == ["q0", "a0", "q1"]
