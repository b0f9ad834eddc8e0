"""kill -9 of a server that streams responses: a client that continues with `starting_after` on the next
server misses nothing, and receives nothing twice."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
from openai import APIError, AsyncOpenAI

from tests.crash.killed_server import ServerProcess
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ScriptedUpstream

MODEL = "scripted"


@asynccontextmanager
async def serving(
    folder: Path, upstream: ScriptedUpstream
) -> AsyncIterator[tuple[ServerProcess, AsyncOpenAI]]:
    """Run a server until the block ends, unless it is killed before."""
    server = ServerProcess(folder, upstream.url)
    try:
        url = f"{await server.wait_ready()}/v1"
        async with AsyncOpenAI(base_url=url, api_key="none", max_retries=0) as client:
            yield server, client
    finally:
        server.kill()
        await server.end()


async def read_until_killed(server: ServerProcess, events: Any, deltas: int) -> list[Any]:
    """Return the events up to this many deltas of text; then kill the server."""
    received = []
    try:
        async for event in events:
            received.append(event)
            deltas -= event.type == "response.output_text.delta"
            if not deltas:
                server.kill()
                deltas = -1
    except (APIError, httpx2.HTTPError):
        pass  # the connection ended
    return received


async def events_after(client: AsyncOpenAI, id: str, number: int) -> list[Any]:
    return [event async for event in await client.responses.retrieve(id, stream=True, starting_after=number)]


def numbers(events: list[Any]) -> list[int]:
    return [event.sequence_number for event in events]


def read_text(events: list[Any]) -> str:
    """Return the text as a client joins it: that of items which end as incomplete does not count."""
    texts: dict[str, str] = {}
    for event in events:
        if event.type == "response.output_text.delta":
            texts[event.item_id] = texts.get(event.item_id, "") + event.delta
        elif event.type == "response.output_item.done" and event.item.status == "incomplete":
            texts.pop(event.item.id, None)
    return "".join(texts.values())


async def test_resumed_response_continues_after_every_event_of_its_dead_process(tmp_path: Path) -> None:
    gate = Gate()
    scripts = [["lost ", "words ", gate], ["Hello ", "again"]]
    async with ScriptedUpstream(*scripts) as upstream:
        async with serving(tmp_path, upstream) as (server, client):
            stream = await client.responses.create(model=MODEL, input="Hi", background=True, stream=True)
            received = await read_until_killed(server, stream, 2)
        id = received[0].response.id
        assert numbers(received) == list(range(len(received)))
        async with serving(tmp_path, upstream) as (_, client):
            for last in range(len(received)):
                rest = await events_after(client, id, last)
                whole = received[: last + 1] + rest
                assert numbers(whole) == list(range(len(whole)))
                assert whole[: len(received)] == received
                assert whole[-1].type == "response.completed"
                assert read_text(whole) == whole[-1].response.output_text == "Hello again"
            assert await events_after(client, id, whole[-1].sequence_number) == []


async def test_response_whose_process_died_reports_its_end_after_every_event(tmp_path: Path) -> None:
    """The stored log may end before events that the dead process has sent."""
    gate = Gate()
    async with ScriptedUpstream(["lost ", "words ", gate]) as upstream:
        async with serving(tmp_path, upstream) as (server, client):
            stream = await client.responses.create(model=MODEL, input="Hi", stream=True)
            received = await read_until_killed(server, stream, 2)
        assert len(received) == 6
        async with serving(tmp_path, upstream) as (_, client):
            for last in range(len(received)):
                rest = await events_after(client, received[0].response.id, last)
                assert numbers(rest) == list(range(last + 1, last + 1 + len(rest)))
                assert rest[-1].type == "response.failed"
                assert rest[-1].response.error is not None


async def test_kept_response_whose_process_died_ends_after_every_event_with_all_that_was_kept(
    tmp_path: Path,
) -> None:
    """Its end has events of its own, under numbers that the dead process may have used for others."""
    gate = Gate()
    script = ["kept ", gate, *["lost "] * 5, Gate()]
    async with ScriptedUpstream(script) as upstream, serving(tmp_path, upstream) as (_, other):
        async with serving(tmp_path, upstream) as (server, client):
            headers = {"X-Turn-On-Failure": "keep"}
            stream = await client.responses.create(
                model=MODEL, input="Hi", stream=True, extra_headers=headers
            )
            received = [await anext(stream)]
            async for event in await other.responses.retrieve(received[0].response.id, stream=True):
                if event.type == "response.output_text.delta":
                    break  # the first one is stored
            gate.release()
            received += await read_until_killed(server, stream, 6)
        assert len(received) == 10
        ends = set()
        for last in range(len(received)):
            rest = await events_after(other, received[0].response.id, last)
            assert numbers(rest) == list(range(last + 1, last + 1 + len(rest)))
            assert rest[-1].type == "response.failed"
            assert rest[-1].response.output_text == "kept "
            ends.add(rest[-1].sequence_number)
        assert ends == {8, 9, 10}
