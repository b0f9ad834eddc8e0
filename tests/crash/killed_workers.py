"""kill -9 of workers under load: `python -m tests.crash.killed_workers --kills 50 --workers 4 --seed 7`.

Clients use a few hot conversations and many cold ones while workers are killed at moments chosen by the seed;
the server stays up. At the end the store is compared with the answers that clients received.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

import aiohttp

from tests.crash.killed_server import CLIENTS, LANES, MOMENTS, WORDS, Client, ServerProcess, Storm
from tests.crash.processes import kill_a_worker
from turnledger import Turn
from turnledger.testing.upstream import ScriptedUpstream

COLD = 40
"""Conversations that are rarely used."""
SPARE = 30
"""Further kills, if none of the first interrupts a request."""


class WorkerStorm(Storm):
    """Kills of single workers, until one has interrupted a request; then a calm phase, then the checks."""

    def __init__(self, folder: Path, seed: int, workers: int, cold: int) -> None:
        super().__init__(folder, seed)
        names = [f"cold-{number}" for number in range(cold)]
        self._lanes = {*LANES, *names}
        # Each hot conversation is as likely as a third of all cold ones.
        likely = [*LANES * (cold // 3 or 1), *names]
        self._clients = [Client(seed, number, self.notes, likely) for number in range(CLIENTS)]
        self._workers = workers
        self.kills = 0

    async def run(self, rounds: int) -> dict[str, list[Turn]]:
        """Return the checked histories; raises AssertionError for a broken promise."""
        async with ScriptedUpstream(otherwise=WORDS, max_received=0) as upstream:
            server = ServerProcess(self._folder, upstream.url, "--workers", str(self._workers))
            try:
                await self._talk(server, await server.wait_ready(), rounds)
                assert await server.end(signal.SIGTERM) == 0, server.errors.read_text()
            finally:
                server.process.kill()
        assert self.notes.problems == [], self.notes.problems
        return await self._check(self._lanes)

    async def _talk(self, server: ServerProcess, url: str, kills: int) -> None:
        kind, left = "", 0

        def moment(what: str) -> None:
            nonlocal kind, left
            left -= what == kind
            if left > 0 or self._is_over(kills):
                return
            if kind:
                self.kills += kill_a_worker(server.process.pid, self._dice)
            kind, left = self._dice.choice(MOMENTS), self._dice.randint(1, 40)

        async with aiohttp.ClientSession() as session:
            talking = [self._keep_sending(client, session, url, moment, kills) for client in self._clients]
            await asyncio.gather(*talking)

    async def _keep_sending(
        self,
        client: Client,
        session: aiohttp.ClientSession,
        url: str,
        moment: Callable[[str], None],
        kills: int,
    ) -> None:
        while not self._is_over(kills):
            await self._send(client, session, url, moment)
        # In the calm phase, interrupted requests are repeated until answered.
        is_answered = False
        while client.is_owed or not is_answered:
            is_answered = await self._send(client, session, url, lambda _: None)

    async def _send(
        self, client: Client, session: aiohttp.ClientSession, url: str, moment: Callable[[str], None]
    ) -> bool:
        try:
            await client.send(session, url, moment)
        except aiohttp.ClientError:
            return False
        return True

    def _is_over(self, kills: int) -> bool:
        return self.kills >= kills and (self.notes.cut > 0 or self.kills >= kills + SPARE)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.killed_workers", description=__doc__)
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        storm = WorkerStorm(Path(folder), given.seed, given.workers, COLD)
        histories = asyncio.run(storm.run(given.kills))
    kept = sum(len(history) for history in histories.values())
    sent, acknowledged = len(storm.notes.sent), len(storm.notes.acknowledged)
    print(
        f"{storm.kills} kills of {given.workers} workers: {sent} sent, {storm.notes.cut} cut off, "
        f"{acknowledged} acknowledged, {kept} kept. All promises were kept."
    )


if __name__ == "__main__":
    main()
