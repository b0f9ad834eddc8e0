"""The async client on scripted answers and on a real socket."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.unit.client.loopback import loopback
from tests.unit.client.script import (
    ANSWER,
    CHAT,
    CUT,
    TURN,
    UNREACHED,
    WHOLE,
    event_stream,
    turn_stream,
)
from tests.unit.client.scripted_transport import AT, ScriptedTransport
from turnledger import errors
from turnledger.client import AsyncClient, Retries


def client_of(served: ScriptedTransport, **options: Any) -> AsyncClient:
    return AsyncClient(AT, "tlt_x", http=served.async_http, **{**served.options, **options})


async def test_async_turn_stream_recovers_from_cuts_and_returns_the_answer() -> None:
    served = ScriptedTransport(turn_stream(*WHOLE[:1], end=CUT), UNREACHED, event_stream(*WHOLE[1:]), ANSWER)
    stream = await client_of(served).chats.open(CHAT).send("Hi", stream=True)
    assert stream.turn_id == TURN
    assert [event.number async for event in stream] == [1, 2, 3]  # type: ignore[union-attr]
    assert [request.headers.get("last-event-id") for request in served.received] == [None, "1", "1"]
    assert served.pauses == [1.0, 2.0]
    assert all(body.is_closed for body in served.bodies)
    assert (await stream.answer()).turn.number == 1


async def test_async_send_cancelled_between_retries_closes_its_response() -> None:
    served = ScriptedTransport(turn_stream(*WHOLE[:1], end=CUT))
    retries = Retries(first_pause=3600, max_pause=3600, patience=9999)
    client = client_of(served, retries=retries, pacing=type(served.pacing)())
    sending = asyncio.create_task(client.chats.open(CHAT).send("Hi"))
    while not served.bodies or not served.bodies[0].is_closed:
        await asyncio.sleep(0)
    sending.cancel()
    with pytest.raises(asyncio.CancelledError):
        await sending


async def test_async_client_close_ends_a_waiting_retry() -> None:
    served = ScriptedTransport(UNREACHED)
    retries = Retries(first_pause=3600, max_pause=3600, patience=9999)
    client = client_of(served, retries=retries, pacing=type(served.pacing)())
    sending = asyncio.create_task(client.chats.open(CHAT).send("Hi"))
    while not served.received:
        await asyncio.sleep(0)
    await client.close()
    with pytest.raises(errors.RequestFailed) as raised:
        await sending
    assert raised.value.code == "client_closed"
    with pytest.raises(errors.RequestFailed):
        await client.models()


WAIT = 30


@pytest.mark.parametrize("closes_client", [False, True])
async def test_async_reader_ends_when_stream_or_client_is_closed_elsewhere(closes_client: bool) -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            stream = await client.chats.open(CHAT).send("Hi", stream=True)
            received: list[Any] = []
            has_received = asyncio.Event()

            async def read() -> None:
                try:
                    async for event in stream:
                        received.append(event.number)  # type: ignore[union-attr]
                        if len(received) == 2:
                            has_received.set()
                    received.append("over")
                except errors.TurnledgerError as problem:
                    received.append(type(problem))

            event_stream = asyncio.create_task(read())
            async with asyncio.timeout(WAIT):
                await has_received.wait()
                await (client.close() if closes_client else stream.close())
                await event_stream
            assert received == [1, 2, errors.RequestFailed if closes_client else "over"]
            assert await asyncio.to_thread(server.left.wait, WAIT)


async def test_async_send_cancelled_while_reading_closes_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            sending = asyncio.create_task(client.chats.open(CHAT).send("Hi"))
            while not server.connections:
                await asyncio.sleep(0)
            sending.cancel()
            with pytest.raises(asyncio.CancelledError):
                await sending
            assert await asyncio.to_thread(server.left.wait, WAIT)


async def test_async_stream_that_is_dropped_unread_closes_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            await client.chats.open(CHAT).send("Hi", stream=True)
            assert await asyncio.to_thread(server.left.wait, WAIT)
            assert not client._wire._http._transport._pool.connections  # type: ignore[attr-defined]


async def test_async_stream_read_by_two_tasks_raises_in_the_second_only() -> None:
    with loopback(*WHOLE[:2], holds=True) as server:
        async with AsyncClient(server.url, model="demo") as client:
            stream = await client.chats.open(CHAT).send("Hi", stream=True)
            assert [(await anext(stream)).number for _ in range(2)] == [1, 2]  # type: ignore[union-attr]
            event_stream = asyncio.ensure_future(anext(stream, None))
            await asyncio.sleep(0)
            with pytest.raises(RuntimeError, match="Another task"):
                await anext(stream)
            assert not event_stream.done()
            await stream.close()
            assert await event_stream is None
