"""The cost of branching on a long history, and after many edits, against a fresh one."""

from __future__ import annotations

import asyncio
import time
import tracemalloc
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench.measures import ANSWER, QUESTION, one_turn
from bench.table import Line, alternate
from turnledger import Chat, Ledger
from turnledger.engine.turn.block import TurnBlock

PAGE = 50


async def branching(folder: Path, length: int, edits: int, rounds: int) -> list[Line]:
    """Measure fork, edit and the last page: in a long chat and in an often edited one, against a chat of one
    page."""
    ledger = await Ledger.open(f"sqlite:///{folder}/branches.db")
    fresh, long, edited = [await ledger.conversation() for _ in range(3)]
    for _ in range(PAGE):
        await one_turn(fresh)
        await one_turn(edited)
    for _ in range(length):
        await one_turn(long)
    for _ in range(edits):
        # One level deeper each time: the edited turn is the last one of the previous edit's branch.
        await _edit(edited)
        await one_turn(edited)
    lines = []
    for name, action in (("fork", _fork), ("edit", _edit), (f"last {PAGE}", _read)):
        base, slow, often = await alternate(
            rounds, *(partial(action, each) for each in (fresh, long, edited))
        )
        lines.append(Line(f"{name} at {length} turns, p50, of one in a fresh chat", slow / base, 1.3))
        lines.append(Line(f"{name} after {edits} edits, p50, of one in a fresh chat", often / base, 1.3))
    await ledger.close()
    return lines


async def _fork(chat: Chat) -> object:
    return await chat.fork()


async def _edit(chat: Chat) -> object:
    async with chat.regenerate() as turn:
        turn.emit(ANSWER)
    return turn


async def _read(chat: Chat) -> object:
    turns = await chat.turns(limit=PAGE)
    assert len(turns) == PAGE
    return turns


async def parallel_turns(folder: Path, many: int, rounds: int) -> list[Line]:
    """Measure many turns at once after one turn, each on a side branch of its own, against as many in as many
    conversations: made before, with one turn each, and made by the turns themselves."""
    ledger = await Ledger.open(f"sqlite:///{folder}/parallel.db")
    ratios: tuple[list[float], ...] = ([], [])
    for _ in range(rounds):
        chat, chats = await ledger.conversation(), [await ledger.conversation() for _ in range(many)]
        await asyncio.gather(*map(one_turn, (chat, *chats)))
        [first] = await chat.turns()
        await one_turn(chat)
        apart = await _seconds([each.turn(QUESTION) for each in chats])
        beside = await _seconds([chat.turn(QUESTION, after=first.id) for _ in range(many)])
        fresh = await _seconds([ledger.turn(QUESTION) for _ in range(many)])
        ratios[0].append(beside / apart)
        ratios[1].append(beside / fresh)
    await ledger.close()
    known, new = map(median, ratios)
    return [
        Line(f"{many} turns after one turn at once, of {many} chats", known, 1.2),
        Line(f"{many} turns after one turn at once, of {many} new chats", new, 1.2),
    ]


async def _seconds(blocks: Sequence[TurnBlock]) -> float:
    async def run(block: TurnBlock) -> None:
        async with block as turn:
            turn.emit(ANSWER)

    started = time.perf_counter()
    await asyncio.gather(*map(run, blocks))
    return time.perf_counter() - started


async def memory(folder: Path, messages: int, conversations: int) -> list[Line]:
    """Measure the memory of a cached conversation, relative to the JSON of its items."""
    ledger = await Ledger.open(f"sqlite:///{folder}/memory.db")
    chats = [await ledger.conversation() for _ in range(conversations)]
    for chat in chats:
        for _ in range(messages // 2 - 1):
            async with chat.turn(QUESTION) as turn:
                turn.emit(ANSWER)
    await ledger.close()
    ledger = await Ledger.open(f"sqlite:///{folder}/memory.db")
    chats = [await ledger.conversation(chat.id) for chat in chats]
    await one_turn(await ledger.conversation())
    tracemalloc.start()
    for chat in chats:
        await one_turn(chat)
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    size = sum([len(item.raw) + 1 for chat in chats for item in await chat.history()])
    await ledger.close()
    name = f"memory of a cached {messages}-message conversation, of its JSON"
    return [Line(name, held / size, 1.2)]
