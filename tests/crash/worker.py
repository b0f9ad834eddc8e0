"""A process that runs turns: `python -m tests.crash.worker WHAT[:BROKEN] FOLDER LEASE_TIME …`.

It reports to its parent, one line per event, after the event: `acked TOKEN ID DIGEST` for an acknowledged
turn; `failed`, `stopped` or `refused TOKEN WHY` for others; `begun` and `acted` before. For durable work,
`enqueued TOKEN CHAT ID` after a job was stored, and `answered` before its commit. BROKEN names an engine of
tests.simulation.broken.work.
"""

import asyncio
import hashlib
import os
import signal
import sys
from collections.abc import Callable
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any

from tests.crash.place import store_of
from tests.crash.worker_requests import (
    Deliberate,
    WorkerRequest,
    act,
    call,
    job_token,
    name_of,
    runner_of,
    token_of,
)
from tests.simulation.broken.registry import BROKEN
from turnledger import Chat, Ledger, Limits, RunningTurn, Turn
from turnledger.engine.turn.queue import Queued
from turnledger.engine.wrapped_store import WrappedStore, Write
from turnledger.errors import Superseded, TurnFailed, TurnledgerError, TurnStopped
from turnledger.stores.url import open_store
from turnledger.testing.fake_clock import FakeClock
from turnledger.types import Runner


def report(line: str) -> None:
    print(line, flush=True)


def digest(turn: Turn) -> str:
    return hashlib.sha256(turn.body).hexdigest()


def acknowledge(token: str, turn: Turn) -> None:
    report(f"acked {token} {turn.id} {digest(turn)}")


async def read_line() -> str:
    return (await asyncio.to_thread(sys.stdin.readline)).strip()


async def run_request(ledger: Ledger, effects: Path, request: WorkerRequest) -> None:
    """Run one request to its end; a keyed one is retried after a failure."""
    for may_fail in (True, False, False) if request.idempotency_key else (True,):
        try:
            turn = await ledger.run(
                runner_of(request, effects, report, may_fail=may_fail),
                request.token,
                conversation_key=request.conversation_key,
                idempotency_key=request.idempotency_key,
                on_failure=request.policy,
            )
        except (Deliberate, TurnFailed):
            continue
        except TurnStopped:
            return report(f"stopped {request.token}")
        except TurnledgerError as problem:
            return report(f"refused {request.token} {type(problem).__name__}")
        return acknowledge(request.token, turn)
    return report(f"failed {request.token}")


async def loop(ledger: Ledger, effects: Path, seed: str, slot: str, first: str, incarnation: str) -> None:
    for number in count(int(first)):
        token = token_of(int(seed), int(slot), number, int(incarnation))
        await run_request(ledger, effects, WorkerRequest.of(token))


async def a_few(ledger: Ledger, effects: Path, seed: str, how_many: str) -> None:
    """Run a few requests, and return in the middle of a turn without closing the ledger."""
    for number in range(int(how_many)):
        await run_request(ledger, effects, WorkerRequest.of(token_of(int(seed), 0, number, 0)))
    chat = await ledger.conversation(conversation_key="lane-a")
    await chat.turn("never finished").__aenter__()


async def hold(ledger: Ledger, effects: Path, key: str, then: str) -> None:
    """Hold a lane after an effect until the parent sends `go`; then commit, or act once more."""
    try:
        acknowledge("held", await ledger.run(_holder(effects, key, then), "held", conversation_key=key))
    except TurnledgerError as problem:
        report(f"refused held {type(problem).__name__}")


async def hold_job(ledger: Ledger, effects: Path, key: str) -> None:
    """As `hold` that acts once more, in a job. A process with the same key resumes it."""

    async def run(turn: RunningTurn) -> None:
        try:
            await _holder(effects, key, "act")(turn)
        except TurnledgerError as problem:
            report(f"refused held {type(problem).__name__}")
            raise
        report("ran held")

    chat = await ledger.conversation(conversation_key=key)
    await chat.enqueue("held", idempotency_key=key)
    await ledger.work(run)


def _holder(effects: Path, key: str, then: str) -> Runner:
    async def run(turn: RunningTurn) -> None:
        async def tool(name: str) -> str:
            act(effects, name)
            return "done"

        first, second = call(f"{key}/0"), call(f"{key}/1")
        await turn.call(first, lambda: tool(name_of(first)))
        report("holding")
        assert await read_line() == "go"
        if then == "act":
            await turn.call(second, lambda: tool(name_of(second)))
        turn.emit("too late")

    return run


async def wait(ledger: Ledger, effects: Path, key: str) -> None:
    """Run a turn on a lane that may be held."""

    async def run(turn: RunningTurn) -> None:
        turn.emit("my turn")

    acknowledge("waited", await ledger.run(run, "waited", conversation_key=key))


