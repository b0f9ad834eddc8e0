"""Turns on PostgreSQL against bare statements: `python -m bench.postgresql`.

The floor writes the rows of a begin or of a commit with one guarded statement of the driver, on the same
tables, with as many connections. What is compared alternates. The database is in memory, or in `--folder`;
commits wait for it.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Sequence
from statistics import median
from typing import Any, TypeAlias

import asyncpg
import uvloop

from bench.measures import ANSWER, one_turn
from bench.table import Line
from turnledger import Chat, Ledger
from turnledger.testing.postgresql import PostgresServer

AT_ONCE, SLICE, CONNECTIONS = 64, 10, 20
"""Conversations at once, turns of each in a slice, and connections of either side."""
Work: TypeAlias = Callable[[int], Awaitable[Any]]

BEGIN = """
WITH head AS (
    UPDATE branch SET running = $4, fence = fence + 1, preview = $5, version = version + 1
    WHERE owner = $1 AND id = $2 AND version = $3 AND running IS NULL RETURNING 1),
attempt AS (
    INSERT INTO attempt (ended, id, owner, conversation, branch, lease, fence, state, input, on_stop,
                         on_failure, journaled, created_at, interaction, bytes)
    SELECT 0, $4, $1, $2, $2, $2, 1, 'running', $6, 'keep', 'settle', 0, $7, 1, 0 FROM head),
change AS (
    INSERT INTO change (owner, xid, place, at, scope, kind, conversation, turn)
    SELECT $1, pg_current_xact_id()::text::bigint, 0, $7, '', 6, $2, $4 FROM head)
SELECT set_config('synchronous_commit', 'off', true) FROM head
"""
COMMIT = """
WITH head AS (
    UPDATE branch SET head = $4, length = $8, running = NULL, preview = $5, bytes = bytes + length($6::bytea),
                      version = version + 1
    WHERE owner = $1 AND id = $2 AND version = $3 AND running IS NOT DISTINCT FROM $9 RETURNING 1),
turn AS (
    INSERT INTO turn (owner, id, branch, number, parent, kind, created_at, committed_at, body, checksum)
    SELECT $1, $4, $2, $8, $4, 0, $7, $7, $6, 1 FROM head),
unindexed AS (INSERT INTO unindexed (owner, id, title) SELECT $1, $4, 0 FROM head),
attempt AS (DELETE FROM attempt WHERE owner = $1 AND id = $4 AND EXISTS (SELECT FROM head)),
conversation AS (
    UPDATE conversation SET touched_at = $7 WHERE owner = $1 AND id = $2 AND EXISTS (SELECT FROM head)),
change AS (
    INSERT INTO change (owner, xid, place, at, scope, kind, conversation, turn, branch)
    SELECT $1, pg_current_xact_id()::text::bigint, 0, $7, '', 7, $2, $4, $2 FROM head)
SELECT 1 FROM head
"""
CONVERSATION = """
INSERT INTO conversation (id, owner, branch, state, internal, revision, created_at, touched_at, scope, pinned,
                          archived, listed)
VALUES ($1, $2, $1, 'live', 0, 1, 0, 0, '', 0, 0, 1)
"""
BRANCH = """
INSERT INTO branch (owner, id, number, conversation, fence, length, start, settled, instructed, bytes,
                    preview)
