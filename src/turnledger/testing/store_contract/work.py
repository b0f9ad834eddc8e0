"""Durable work: enqueued once, begun in order by any process, resumed in place after a death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.engine.attempt.commit_in_doubt import resolve_doubt
from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.attempt.interrupted_job import EXHAUSTED
from turnledger.engine.attempt.stop import request_stop
from turnledger.engine.history.history import read_turns
from turnledger.engine.limits import Limits
from turnledger.engine.process import flush
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.engine.turn.jobs import take
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import (
    ConversationDeleted,
    IdempotencyMismatch,
    QueueFull,
    StoreCorrupt,
    TurnReplayed,
    TurnStopped,
)
from turnledger.hosting import Authorization, Host
from turnledger.model.access.token import TokenScope
from turnledger.model.event import Event, ItemDone, TextDelta, TurnResumed
from turnledger.model.ids import TurnId
from turnledger.model.item import OUTCOME_UNKNOWN
from turnledger.model.job import LISTED_INPUT, MOST_RESUMES
from turnledger.model.turn import AttemptState, TurnKind
from turnledger.testing.gates import Fate, Gate
from turnledger.testing.scripted_model import ScriptedModel
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Contract,
    Stage,
    StageProcess,
    call,
    chain,
    exchange,
    message_texts,
    play,
    soon,
)

PAY = call("pay", "c1")


@dataclass
class Agent:
    """A runner that pays, then answers. It waits at its gates, one per run, if there are any."""

    gates: list[Gate] = field(default_factory=list)
    paid: list[str] = field(default_factory=list)
    runs: list[TurnId] = field(default_factory=list)
    before_result: bool = False
    """Whether it waits inside the tool."""

    async def __call__(self, turn: RunningTurn) -> None:
        self.runs.append(turn.id)
        gate = self.gates[len(self.runs) - 1] if len(self.runs) <= len(self.gates) else None

        async def pay() -> str:
            self.paid.append(turn.input[0].text)
            if self.before_result and gate is not None:
                await gate.pass_through()
            return "paid"

        result = await turn.call(PAY, pay)
        if gate is not None and not self.before_result:
            await gate.pass_through()
        turn.emit(f"{turn.input[0].text}: {result.fields['output']}")


def work(stage: Stage, process: StageProcess, runner: Callable[..., Any]) -> asyncio.Task[None]:
    return stage.start(process.ledger.work(runner))


async def dying(stage: Stage, agent: Agent) -> tuple[StageProcess, Chat, TurnId]:
    """Start a job in a process that receives no hints any more; return another process, and its chat."""
    here, there = await stage.processes()
    chat = await here.chat()
    id = await chat.enqueue("q")
    await stage.reach(agent.gates[0], work(stage, here, agent))
    here.store.ignores_hints = True
    return there, await there.chat(chat), id


async def fail_after_effect(chat: Chat, agent: Agent) -> None:
    async def pay_and_fail(turn: RunningTurn) -> None:
        await agent(turn)
        raise RuntimeError

    with pytest.raises(RuntimeError):
        await chat.run(pay_and_fail, "q", idempotency_key="i")


class DurableWork(Contract):
    async def test_enqueued_turn_waits_for_a_worker_and_runs_in_its_process(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        id = await chat.enqueue("q", details={"model": "m"}, instructions="Be brief.")
        waiting = await same.status(id)
        assert (waiting.state, waiting.details) == ("queued", {"model": "m"})
        third = await stage.process()
        assert [(each.id, each.state) for each in await third.ledger.jobs()] == [(id, "queued")]
        worker = work(stage, third, Agent())
        ended = await soon(same.outcome(id))
        [turn] = await chat.turns()
        assert (ended.turn, turn.id, turn.text) == (turn, id, "q: paid")
        assert [item.text for item in turn.instructions or ()] == ["Be brief."]
        assert await third.ledger.jobs() == []
        assert not worker.done()

    async def test_turns_begin_in_the_order_in_which_they_were_enqueued(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        for process in (here, there):
            work(stage, process, Agent())
        ids = [await chat.enqueue(f"q{number}") for number in (1, 2)]
        queued = await stage.queue(await there.chat(chat), ScriptedModel(["a3"]), "q3")
        ids.append(await chat.enqueue("q4"))
        await holder.finish()
        for id in ids:
            await soon(chat.outcome(id))
        await soon(queued)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q0", "q1", "q2", "q3", "q4"]

    async def test_work_of_a_conversation_is_listed_with_its_input_and_its_place_in_the_queue(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        chat, other = await here.chat(), await here.chat()
        holder = await stage.hold_lane(chat, "q0")
        first = await chat.enqueue("q1")
        beside = await other.enqueue("q2")
        queued = await stage.queue(chat, ScriptedModel(["a3"]), "q3")
        large = await chat.enqueue("q4" * LISTED_INPUT)

        async def listed(conversation: str | None = None) -> list[tuple[TurnId, str, int]]:
            jobs = await there.ledger.jobs(conversation=conversation)
            return [(job.id, "".join(item.text for item in job.input), job.before) for job in jobs]

        assert await listed(chat.id) == [(first, "q1", 1), (large, "", 3)]
        assert await listed() == [(first, "q1", 1), (beside, "q2", 0), (large, "", 3)]
        assert await listed((await here.chat()).id) == []
        await holder.finish()
        assert await listed(chat.id) == [(first, "q1", 0), (large, "", 2)]
        agent = Agent([Gate()])
        running = work(stage, there, agent)
        await stage.reach(agent.gates[0], running)
        agent.gates[0].release()
        await soon(queued)

    async def test_turn_waits_behind_enqueued_work_that_no_process_runs(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await chat.enqueue("q1")
        queued = await stage.queue(same, ScriptedModel(["a2"]), "q2")
        stage.clock.advance(LIMITS.lease_time)
        third = await stage.process()
        await third.tend()
        assert len(await stage.tickets(chat)) == 2
        work(stage, third, Agent())
        await soon(queued)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q1", "q2"]

    async def test_enqueue_with_one_key_returns_one_turn_and_runs_share_it(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        id = await chat.enqueue("q", idempotency_key="i")
        assert await same.enqueue("q", idempotency_key="i") == id
        with pytest.raises(IdempotencyMismatch):
            await same.enqueue("other", idempotency_key="i")
        sharing = stage.start(same.run(ScriptedModel(), "q", idempotency_key="i"))
        work(stage, await stage.process(), Agent())
        assert (await soon(sharing)).id == id
        assert await chat.enqueue("q", idempotency_key="i") == id
        assert len(await chat.turns()) == 1

    async def test_key_of_waiting_work_is_kept_for_as_long_as_it_waits(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        id = await chat.enqueue("q", idempotency_key="i")
        stage.clock.advance(2 * CLAIM_KEPT_MS / 1000)
        await here.tend()
        assert await chat.enqueue("q", idempotency_key="i") == id

    @pytest.mark.parametrize("fate", Fate)
    async def test_enqueue_of_unknown_outcome_is_repeated_and_stored_once(
        self, stage: Stage, fate: Fate
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        here.store.lose_answer(begin, fate)
        id = await soon(chat.enqueue("q"))
        assert [job.id for job in await there.ledger.jobs()] == [id]
        work(stage, there, Agent())
        await soon(chat.outcome(id))
        assert [turn.id for turn in await chat.turns()] == [id]

    async def test_turn_of_a_dead_process_is_resumed_in_place(self, stage: Stage) -> None:
        agent = Agent([Gate()])
        there, chat, id = await dying(stage, agent)
        queued = await stage.queue(chat, ScriptedModel(["later"]), "q2")
        work(stage, there, agent)
        await stage.bury_others(there)
        ended = await soon(chat.outcome(id))
        agent.gates[0].release()
        assert agent.runs == [id, id]
        assert agent.paid == ["q"]
        assert ended.turn is not None
        assert (ended.turn.kind, ended.turn.text) == (TurnKind.COMPLETED, "q: paid")
        await soon(queued)
        assert [turn.input[0].text for turn in await chat.turns()] == ["q", "q2"]

    async def test_events_are_shown_once_stored_and_numbered_on_after_a_resume(self, stage: Stage) -> None:
        gate = Gate()
        runs: list[TurnId] = []

        async def speak(turn: RunningTurn) -> None:
            runs.append(turn.id)
            turn.emit("one ")
            await turn.add()
            turn.emit("half")
            if len(runs) == 1:
                await gate.pass_through()
            turn.emit(" two")

        here, there = await stage.processes()
        chat = await here.chat()
        id = await chat.enqueue("q")
        await stage.reach(gate, work(stage, here, speak))
        received: list[Event] = []

        async def listen(reader: Chat) -> None:
            async for event in reader.events(id):
                received.append(event)

        listening = stage.start(listen(chat))
        await here.flush()
        here.store.ignores_hints = True
        work(stage, there, speak)
        await stage.bury_others(there)
        same = await there.chat(chat)
        await soon(same.outcome(id))
        gate.release()
        await soon(listening)
        assert received == [event async for event in same.events(id)]
        assert [type(event) for event in received].count(TurnResumed) == 1
        shown = [event.text for event in received if isinstance(event, TextDelta)]
        assert shown == ["one ", "half", "one ", "half", " two"]
        [turn] = await same.turns()
        assert [item.text for item in turn.output] == ["one ", "one ", "half two"]

    @pytest.mark.parametrize("flushes", [(False, False), (False, True), (True, False), (True, True)])
    async def test_deltas_of_a_resumed_turn_add_up_to_its_text(
        self, stage: Stage, flushes: tuple[bool, bool]
    ) -> None:
        gates = [Gate(), Gate(), Gate()]
        runs: list[TurnId] = []

        async def speak(turn: RunningTurn) -> None:
            runs.append(turn.id)
            if len(runs) == 1:
                turn.emit("Let ")
                if flushes[0]:
                    await processes[0].flush()
                turn.emit("me look. ")
                await turn.add()
                await gates[0].pass_through()
            elif len(runs) == 2:
                turn.emit("Half")
                await gates[1].pass_through()
            turn.emit("Done.")

        processes = await stage.processes(3)
        chat = await processes[0].chat()
        id = await chat.enqueue("q")
        for process, gate in zip(processes[:2], gates, strict=False):
            await stage.reach(gate, work(stage, process, speak))
            if process is processes[1] and flushes[1]:
                await process.flush()
            process.store.ignores_hints = True
            await stage.bury_others(processes[2])
        work(stage, processes[2], speak)
        same = await processes[2].chat(chat)
        await soon(same.outcome(id))
        for gate in gates:
            gate.release()
        [turn] = await same.turns()
        assert turn.text == "Let me look. Done."
        shown, finished = "", ""
        async for event in same.events(id):
            if isinstance(event, TextDelta):
                shown += event.text
            elif isinstance(event, ItemDone):
                finished = shown
            elif isinstance(event, TurnResumed):
                shown = finished
        assert shown == turn.text

    async def test_text_that_a_resume_made_void_is_not_kept_at_a_later_death(self, stage: Stage) -> None:
        gates = [Gate(), Gate()]
        runs: list[TurnId] = []

        async def speak(turn: RunningTurn) -> None:
            runs.append(turn.id)
            turn.emit("a long beginning" if len(runs) == 1 else "short")
            if len(runs) == 2:
                await turn.add()
            await gates[len(runs) - 1].pass_through()

        first, second, last = await stage.processes(3)
        chat = await first.chat()
        id = await chat.enqueue("q")
        await stage.reach(gates[0], work(stage, first, speak))
        await first.flush()
        first.store.ignores_hints = True
        await stage.bury_others(last)
        await stage.reach(gates[1], work(stage, second, speak))
        second.store.ignores_hints = True
        await stage.bury_others(last)
        same = await last.chat(chat)
        await soon(same.stop(id))
        for gate in gates:
            gate.release()
        [turn] = await same.turns()
        assert [item.text for item in turn.output] == ["short"]
        events = [event async for event in same.events(id)]
        assert next(event.text for event in events if isinstance(event, TextDelta)) == "a long beginning"
        assert [type(event) for event in events].count(TurnResumed) == 1

    async def test_call_of_unknown_outcome_is_stated_and_not_run_again(self, stage: Stage) -> None:
        agent = Agent([Gate()], before_result=True)
        there, chat, id = await dying(stage, agent)
        work(stage, there, agent)
        await stage.bury_others(there)
        ended = await soon(chat.outcome(id))
        agent.gates[0].release()
        assert agent.paid == ["q"]
        assert ended.turn is not None
        assert ended.turn.text == f"q: {OUTCOME_UNKNOWN}"

    async def test_work_that_cannot_be_resumed_keeps_what_readers_received(self, stage: Stage) -> None:
        gate = Gate()

        async def speak(turn: RunningTurn) -> None:
            turn.emit("half")
            await gate.pass_through()

        here, there = await stage.processes()
        chat = await here.chat()
        id = await chat.enqueue("q")
        await stage.reach(gate, work(stage, here, speak))
        await here.flush()
        here.store.ignores_hints = True
        there.store.refuse(flush, StoreCorrupt("broken"))
        work(stage, there, speak)
        await stage.bury_others(there)
        same = await there.chat(chat)
        ended = await soon(same.outcome(id))
        gate.release()
        assert ended.state is AttemptState.FAILED
        assert "half" in [event.text async for event in same.events(id) if isinstance(event, TextDelta)]

    async def test_turn_fails_with_the_reason_after_three_resumes(self, stage: Stage) -> None:
        agent = Agent([Gate() for _ in range(MOST_RESUMES + 1)])
        processes = await stage.processes(MOST_RESUMES + 2)
        chat = await processes[0].chat()
        id = await chat.enqueue("q", idempotency_key="i")
        for number, process in enumerate(processes[:-1]):
            task = work(stage, process, agent)
            await stage.reach(agent.gates[number], task)
            process.store.ignores_hints = True
            await stage.bury_others(processes[-1])
        last = await processes[-1].chat(chat)
        ended = await soon(last.outcome(id))
        for gate in agent.gates:
            gate.release()
        assert (ended.state, ended.failure) == (AttemptState.FAILED, EXHAUSTED)
        assert (agent.runs, agent.paid) == ([id] * 4, ["q"])
        await exchange(last, "q2")
        assert [turn.kind for turn in await last.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert await processes[-1].ledger.jobs() == []

    async def test_closed_ledger_leaves_its_work_to_be_resumed(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat, agent = await here.chat(), Agent([Gate()])
        id = await chat.enqueue("q")
        worker = work(stage, here, agent)
        await stage.reach(agent.gates[0], worker)
        await soon(here.ledger.close())
        await soon(worker)
        same = await there.chat(chat)
        work(stage, there, agent)
        ended = await soon(same.outcome(id))
        assert (ended.state, agent.runs, agent.paid) == (AttemptState.COMPLETED, [id, id], ["q"])

    async def test_closed_ledgers_do_not_use_up_the_resumes(self, stage: Stage) -> None:
        agent = Agent([Gate() for _ in range(MOST_RESUMES + 1)])
        processes = await stage.processes(MOST_RESUMES + 2)
        chat = await processes[-1].chat()
        id = await chat.enqueue("q")
        for gate, process in zip(agent.gates, processes[:-1], strict=True):
            worker = work(stage, process, agent)
            await stage.reach(gate, worker)
            await soon(process.ledger.close())
            await soon(worker)
        assert [job.resumes for job in await processes[-1].ledger.jobs()] == [0]
        work(stage, processes[-1], agent)
        ended = await soon(chat.outcome(id))
        assert (ended.state, len(agent.runs), agent.paid) == (AttemptState.COMPLETED, 5, ["q"])

    async def test_worker_cancelled_before_its_runner_begins_uses_up_no_resume(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat, agent = await there.chat(), Agent()
        await exchange(chat, "q0")
        id = await chat.enqueue("q")
        with here.store.hold(read_turns) as gate:
            worker = work(stage, here, agent)
            await stage.reach(gate, worker)
            worker.cancel()
        with pytest.raises(asyncio.CancelledError):
            await soon(worker)
        assert [job.resumes for job in await there.ledger.jobs()] == [0]
        work(stage, there, agent)
        assert (await soon(chat.outcome(id))).state is AttemptState.COMPLETED

    async def test_work_whose_task_is_cancelled_is_resumed(self, stage: Stage) -> None:
        here = await stage.process()
        chat, agent = await here.chat(), Agent([Gate()])
        id = await chat.enqueue("q")
        await stage.reach(agent.gates[0], work(stage, here, agent))
        [task] = [task for task in asyncio.all_tasks() if id in task.get_name()]
        task.cancel()  # as by the end of an event loop
        ended = await soon(chat.outcome(id))
        assert (ended.state, agent.runs, agent.paid) == (AttemptState.COMPLETED, [id, id], ["q"])

    async def test_work_whose_task_is_cancelled_before_its_first_step_runs(self, stage: Stage) -> None:
        here = await stage.process()
        chat, agent, cancelled = await here.chat(), Agent(), list[asyncio.Task[Any]]()

        def cancel_first(loop: asyncio.AbstractEventLoop, work: Any, **options: Any) -> asyncio.Task[Any]:
            task = asyncio.Task(work, loop=loop, **options)
            if not cancelled and work.__name__ == "_run_job":
                cancelled.append(task)
                task.cancel()
            return task

        id = await chat.enqueue("q")
        asyncio.get_running_loop().set_task_factory(cancel_first)
        try:
            work(stage, here, agent)
            ended = await soon(chat.outcome(id))
        finally:
            asyncio.get_running_loop().set_task_factory(None)
        assert (ended.state, len(cancelled), agent.runs) == (AttemptState.COMPLETED, 1, [id])

    async def test_stop_before_it_begins_removes_it_from_the_queue(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        id = await chat.enqueue("q", idempotency_key="i", details={"model": "m"})
        stopped = await soon(same.stop(id))
        assert stopped is not None
        assert stopped.state is AttemptState.DISCARDED
        [aside] = await chat.attempts()
        assert (aside.attempt.input[0].text, aside.attempt.details) == ("q", {"model": "m"})
        with pytest.raises(TurnStopped):
            await chat.enqueue("q", idempotency_key="i")
        assert await stage.tickets(chat) == []
        agent = Agent()
        third = await stage.process()
        work(stage, third, agent)
        await soon(chat.outcome(await chat.enqueue("next")))
        assert len(agent.runs) == 1

    async def test_stop_while_it_runs_keeps_it(self, stage: Stage) -> None:
        agent = Agent([Gate()])
        here, there = await stage.processes()
        chat = await here.chat()
        id = await chat.enqueue("q")
        await stage.reach(agent.gates[0], work(stage, here, agent))
        stopped = await soon((await there.chat(chat)).stop(id))
        assert stopped is not None
        assert stopped.state is AttemptState.KEPT
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.INTERRUPTED]
        assert await here.ledger.jobs() == []
        again = await soon(chat.stop(id))
        assert again is not None
        assert again.state is AttemptState.KEPT

    async def test_stop_after_it_was_taken_and_before_its_runner_begins_runs_nothing(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        chat, agent = await there.chat(), Agent()
        await exchange(chat, "q0")
        id = await chat.enqueue("q")

        async def has_arrived() -> bool:
            return id in here.ledger._process.early_stops

        with here.store.hold(read_turns) as gate:
            worker = work(stage, here, agent)
            await stage.reach(gate, worker)
            stopping = stage.start((await here.chat(chat)).stop(id))
            await stage.until(has_arrived)
        stopped = await soon(stopping)
        assert stopped is not None
        assert (stopped.state, agent.runs, agent.paid) == (AttemptState.KEPT, [], [])
        assert await there.ledger.jobs() == []
        await exchange(chat, "next")
        assert not worker.done()

    async def test_stop_ends_work_that_waits_to_be_resumed(self, stage: Stage) -> None:
        agent = Agent([Gate()])
        there, chat, id = await dying(stage, agent)
        await stage.bury_others(there)
        assert (await chat.status(id)).state == AttemptState.RUNNING
        stopped = await soon(chat.stop(id))
        agent.gates[0].release()
        assert stopped is not None
        assert stopped.state is AttemptState.KEPT
        await exchange(chat, "next")
        assert await there.ledger.jobs() == []

    async def test_interrupting_turn_ends_work_that_waits_to_be_resumed(self, stage: Stage) -> None:
        agent = Agent([Gate()])
        there, chat, _ = await dying(stage, agent)
        await stage.bury_others(there)
        await exchange(chat, "next", on_busy="rollback")
        agent.gates[0].release()
        assert (await chat.turns())[-1].input[0].text == "next"

    async def test_work_after_one_turn_runs_side_by_side_and_leaves_the_shown_branch(
        self, stage: Stage
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first, _ = await chain(chat, 2)
        holder = await stage.hold_lane(chat, "q3")
        agent = Agent([Gate(), Gate(), Gate()])
        ids = [await chat.enqueue(f"p{number}", after=first.id) for number in range(3)]
        worker = work(stage, there, agent)
        for gate in agent.gates:
            await stage.reach(gate, worker)  # none waits for another, nor for the turn that runs
        for gate in agent.gates:
            gate.release()
        ended = [(await soon(chat.outcome(id))).turn for id in ids]
        await holder.finish()
        assert {turn.parent for turn in ended if turn is not None} == {first.id}
        assert [turn.input[0].text for turn in await chat.turns()] == ["q1", "q2", "q3"]
        assert await here.ledger.check(at_rest=False) == []

    async def test_work_after_the_head_continues_its_free_branch_once(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        [first] = await chain(chat, 1)
        one, two = await chat.enqueue("q2", after=first.id), await chat.enqueue("p", after=first.id)
        work(stage, here, Agent())
        for id in (one, two):
            await soon(chat.outcome(id))
        assert [turn.input[0].text for turn in await chat.turns()] == ["q1", "q2"]

    async def test_conversation_with_work_on_a_side_branch_does_not_expire(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(expires_after=60.0)
        first, _ = await chain(chat, 2)
        id = await chat.enqueue("p", after=first.id)
        stage.clock.advance(100)
        await here.tend()
        work(stage, here, Agent())
        assert (await soon(chat.outcome(id))).state is AttemptState.COMPLETED

    async def test_work_on_a_side_branch_is_resumed_there_and_ends_with_its_chat(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        first, _ = await chain(chat, 2)
        agent = Agent([Gate()])
        id = await chat.enqueue("p", after=first.id)
        await stage.reach(agent.gates[0], work(stage, here, agent))
        here.store.ignores_hints = True
        await stage.bury_others(there)
        work(stage, there, agent)
        same = await there.chat(chat)
        turn = (await soon(same.outcome(id))).turn
        agent.gates[0].release()
        assert turn is not None
        assert (turn.parent, agent.runs, agent.paid) == (first.id, [id, id], ["p"])
        waiting = await same.enqueue("r", after=first.id)
        await same.delete()
        with pytest.raises(ConversationDeleted):
            await soon(same.outcome(waiting))
        assert await there.ledger.jobs() == []

    async def test_deleted_chat_ends_its_work(self, stage: Stage) -> None:
        agent = Agent([Gate()])
        here, there = await stage.processes()
        chat = await here.chat()
        usage = await here.ledger.usage()
        running, waiting = await chat.enqueue("q1"), await chat.enqueue("q2", idempotency_key="i")
        await stage.reach(agent.gates[0], work(stage, here, agent))
        await (await there.chat(chat)).delete()
        for id in (running, waiting):
            with pytest.raises(ConversationDeleted):
                await soon(chat.outcome(id))
        assert await there.ledger.jobs() == []
        restored = await there.ledger.restore(chat.id)
        await exchange(restored, "q3")
        assert agent.runs == [running]
        assert (await there.ledger.usage()).bytes < usage.bytes + 20_000

    async def test_deleted_chat_ends_its_work_behind_a_stopped_edit(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        [turn] = await chain(chat, 1)
        editing = await stage.hold(lambda model: play(chat.edit(turn.id, "edit"), model))
        here.store.ignores_hints = True
        same = await there.chat(chat)
        stage.start(same.stop())
        await stage.until_run(there, request_stop, 1)
        await same.enqueue("q")
        await same.delete()
        assert await there.ledger.jobs() == []
        assert await there.ledger.check() == []
        editing.gate.release()

    async def test_restored_chat_does_not_repeat_effects_that_its_work_was_to_take_up(
        self, stage: Stage
    ) -> None:
        here = await stage.process()
        chat, agent = await here.chat(), Agent()
        await exchange(chat, "q0")
        await fail_after_effect(chat, agent)
        await chat.enqueue("q", idempotency_key="i")
        await chat.delete()
        restored = await here.ledger.restore(chat.id)
        turn = await restored.run(agent, "q", idempotency_key="i")
        assert (turn.text, agent.paid) == ("q: paid", ["q"])

    async def test_work_of_a_revoked_token_fails(self, stage: Stage) -> None:
        here, there = await stage.processes()
        tokens = Host(here.ledger).tokens
        token, _ = await tokens.create(owner="ann", scopes=[TokenScope.TURNS_RUN])
        other, _ = await tokens.create(owner="ann", scopes=[TokenScope.TURNS_RUN])

        async def as_caller() -> Chats:
            version = (await tokens.find(token.digest)).version
            return here.ledger.for_owner("ann", authorization=Authorization(version, token=token.id))

        chat = await (await as_caller()).conversation()
        kept = await chat.enqueue("q1")
        await tokens.revoke(other.id)
        agent = Agent()
        work(stage, there, agent)
        assert (await soon(chat.outcome(kept))).state is AttemptState.COMPLETED
        chat = await (await as_caller()).conversation(chat.id)
        holder = await stage.hold_lane(chat, "q2")
        id = await chat.enqueue("q3")
        await tokens.revoke(token.id)
        await holder.finish()
        ended = await soon(chat.outcome(id))
        assert ended.failure is not None
        assert (ended.failure.code, agent.runs) == ("token_revoked", [kept])
        assert [each.attempt.stop for each in await chat.attempts()] == [None]

    async def test_queue_of_a_lane_and_of_an_owner_is_bounded(self, stage: Stage) -> None:
        limits = Limits(lease_time=LIMITS.lease_time, lane_jobs=2, owner_jobs=3)
        here = await stage.process(limits)
        chat, other = await here.chat(), await here.chat()
        for _ in range(2):
            await chat.enqueue("q")
        with pytest.raises(QueueFull):
            await chat.enqueue("q")
        await other.enqueue("q")
        with pytest.raises(QueueFull):
            await other.enqueue("q")
        assert len(await here.ledger.jobs()) == 3

    async def test_enqueued_work_counts_for_its_owner_until_it_ends(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        before = (await here.ledger.usage()).bytes
        id = await chat.enqueue("x" * 10_000)
        assert (await here.ledger.usage()).bytes > before + 10_000
        work(stage, here, ScriptedModel(["a"]))
        await soon(chat.outcome(id))
        assert (await here.ledger.usage()).bytes == before
        assert await here.ledger.check() == []

    async def test_impossible_input_fails_the_work_and_not_the_queue(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        result = {"type": "function_call_output", "call_id": "none", "output": "x"}
        wrong, right = await chat.enqueue([result]), await chat.enqueue("q")
        work(stage, here, Agent())
        ended = await soon(chat.outcome(wrong))
        assert ended.state is AttemptState.FAILED
        await soon(chat.outcome(right))
        assert await message_texts(chat) == ["q", "q: paid"]

    async def test_retry_finds_that_its_effects_were_settled_while_it_waited(self, stage: Stage) -> None:
        here = await stage.process()
        chat, agent = await here.chat(), Agent()
        await fail_after_effect(chat, agent)
        id = await chat.enqueue("q", idempotency_key="i")
        await chat.run(ScriptedModel(["a2"]), "q2", on_busy="interrupt")
        work(stage, here, agent)
        ended = await soon(chat.outcome(id))
        assert ended.failure is not None
        assert ended.failure.code == TurnReplayed.code
        settled = await chat.run(agent, "q", idempotency_key="i")
        assert [turn.kind for turn in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert (settled.kind, agent.paid) == (TurnKind.SETTLED, ["q"])

    async def test_work_that_fails_before_it_begins_leaves_its_key_to_what_it_retries(
        self, stage: Stage
    ) -> None:
        here = await stage.process()
        tokens = Host(here.ledger).tokens
        token, _ = await tokens.create(owner="ann", scopes=[TokenScope.TURNS_RUN])
        authorization = Authorization((await tokens.find(token.digest)).version, token=token.id)
        chat, agent = await here.ledger.for_owner("ann").conversation(), Agent()
        await fail_after_effect(chat, agent)
        as_caller = here.ledger.for_owner("ann", authorization=authorization)
        id = await (await as_caller.conversation(chat.id)).enqueue("q", idempotency_key="i")
        await tokens.revoke(token.id)
        work(stage, here, agent)
        assert (await soon(chat.outcome(id))).state is AttemptState.FAILED
        turn = await chat.run(agent, "q", idempotency_key="i")
        assert (turn.text, agent.paid) == ("q: paid", ["q"])

    async def test_commit_of_unknown_outcome_takes_no_work_from_who_resumed_it(self, stage: Stage) -> None:
        gate = Gate()
        runs: list[TurnId] = []

        async def speak(turn: RunningTurn) -> None:
            runs.append(turn.id)
            turn.emit(f"run {len(runs)}")
            if len(runs) == 2:
                await gate.pass_through()

        here, there = await stage.processes()
        chat = await here.chat()
        id = await chat.enqueue("q")
        here.store.lose_answer(commit, Fate.LOST)
        with here.store.hold(resolve_doubt) as doubt:
            await stage.reach(doubt, work(stage, here, speak))
            here.store.ignores_hints = True
            await stage.bury_others(there)
            await stage.reach(gate, work(stage, there, speak))
            doubt.release()
            await soon(here.ledger.close())
        gate.release()
        ended = await soon((await there.chat(chat)).outcome(id))
        assert ended.turn is not None
        assert (ended.turn.text, runs) == ("run 2", [id, id])

    async def test_damaged_work_is_not_tried_again_and_holds_up_no_other(self, stage: Stage) -> None:
        here = await stage.process()
        damaged = await (await here.chat()).enqueue("q1")
        here.store.refuse(take, StoreCorrupt("broken"))
        agent = Agent()
        with here.store.hold(take) as taking:  # else it may read both jobs at once, and take the other first
            work(stage, here, agent)
            await soon(taking.arrived())
        for _ in range(2):
            other = await here.chat()
            await soon(other.outcome(await other.enqueue("q2")))
        assert [job.id for job in await here.ledger.jobs()] == [damaged]
        assert agent.paid == ["q2", "q2"]

    async def test_commit_of_unknown_outcome_is_made_certain(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        id = await chat.enqueue("q")
        here.store.lose_answer(commit, Fate.WRITTEN)
        agent = Agent()
        work(stage, here, agent)
        await soon((await there.chat(chat)).outcome(id))
        assert [turn.id for turn in await chat.turns()] == [id]
        assert agent.runs == [id]
