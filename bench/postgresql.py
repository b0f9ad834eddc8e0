"""Turns on PostgreSQL against bare statements: `python -m bench.postgresql`.

The floor writes the rows of a begin or a commit with one guarded statement of the driver, on the same tables, with as
many connections and the same waits for the disk. Prints ratios, of medians or of times that alternate.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median

import asyncpg

from bench.measures import ANSWER, QUESTION, Line, one_turn
from turnledger import Chat, Ledger
from turnledger.testing.postgresql import PostgresServer

AT_ONCE, SLICE, POOL, LONG = 64, 10, 20, 10_000
"""Conversations at once, turns of each in a slice, connections, and turns of a long chat."""
PREVIEW = ANSWER[:160]
BEGIN = """
WITH head AS (UPDATE branch SET running = $4, fence = fence + 1, preview = $5, version = version + 1
              WHERE owner = $1 AND id = $2 AND version = $3 AND running IS NULL RETURNING 1),
added AS (INSERT INTO attempt (ended, id, owner, conversation, branch, lease, fence, state, input, on_stop, on_failure,
                               journaled, created_at, interaction, bytes)
          SELECT 0, $4, $1, $2, $2, $2, 1, 'running', $6, 'keep', 'settle', 0, $7, 1, 0 FROM head),
told AS (INSERT INTO change (owner, xid, place, at, scope, kind, conversation, turn)
         SELECT $1, pg_current_xact_id()::text::bigint, 0, $7, '', 6, $2, $4 FROM head)
SELECT set_config('synchronous_commit', 'off', true) FROM head
"""
COMMIT = """
WITH head AS (UPDATE branch SET head = $4, length = $8, running = NULL, preview = $5, bytes = bytes + length($6::bytea),
                                version = version + 1
              WHERE owner = $1 AND id = $2 AND version = $3 AND running IS NOT DISTINCT FROM $9 RETURNING 1),
added AS (INSERT INTO turn (owner, id, branch, number, parent, kind, created_at, committed_at, body, checksum)
          SELECT $1, $4, $2, $8, $4, 0, $7, $7, $6, 1 FROM head),
due AS (INSERT INTO unindexed (owner, id, title) SELECT $1, $4, 0 FROM head),
gone AS (DELETE FROM attempt WHERE owner = $1 AND id = $4 AND EXISTS (SELECT FROM head)),
used AS (UPDATE conversation SET touched_at = $7 WHERE owner = $1 AND id = $2 AND EXISTS (SELECT FROM head)),
told AS (INSERT INTO change (owner, xid, place, at, scope, kind, conversation, turn, branch)
         SELECT $1, pg_current_xact_id()::text::bigint, 0, $7, '', 7, $2, $4, $2 FROM head)
