"""The cost of limits and tokens: `python -m bench.limits [--quick]`. Prints a table of ratios of CPU time.

A refusal is compared with a turn, in one server; and turns with a token with turns without, in servers that
get the same load at the same time. The CPU time of all threads of the servers counts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from statistics import median

from bench.http.__main__ import QUESTION, RunningServer, body, started
from bench.http.load import Client, connect, request
from bench.http.upstream import CHUNKS
from bench.table import Line, show
from turnledger import Ledger
from turnledger.engine.clock import SystemClock
from turnledger.hosting import Host
from turnledger.server.access.guard import RequestHead
from turnledger.server.access.limits import Caller, Quotas
from turnledger.server.app import make_app
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.models.models import Models
from turnledger.server.ops.counters import Counters, LocalCounters, SharedCounters
from turnledger.server.ops.metrics import Metrics

CLIENTS = 16


def cpu(server: RunningServer) -> float:
    """Return the CPU seconds used by a server, finer than its clock ticks."""
    tasks = Path(f"/proc/{server.process.pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


@contextmanager
def serving(folder: Path, name: str, upstream: int, *limits: str) -> Iterator[RunningServer]:
    """Start a server with the model `m`, which answers at once, and `held`, which does not."""
    config = folder / f"{name}.toml"
    config.write_text(
        f'[models.m]\nupstream = "http://127.0.0.1:{upstream}/v1"\n'
        f'[models.held]\nupstream = "http://127.0.0.1:{upstream}/held"\nmodel = "m"\n'
    )
    flags = ("--port", "0", "--store", f"sqlite:///{folder}/{name}.db", "--config", str(config))
    with started("-m", "turnledger", "serve", *flags, "--log-level", "warning", *limits) as server:
        yield server


async def make_tokens(folder: Path, name: str, owners: Iterable[str]) -> list[str]:
    """Return tokens of these owners, as headers."""
    async with await Ledger.open(f"sqlite:///{folder}/{name}.db") as ledger:
        made = [await Host(ledger).tokens.create(owner=owner, scopes=["turns:run"]) for owner in owners]
    return [f"authorization: Bearer {text}" for _, text in made]


class Load:
    """Concurrent clients of one server, each in its own conversation."""

    def __init__(self, server: RunningServer, tokens: Sequence[str] = ()) -> None:
        self._server = server
        self._tokens = tokens
        self._runs = 0

    async def turns(self, each: int, *, stream: bool) -> float:
        """Return the CPU seconds per turn, over `each` turns of every client."""
        self._runs += 1
        sent = body(QUESTION, stream=stream)
        heads = [[f"x-conversation-id: {self._runs}-{place}"] for place in range(CLIENTS)]
        for place, token in enumerate(self._tokens):
            heads[place].append(token)
        return await self._measured([request(sent, head) for head in heads], each, b"200")

    async def refusals(self, each: int, token: str) -> float:
        """Return the CPU seconds per refusal, for an owner at their limit of turns."""
        sent = request(body(QUESTION, stream=True), ["x-conversation-id: refused", token])
        return await self._measured([sent] * CLIENTS, each, b"429")

    async def _measured(self, requests: Sequence[bytes], each: int, status: bytes) -> float:
        async def run(client: Client, sent: bytes) -> None:
            for _ in range(each):
                await client.fetch(sent, status)

        clients = [await connect(self._server.port) for _ in requests]  # new: the server closes idle ones
        used = cpu(self._server)
        await asyncio.gather(*map(run, clients, requests))
        used = cpu(self._server) - used
        for client in clients:
            client.transport.close()
        return used / (len(requests) * each)


async def refused(folder: Path, upstream: int, rounds: int, each: int) -> list[Line]:
    """Measure a 429 against a streamed turn, and against one that is not."""
    *tokens, full = await make_tokens(folder, "full", map(str, range(CLIENTS + 1)))
    with serving(folder, "full", upstream, "--owner-turns", "1") as server:
        load = Load(server, tokens)
        holding = await connect(server.port)
        held = body(QUESTION, stream=True).replace(b'"m"', b'"held"')
        holding.transport.write(request(held, ["x-conversation-id: held", full]))
        while not holding.first_at:  # noqa: ASYNC110 - this is no test
            await asyncio.sleep(0.01)
        refusals, ratios = [], dict[bool, list[float]]({True: [], False: []})
        for stream in (True, False):
            await load.turns(2, stream=stream)
        for _ in range(rounds):
            refusals.append(await load.refusals(each * 4, full))
            for stream, found in ratios.items():
                found.append(refusals[-1] / await load.turns(each, stream=stream))
    kinds = {True: f"streamed in {CHUNKS} chunks", False: "not streamed"}
    return [
        Line("µs of CPU for a refusal", median(refusals) * 1e6),
        *(Line(f"a refusal, of a turn {kinds[each]}", median(found), 0.1) for each, found in ratios.items()),
    ]


async def with_tokens(folder: Path, upstream: int, rounds: int, each: int) -> list[Line]:
    """Measure turns with a token and its owner's limits, against turns without. A third server, equal to the
    second, shows how reliable the figure is. All run at once: noise affects them alike."""
    # One owner, as without tokens: only the token differs.
    tokens = await make_tokens(folder, "guarded", ["one"] * CLIENTS)
    lines = []
    with (
        serving(folder, "guarded", upstream) as guarded,
        serving(folder, "open", upstream) as unguarded,
        serving(folder, "control", upstream) if rounds > 1 else nullcontext(unguarded) as control,
    ):
        loads = Load(unguarded), Load(guarded, tokens), Load(control)
        for stream in (True, False):
            took = [
                await asyncio.gather(*(load.turns(each, stream=stream) for load in loads))
                for _ in range(rounds + 1)
            ][1:]  # the first warms up
            added, noise = (
                (median(one[side] / one[0] for one in took) - 1) * 100 for side in range(1, len(loads))
            )
            what = f"streamed in {CHUNKS} chunks" if stream else "not streamed"
            lines += [
                Line(f"% of CPU that a token adds to a turn {what}", added, 3),
                Line("  the same between two servers without tokens, which is noise", noise),
            ]
    return lines


def checks(rounds: int) -> list[Line]:
    """Measure the checks that admit a turn, begin it and release it."""
    lines = []
    shared = SharedCounters.create(parts=4)
    both: dict[str, Counters] = {
        "one worker": LocalCounters(),
        "several": SharedCounters(shared.descriptor, 0),
    }
    for name, counters in both.items():
        quotas = Quotas(ServerLimits(), counters, Metrics(), SystemClock())
        began = time.process_time()
        for number in range(rounds):
            place = quotas.admit_turn(Caller(f"owner {number % 100}"))
            place.begin()
            place.release()
        took = (time.process_time() - began) / rounds * 1e6
        lines.append(Line(f"µs of CPU to count a turn in and out, {name}", took))
    return lines


async def authenticate(rounds: int, *, has_token: bool) -> float:
    """Return the CPU seconds from the headers of a request to its admission, from caches alone."""
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        headers = [(b"host", b"127.0.0.1"), (b"content-type", b"application/json")]
        if has_token:
            _, text = await Host(ledger).tokens.create(owner="one", scopes=["turns:run"])
            headers.append((b"authorization", b"Bearer " + text.encode()))
        service, scope = app.service, {"type": "http", "headers": headers}
        await service.authenticator.admit(RequestHead(scope))
        began = time.process_time()
        for _ in range(rounds):
            who = service.authenticator.find_cached(RequestHead(scope))
            assert who is not None
            service.quotas.admit_turn(who.caller).release()
        return (time.process_time() - began) / rounds


async def admitting(rounds: int) -> list[Line]:
    """Measure what a token adds to that: the best of several tries, since only noise makes it more."""
    tries = [
        (await authenticate(rounds, has_token=True), await authenticate(rounds, has_token=False))
        for _ in range(5)
    ]
    added = min(one for one, _ in tries) - min(other for _, other in tries)
    return [Line("µs of CPU that a token adds to letting a turn in", added * 1e6)]


async def measure(folder: Path, *, quick: bool) -> list[Line]:
    rounds, each = (1, 1) if quick else (20, 10)
    repeated = 100 if quick else 50_000
    lines = checks(repeated) + await admitting(repeated // 5)
    with started("-m", "bench.http.upstream") as upstream:
        lines += await refused(folder, upstream.port, rounds, each)
        lines += await with_tokens(folder, upstream.port, rounds, each)
    return lines


if __name__ == "__main__":
    show("bench.limits", __doc__, measure)
