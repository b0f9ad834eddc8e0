"""Four servers on one PostgreSQL, under load, while everything around them breaks:
`python -m tests.crash.shared_database --kills 100 --seed 7`.

Clients talk in a few hot and many cold conversations through a random server, and send some requests to two
at once. Servers and the database are killed with signal 9; servers are stopped past their lease and woken; a
proxy cuts, resets, delays and stalls the connections between them. With `--failovers`, the database is a
primary with a synchronous standby, which is promoted when the primary is killed. At the end, the store is
compared with the answers that clients received.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import tempfile
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from urllib.parse import urlsplit

import aiohttp
import asyncpg
import msgspec

from tests.crash.killed_server import WORDS, Notes, ServerProcess, checked_histories
from tests.crash.place import keep_in, store_of
from turnledger import Ledger, RunningTurn, Turn
from turnledger.testing.fault_proxy import Fault, FaultProxy
from turnledger.testing.postgresql import QUICK, PostgresServer
from turnledger.testing.upstream import CUT, ScriptedUpstream, Status, Step

SERVERS, CLIENTS = 4, 16
HOT, COLD = 3, 200
"""Conversations: a third of all requests go to the hot ones."""
LEASE_TIME = 3.0
COMMAND = ("tests.tuned_cli", f"lease_time={LEASE_TIME}")
SAFE = {name: value for name, value in QUICK.items() if name == "full_page_writes"}
"""Commits wait for the disk: a killed database keeps what it acknowledged."""
WOUNDED = ("kill", "kill", "kill", "kill", "database", "cut", "reset", "delay", "stall", "stop")
"""What breaks, with its weight."""
UNKNOWN = ("commit_outcome_unknown", "outcome_unknown")
EXPECTED = {
    "conversation_busy",
    "model_error",
    "model_unavailable",
    "process_died",
    "queue_full",
    "scripted",
    "server_unavailable",
    "shutting_down",
    "store_unavailable",
    "superseded",
    "turn_failed",
    "wait_ended",
    *UNKNOWN,
}
"""Codes of errors that clients may receive while something breaks."""
PATIENCE = 300.0


@dataclass
class Tally(Notes):
    """Notes of clients whose requests may fail: a server can lose its database."""

    failed: set[str] = field(default_factory=set)
    """Tokens sent once whose only answer was a definite failure."""
    codes: Counter[str] = field(default_factory=Counter)
    duplicates: int = 0
    cut_off: int = 0

    def acknowledge(self, token: str, turn: str) -> None:
        if self.acknowledged.setdefault(token, turn) != turn:
            self.problems.append(f"{token} is {turn}, and {self.acknowledged[token]}")


class SharedClient:
    """Sends one request after the other; those with a key, until they are answered."""

    def __init__(self, seed: int, number: int, tally: Tally, urls: list[str]) -> None:
        self._dice = Random(f"{seed}/{number}")
        self._name = f"{seed}.{number}"
        self._tally = tally
        self._urls = urls
        """Of the servers, as they are now."""

    async def run(self, over: asyncio.Event) -> None:
        count = 0
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            while not over.is_set():
                count += 1
                await self._ask(session, f"{self._name}.{count}")

    async def _ask(self, session: aiohttp.ClientSession, token: str) -> None:
        dice, tally = self._dice, self._tally
        is_hot, is_keyed, is_double = dice.random() < 1 / 3, dice.random() < 0.6, dice.random() < 0.3
        lane = f"hot-{dice.randrange(HOT)}" if is_hot else f"cold-{dice.randrange(COLD)}"
        tally.sent.add(token)
        if not is_keyed:
            outcome = await self._send(session, token, lane, None)
            if outcome is False:
                tally.failed.add(token)
            return
        tally.duplicates += is_double
        tries = [self._send_until_answered(session, token, lane) for _ in range(1 + is_double)]
        await asyncio.gather(*tries)

    async def _send_until_answered(self, session: aiohttp.ClientSession, token: str, lane: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while not await self._send(session, token, lane, token):
                await asyncio.sleep(0.05)

    async def _send(
        self, session: aiohttp.ClientSession, token: str, lane: str, key: str | None
    ) -> bool | None:
        """Send a request to a random server. Return True if its turn was acknowledged, False if it failed,
        and None if the answer leaves that open."""
        stream = self._dice.random() < 0.5
        headers = {"X-Conversation-Id": lane} | ({} if key is None else {"Idempotency-Key": key})
        body = {"model": "any", "messages": [{"role": "user", "content": token}], "stream": stream}
        url = f"{self._dice.choice(self._urls)}/v1/chat/completions"
        try:
            async with session.post(url, json=body, headers=headers) as answer:
                received = await answer.read()
        except aiohttp.ClientError:
            self._tally.cut_off += 1
            return None
        if answer.status == 200 and (not stream or received.endswith(b"data: [DONE]\n\n")):
            self._tally.acknowledge(token, answer.headers["X-Turn-Id"])
            return True
        code = code_in(received)
        self._tally.codes[code or "no end"] += 1
        if code is not None and code not in EXPECTED:
            self._tally.problems.append(f"{token}: {answer.status} {received[-300:]!r}")
        return None if code is None or code in UNKNOWN else False


def code_in(received: bytes) -> str | None:
    """Return the code of the error that an answer ends with; None if it was cut off."""
    last = received.strip().rpartition(b"data: ")[2]
    try:
        return str(msgspec.json.decode(last)["error"]["code"])
    except (msgspec.DecodeError, KeyError, TypeError):  # a piece of text: it ends in the middle
        return None


class Databases:
    """The database behind the proxy; with `has_standby`, a primary and its synchronous standby."""

    def __init__(self, stack: ExitStack, version: int, *, has_standby: bool) -> None:
        self._stack = stack
        self.current = stack.enter_context(PostgresServer.start(version, SAFE))
        self.url = self.current.create_database()
        self.standby: PostgresServer | None = None
        self._has_standby = has_standby

    async def back_up(self) -> None:
        """Start a standby, and return when every commit waits for it."""
        if not self._has_standby:
            return
        standby = self._stack.enter_context(await asyncio.to_thread(self.current.start_standby))
        await asyncio.to_thread(self.current.change, "synchronous_standby_names", "standby")
        connection = await asyncpg.connect(self.url_of(self.current))
        while await connection.fetchval("SELECT sync_state FROM pg_stat_replication") != "sync":
            await asyncio.sleep(0.05)
        # Backends read the setting before their next statement; this commit is behind all earlier ones.
        await connection.execute("CREATE TABLE IF NOT EXISTS has_standby (); DROP TABLE has_standby")
        await connection.close()
        self.standby = standby

    def url_of(self, server: PostgresServer) -> str:
        return server.url(urlsplit(self.url).path[1:])

    def fail(self) -> None:
        """Kill the database; start it again, or promote its standby."""
        self.current.kill()
        if self.standby is None:
            self.current.resume()
            return
        self.standby.promote()
        self.current, self.standby = self.standby, None


class SharedDatabase:
    """Servers, their database, and the storm."""

    def __init__(self, folder: Path, seed: int, kills: int, wounds: Sequence[str] = WOUNDED) -> None:
        self._folder = folder
        self._seed = seed
        self._dice = Random(seed)
        self._left = kills
        self._wounds = wounds
        self.done: Counter[str] = Counter()
        self.tally = Tally()
        self._servers: list[ServerProcess] = []
        self._urls: list[str] = []
        self._stopped: dict[ServerProcess, asyncio.Task[None]] = {}
        """With the tasks that wake them."""

    async def run(self, databases: Databases) -> dict[str, list[Turn]]:
        """Return the checked histories; raises AssertionError for a broken promise."""
        async with FaultProxy(databases.current.socket) as proxy:
            name = urlsplit(databases.url).path[1:]
            keep_in(
                self._folder, f"postgresql://postgres@127.0.0.1:{proxy.port}/{name}?sslmode=disable&pool=8"
            )
            async with self._upstream() as upstream:
                await self._storm(upstream, proxy, databases)
            proxy.forget_plans()
            return await self._check()

    @asynccontextmanager
    async def _upstream(self) -> AsyncIterator[str]:
        scripts = [self._script() for _ in range(20_000)]
        async with ScriptedUpstream(*scripts, otherwise=WORDS, max_received=0) as upstream:
            yield upstream.url

    def _script(self) -> Sequence[Step]:
        """Return an answer: a few fail in the middle, or at once."""
        kind = self._dice.random()
        return [WORDS[0], CUT] if kind < 0.03 else [Status(400)] if kind < 0.05 else WORDS

    async def _storm(self, upstream: str, proxy: FaultProxy, databases: Databases) -> None:
        over = asyncio.Event()
        try:
            for _ in range(SERVERS):
                self._servers.append(await self._serve(upstream))
            self._urls[:] = [server.url for server in self._servers]
            clients = [
                asyncio.create_task(SharedClient(self._seed, number, self.tally, self._urls).run(over))
                for number in range(CLIENTS)
            ]
            await databases.back_up()
            while self._left > 0:
                await self._progress(clients)
                async with asyncio.timeout(PATIENCE):
                    await self._wound(upstream, proxy, databases)
            await asyncio.gather(*self._stopped.values())
            over.set()
            async with asyncio.timeout(PATIENCE):
                await asyncio.gather(*clients)
            for server in self._servers:
                await server.end(signal.SIGTERM)
        finally:
            for server in self._servers:
                server.kill()

    async def _serve(self, upstream: str) -> ServerProcess:
        server = ServerProcess(self._folder, upstream, command=COMMAND)
        await server.wait_ready()
        return server

    async def _progress(self, clients: Sequence[asyncio.Task[None]]) -> None:
        """Wait until a few more turns were acknowledged: a storm without a pause would hit nothing."""
        enough = len(self.tally.acknowledged) + self._dice.randint(1, 12)
        async with asyncio.timeout(PATIENCE):
            while len(self.tally.acknowledged) < enough:
                assert not any(client.done() for client in clients), clients
                await asyncio.sleep(0.02)

    async def _wound(self, upstream: str, proxy: FaultProxy, databases: Databases) -> None:
        wound, dice = self._dice.choice(self._wounds), self._dice
        self.done[wound] += 1
        victim = dice.choice([n for n, server in enumerate(self._servers) if server not in self._stopped])
        if wound == "kill":
            self._left -= 1
            self._servers[victim].process.kill()
            await self._servers[victim].end()
            self._servers[victim] = await self._serve(upstream)
            self._urls[victim] = self._servers[victim].url
        elif wound == "database":
            self._left -= 1
            await asyncio.to_thread(databases.fail)
            proxy.server_port = databases.current.socket
            await databases.back_up()
        elif wound in ("cut", "reset"):
            proxy.cut(resets=wound == "reset")
            # Some of the connections that follow are cut, too, in the middle of a statement.
            proxy.plan(*(Fault(sent=dice.randint(500, 9_000), resets=dice.random() < 0.5) for _ in range(4)))
        elif wound == "delay":
            proxy.cut()
            proxy.plan(*(Fault(received=dice.randint(500, 9_000), pause=dice.random() * 3) for _ in range(9)))
        elif wound == "stall":
            proxy.stall()
            await asyncio.sleep(dice.random() * 1.5 * LEASE_TIME)
            proxy.resume()
        else:
            await self._stop(self._servers[victim])

    async def _stop(self, server: ServerProcess) -> None:
        """Stop a server past its lease, and wake it."""

        async def wake() -> None:
            await asyncio.sleep(LEASE_TIME * 2)
            server.process.send_signal(signal.SIGCONT)
            del self._stopped[server]

        server.process.send_signal(signal.SIGSTOP)
        await asyncio.to_thread(server.process.wait_until_stopped)
        self._stopped[server] = asyncio.create_task(wake())

    async def _check(self) -> dict[str, list[Turn]]:
        assert self.tally.problems == [], self.tally.problems
        lanes = [f"hot-{n}" for n in range(HOT)] + [f"cold-{n}" for n in range(COLD)]
        histories = await checked_histories(self._folder, lanes, self.tally)
        found = {turn.input[0].text for history in histories.values() for turn in history}
        assert found & self.tally.failed == set()
        async with await Ledger.open(store_of(self._folder)) as ledger:
            for lane in lanes[: 2 * HOT]:
                await (await ledger.conversation(conversation_key=lane)).run(probe, "Are you there?")
            assert await ledger.check() == []
        return histories

    @property
    def summary(self) -> str:
        tally, done = self.tally, ", ".join(f"{times} {what}" for what, times in sorted(self.done.items()))
        return (
            f"{done}: {len(tally.sent)} turns sent, {tally.duplicates} of them twice, "
            f"{len(tally.acknowledged)} acknowledged, {tally.cut_off} answers cut off, "
            f"{sum(tally.codes.values())} errors ({len(tally.failed)} final); "
            "0 lost, 0 doubled, 0 leaked"
        )


async def probe(turn: RunningTurn) -> None:
    turn.emit("Yes.")


def storm(kills: int, seed: int, version: int = 18, *, failovers: bool = False) -> SharedDatabase:
    """Run a storm; raise AssertionError for a broken promise."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        databases = Databases(stack, version, has_standby=failovers)
        wounds = ("kill", "database", "cut", "stop") if failovers else WOUNDED
        shared = SharedDatabase(Path(folder), seed, kills, wounds)
        asyncio.run(shared.run(databases))
    return shared


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.shared_database", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="of servers and databases together")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--version", type=int, default=18)
    parser.add_argument("--failovers", action="store_true", help="promote a standby for a killed database")
    given = parser.parse_args(arguments)
    print(storm(given.kills, given.seed, given.version, failovers=given.failovers).summary)


if __name__ == "__main__":
    main()
