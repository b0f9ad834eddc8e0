"""Two workers against one: `python -m bench.workers [--quick]`. Prints a table of ratios.

Both servers use the same upstream and get the same load alternately. Clients and upstream share the cores
with the workers: on two cores, two workers can reach 2·S/(S+L) of the rate of one, where S is the server's
CPU time per request and L that of clients and upstream; it is printed. This ignores how evenly the work is
spread, and what the workers cost each other. The second ratio is taken from CPU times alone, and holds on a
busy machine, too.
"""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import cast

from bench.http.__main__ import CLIENTS, RunningServer, started
from bench.http.load import request
from bench.table import Line, show

EXCHANGES = 20
MESSAGE = "The parcel that I sent for last week has not come, and nobody can tell me where it is. " * 2

Make = Callable[[int], bytes]


class RepeatingClient(asyncio.Protocol):
    """A connection that repeats its request as soon as it is answered. Cheaper than awaiting: clients compete
    with the workers for CPU time."""

    def __init__(self, sent: bytes, times: int, done: Callable[[], None]) -> None:
        self._sent = sent
        self._left = times
        self._done = done
        self._missing = 0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def send(self) -> None:
        self._missing = 0
        self._transport.write(self._sent)

    def data_received(self, data: bytes) -> None:
        if not self._missing:
            if not data.startswith(b"HTTP/1.1 200"):
                raise RuntimeError(data[:2000].decode(errors="replace"))
            head = data.index(b"\r\n\r\n") + 4
            at = data.index(b"content-length: ") + 16
            self._missing = head + int(data[at : data.index(b"\r", at)])
        self._missing -= len(data)
        if self._missing:
            return
        self._left -= 1
        if self._left:
            self.send()
        else:
            self._transport.close()
            self._done()


async def rate(port: int, each: int, make: Make) -> float:
    """Return requests per second of all clients, with `each` requests per client."""
    loop = asyncio.get_running_loop()
    is_over, left = asyncio.Event(), CLIENTS

    def done() -> None:
        nonlocal left
        left -= 1
        if not left:
            is_over.set()

    clients = [RepeatingClient(make(place), each, done) for place in range(CLIENTS)]
    for client in clients:
        await loop.create_connection(lambda client=client: client, "127.0.0.1", port)  # type: ignore[misc]
    began = time.perf_counter()
    for client in clients:
        client.send()
    await is_over.wait()
    return CLIENTS * each / (time.perf_counter() - began)


class Spent:
    """CPU seconds of each worker, and of all other processes."""

    def __init__(self, server: RunningServer, upstream: RunningServer) -> None:
        self._workers = workers_of(server.process.pid)
        self._upstream = upstream.process.pid
        self._before = self._now()

    def _now(self) -> list[float]:
        return [*map(cpu, self._workers), cpu(self._upstream) + time.process_time()]

    def since(self) -> tuple[list[float], float]:
        *workers, others = (now - before for now, before in zip(self._now(), self._before, strict=True))
        return workers, others


def workers_of(supervisor: int) -> list[int]:
    """Return the processes that answer: the children, or the server itself if it has none."""
    children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
    return [int(child) for child in children] or [supervisor]


def cpu(pid: int) -> float:
    runtime = Path(f"/proc/{pid}/schedstat").read_text().split()[0]  # nanoseconds of its first thread
    others = sum(
        int(Path(f"/proc/{pid}/task/{thread}/schedstat").read_text().split()[0])
        for thread in os.listdir(f"/proc/{pid}/task")
        if int(thread) != pid
    )
    return (int(runtime) + others) / 1e9


@contextmanager
def serving(folder: Path, upstream: RunningServer, workers: int) -> Iterator[RunningServer]:
    store = f"sqlite:///{folder}/bench-{workers}.db"
    url = f"http://127.0.0.1:{upstream.port}/v1"
    flags = ("--port", "0", "--store", store, "--upstream", url, "--log-level", "warning")
    with started("-m", "turnledger", "serve", *flags, "--workers", str(workers)) as server:
        yield server


COUNTING = """
import sys, time
ends, counted = time.perf_counter() + float(sys.argv[1]), 0
while time.perf_counter() < ends:
    for _ in range(10_000):
        counted += 1
print(counted)
"""


def counted(processes: int, seconds: float) -> int:
    """Return how far this many processes count in this time, together."""
    command = [sys.executable, "-c", COUNTING, str(seconds)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(processes)]
    return sum(int(each.communicate()[0]) for each in running)


def passed_through(_: int) -> Make:
    """Return requests of clients that send their whole history."""
    history = [
        b'{"role":"%s","content":"%s"}' % (role, MESSAGE.encode())
        for _ in range(EXCHANGES)
        for role in (b"user", b"assistant")
    ]
    messages = b",".join([*history, b'{"role":"user","content":"And now?"}'])
    sent = request(b'{"model":"m","messages":[%s],"stream":false}' % messages)
    return lambda _: sent


def in_conversations(run: int) -> Make:
    """Return requests of clients with a conversation each; a fresh one for each run."""
    body = b'{"model":"m","messages":[{"role":"user","content":"%s"}],"stream":false}' % MESSAGE.encode()
    made = [request(body, [f"x-conversation-id: {run}-{place}"]) for place in range(CLIENTS)]
    return made.__getitem__


async def compare(
    what: str,
    target: float,
    upstream: RunningServer,
    servers: tuple[RunningServer, RunningServer],
    rounds: int,
    each: int,
    make: Callable[[int], Make],
) -> list[Line]:
    rates: tuple[list[float], list[float]] = ([], [])
    busiest: tuple[list[float], list[float]] = ([], [])
    needs: list[float] = []
    for run in range(rounds + 1):
        for side, server in enumerate(servers):
            spent = Spent(server, upstream)
            carried = await rate(server.port, each, make(run))
            workers, others = spent.since()
            if run:  # the first warms up
                rates[side].append(carried)
                busiest[side].append(max(workers))
                needs.append(others / sum(workers))
    ratio = median(rates[1]) / median(rates[0])
    by_cpu = median(busiest[0]) / median(busiest[1])
    ceiling = 2 / (1 + median(needs))
    return [
        Line(f"{what}: requests/s of two workers, of one's", ratio, target, at_least=True),
        Line("  at most, on two cores that clients and upstream share", ceiling),
        Line("  CPU of one worker, of the busier of two's", by_cpu, target, at_least=True),
    ]


async def measure(folder: Path, *, quick: bool) -> list[Line]:
    rounds, each = (1, 1) if quick else (8, 40)
    with (
        started("-m", "bench.http.upstream") as upstream,
        serving(folder, upstream, 1) as one,
        serving(folder, upstream, 2) as two,
    ):
        servers = (one, two)
        tries, seconds = (1, 0.1) if quick else (5, 1.0)
        cores = median(counted(2, seconds) / counted(1, seconds) for _ in range(tries))
        return [
            Line("two processes that only count, of one: what a second core is worth", cores),
            *await compare("passed through", 1.5, upstream, servers, rounds, each, passed_through),
            *await compare("in conversations", 1.5, upstream, servers, rounds, each, in_conversations),
        ]


if __name__ == "__main__":
    show("bench.workers", __doc__, measure)
