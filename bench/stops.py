"""How long a stop takes from one process to another: `python -m bench.stops [--rounds N]`.

One process runs turns that would never end; this one stops each. Two times are taken: until the running turn
is told, and until the stop is acknowledged with its outcome. Both processes read the same monotonic clock.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from pathlib import Path
from statistics import quantiles

from turnledger import Ledger, Limits
from turnledger.errors import TurnStopped

WITHOUT_TIMERS = Limits(lease_time=10_000.0)
"""So that nothing but the notice of the other's write ends a wait."""


async def hold(path: Path, rounds: int) -> None:
    """Run turns that wait to be stopped; print when each one runs, and when it was told to end."""
    async with await Ledger.open(f"sqlite:///{path}", limits=WITHOUT_TIMERS) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        for _ in range(rounds):
            try:
                async with chat.turn("Go on and on") as turn:
                    print(turn.id, flush=True)
                    try:
                        await asyncio.get_running_loop().create_future()
                    finally:
                        told = time.monotonic()
            except TurnStopped:
                print(told, flush=True)


async def measure(folder: Path, rounds: int) -> tuple[list[float], list[float]]:
    """Stop the turns of another process; return the seconds until each was told, and acknowledged."""
    path = folder / "stops.db"
    told: list[float] = []
    acknowledged: list[float] = []
    async with await Ledger.open(f"sqlite:///{path}", limits=WITHOUT_TIMERS) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        command = ["-m", "bench.stops", "--hold", str(path), "--rounds", str(rounds)]
        holder = await asyncio.create_subprocess_exec(
            sys.executable, *command, stdout=asyncio.subprocess.PIPE
        )
        assert holder.stdout is not None
        for _ in range(rounds):
            turn = (await holder.stdout.readline()).decode().strip()
            started = time.monotonic()
            await chat.stop(turn)
            acknowledged.append(time.monotonic() - started)
            told.append(float(await holder.stdout.readline()) - started)
        await holder.wait()
    return told, acknowledged


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.stops", description=__doc__)
    parser.add_argument("--rounds", type=int, default=200)
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to measure (default: here)")
    parser.add_argument("--hold", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold is not None:
        asyncio.run(hold(options.hold, options.rounds))
        return
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        told, acknowledged = asyncio.run(measure(Path(folder).resolve(), options.rounds))
    print(f"{'a stop from another process, milliseconds':44} {'p50':>7} {'p99':>7}")
    for name, times in (("the running turn is told", told), ("the outcome is acknowledged", acknowledged)):
        cuts = quantiles(times, n=100, method="inclusive")
        print(f"{name:44} {1000 * cuts[49]:7.1f} {1000 * cuts[98]:7.1f}")


if __name__ == "__main__":
    main()
