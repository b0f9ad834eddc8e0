"""Several processes and servers on one PostgreSQL database, killed under load, the database itself, too.

Acknowledged turns exist once, effects are recorded once, nothing leaks from failed turns, every lane is free.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
from itertools import cycle
from pathlib import Path
from random import Random

import aiohttp

from tests.crash.killed_processes import ProcessStorm
from tests.crash.killed_server import Client, Notes, ServerProcess, Storm
from tests.crash.place import keep_in
from turnledger.testing.postgresql import QUICK, PostgresServer

SECONDS = 900
PROCESS_KILLS, SERVER_KILLS, DATABASE_KILLS = 60, 40, 5
SERVERS = 4
SAFE = {name: value for name, value in QUICK.items() if name == "full_page_writes"}
"""Commits wait for the disk: a killed database keeps what it acknowledged."""


class SharedDatabase(Storm):
    """Four servers; one at a time is killed and replaced, and now and then the database."""

    def __init__(self, folder: Path, seed: int, database: PostgresServer) -> None:
        super().__init__(folder, seed)
        self._database = database
        self._seed = seed
        self.cut = 0

    async def _round(self, upstream: str) -> None:
        servers = [await self._serve(upstream) for _ in range(SERVERS)]
        over = asyncio.Event()
        clients = [
            asyncio.create_task(self._send(client, number, servers, over))
            for number, client in enumerate(self._clients)
        ]
        dice = Random(self._seed)
        for kill in range(SERVER_KILLS):
            await asyncio.sleep(dice.random())
            if kill % (SERVER_KILLS // DATABASE_KILLS) == 0:
                await asyncio.to_thread(self._database.kill)
                await asyncio.to_thread(self._database.resume)
            victim = dice.randrange(SERVERS)
            servers[victim].process.kill()
            await servers[victim].end()
            servers[victim] = await self._serve(upstream)
        over.set()
        await asyncio.gather(*clients)
        for server in servers:
            await server.end(signal.SIGTERM)

    async def _serve(self, upstream: str) -> ServerProcess:
        server = ServerProcess(self._folder, upstream)
        await server.wait_ready()
        return server

    async def _send(
        self, client: Client, number: int, servers: list[ServerProcess], over: asyncio.Event
    ) -> None:
        """Send until the end, each time to the next server; keyed requests until they are answered."""
        notes, places = self.notes, cycle(range(number, number + SERVERS))
        async with aiohttp.ClientSession() as session:
            while not over.is_set() or client.is_owed:
                url = servers[next(places) % SERVERS].url
                known = len(notes.problems)
                try:
                    await client.send(session, url, lambda _: None)
                except aiohttp.ClientError:
                    self.cut += 1
                if self._is_passing(notes, known):
                    del notes.problems[known:]
                    self.cut += 1
                await asyncio.sleep(0.01)

    def _is_passing(self, notes: Notes, known: int) -> bool:
        """Return whether the last answer said that the store or another process is gone, or that the turn
        lost its lane: a killed database forgets begins that it had not written yet."""
        passing = (" 503 ", " 409 ", "store_unavailable", "outcome_unknown", "process_died", "superseded")
        return all(any(word in each for word in passing) for each in notes.problems[known:])


def prove() -> None:
    for version in (18, 16):
        with tempfile.TemporaryDirectory() as folder, PostgresServer.start(version, SAFE) as database:
            keep_in(Path(folder), f"{database.create_database()}&pool=8")
            storm = ProcessStorm(Path(folder), seed=version)
            storm.run(PROCESS_KILLS)
            acknowledged = sum(line.startswith("acked") for line in storm.output)
            print(
                f"PostgreSQL {version}: {PROCESS_KILLS} processes killed, {acknowledged} turns acknowledged"
            )
    with tempfile.TemporaryDirectory() as folder, PostgresServer.start(18, SAFE) as database:
        keep_in(Path(folder), f"{database.create_database()}&pool=8")
        shared = SharedDatabase(Path(folder), 7, database)
        asyncio.run(shared.run(1))
        print(
            f"{SERVER_KILLS} servers and {DATABASE_KILLS} databases killed: {len(shared.notes.sent)} sent, "
            f"{len(shared.notes.acknowledged)} acknowledged, {shared.cut} cut off"
        )


if __name__ == "__main__":
    prove()
