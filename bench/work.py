"""The cost of durable work: a turn that is enqueued, against one that begins as durably."""

from __future__ import annotations

import time
from pathlib import Path
from statistics import median

from bench.measures import QUESTION
from bench.table import Line
from turnledger import Ledger, Limits
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.validation import turn_request


async def enqueued_turns(folder: Path, rounds: int) -> list[Line]:
    """Measure an enqueue against a begin that waits for the disk, which an ordinary one leaves to its
    commit; each in a chat of its own."""
    limits = Limits(lease_time=3600.0, owner_jobs=rounds + 1)  # no timer ends what begins here
    ledger = await Ledger.open(f"sqlite:///{folder}/work.db", limits=limits)
    process = ledger._process
    enqueue, durable = [], []
    for _ in range(rounds + 1):
        waiting, running = await ledger.conversation(), await ledger.conversation()
        started = time.perf_counter()
        await waiting.enqueue(QUESTION)
        enqueue.append(time.perf_counter() - started)
        started = time.perf_counter()
        request = turn_request(process, running._target, None, QUESTION).begin
        await process.persist(begin, request, running.owner)
        durable.append(time.perf_counter() - started)
    await ledger.close()
    return [Line("enqueue, p50, of a begin that waits for the disk", median(enqueue) / median(durable), 1.2)]
