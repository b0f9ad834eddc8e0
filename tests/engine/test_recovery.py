"""Recovery reports the turns of dead processes that it has ended."""

from __future__ import annotations

import logging

import pytest

from turnledger.hosting import Host
from turnledger.model.job import MOST_RESUMES
from turnledger.testing.gates import Gate
from turnledger.testing.store_contract.stage import Stage, soon
from turnledger.testing.store_contract.work import Agent, work


async def test_recovery_logs_and_counts_the_turns_of_dead_processes(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "turnledger")
    here, there = await stage.processes()
    for _ in range(2):
        await stage.hold_lane(await here.chat())
    here.store.ignores_hints = True
    await stage.bury_others(there)
    await there.tend()
    recovered = [vars(record)["turns"] for record in caplog.records if record.message == "recovered"]
    assert (recovered, dict(Host(there.ledger).taken_over)) == ([2], {"failed": 2})


async def test_durable_turn_without_resumes_left_is_logged_and_counted(
    stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    agent = Agent([Gate() for _ in range(MOST_RESUMES + 1)])
    processes = await stage.processes(MOST_RESUMES + 2)
    chat = await processes[0].chat()
    id = await chat.enqueue("q")
    for gate, process in zip(agent.gates, processes[:-1], strict=True):
        await stage.reach(gate, work(stage, process, agent))
        process.store.ignores_hints = True
        await stage.bury_others(processes[-1])
    await soon((await processes[-1].chat(chat)).outcome(id))
    [line] = [vars(record) for record in caplog.records if record.message == "background_turn_ended"]
    fields = [line[name] for name in ("turn", "conversation", "outcome", "code", "resumes")]
    assert fields == [id, chat.id, "failed", "resumes_exhausted", MOST_RESUMES]
    assert dict(Host(processes[-1].ledger).taken_over) == {"failed": 1}
    for gate in agent.gates:
        gate.release()
