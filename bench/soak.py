"""Run a server for minutes under clients of every kind: `python -m bench.soak [--minutes 10]`.

Most of them behave; others leave in the middle, do not read, never end their request, or stop their turn. The
memory of the server and the duration of turns are reported for each quarter of the time. The exit code is 1
if the last quarter is worse than the first, an answer was wrong, or descriptors are left at the end.
"""

from __future__ import annotations

import argparse
import asyncio
import math
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from statistics import median

import uvloop

from bench.http.__main__ import RunningServer, started
from bench.http.load import request

CLIENTS = 16
PAUSE = 0.1
"""Longest pause of a client, in seconds: the server is to be busy, not overloaded."""
HOT = 4
"""Conversations that many clients share."""
TURNS = 40
"""Turns before a conversation is replaced: its requests grow with the history."""
WARMING = 0.1
"""Share of the time that does not count: caches fill."""
QUARTERS = 4


@dataclass
class Bound:
    """Bound of the last quarter: `times` the first, plus `more`."""

    times: float
    more: float
    unit: str

    def holds(self, first: float, last: float, slower: float = 1.0) -> bool:
        """`slower`: the factor by which the machine became slower."""
        allowed = slower if self.unit == "ms" else 1.0
        return last <= (first * self.times + self.more) * allowed


BOUNDS = {
    "memory": Bound(1.15, 8, "MB"),
    "descriptors": Bound(1.1, 8, ""),
    "turn, median": Bound(1.5, 2, "ms"),
    "turn, 95%": Bound(2.0, 20, "ms"),
}


@dataclass
class Measurements:
    """Measurements, each with the share of the time that had passed."""

    held: list[tuple[float, float, int]] = field(default_factory=list)
    """Megabytes and descriptors."""
    turns: list[tuple[float, float]] = field(default_factory=list)
    """Milliseconds from the question to the end of the answer."""
    signs: list[tuple[float, float]] = field(default_factory=list)
    """Milliseconds to a health check, which needs nothing: they grow only with other load on the machine."""
    done: Counter[str] = field(default_factory=Counter)
    odd: list[str] = field(default_factory=list)


