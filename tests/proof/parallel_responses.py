"""1,000 requests at once that continue one response, over HTTP: none waits for another.

All of them reach the model before any of them is answered, and each is shown the history up to that response.
The conversation moves once if the response was its last one, and otherwise never.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import aiohttp

from tests.crash.killed_server import ServerProcess, environment
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ScriptedUpstream

SECONDS = 600
REQUESTS = 1_000
MODEL = "scripted"


class Client:
    def __init__(self, session: aiohttp.ClientSession, url: str) -> None:
        self._session = session
        self._url = url

    async def respond(self, input: str, **fields: Any) -> dict[str, Any]:
        body = {"model": MODEL, "input": input, **fields}
        async with self._session.post(f"{self._url}/v1/responses", json=body) as answer:
            response: dict[str, Any] = await answer.json()
            assert (answer.status, response.get("status")) == (200, "completed"), response
            return response

    async def get(self, path: str) -> Any:
        async with self._session.get(self._url + path) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def texts(self, conversation: str) -> list[str]:
        found = await self.get(f"/v1/conversations/{conversation}/items?order=asc&limit=100")
        return [item["content"][0]["text"] for item in found["data"]]

    async def queue_length(self) -> int:
        async with self._session.get(f"{self._url}/metrics") as answer:
            [length] = re.findall(r"^\w+_queue_length (\S+)$", await answer.text(), re.MULTILINE)
            return int(float(length))


async def continue_at_once(
    client: Client, upstream: ScriptedUpstream, previous: dict[str, Any], count: int, word: str
) -> list[dict[str, Any]]:
    """Continue a response by as many requests, which the model answers when all of them have reached it;
    return their responses."""
    conversation, held = previous["conversation"]["id"], Gate()
    upstream.otherwise = [held, "An answer"]
    before, seen = await client.texts(conversation), len(upstream.received)
    async with asyncio.TaskGroup() as tasks:
        sent = [
            tasks.create_task(client.respond(f"{word} {number}", previous_response_id=previous["id"]))
            for number in range(count)
        ]
        await held.arrived(count)
        assert await client.queue_length() == 0
        assert await client.texts(conversation) == before
        held.release()
    shown = [_texts(request.body["messages"]) for request in upstream.received[seen:]]
    assert sorted(shown) == sorted(["Hi", "Hello", f"{word} {number}"] for number in range(count))
    responses = [task.result() for task in sent]
    assert len({each["id"] for each in responses}) == count
    for number, each in enumerate(responses):
        assert await client.get(f"/v1/responses/{each['id']}") == each
        items = await client.get(f"/v1/responses/{each['id']}/input_items")
        assert items["data"][0]["content"][0]["text"] == f"{word} {number}"
    return responses


async def show_that_queues_are_seen(client: Client, upstream: ScriptedUpstream, conversation: str) -> None:
    """Requests that name the conversation do wait for each other."""
    held = Gate()
    upstream.otherwise = [held, "An answer"]
    async with asyncio.TaskGroup() as tasks:
        for number in range(3):
            tasks.create_task(client.respond(f"queued {number}", conversation=conversation))
        while await client.queue_length() < 2:
            await asyncio.sleep(0)
        held.release()


def _texts(messages: Sequence[dict[str, Any]]) -> list[str]:
    return [message["content"] for message in messages]


async def run(folder: Path, count: int) -> None:
    async with ScriptedUpstream(["Hello"]) as upstream:
        server = ServerProcess(folder, upstream.url)
        connections = aiohttp.TCPConnector(limit=0)
        async with aiohttp.ClientSession(
            connector=connections, timeout=aiohttp.ClientTimeout(None)
        ) as session:
            client = Client(session, await server.wait_ready())
            first = await client.respond("Hi")
            conversation = first["conversation"]["id"]
            await continue_at_once(client, upstream, first, count, "head")
            texts = await client.texts(conversation)
            assert len(texts) == 4, texts  # the pointer has moved once
            assert texts[2].startswith("head ")
            print(f"{count} continuations of the last response: none queued, one shown", flush=True)
            await continue_at_once(client, upstream, first, count, "side")
            assert await client.texts(conversation) == texts
            print(f"{count} continuations of an earlier response: none queued, none shown", flush=True)
            await show_that_queues_are_seen(client, upstream, conversation)
            assert len(await client.texts(conversation)) == 10
        server.kill()
        await server.end()
    check = [sys.executable, "-m", "turnledger", "check", "--store", server.store]
    await asyncio.to_thread(subprocess.run, check, env=environment(folder), check=True)


def prove() -> None:
    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(run(Path(folder), REQUESTS))
