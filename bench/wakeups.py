"""How soon a reader of events in another process is woken: `python -m bench.wakeups [--rounds N]`.

Another process runs turns; this one reads their events from the shared file. Two times are taken: from
leaving the block of a turn, including its commit, until its last event is here; and, in one long turn, from
emitting a delta until it is here, after the turn has journaled it. Both read the same monotonic clock.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from random import Random

from bench.two_processes import WITHOUT_TIMERS, other_half, run
from turnledger import Chat, Ledger, TextDelta, TurnFinished

LONGEST_PAUSE = 0.1
"""Longest pause in seconds, random each time, so that events fall anywhere between two polls of the
reader."""


async def run_turns(path: Path, rounds: int) -> None:
    """Run turns, one per input line; print its id, then when it emitted its deltas and ended."""
    random = Random(1)
    async with await Ledger.open(f"sqlite:///{path}", limits=WITHOUT_TIMERS) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        for deltas in (*[1] * rounds, rounds):
            emitted: list[float] = []
            async with chat.turn("Tell me.") as turn:
                print(turn.id, flush=True)
                await asyncio.to_thread(sys.stdin.readline)
                for _ in range(deltas):
                    await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))
                    emitted.append(time.monotonic())
                    turn.emit("word ")
                await asyncio.sleep(random.uniform(0, LONGEST_PAUSE))
                left = time.monotonic()
            print(json.dumps([emitted, left]), flush=True)


async def listen(chat: Chat, writer: Process) -> tuple[list[float], float]:
    """Read the next turn of the other process; return how long each of its deltas took, and its end."""
    assert writer.stdin is not None
    assert writer.stdout is not None
    turn = (await writer.stdout.readline()).decode().strip()
    received: list[float] = []
    end = 0.0
    async for event in chat.events(turn):
        if event.number == 1:
            writer.stdin.write(b"\n")
        elif isinstance(event, TextDelta):
            received.append(time.monotonic())
        elif isinstance(event, TurnFinished):
            end = time.monotonic()
    emitted, left = json.loads(await writer.stdout.readline())
    return [at - since for at, since in zip(received, emitted, strict=True)], end - left


async def measure(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Read the turns of another process; return the seconds that their ends took, and the deltas of one."""
    path = folder / "waking.db"
    async with await Ledger.open(f"sqlite:///{path}", limits=WITHOUT_TIMERS) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        command = other_half("bench.wakeups", path, rounds)
        writer = await asyncio.create_subprocess_exec(sys.executable, *command, stdin=PIPE, stdout=PIPE)
        ends = [(await listen(chat, writer))[1] for _ in range(rounds)]
        deltas, _ = await listen(chat, writer)
        await writer.wait()
    return ends, deltas


if __name__ == "__main__":
    run(
        "bench.wakeups",
        __doc__,
        run_turns,
        measure,
        "an event from another process, milliseconds",
        ("the end of a turn, its commit included", "a delta of a long turn"),
    )