VALUES ($2, $1, 1, $1, 0, 0, 0, 0, 0, 0, '')
"""


class Floor:
    """Turns of bare statements, each conversation with an owner of its own."""

    def __init__(self, connections: list[asyncpg.Connection], input: bytes, body: bytes) -> None:
        self._idle, self._any_idle = connections, asyncio.Semaphore(len(connections))
        self._input, self._body = input, body
        self._ids = [os.urandom(16) for _ in range(AT_ONCE)]
        self._numbers, self._versions = [0] * AT_ONCE, [0] * AT_ONCE

    async def prepare(self) -> None:
        for place, id in enumerate(self._ids):
            for query in (CONVERSATION, BRANCH):
                await self._idle[0].execute(query, id, f"floor-{place}")

    async def turn(self, place: int) -> tuple[float, float]:
        """Begin and commit; return the seconds of both and of the commit."""
        turn, started = os.urandom(16), time.perf_counter()
        await self._send(BEGIN, place, turn, ANSWER[:160], self._input, _now())
        begun = time.perf_counter()
        await self.commit(place, turn)
        ended = time.perf_counter()
        return ended - started, ended - begun

    async def commit(self, place: int, begun: bytes | None = None) -> None:
        self._numbers[place] += 1
        given = (begun or os.urandom(16), ANSWER[:160], self._body, _now(), self._numbers[place], begun)
        await self._send(COMMIT, place, *given)

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
    async with await Ledger.open(f"{url}&pool={CONNECTIONS}") as ledger:
        one = [await ledger.conversation() for _ in range(AT_ONCE)]
        many = [await ledger.for_owner(f"owner-{n}").conversation() for n in range(AT_ONCE)]
        for chat in (*one, *many):
            await one_turn(chat)
        (turn,) = await one[0].turns()
        connections = [await asyncpg.connect(url) for _ in range(CONNECTIONS)]
        floor = Floor(connections.copy(), turn.items[0].raw, turn.body)
        await floor.prepare()
        lines = await one_at_a_time(floor, one[0], rounds * 100)
        lines += await many_at_once(floor, {"64 owners": many, "one owner": one}, rounds)
        lines += await growth(ledger, long, rounds * 20)
        await print_size(connections[0], lambda place: one_turn(one[place]))
        for connection in connections:
            await connection.close()
        return lines


async def one_at_a_time(floor: Floor, chat: Chat, rounds: int) -> list[Line]:
    took = [(await one_turn(chat), await floor.turn(0)) for _ in range(rounds)]
    return [
        Line("commit, p50, of its bare statement", _ratio([(a[1], b[1]) for a, b in took]), 1.5),
        Line("begin, p50, of its bare statement", _ratio([(a[0] - a[1], b[0] - b[1]) for a, b in took]), 1.5),
        Line("turn, p50, of both bare statements", _ratio([(a[0], b[0]) for a, b in took]), 1.5),
    ]


async def many_at_once(floor: Floor, chats: dict[str, list[Chat]], rounds: int) -> list[Line]:
    loops: dict[str, Work] = {"commits": floor.commit, "turns": floor.turn}
    loops |= {name: lambda place, each=each: one_turn(each[place]) for name, each in chats.items()}
    took = [[await _seconds(work) for work in loops.values()] for _ in range(rounds)]
    floors = (("bare commits/s", 0), ("both bare statements'", 1))
    return [
        Line(
            f"64 at once, {name}: turns/s, of {of}",
            _ratio([(each[bare], each[at]) for each in took]),
            0.5,
            True,
        )
        for at, name in enumerate(chats, 2)
        for of, bare in floors
    ]


async def growth(ledger: Ledger, length: int, rounds: int) -> list[Line]:
    long = await ledger.conversation()
    for _ in range(length):
        await one_turn(long)
    short = [await ledger.conversation() for _ in range(20)]
    for chat in short:
        for _ in range(10):
            await one_turn(chat)
    turns, pages = [], []
    for number in range(rounds):
        pair = (long, short[number % 20])[:: 1 if number % 2 else -1]  # the second one may find warmer caches
        turns.append([await one_turn(chat) for chat in pair][:: 1 if number % 2 else -1])
        pages.append([await _read_page(chat) for chat in pair][:: 1 if number % 2 else -1])
    return [
        Line(f"commit at {length} turns, p50, of one at 10", _ratio([(a[1], b[1]) for a, b in turns]), 1.2),
        Line(
            f"begin at {length} turns, p50, of one at 10",
            _ratio([(a[0] - a[1], b[0] - b[1]) for a, b in turns]),
            1.2,
        ),
        Line(f"last 10 at {length} turns, p50, of 10 at 10", _ratio(pages), 1.2),
    ]


async def _read_page(chat: Chat) -> float:
    started = time.perf_counter()
    assert len(await chat.turns(limit=10)) == 10
    return time.perf_counter() - started


async def _seconds(work: Work) -> float:
    async def repeat(place: int) -> None:
        for _ in range(SLICE):
            await work(place)

    started = time.perf_counter()
    await asyncio.gather(*(repeat(place) for place in range(AT_ONCE)))
    return time.perf_counter() - started


def _ratio(pairs: Sequence[Sequence[float]]) -> float:
    these, those = zip(*pairs, strict=True)
    return median(these) / median(those)


async def print_size(connection: asyncpg.Connection, turn: Work) -> None:
    """Print what a turn adds to the database and to its log, and how many fit into a second."""
    sizes = "SELECT pg_database_size(current_database()), pg_current_wal_lsn() - '0/0'"
    before, seconds = await connection.fetchrow(sizes), await _seconds(turn)
    turns = AT_ONCE * SLICE
    after = await connection.fetchrow(sizes)
    stored, logged = (float(a - b) / turns for a, b in zip(after, before, strict=True))
    print(f"a turn adds {stored:.0f} bytes to the database and {logged:.0f} to its log")
    print(f"64 at once, one owner: {turns / seconds:.0f} turns/s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.postgresql", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--long", type=int, default=10_000, help="turns of the long chat")
    parser.add_argument("--folder", help="on the disk to measure, open to all users (default: in memory)")
    options = parser.parse_args()
    with PostgresServer.start(18, {}, options.folder) as server:
        lines = uvloop.run(measure(server.create_database(), options.rounds, options.long))
    for line in lines:
        print(line)


if __name__ == "__main__":
    main()