SELECT 1 FROM head
"""


class Floor:
    """Turns of bare statements, each conversation with an owner of its own."""

    def __init__(self, connections: list[asyncpg.Connection], input: bytes, body: bytes) -> None:
        self._idle = connections
        self._any_idle = asyncio.Semaphore(len(connections))
        self._input, self._body = input, body
        self._ids = [os.urandom(16) for _ in range(AT_ONCE)]
        self._numbers = [0] * AT_ONCE
        self._versions = [0] * AT_ONCE

    async def prepare(self) -> None:
        conversation = (
            "INSERT INTO conversation (id, owner, branch, state, internal, revision, created_at, touched_at,"
            " scope, pinned, archived, listed) VALUES ($1, $2, $1, 'live', 0, 1, 0, 0, '', 0, 0, 1)"
        )
        branch = (
            "INSERT INTO branch (owner, id, number, conversation, fence, length, start, settled, instructed,"
            " bytes, preview) VALUES ($2, $1, 1, $1, 0, 0, 0, 0, 0, 0, '')"
        )
        for place, id in enumerate(self._ids):
            for query in (conversation, branch):
                await self._idle[0].execute(query, id, f"floor-{place}")

    async def turn(self, place: int) -> tuple[float, float]:
        """Begin and commit; return the seconds of both and of the commit."""
        turn, started = os.urandom(16), time.perf_counter()
        await self._send(BEGIN, place, turn, PREVIEW, self._input, _now())
        begun = time.perf_counter()
        await self.commit(place, turn)
        ended = time.perf_counter()
        return ended - started, ended - begun

    async def commit(self, place: int, begun: bytes | None = None) -> None:
        self._numbers[place] += 1
        turn = begun or os.urandom(16)
        await self._send(COMMIT, place, turn, PREVIEW, self._body, _now(), self._numbers[place], begun)

    async def _send(self, query: str, place: int, *arguments: object) -> None:
        version = self._versions[place]
        self._versions[place] += 1
        async with self._any_idle:
            connection = self._idle.pop()
            assert await connection.fetch(query, f"floor-{place}", self._ids[place], version, *arguments)
            self._idle.append(connection)


def _now() -> int:
    return time.time_ns() // 1_000_000


async def measure(url: str, rounds: int, long: int) -> list[Line]:
    async with await Ledger.open(f"{url}&pool={POOL}") as ledger:
        one = [await ledger.conversation() for _ in range(AT_ONCE)]
        many = [await ledger.for_owner(f"owner-{n}").conversation() for n in range(AT_ONCE)]
        for chat in (*one, *many):
            await one_turn(chat)
        (turn,) = await one[0].turns()
        floor = Floor([await asyncpg.connect(url) for _ in range(POOL)], turn.body, turn.body)
        await floor.prepare()
        lines = await one_at_a_time(floor, one[0], rounds * 100)
        lines += await many_at_once(floor, {"one owner": one, "64 owners": many}, rounds)
        return lines + await growth(ledger, long, rounds * 10)


async def one_at_a_time(floor: Floor, chat: Chat, rounds: int) -> list[Line]:
    bare, ours = [], []
    for _ in range(rounds):
        bare.append(await floor.turn(0))
        ours.append(await one_turn(chat))
    whole, commit, begin = (
        [median(part(each) for each in side) for side in (ours, bare)]
        for part in (lambda each: each[0], lambda each: each[1], lambda each: each[0] - each[1])
    )
    return [
        Line("commit, p50, of its bare statement", commit[0] / commit[1], 1.5),
        Line("begin, p50, of its bare statement", begin[0] / begin[1], 1.5),
        Line("turn, p50, of its two bare statements", whole[0] / whole[1], 1.5),
        Line("turn, p50, of the bare commit", whole[0] / commit[1], 3.0),
    ]


async def many_at_once(floor: Floor, chats: dict[str, list[Chat]], rounds: int) -> list[Line]:
    loops: dict[str, Callable[[int], Awaitable[object]]] = {"commits": floor.commit, "turns": floor.turn}
    loops |= {name: lambda place, each=each: one_turn(each[place]) for name, each in chats.items()}
    took: dict[str, list[float]] = {name: [] for name in loops}
    for _ in range(rounds):
        for name, work in loops.items():
            started = time.perf_counter()
            await asyncio.gather(*(_repeat(work, place) for place in range(AT_ONCE)))
            took[name].append(time.perf_counter() - started)
    floors = (("bare commits/s", "commits", 0.5), ("two bare statements", "turns", 0.5))
    return [
        Line(f"{AT_ONCE} at once, {name}, turns/s, of {of}", median(took[bare]) / median(took[name]), least, True)
        for name in chats
        for of, bare, least in floors
    ]


async def _repeat(work: Callable[[int], Awaitable[object]], place: int) -> None:
    for _ in range(SLICE):
        await work(place)


async def growth(ledger: Ledger, length: int, rounds: int) -> list[Line]:
    long = await ledger.conversation()
    for _ in range(length):
        await one_turn(long)
    short = [await ledger.conversation() for _ in range(rounds)]
    for chat in short:
        for _ in range(10):
            await one_turn(chat)
    turns = [(await one_turn(long), await one_turn(chat)) for chat in short]
    page = [(await _read_page(long), await _read_page(chat)) for chat in short]
    parts = {
        "commit": [(a[1], b[1]) for a, b in turns],
        "begin": [(a[0] - a[1], b[0] - b[1]) for a, b in turns],
        "last 10": page,
    }
    return [
        Line(f"{name} at {length} turns, p50, of one at 10", *_ratio(took), 1.2) for name, took in parts.items()
    ]


async def _read_page(chat: Chat) -> float:
    started = time.perf_counter()
    assert len(await chat.turns(limit=10)) == 10
    return time.perf_counter() - started


async def measure_size(url: str) -> None:
    """Print what a turn adds to the database and to its log."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.postgresql", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--long", type=int, default=LONG)
    parser.add_argument("--folder")
    options = parser.parse_args()
    with PostgresServer.start(18, {}, options.folder) as server:
        for line in asyncio.run(measure(server.create_database(), options.rounds, options.long)):
            bound = f"{'≥' if line.at_least else '≤'} {line.target:g}"
            print(f"{line.name:62} {line.ratio:6.2f}   {bound:6} {'holds' if line.holds else 'MISSED'}")


if __name__ == "__main__":
    main()
