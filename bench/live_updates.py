"""The cost of live updates: `python -m bench.live_updates [--quick]`. Prints a table of ratios.

Three servers use the same upstream and get the same load alternately: one without followers, one with a
thousand followers of other owners, and one where all of them follow the active owner. The followers run in a
separate process and share the cores with the servers. So the cost of a turn is taken from its server's CPU
time, and its duration is measured with one client only.
"""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, cast

from bench.http.__main__ import CLIENTS, QUESTION, RunningServer, body, started
from bench.http.load import connect, rate, request
from bench.table import Line, show
from turnledger import Ledger
from turnledger.engine.turn import begin, commit
from turnledger.hosting import Host

FOLLOWERS = 1_000
SLICE = 40
"""Turns of each conversation before the sides change."""


class Follower(asyncio.Protocol):
    """A connection that reads a stream, and ignores it."""

    def __init__(self, token: str, began: asyncio.Queue[None]) -> None:
        self._request = (
            f"GET /api/events HTTP/1.1\r\nhost: 127.0.0.1\r\nauthorization: Bearer {token}\r\n\r\n"
        )
        self._began: asyncio.Queue[None] | None = began

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast(asyncio.Transport, transport).write(self._request.encode())

    def data_received(self, data: bytes) -> None:
        if self._began is not None and b"event: start" in data:
            self._began.put_nowait(None)
            self._began = None


async def follow(port: int, tokens: list[str]) -> None:
    """Run all followers of a server, until killed."""
    began: asyncio.Queue[None] = asyncio.Queue()
    loop = asyncio.get_running_loop()
    for token in tokens:
        await loop.create_connection(lambda token=token: Follower(token, began), "127.0.0.1", port)  # type: ignore[misc]
    for _ in tokens:
        await began.get()
    print("1", flush=True)
    await asyncio.Event().wait()


async def owners(store: str, count: int, own: bool) -> tuple[str, list[str]]:
    """Create the active owner, and tokens for the followers: of that owner, or of owners of their own."""
    async with await Ledger.open(store) as ledger:
        _, worker = await Host(ledger).tokens.create(owner="worker", scopes=["turns:run", "chats:read"])
        followers = [f"owner-{number}" if own else "worker" for number in range(count)]
        made = {
            owner: await Host(ledger).tokens.create(owner=owner, scopes=["chats:read"])
            for owner in dict.fromkeys(followers)
        }
        return worker, [made[owner][1] for owner in followers]


class Side:
    """A server, and the active owner's requests."""

    def __init__(self, server: RunningServer, token: str) -> None:
        self.server = server
        self.rates: list[float] = []
        self.cpu: list[float] = []
        self.alone: list[float] = []
        sent = body(QUESTION, stream=False)
        head = f"authorization: Bearer {token}"
        self._made = [request(sent, [head, f"x-conversation-id: {place}"]) for place in range(CLIENTS)]

    async def load(self, each: int) -> None:
        used = self.server.cpu()
        self.rates.append(await rate(self.server.port, CLIENTS, each, lambda place, _: self._made[place]))
        self.cpu.append((self.server.cpu() - used) / (CLIENTS * each))

    def first(self) -> bytes:
        return self._made[0]


async def one_by_one(sides: list[Side], count: int) -> None:
    """Run turns alternately on each side, with a pause in which followers receive their changes."""
    clients = [await connect(side.server.port) for side in sides]
    for _ in range(count):
        for side, client in zip(sides, clients, strict=True):
            began = time.perf_counter()
            await client.fetch(side.first())
            side.alone.append(time.perf_counter() - began)
            await asyncio.sleep(0.01)
    for client in clients:
        client.transport.close()


@contextmanager
def following(port: int, tokens: list[str]) -> Iterator[None]:
    if not tokens:
        yield
        return
    command = [sys.executable, "-m", "bench.live_updates", "--follow", str(port)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(" ".join(tokens) + "\n")
            process.stdin.flush()
            process.stdout.readline()
            yield
        finally:
            process.kill()


async def measure(folder: Path, *, quick: bool) -> list[Line]:
    rounds, followers = (1, 20) if quick else (8, FOLLOWERS)
    lines = await change_rows(folder, *((1, 1) if quick else (30, 10)))
    made = []
    for name in ("nobody", "own", "one"):
        store = f"sqlite:///{folder}/{name}.db"
        worker, tokens = await owners(store, followers, own=name == "own")
        made.append((store, worker, [] if name == "nobody" else tokens))
    with started("-m", "bench.http.upstream") as upstream:
        url = f"http://127.0.0.1:{upstream.port}/v1"
        flags = ("--port", "0", "--upstream", url, "--log-level", "warning")
        with (
            started("-m", "turnledger", "serve", "--store", made[0][0], *flags) as first,
            started("-m", "turnledger", "serve", "--store", made[1][0], *flags) as second,
            started("-m", "turnledger", "serve", "--store", made[2][0], *flags) as third,
            following(second.port, made[1][2]),
            following(third.port, made[2][2]),
        ):
            sides = [
                Side(server, token)
                for server, (_, token, _) in zip((first, second, third), made, strict=True)
            ]
            for _ in range(rounds):
                for side in sides:
                    await side.load(1 if quick else SLICE)
                await one_by_one(sides, 3 if quick else 60)
    return lines + [
        text
        for side, who in ((sides[1], "owners of their own"), (sides[2], "the same owner"))
        for text in ratios(sides[0], side, f"{followers} follow {who}")
    ]


def ratios(bare: Side, followed: Side, name: str) -> list[Line]:
    alone = median(followed.alone) / median(bare.alone)
    cpu = median(followed.cpu) / median(bare.cpu)
    rates = median(bare.rates) / median(followed.rates)
    return [
        Line(f"{name}: a turn by itself, p50, of one without followers", alone, 1.1),
        Line(f"{name}: CPU of a turn of {CLIENTS} at once, of one without followers", cpu, 1.1),
        Line(f"{name}: the time that {CLIENTS} at once need, followers beside them", rates),
    ]


async def change_rows(folder: Path, rounds: int, turns: int) -> list[Line]:
    """Measure the rows that a turn writes for followers: rounds with and without them, alternately."""
    ledger = await Ledger.open(f"sqlite:///{folder}/changes.db")
    chats = [await ledger.conversation() for _ in range(CLIENTS)]
    originals = begin.record_change, commit.record_commit
    cpu: tuple[list[float], list[float]] = ([], [])
    for run in range(rounds):
        for side in (run % 2, 1 - run % 2):
            begin.record_change, commit.record_commit = originals if side else (_skip, _skip)  # type: ignore[assignment]
            used = time.process_time()
            await asyncio.gather(*(_turns(ledger, str(chat.id), turns) for chat in chats))
            cpu[side].append(time.process_time() - used)
    begin.record_change, commit.record_commit = originals
    await ledger.close()
    share = median(cpu[1]) / median(cpu[0])
    return [Line("CPU of a turn with change rows, of one without", share, 1.1)]


async def _skip(*_: Any, **__: Any) -> None:
    return None


async def _turns(ledger: Ledger, chat: str, count: int) -> None:
    for _ in range(count):
        async with ledger.turn(QUESTION, conversation=chat) as turn:
            turn.emit(QUESTION)


if __name__ == "__main__":
    if "--follow" in sys.argv:
        asyncio.run(follow(int(sys.argv[-1]), sys.stdin.readline().split()))
    else:
        show("bench.live_updates", __doc__, measure)
