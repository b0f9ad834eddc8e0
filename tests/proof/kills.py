"""Kills under load, with restarts in quick succession: nothing is lost, happens twice or is refused.

Acknowledged turns exist once, and no request is refused because of a dead server.
"""

from __future__ import annotations

import asyncio
import signal
import tempfile
import time
from functools import partial
from pathlib import Path

import aiohttp

from tests.crash.killed_server import LANES, Client, ServerProcess, Storm, repeat_until_killed
from turnledger.engine.limits import Limits

SECONDS = 420
KILLS, EVERY = 25, 2.0
"""Number of kills, and the longest life of a server in seconds."""
CLIENTS = 20 * len(LANES)
"""Each stays in one lane: the dead requests of a kill and the living ones fill its queue (32) together, and
the living ones alone never do. Clients that change lanes gather in one of them by chance."""
PATIENT = 5
"""Every fifth round lasts until each client has an answer, to measure the slowest."""
PATIENCE = 60.0
LONGEST_WAIT = Limits().lease_time / 2
"""Seconds; a server that waited for dead leases would need twice as long."""


class Kills(Storm):
    """Clients that continue as soon as a server runs again."""

    def __init__(self, folder: Path, seed: int) -> None:
        super().__init__(folder, seed)
        self._clients = [
            Client(seed, number, self.notes, [LANES[number % len(LANES)]]) for number in range(CLIENTS)
        ]
        self._rounds = 0
        self.waits: list[float] = []
        """Seconds from the start of a server to the first answer of each client."""
        self.patient_waits: list[float] = []
        """Slowest first answer of each patient round."""

    async def _round(self, upstream: str) -> None:
        server = ServerProcess(self._folder, upstream)
        url = await server.wait_ready()
        started = time.monotonic()
        waiting = set(range(CLIENTS))
        all_answered = asyncio.Event()
        self._rounds += 1

        async def send_until_killed(number: int, session: aiohttp.ClientSession) -> None:
            def moment(what: str) -> None:
                if what == "answered" and number in waiting:
                    waiting.discard(number)
                    self.waits.append(time.monotonic() - started)
                    if not waiting:
                        all_answered.set()

            await repeat_until_killed(partial(self._clients[number].send, session, url, moment))

        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            clients = asyncio.gather(*(send_until_killed(number, session) for number in range(CLIENTS)))
            if self._rounds % PATIENT == 0:
                async with asyncio.timeout(PATIENCE):
                    await all_answered.wait()
                self.patient_waits.append(self.waits[-1])
            else:
                await asyncio.sleep(EVERY * self._dice.random())
            server.process.kill()
            await clients
        assert await server.end() == -signal.SIGKILL, server.errors.read_text()
        # Refusals are problems: 429 for dead tickets, 409 for a dead turn.
        assert self.notes.problems == [], self.notes.problems


def prove() -> None:
    with tempfile.TemporaryDirectory() as folder:
        storm = Kills(Path(folder), seed=8)
        histories = asyncio.run(storm.run(KILLS))
    sent, acknowledged = len(storm.notes.sent), len(storm.notes.acknowledged)
    kept = sum(map(len, histories.values()))
    assert acknowledged > KILLS, "the servers hardly answered: this shows nothing"
    waits, slowest = sorted(storm.waits), max(storm.patient_waits)
    print(f"{KILLS} kills, {CLIENTS} clients in {len(LANES)} chats: none of {sent} requests refused,")
    print(f"{acknowledged} acknowledged, {kept} kept. First answer to each client after a restart: median")
    print(f"{waits[len(waits) // 2]:.2f} s; slowest, where the server lived for it, {slowest:.2f} s.")
    assert slowest < LONGEST_WAIT, "a restarted server waited for what the dead one left"
