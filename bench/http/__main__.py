"""Run the benchmark of the server: `python -m bench.http [--quick]`. Prints a table of ratios.

Both servers are processes with the same upstream and get the same load alternately, so that noise affects
both alike.
"""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median

from bench.http.load import connect, rate, request
from bench.http.upstream import CHUNKS
from bench.table import Line, show

CLIENTS = 64
QUESTION = "Where is my order? " * 5


def body(text: str, *, stream: bool) -> bytes:
    """Return a request with only the new message."""
    return b'{"model":"m","messages":[{"role":"user","content":"%s"}],"stream":%s}' % (
        text.encode(),
        b"true" if stream else b"false",
    )


class RunningServer:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port

    def cpu(self) -> float:
        """CPU seconds used."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def memory(self) -> int:
        """Resident bytes."""
        return int(Path(f"/proc/{self.process.pid}/statm").read_text().split()[1]) * os.sysconf(
            "SC_PAGE_SIZE"
        )


@contextmanager
def started(*command: str) -> Iterator[RunningServer]:
    """Start a process that prints its port."""
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            assert process.stdout is not None
            address = re.compile(r"127\.0\.0\.1:(\d+)|^(\d+)$")
            found = next(filter(None, map(address.search, process.stdout)), None)
            if found is None:
                raise RuntimeError(f"{command} did not start")
            yield RunningServer(process, int(found[1] or found[2]))
        finally:
            # Open streams would delay an orderly shutdown.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def serving(folder: Path, upstream: str) -> Iterator[RunningServer]:
    """Start our server with an upstream."""
    store = f"sqlite:///{folder}/bench{upstream.rpartition('/')[2]}.db"
    flags = ("serve", "--port", "0", "--store", store, "--upstream", upstream, "--log-level", "warning")
    with started("-m", "turnledger", *flags) as ours:
        yield ours


def kept_in(conversation: str) -> list[str]:
    """Return the headers of a question that is asked many times in one conversation."""
    return [f"x-conversation-id: {conversation}", "x-conversation-messages: new"]


def in_conversation(*, stream: bool, run: int) -> Callable[[int, int], bytes]:
    """Return requests of clients with a conversation each; a fresh one for each run."""
    sent = body(QUESTION, stream=stream)
    made = [request(sent, kept_in(f"{run}-{place}")) for place in range(CLIENTS)]
    return lambda place, _: made[place]


async def throughput(
    bare: RunningServer, ours: RunningServer, rounds: int, each: int, *, stream: bool
) -> list[Line]:
    """Measure requests per second, and CPU time per request."""
    plain = request(body(QUESTION, stream=stream))
    rates: tuple[list[float], list[float]] = ([], [])
    cpu: tuple[list[float], list[float]] = ([], [])
    for run in range(rounds):
        for side, server, make in (
            (0, bare, lambda *_: plain),
            (1, ours, in_conversation(stream=stream, run=run * 2 + stream)),
        ):
            used = server.cpu()
            rates[side].append(await rate(server.port, CLIENTS, each, make))
            cpu[side].append((server.cpu() - used) / (CLIENTS * each))
    what = f"streaming {CHUNKS} chunks" if stream else "not streaming"
    share = median(rates[1]) / median(rates[0])
    burden = median(cpu[1]) / median(cpu[0])
    name = f"turns/s, {CLIENTS} at once, {what}, of the bare server's requests/s"
    lines = [Line(name, share, 0.6, at_least=True)]
    return [*lines, Line("CPU per streamed chunk, of the bare server's", burden, 2)] if stream else lines


async def first_token(bare: RunningServer, ours: RunningServer, rounds: int) -> list[Line]:
    """Measure the time to the first chunk with one client."""
    plain = request(body(QUESTION, stream=True))
    kept = request(body(QUESTION, stream=True), kept_in("alone"))
    took: tuple[list[float], list[float]] = ([], [])
    clients = await connect(bare.port), await connect(ours.port)
    for _ in range(rounds):
        for side, sent in enumerate((plain, kept)):
            began = time.perf_counter()
            await clients[side].fetch(sent)
            took[side].append(clients[side].first_at - began)
    over = (median(took[1]) - median(took[0])) * 1000
    return [Line("ms to the first token over the bare server's, one client", over, 2)]


async def idle_streams(ours: RunningServer, count: int) -> list[Line]:
    """Measure the memory of an open stream that waits for its model."""
    before = ours.memory()
    clients = [await connect(ours.port) for _ in range(count)]
    for place, client in enumerate(clients):
        client.transport.write(request(body(QUESTION, stream=True), [f"x-conversation-id: idle-{place}"]))
    while not all(client.first_at for client in clients):  # noqa: ASYNC110 - this is no test
        await asyncio.sleep(0.01)
    each = (ours.memory() - before) / count / 1024
    return [Line(f"{count} open streams held; kB of memory for each", each)]


async def measure(folder: Path, *, quick: bool) -> list[Line]:
    rounds, each = (1, 1) if quick else (6, 40)
    with started("-m", "bench.http.upstream") as upstream:
        url = f"http://127.0.0.1:{upstream.port}"
        with started("-m", "bench.http.bare", f"{url}/v1") as bare, serving(folder, f"{url}/v1") as ours:
            lines = await throughput(bare, ours, rounds, each, stream=False)
            lines += await throughput(bare, ours, rounds, max(each // 4, 1), stream=True)
            lines += await first_token(bare, ours, 2 if quick else 300)
        with serving(folder, f"{url}/held") as ours:
            lines += await idle_streams(ours, 20 if quick else 2_000)
    return lines


if __name__ == "__main__":
    show("bench.http", __doc__, measure)
