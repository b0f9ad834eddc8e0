"""How long a stop takes from one process to another: `python -m bench.stops [--rounds N]`.

One process runs endless turns; this one stops each. Two times are taken: until the running turn receives the
stop, and until the stop is acknowledged with its outcome. Both processes read the same monotonic clock.
"""

from __future__ import annotations

import asyncio
import sys
import time
from pathlib import Path

from bench.two_processes import WITHOUT_TIMERS, other_half, run
from turnledger import Ledger
from turnledger.errors import TurnStopped


async def hold(path: Path, rounds: int) -> None:
    """Run turns that wait to be stopped; print when each one runs, and when it received the stop."""
    async with await Ledger.open(f"sqlite:///{path}", limits=WITHOUT_TIMERS) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        for _ in range(rounds):
            try:
                async with chat.turn("Go on and on") as turn:
                    print(turn.id, flush=True)
                    try:
                        await asyncio.get_running_loop().create_future()
                    finally:
                        received = time.monotonic()
            except TurnStopped:
                print(received, flush=True)


async def measure(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Stop the turns of another process; return the seconds until each received it, and until it was
    acknowledged."""
    path = folder / "stops.db"
    received: list[float] = []
    acknowledged: list[float] = []
    async with await Ledger.open(f"sqlite:///{path}", limits=WITHOUT_TIMERS) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        command = other_half("bench.stops", path, rounds)
        holder = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE
        )
        assert holder.stdout is not None
        for _ in range(rounds):
            turn = (await holder.stdout.readline()).decode().strip()
            started = time.monotonic()
            await chat.stop(turn)
            acknowledged.append(time.monotonic() - started)
            received.append(float(await holder.stdout.readline()) - started)
        await holder.wait()
    return received, acknowledged


if __name__ == "__main__":
    run(
        "bench.stops",
        __doc__,
        hold,
        measure,
        "a stop from another process, milliseconds",
        ("the running turn receives the stop", "the outcome is acknowledged"),
    )
