"""Run the benchmark of the Responses API: `python -m bench.responses [--quick]`. Prints a table of ratios.

Turns are compared by the CPU time of the server, alternately; reads by their time on one connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from statistics import median

from bench.http.__main__ import CLIENTS, QUESTION, RunningServer, body, kept_in, serving, started
from bench.http.load import connect, rate, request
from bench.table import Line, alternate, show
from turnledger import Ledger
from turnledger.hosting import OWNER

DELTAS = 10_000


def respond(conversation: str, *, stream: bool) -> bytes:
    sent = b'{"model":"m","input":"%s","stream":%s}' % (QUESTION.encode(), b"true" if stream else b"false")
    return request(sent, [f"x-conversation-id: {conversation}"], "/v1/responses")


async def turns(ours: RunningServer, rounds: int, each: int, *, stream: bool) -> list[Line]:
    """Measure the CPU time of a turn through each API, in conversations of its own: the median of the ratios
    of neighbouring runs, since other work slows down both."""
    ratios: list[float] = []
    for run in range(rounds):
        completed = [
            request(body(QUESTION, stream=stream), kept_in(f"c{run}-{n}-{stream}")) for n in range(CLIENTS)
        ]
        responded = [respond(f"r{run}-{n}-{stream}", stream=stream) for n in range(CLIENTS)]
        cpu = []
        for made in (completed, responded) if run % 2 else (responded, completed):
            used = ours.cpu()
            await rate(ours.port, CLIENTS, each, lambda place, _, made=made: made[place])  # type: ignore[misc]
            cpu.append(ours.cpu() - used)
        ratios.append(cpu[1] / cpu[0] if run % 2 else cpu[0] / cpu[1])
    ratio = median(ratios)
    what = "streamed" if stream else "whole"
    return [Line(f"CPU of a {what} turn through Responses, of chat completions", ratio, 1.2)]


async def reads(ours: RunningServer, paths: Sequence[str], rounds: int) -> list[float]:
    """Return the median seconds of reading each path, in turns."""
    client = await connect(ours.port)
    reading = [partial(client.fetch, request(b"", path=path)) for path in paths]
    await alternate(1, *reading)  # warms up
    took = await alternate(rounds, *reading)
    client.transport.close()
    return took


async def fill(folder: Path, length: int) -> tuple[str, str, str]:
    """Store a turn of many deltas, a long conversation and a short one; return their ids."""
    async with await Ledger.open(f"sqlite:///{folder}/benchv1.db") as ledger:
        chats = ledger.for_owner(OWNER)
        chat = await chats.conversation()
        async with chat.turn("Count.") as streamed:
            for _ in range(length):
                streamed.emit("word ")
        made = []
        for turns in (length, 10):
            chat = await chats.conversation()
            made.append(str(chat.id))
            for _ in range(turns):
                async with chat.turn("q") as turn:
                    turn.emit("a")
    return str(streamed.id), made[0], made[1]


async def measure(folder: Path, *, quick: bool) -> list[Line]:
    rounds, each, length = (1, 1, 100) if quick else (6, 20, DELTAS)
    stream, long, short = await fill(folder, length)
    with (
        started("-m", "bench.http.upstream") as upstream,
        serving(folder, f"http://127.0.0.1:{upstream.port}/v1") as ours,
    ):
        lines = await turns(ours, rounds * 3, max(each // 3, 1), stream=False)
        lines += await turns(ours, rounds * 4, max(each // 4, 1), stream=True)
        events = f"/v1/responses/{stream}?stream=true", f"/api/turns/{stream}/events"
        again, native = await reads(ours, events, rounds * 5)
        lines.append(Line(f"{length} events of a response, of those of its turn", again / native, 1.2))
        for order in ("asc", "desc"):
            pages = [f"/v1/conversations/{id}/items?order={order}" for id in (long, short)]
            of_long, of_short = await reads(ours, pages, rounds * 50)
            name = f"first page of items at {length} turns, {order}, of one at 10"
            lines.append(Line(name, of_long / of_short, 1.2))
    return lines


if __name__ == "__main__":
    show("bench.responses", __doc__, measure)
