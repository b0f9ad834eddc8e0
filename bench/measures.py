"""The measures: each alternates the engine with the floor, or a long history with a short one."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from statistics import median

import apsw
import msgspec

from bench.floor import Floor
from bench.table import Line
from turnledger import Chat, Ledger

BARE_SLICE, TURNS_SLICE = 1_000, 40
"""Transactions, and turns per conversation, in one slice: about a quarter of a second each."""
QUESTION = "Where is my order? " * 10
ANSWER = "It left the warehouse this morning and should reach you by Thursday. " * 10


async def one_turn(chat: Chat) -> tuple[float, float]:
    """Run a turn; return the seconds of the whole and of its commit."""
    started = time.perf_counter()
    async with chat.turn(QUESTION) as turn:
        turn.emit(ANSWER)
        leaving = time.perf_counter()
    ended = time.perf_counter()
    return ended - started, ended - leaving


async def against_the_floor(folder: Path, rounds: int) -> list[Line]:
    """Measure one writer: a bare transaction and a turn alternate, so that noise affects both alike."""
    ledger = await Ledger.open(f"sqlite:///{folder}/one.db")
    chat = await ledger.conversation()
    await one_turn(chat)
    (turn,) = await chat.turns()
    floor = Floor(folder, turn.body)
    bare, whole, commit = [], [], []
    for _ in range(rounds):
        bare.append(floor.commit())
        turn_took, commit_took = await one_turn(chat)
        whole.append(turn_took)
        commit.append(commit_took)
    await ledger.close()
    floor.close()
    return [
        Line("commit, p50, of a bare transaction", median(commit) / median(bare), 2.0),
        Line("whole turn, p50, of a bare transaction", median(whole) / median(bare), 2.0),
    ]


async def many_at_once(folder: Path, writers: int, rounds: int) -> list[Line]:
    """Measure many conversations at once against the bare loop; slices of both alternate."""
    ledger = await Ledger.open(f"sqlite:///{folder}/many.db")
    chats = [await ledger.conversation() for _ in range(writers)]
    await asyncio.gather(*(one_turn(chat) for chat in chats))
    (turn,) = await chats[0].turns()
    folder.joinpath("many").mkdir()
    floor = Floor(folder / "many", turn.body)
    ours: list[float] = []
    bare: list[float] = []
    for _ in range(rounds):
        started = time.perf_counter()
        for _ in range(BARE_SLICE):
            floor.commit()
        bare.append(BARE_SLICE / (time.perf_counter() - started))
        started = time.perf_counter()
        await asyncio.gather(*(_several(chat, TURNS_SLICE) for chat in chats))
        ours.append(writers * TURNS_SLICE / (time.perf_counter() - started))
    await ledger.close()
    floor.close()
    name = f"{writers} conversations at once, turns/s, of the bare loop"
    return [Line(name, median(ours) / median(bare), 3.0, at_least=True)]


async def _several(chat: Chat, count: int) -> None:
    for _ in range(count):
        await one_turn(chat)


async def growth(folder: Path, length: int, rounds: int) -> list[Line]:
    """Measure a long history against short ones: commit, the last page, and bytes on disk."""
    path = folder / "long.db"
    ledger = await Ledger.open(f"sqlite:///{path}")
    long = await ledger.conversation()
    await _several(long, length)
    (turn,) = await long.turns(limit=1)
    payload = sum(len(item.raw) for item in turn.items)
    await ledger.close()
    stored = path.stat().st_size
    ledger = await Ledger.open(f"sqlite:///{path}")
    long = await ledger.conversation(long.id)
    short = [await ledger.conversation() for _ in range(rounds)]
    for chat in short:
        await _several(chat, 10)
    page = await ledger.conversation()
    await _several(page, 50)
    await one_turn(long)
    turns = [(await one_turn(chat), await one_turn(long)) for chat in short]
    (short_turn, short_commit), (long_turn, long_commit) = (
        [median(took) for took in zip(*side, strict=True)] for side in zip(*turns, strict=True)
    )
    pages: tuple[list[float], list[float], list[float]] = ([], [], [])
    whole: tuple[list[float], list[float]] = ([], [])
    bare = BareReader(path, long)
    for _ in range(rounds * 3):
        pages[0].append(await _read_page(page))
        pages[1].append(await _read_page(long))
        pages[2].append(bare.read(50))
    for _ in range(max(rounds // 20, 3)):
        started = time.perf_counter()
        assert len(await long.history()) > length
        whole[0].append(time.perf_counter() - started)
        whole[1].append(bare.read(2 * length))
    bare.close()
    await ledger.close()
    return [
        Line(f"commit at {length} turns, p50, of one at 10", long_commit / short_commit, 1.2),
        Line(f"whole turn at {length} turns, p50, of one at 10", long_turn / short_turn, 1.2),
        Line(f"last 50 at {length} turns, p50, of 50 at 50", median(pages[1]) / median(pages[0]), 1.2),
        Line(f"last 50 at {length} turns, p50, of a bare read", median(pages[1]) / median(pages[2]), 1.8),
        Line(f"whole history of {length} turns, of a bare read", median(whole[0]) / median(whole[1]), 2.0),
        Line(f"file at {length} turns of {payload} bytes, of these", stored / (length * payload), 1.4),
    ]


class BareReader:
    """Reads the last turns of a chat with one query, and decodes their items."""

    def __init__(self, path: Path, chat: Chat) -> None:
        self._connection = apsw.Connection(str(path))
        query = "SELECT ref FROM branch WHERE id = ?"
        [(self._branch,)] = self._connection.execute(query, (chat.as_opened.branch.raw,)).fetchall()

    def read(self, count: int) -> float:
        query = "SELECT body FROM turn WHERE branch = ? ORDER BY number DESC LIMIT ?"
        started = time.perf_counter()
        rows = self._connection.execute(query, (self._branch, count)).fetchall()
        items = [item for (body,) in reversed(rows) for item in msgspec.json.decode(body)["items"]]
        took = time.perf_counter() - started
        assert len(items) >= count
        return took

    def close(self) -> None:
        self._connection.close()


async def _read_page(chat: Chat) -> float:
    started = time.perf_counter()
    turns = await chat.turns(limit=50)
    took = time.perf_counter() - started
    assert len(turns) == 50
    return took
