"""Run plain turns, for tools that count instructions: on a busy machine, times of two versions tell nothing.

    valgrind --tool=cachegrind --cache-sim=no python -m bench.plain_turn memory: 350

The difference to a run of 50 turns, divided by 300, is the cost of one turn without the start of Python. The
clock stands still for eight turns each, as it does on a fast machine, however slow the tool is.
"""

from __future__ import annotations

import asyncio
import gc
import sys

from turnledger import Ledger
from turnledger.stores.url import open_store
from turnledger.testing.fake_clock import FakeClock

TURNS_PER_MS = 8


async def run(url: str, turns: int) -> None:
    clock = FakeClock(1_800_000_000_000)
    async with await Ledger.over(await open_store(url), clock=clock) as ledger:
        chat = await ledger.conversation(conversation_key="plain")
        gc.disable()
        for number in range(turns):
            if number % TURNS_PER_MS == 0:
                clock.advance(0.001)
            async with chat.turn("hello there") as turn:
                turn.emit("an answer")


if __name__ == "__main__":
    asyncio.run(run(sys.argv[1], int(sys.argv[2])))
