"""A turn on PostgreSQL against a bare floor: `python -m bench.postgresql`.

The floor inserts the rows of a commit with one statement of the driver, on the same tables. Both wait for the
disk. Prints ratios, each the median of several interleaved rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable

import asyncpg

from turnledger import Chat, Ledger
from turnledger.testing.postgresql import PostgresServer

ROUNDS, TURNS, AT_ONCE = 7, 100, 64
BODY = b'{"items":[]}' + b" " * 400
COMMIT = """
WITH t AS (INSERT INTO turn (owner, id, branch, number, kind, created_at, committed_at, body, checksum)
           VALUES ($1, $2, $3, $4, 0, 0, 0, $5, 0)),
     d AS (INSERT INTO unindexed (owner, id, title) VALUES ($1, $2, 0)),
     h AS (INSERT INTO change (owner, xid, place, at, scope, kind, conversation)
           VALUES ($1, pg_current_xact_id()::text::bigint, 0, 0, '', 0, $3)),
     c AS (UPDATE conversation SET touched_at = touched_at + 1 WHERE id = $3)
UPDATE branch SET head = $2, length = $4 WHERE id = $3
"""


class Floor:
    """Branches of their own, each with a connection."""

    def __init__(self, connections: list[asyncpg.Connection]) -> None:
        self._connections = connections
        self._ids = [os.urandom(16) for _ in connections]
        self._number = 0

    async def prepare(self) -> None:
        for connection, id in zip(self._connections, self._ids, strict=True):
            await connection.execute(
                "INSERT INTO conversation (id, owner, branch, state, internal, revision, created_at,"
                " touched_at, scope, pinned, archived, listed)"
                " VALUES ($1, 'floor', $1, 'live', 0, 1, 0, 0, '', 0, 0, 1)",
                id,
            )
            await connection.execute(
                "INSERT INTO branch (owner, id, number, conversation, fence, length, start, settled,"
                " instructed, bytes, preview) VALUES ('floor', $1, 1, $1, 0, 0, 0, 0, 0, 0, '')",
                id,
            )

    async def turn(self, place: int) -> None:
        self._number += 1
        arguments = ("floor", os.urandom(16), self._ids[place], self._number, BODY)
        await self._connections[place].execute(COMMIT, *arguments)


async def timed(work: Callable[[int], Awaitable[None]], places: int, each: int) -> float:
    async def repeat(place: int) -> None:
        for _ in range(each):
            await work(place)

    started = time.perf_counter()
    await asyncio.gather(*(repeat(place) for place in range(places)))
    return (time.perf_counter() - started) / (places * each)


async def measure(url: str, rounds: int) -> None:
    async with await Ledger.open(f"{url}&pool=32") as ledger:
        connections = [await asyncpg.connect(url) for _ in range(AT_ONCE)]
        floor = Floor(connections)
        await floor.prepare()
        own = [await ledger.conversation(conversation_key=f"{n}") for n in range(AT_ONCE)]
        many = [await ledger.for_owner(f"owner-{n}").conversation() for n in range(AT_ONCE)]

        def turns(chats: list[Chat]) -> Callable[[int], Awaitable[None]]:
            async def turn(place: int) -> None:
                async with chats[place].turn("Where is my order?") as running:
                    running.emit("On its way. " * 30)

            return turn

        ratios: dict[str, list[float]] = {}
        for _ in range(rounds):
            one = await timed(floor.turn, 1, TURNS)
            all_at_once = await timed(floor.turn, AT_ONCE, 10)
            results = {
                "a turn, in floors": await timed(turns(own), 1, TURNS) / one,
                "64 at once, one owner, share of the floor's turns/s": all_at_once
                / await timed(turns(own), AT_ONCE, 10),
                "64 at once, 64 owners, share of the floor's turns/s": all_at_once
                / await timed(turns(many), AT_ONCE, 10),
            }
            for name, ratio in results.items():
                ratios.setdefault(name, []).append(ratio)
        for name, found in ratios.items():
            print(f"{name}: {statistics.median(found):.2f} ({min(found):.2f} to {max(found):.2f})")
        await measure_size(connections[0], turns(own))
        for connection in connections:
            await connection.close()


async def measure_size(connection: asyncpg.Connection, turn: Callable[[int], Awaitable[None]]) -> None:
    """Print what a turn adds to the database and to its log, and how many fit into a second."""
    sizes = "SELECT pg_database_size(current_database()), pg_current_wal_lsn() - '0/0'"
    before = await connection.fetchrow(sizes)
    seconds = await timed(turn, AT_ONCE, 30)
    stored, logged = (
        (a - b) / (AT_ONCE * 30) for a, b in zip(await connection.fetchrow(sizes), before, strict=True)
    )
    print(f"a turn adds {stored:.0f} bytes to the database and {float(logged):.0f} to its log")
    print(f"64 at once, one owner: {1 / seconds:.0f} turns/s")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.postgresql", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    rounds = parser.parse_args().rounds
    with PostgresServer.start(18, {}) as server:
        asyncio.run(measure(server.create_database(), rounds))


if __name__ == "__main__":
    main()
