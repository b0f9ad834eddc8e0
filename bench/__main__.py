"""Run the benchmarks: `make bench`, or `python -m bench [--quick]`. Prints a table of ratios."""

from __future__ import annotations

import asyncio
from pathlib import Path

from bench.branches import branching, memory, parallel_turns
from bench.measures import against_the_floor, growth, many_at_once
from bench.readers import read_by_many
from bench.resend_match import repeated_messages, resent_history
from bench.table import Line, show
from bench.work import enqueued_turns


async def measure(folder: Path, *, quick: bool) -> list[Line]:
    scale = 50 if quick else 1
    lines = await against_the_floor(folder, 2_000 // scale)
    lines += await many_at_once(folder, 64 // min(scale, 16), 10 // min(scale, 10))
    lines += await growth(folder, 10_000 // scale, 200 // scale)
    lines += await branching(folder, 10_000 // scale, 1_000 // scale, 300 // scale)
    lines += await parallel_turns(folder, 1_000 // scale, 5 // min(scale, 5))
    lines += await enqueued_turns(folder, 1_000 // scale)
    lines += resent_history(1_000, 50 // scale)
    lines += repeated_messages(1_000, 50 // scale)
    lines += await read_by_many(folder, 1_000 // min(scale, 10), 400 // scale, 5 // min(scale, 5))
    return lines + await memory(folder, 20, 200 // scale)


if __name__ == "__main__":
    show("bench", __doc__, measure, asyncio.run)
