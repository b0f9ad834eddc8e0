"""The cost of the Python client: `python -m bench.client [--rounds N]`.

A small server in another process answers every request with the same stream of fifty chunks. Bare httpx2 and
the client read it alternately; the CPU time of this process is compared. Then fresh interpreters import the
client, and their CPU time is compared with that of empty ones; and a first client is created, which loads
httpx2.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import subprocess
import sys
import time
from statistics import median

import httpx2

from bench.table import Line
from turnledger.client import AsyncClient, Client

CHUNKS = 50
SLICE = 40
"""Streams per slice: about a tenth of a second."""
TURN = "turn_01890000000070008000000000000001"
CHAT = "conv_01890000000070008000000000000002"
MOST = 1.30
MOST_SECONDS = 0.150
MOST_SECONDS_TO_MAKE = 0.400
"""Import and first client together."""
IMPORTED = "from turnledger.client import Client"
MADE = f"{IMPORTED}; Client()"


def chunks() -> list[bytes]:
    texts = [f'"v":1,"number":{number},"text":" word{number}"' for number in range(2, CHUNKS)]
    events = ['{"type":"turn.started","v":1,"number":1}']
    events += [f'{{"type":"text.delta",{text}}}' for text in texts]
    events += [f'{{"type":"turn.finished","v":1,"number":{CHUNKS},"state":"completed","failure":null}}']
    return [
        f"id: {number}\nevent: {event[9 : event.index(',') - 1]}\ndata: {event}\n\n".encode()
        for number, event in enumerate(events, 1)
    ]


async def serve() -> None:
    """Answer every request with these chunks, one after the other; print the port."""
    head = (
        "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n"
        f"x-turn-id: {TURN}\r\nx-conversation-id: {CHAT}\r\nx-conversation-state: continued\r\n\r\n"
    ).encode()
    pieces = [b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks()]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while request := await reader.readuntil(b"\r\n\r\n"):
            length = next(
                int(line[15:])
                for line in request.lower().split(b"\r\n")
                if line.startswith(b"content-length:")
            )
            await reader.readexactly(length)
            writer.write(head)
            for piece in pieces:
                writer.write(piece)
                await asyncio.sleep(0.0002)  # so that each is read by itself
            writer.write(b"0\r\n\r\n")

    async def quietly(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await answer(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            writer.close()

    server = await asyncio.start_server(quietly, "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def bare(http: httpx2.Client, url: str) -> None:
    body = b'{"model":"m","input":"Hello","stream":true}'
    headers = {"content-type": "application/json"}
    with http.stream("POST", url, content=body, headers=headers) as response:
        for chunk in response.iter_bytes():
            assert chunk


def by_client(client: Client) -> None:
    chat = client.chats.open(CHAT)
    for event in chat.send("Hello", stream=True):
        assert event


async def bare_awaited(http: httpx2.AsyncClient, url: str) -> None:
    body = b'{"model":"m","input":"Hello","stream":true}'
    headers = {"content-type": "application/json"}
    async with http.stream("POST", url, content=body, headers=headers) as response:
        async for chunk in response.aiter_bytes():
            assert chunk


async def by_client_awaited(client: AsyncClient) -> None:
    chat = client.chats.open(CHAT)
    async for event in await chat.send("Hello", stream=True):
        assert event


def blocking(address: str, rounds: int, streams: int) -> float:
    """Return the client's CPU time, relative to bare httpx2."""
    ratios = []
    with httpx2.Client() as http, Client(address, model="m") as client:
        for _ in range(rounds):
            times = []
            for read in (lambda: bare(http, f"{address}/api/turns"), lambda: by_client(client)):
                started = time.process_time()
                for _ in range(streams):
                    read()
                times.append(time.process_time() - started)
            ratios.append(times[1] / times[0])
    return median(ratios)


async def awaited(address: str, rounds: int, streams: int) -> float:
    """Do the same for the awaiting client."""
    ratios = []
    async with httpx2.AsyncClient() as http, AsyncClient(address, model="m") as client:
        for _ in range(rounds):
            started = time.process_time()
            for _ in range(streams):
                await bare_awaited(http, f"{address}/api/turns")
            between = time.process_time()
            for _ in range(streams):
                await by_client_awaited(client)
            ratios.append((time.process_time() - between) / (between - started))
    return median(ratios)


def seconds_more(what: str, rounds: int) -> float:
    """Return how much more CPU time an interpreter takes to run this code than an empty one."""

    def run(what: str) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run([sys.executable, "-c", what], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    run(what)
    with_it = median(run(what) for _ in range(rounds))
    return with_it - median(run("pass") for _ in range(rounds))


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.client", description="What the client costs.")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--quick", action="store_true", help="a single round, to see that it runs")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        asyncio.run(serve())
        return
    rounds, streams = (1, 2) if options.quick else (options.rounds, SLICE)
    command = [sys.executable, "-m", "bench.client", "--serve"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        try:
            assert server.stdout is not None
            address = f"http://127.0.0.1:{server.stdout.readline().strip()}"
            lines = [
                Line("CPU of a stream, of bare httpx2", blocking(address, rounds, streams), MOST),
                Line("the same, awaited", asyncio.run(awaited(address, rounds, streams)), MOST),
                Line("seconds to import the client", seconds_more(IMPORTED, rounds), MOST_SECONDS),
                Line("and to make the first one", seconds_more(MADE, rounds), MOST_SECONDS_TO_MAKE),
            ]
        finally:
            server.kill()
    for line in lines:
        print(f"{line.name:40} {line.value:7.3f} {line.target:7.2f} {'' if line.holds else 'too much'}")
    sys.exit(0 if options.quick or all(line.holds for line in lines) else 1)


if __name__ == "__main__":
    main()