class Client:
    """Sends random kinds of requests."""

    def __init__(self, port: int, number: int, measured: Measurements, began: float, seconds: float) -> None:
        self._port = port
        self._name = f"client-{number}"
        self._dice = Random(number)
        self._measured = measured
        self._began, self._seconds = began, seconds
        self._requests = 0

    @property
    def passed(self) -> float:
        return (time.monotonic() - self._began) / self._seconds

    async def run(self) -> None:
        ways = list(WAYS)
        weights = [WAYS[way] for way in ways]
        while self.passed < 1:
            way = self._dice.choices(ways, weights)[0]
            self._requests += 1
            try:
                await way(self)
                self._measured.done[way.__name__] += 1
            except (OSError, asyncio.IncompleteReadError, ValueError) as problem:
                self._measured.odd.append(f"{way.__name__}: {problem!r}")
            await asyncio.sleep(self._dice.uniform(0, PAUSE))

    # Clients that behave.

    async def has_a_turn(self) -> None:
        began = time.perf_counter()
        await self._whole(self._question(self._cold()), b"data: [DONE]\n\n")
        self._measured.turns.append((self.passed, (time.perf_counter() - began) * 1000))

    async def has_a_turn_among_others(self) -> None:
        await self._whole(self._question(f"hot-{self._dice.randrange(HOT)}-{self._round}"), b"[DONE]")

    async def is_answered_at_once(self) -> None:
        await self._whole(self._question(self._cold(), stream=False), b'"finish_reason":"stop"')

    async def repeats_a_request(self) -> None:
        sent = self._question(self._cold(), f"idempotency-key: {self._name}-{self._requests}")
        first, second = await asyncio.gather(self._whole(sent, b"[DONE]"), self._whole(sent, b"[DONE]"))
        if _turn_of(first) != _turn_of(second):
            raise ValueError("one idempotency_key, two turns")

    async def is_passed_through(self) -> None:
        await self._whole(self._question(None), b"[DONE]")

    async def checks_health(self) -> None:
        began = time.perf_counter()
        await self._whole(_get("/healthz"), b'"ok"')
        self._measured.signs.append((self.passed, (time.perf_counter() - began) * 1000))

    async def looks_around(self) -> None:
        for path in ("/healthz", "/readyz", "/metrics", "/v1/models"):
            await self._whole(_get(path), b"200 OK")

    async def is_refused(self) -> None:
        await self._whole(self._question(self._cold(), "x-turn-on-busy: perhaps"), b"400 Bad Request")

    # Clients that do not.

    async def leaves_in_the_middle(self) -> None:
        policy = self._dice.choice(("continue", "keep", "discard"))
        sent = self._question(self._cold(), f"x-turn-on-disconnect: {policy}")
        await self._left(sent, b"word")

    async def leaves_a_silent_model(self) -> None:
        policy = self._dice.choice(("keep", "discard"))
        key = f"held-{self._name}-{self._requests}"
        await self._left(self._question(key, f"x-turn-on-disconnect: {policy}", model="held"), b"word")

    async def leaves_before_an_answer(self) -> None:
        await self._left(self._question(self._cold()), b"")

    async def never_ends_its_head(self) -> None:
        await self._left(b"GET /healthz HTTP/1.1\r\nhost: 127", b"")

    async def never_ends_its_body(self) -> None:
        await self._left(self._question(self._cold())[:-5], b"")

    async def does_not_read(self) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port, limit=1024)
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(5):
            writer.write(self._question(None))
        await asyncio.sleep(self._dice.uniform(0, 1))
        writer.close()
        del reader

    async def stops_its_turn(self) -> None:
        key = f"stopped-{self._name}-{self._requests}"
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        writer.write(self._question(key, model="held"))
        head = await reader.readuntil(b"word")
        stop = f"/api/turns/{_turn_of(head)}/stop HTTP/1.1"
        sent = f"POST {stop}\r\nhost: 127.0.0.1\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
        try:
            await self._whole(sent.encode(), b'"state":"kept"')
            await reader.readuntil(b"turn_stopped")
        finally:
            writer.close()

    async def follows_a_turn_and_leaves(self) -> None:
        response = await self._whole(self._question(self._cold()), b"[DONE]")
        await self._left(_get(f"/api/turns/{_turn_of(response)}/events"), b"turn.started")

    @property
    def _round(self) -> int:
        return self._requests // TURNS

    def _cold(self) -> str:
        return f"{self._name}-{self._round}"

    def _question(self, key: str | None, *headers: str, stream: bool = True, model: str = "m") -> bytes:
        words = "Where is my order? " * self._dice.randint(1, 20)
        body = '{"model":"%s","messages":[{"role":"user","content":"%s"}],"stream":%s}'
        named = [f"x-conversation-id: {key}"] if key else []
        return request(
            (body % (model, words, "true" if stream else "false")).encode(),
            [*named, "connection: close", *headers],
        )

    async def _whole(self, sent: bytes, wanted: bytes) -> bytes:
        """Send a request, and read to the end; raises ValueError for another answer than wanted."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(sent)
            response = await reader.read(-1)
        finally:
            writer.close()
        if wanted not in response:
            raise ValueError(response[:15] + b" ... " + response[-200:])
        return response

    async def _left(self, sent: bytes, arrived: bytes) -> None:
        """Send a request, and leave once this was received."""
        reader, writer = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            writer.write(sent)
            await writer.drain()
            if arrived:
                await reader.readuntil(arrived)
        finally:
            writer.close()


WAYS: dict[Callable[[Client], Awaitable[None]], int] = {
    Client.has_a_turn: 8,
    Client.has_a_turn_among_others: 4,
    Client.is_answered_at_once: 4,
    Client.repeats_a_request: 2,
    Client.is_passed_through: 3,
    Client.checks_health: 4,
    Client.looks_around: 1,
    Client.is_refused: 1,
    Client.leaves_in_the_middle: 4,
    Client.leaves_a_silent_model: 2,
    Client.leaves_before_an_answer: 2,
    Client.never_ends_its_head: 1,
    Client.never_ends_its_body: 1,
    Client.does_not_read: 1,
    Client.stops_its_turn: 1,
    Client.follows_a_turn_and_leaves: 2,
}


def _get(path: str) -> bytes:
    return f"GET {path} HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n".encode()


def _turn_of(response: bytes) -> str:
    found = re.search(rb"x-turn-id: (\S+)", response)
    if found is None:
        raise ValueError(response[:200])
    return found[1].decode()


def descriptors(server: RunningServer) -> int:
    return len(os.listdir(f"/proc/{server.process.pid}/fd"))


async def soak(server: RunningServer, seconds: float) -> Measurements:
    """Put the server under load, and watch it."""
    measured, began = Measurements(), time.monotonic()
    clients = [Client(server.port, number, measured, began, seconds) for number in range(CLIENTS)]
    running = [asyncio.create_task(client.run()) for client in clients]
    every = max(seconds / 200, 0.1)
    while clients[0].passed < 1 and server.process.poll() is None:
        await asyncio.sleep(every)
        with suppress(OSError):  # it has died, as its clients will report
            measured.held.append((clients[0].passed, server.memory() / 1e6, descriptors(server)))
    async with asyncio.timeout(60):
        await asyncio.gather(*running)
    return measured


async def wait_for_descriptors(server: RunningServer, before: int, patience: float) -> int:
    """Return how many new descriptors are left, after waiting a while for them to close."""
    deadline = time.monotonic() + patience
    while (left := descriptors(server) - before) > 0 and time.monotonic() < deadline:  # noqa: ASYNC110
        await asyncio.sleep(0.2)
    return left


def by_quarter(values: Sequence[tuple[float, float]]) -> list[list[float]]:
    """Return the values of each quarter of the time that counts; NaN if there are none."""
    quarters: list[list[float]] = [[] for _ in range(QUARTERS)]
    for passed, value in values:
        if WARMING <= passed < 1:
            quarters[int((passed - WARMING) / (1 - WARMING) * QUARTERS)].append(value)
    return [quarter or [math.nan] for quarter in quarters]


def upper(values: Sequence[float]) -> float:
    return sorted(values)[int(len(values) * 0.95)]


def table(measured: Measurements) -> list[tuple[str, list[float]]]:
    memory = by_quarter([(passed, held) for passed, held, _ in measured.held])
    files = by_quarter([(passed, count) for passed, _, count in measured.held])
    turns = by_quarter(measured.turns)
    return [
        ("memory", [median(each) for each in memory]),
        ("descriptors", [median(each) for each in files]),
        ("turn, median", [median(each) for each in turns]),
        ("turn, 95%", [upper(each) for each in turns]),
        ("sign of life", [median(each) for each in by_quarter(measured.signs)]),
    ]


def report(measured: Measurements, left: int, checked: str) -> bool:
    """Print the results; return whether all is well."""
    print(
        f"{sum(measured.done.values())} requests: "
        + ", ".join(f"{count} {way}" for way, count in measured.done.items())
    )
    is_well = not measured.odd and left <= 0 and "no errors" in checked
    for odd in measured.odd[:10]:
        print(f"ODD {odd}")
    print(f"{'':14}" + "".join(f"{f'quarter {number}':>12}" for number in range(1, QUARTERS + 1)))
    rows = dict(table(measured))
    signs = rows["sign of life"]
    for name, values in rows.items():
        row = f"{name:14}" + "".join(f"{value:12.1f}" for value in values)
        bound = BOUNDS.get(name)
        if bound is None:
            print(f"{row} ms  (of the machine)")
            continue
        holds = bound.holds(values[0], values[-1], max(1.0, signs[-1] / signs[0]))
        is_well = is_well and holds
        print(f"{row} {bound.unit:3} {'flat' if holds else 'GROWS'}")
    print(f"{max(left, 0)} descriptors left at rest; the store: {checked.strip()}")
    return is_well


CONFIG = """
[server]
port = 0
store = "{store}"
log_level = "error"
[server.limits]
head_wait = 2
body_wait = 2
send_wait = 2
cached_bytes = 4000000
[models.m]
upstream = "http://127.0.0.1:{port}/v1"
[models.held]
upstream = "http://127.0.0.1:{port}/held"
"""


def run(folder: Path, minutes: float, patience: float) -> bool:
    store = f"sqlite:///{folder}/chats.db"
    with started("-m", "bench.http.upstream") as upstream:
        config = folder / "turnledger.toml"
        config.write_text(CONFIG.format(store=store, port=upstream.port))
        with started("-m", "turnledger", "serve", "--config", str(config)) as server:

            async def measure() -> tuple[Measurements, int]:
                await Client(server.port, CLIENTS, Measurements(), 0, 1).has_a_turn()  # warms up
                before = descriptors(server)
                return await soak(server, minutes * 60), await wait_for_descriptors(server, before, patience)

            measured, left = uvloop.run(measure())
            server.process.send_signal(signal.SIGTERM)
            server.process.wait(timeout=60)
    check = [sys.executable, "-m", "turnledger", "check", store]
    checked = subprocess.run(check, capture_output=True, text=True, check=False)
    return report(measured, left, checked.stdout or checked.stderr)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.soak", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--quick", action="store_true", help="a few seconds, to see that it runs")
    parser.add_argument("--folder", type=Path, default=Path(), help="on the disk to use (default: here)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        # Connections to the upstream are kept for a while.
        minutes, patience = (0.01, 0.0) if options.quick else (options.minutes, 45.0)
        is_well = run(Path(folder).resolve(), minutes, patience)
    sys.exit(0 if is_well or options.quick else 1)


if __name__ == "__main__":
    main()