async def obey(ledger: Ledger, effects: Path) -> None:
    """Run commands: `hold LANE TOKEN` and `run LANE TOKEN` start a turn, `stop LANE ID` stops one."""
    tasks = []
    while (line := await read_line()) != "end":
        word, lane, name = line.split()
        chat = await ledger.conversation(conversation_key=lane)
        if word == "stop":
            tasks.append(asyncio.create_task(_stop(chat, name)))
        else:
            tasks.append(asyncio.create_task(_take_turn(chat, name, holds=word == "hold")))
    await asyncio.gather(*tasks)


async def _stop(chat: Chat, turn: str) -> None:
    ended = await chat.stop(turn)
    report(f"ended {turn} {ended.state if ended else None}")


async def _take_turn(chat: Chat, token: str, *, holds: bool) -> None:
    block = chat.turn(token)
    report(f"requested {token} {block.id}")
    try:
        async with block as turn:
            turn.emit("so far")
            report(f"running {token} {block.id}")
            if holds:
                await asyncio.get_running_loop().create_future()
    except TurnStopped as stopped:
        report(f"stopped {token} {'kept' if stopped.turn else 'discarded'}")
    except Superseded:
        report(f"superseded {token}")
    else:
        report(f"done {token}")


BACKLOG = 12
"""Jobs in the store beyond which no more are enqueued."""


async def work(ledger: Ledger, effects: Path, seed: str, slot: str, first: str) -> None:
    """Run durable work, and enqueue the jobs of this slot from `first` on; none if it is empty."""
    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(ledger.work(lambda turn: _run_job(turn, effects)))
        report("opened")
        if first:
            tasks.create_task(_enqueue_all(ledger, seed, slot, int(first)))


async def _enqueue_all(ledger: Ledger, seed: str, slot: str, first: int) -> None:
    for number in count(first):
        request = WorkerRequest.of(job_token(int(seed), int(slot), number))
        chat = await ledger.conversation(conversation_key=request.conversation_key)
        id = await chat.enqueue(
            request.token, idempotency_key=request.idempotency_key, on_failure=request.policy
        )
        report(f"enqueued {request.token} {chat.id} {id}")
        waiting = await ledger.jobs()
        if len(waiting) > BACKLOG:
            oldest = waiting[0]
            await (await ledger.conversation(oldest.conversation)).outcome(oldest.id)


async def _run_job(turn: RunningTurn, effects: Path) -> None:
    """Run a job of this or another slot. Some kill their process: again and again, or in a tool."""
    (message,) = turn.input
    request = WorkerRequest.of(message.text)

    def report_or_die(line: str) -> None:
        if line.startswith(request.dies_at):
            os.kill(os.getpid(), signal.SIGKILL)
        report(line)

    await runner_of(request, effects, report_or_die, may_fail=False)(turn)
    report_or_die(f"answered {request.token}")


class ReportingStore(WrappedStore):
    """Reports when a turn has to queue."""

    receives_hints = True

    def watch(self, changed: Callable[[], None]) -> None:
        if self.receives_hints:
            super().watch(changed)

    async def write(self, write: Write) -> Any:
        answer = await super().write(write)
        if isinstance(answer, Queued):
            report("queued")
        return answer


WHAT = {
    "loop": loop,
    "a-few": a_few,
    "hold": hold,
    "hold-deaf": hold,
    "hold-job": hold_job,
    "hold-job-deaf": hold_job,
    "obey": obey,
    "wait": wait,
    "work": work,
    "wait-without-time": wait,
}


def break_engine(name: str) -> None:
    import_module("tests.simulation.broken.work")
    for where, what, how in BROKEN[name]():
        setattr(where, what, how)


async def main(what: str, folder: str, lease_time: str, *more: str) -> None:
    what, _, broken = what.partition(":")
    if broken:
        break_engine(broken)
    store = ReportingStore(await open_store(store_of(Path(folder))))
    flush_every = Limits.flush_every
    if what == "work":
        flush_every = 0.005  # jobs are short, and readers and resumes shall meet what they have streamed
    elif what.endswith("-deaf"):
        store.receives_hints, flush_every = False, 1e6  # only the fence refuses a late write
    # With a stopped clock no lease expires: only lock files show that a process is dead.
    clock = FakeClock() if what == "wait-without-time" else None
    limits = Limits(lease_time=float(lease_time), flush_every=flush_every)
    ledger = await Ledger.over(store, limits=limits, clock=clock)
    if not store.receives_hints:
        await ledger._recovery.close()
    await WHAT[what](ledger, Path(folder) / "effects", *more)
    if what != "a-few":
        await ledger.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
