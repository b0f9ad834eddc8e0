"""The awaiting edge on a real socket: connections are used again, let go of, and woken from."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.client.loopback import loopback
from tests.unit.client.scripted import CHAT, finished, started, text
from turnledger import errors
from turnledger.client import AsyncClient

WHOLE = (started(), text(2, "Hello"), finished(3))
WAIT = 30


async def test_a_connection_is_used_for_one_stream_after_the_other() -> None:
    with loopback(*WHOLE) as server:
        async with AsyncClient(server.url, model="demo") as client:
            for _ in range(5):
                stream = await client.chats.open(CHAT).send("Hi", stream=True)
                assert len([event async for event in stream]) == 3
        assert server.connections == 1


@pytest.mark.parametrize("closes_client", [False, True])
async def test_a_reader_is_woken_from_another_task(closes_client: bool) -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            stream = await client.chats.open(CHAT).send("Hi", stream=True)
            heard: list[Any] = []
            has_heard = asyncio.Event()

            async def read() -> None:
                try:
                    async for event in stream:
                        heard.append(event.number)  # type: ignore[union-attr]
                        if len(heard) == 2:
                            has_heard.set()
                    heard.append("over")
                except errors.TurnledgerError as problem:
                    heard.append(type(problem))

            reading = asyncio.create_task(read())
            async with asyncio.timeout(WAIT):
                await has_heard.wait()
                await (client.close() if closes_client else stream.close())
                await reading
            assert heard == [1, 2, errors.RequestFailed if closes_client else "over"]
            assert await asyncio.to_thread(server.left.wait, WAIT)


async def test_a_cancelled_reader_lets_go_of_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            sending = asyncio.create_task(client.chats.open(CHAT).send("Hi"))
            while not server.connections:
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert await asyncio.to_thread(server.left.wait, WAIT)


async def test_a_stream_that_nobody_read_and_nobody_has_any_more_lets_go_of_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            await client.chats.open(CHAT).send("Hi", stream=True)
            assert await asyncio.to_thread(server.left.wait, WAIT)
            assert not client._wire._http._transport._pool.connections  # type: ignore[attr-defined]


async def test_a_task_that_reads_what_another_one_reads_does_it_no_harm() -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            stream = await client.chats.open(CHAT).send("Hi", stream=True)
            assert [(await anext(stream)).number for _ in range(2)] == [1, 2]  # type: ignore[union-attr]
            reading = asyncio.ensure_future(anext(stream, None))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="Another task"):
                await anext(stream)
            assert not reading.done()
            await stream.close()
            assert await reading is None
