"""The cost of a thousand readers to the turn that they read."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

from bench.table import Line
from turnledger import Chat, Ledger

DELTA = " word"
PACE = 0.005
"""Seconds between deltas, as of a fast model."""


async def read_by_many(folder: Path, count: int, deltas: int, rounds: int) -> list[Line]:
    """Measure a turn with many readers against one without, alternately."""
    ledger = await Ledger.open(f"sqlite:///{folder}/readers.db")
    chat = await ledger.conversation()
    alone, read = [], []
    for _ in range(rounds):
        alone.append(await _turn(chat, 0, deltas))
        read.append(await _turn(chat, count, deltas))
    await ledger.close()
    return [Line(f"turn with {count} readers, of one without", median(read) / median(alone), 1.1)]


async def _turn(chat: Chat, count: int, deltas: int) -> float:
    """Run a turn with this many readers; return the seconds from its first delta to its commit."""
    received: list[int] = []
    async with chat.turn("Tell me.") as turn:
        reading = [asyncio.create_task(_read(chat, turn.id, received)) for _ in range(count)]
        await asyncio.sleep(0.2)  # until all of them listen
        started = time.perf_counter()
        for _ in range(deltas):
            turn.emit(DELTA)
            await asyncio.sleep(PACE)
    took = time.perf_counter() - started
    await asyncio.gather(*reading)
    assert received == [deltas + 3] * count
    return took


async def _read(chat: Chat, turn: str, received: list[int]) -> None:
    number = 0
    async for event in chat.events(turn):
        number += 1
        assert event.number == number
    received.append(number)
