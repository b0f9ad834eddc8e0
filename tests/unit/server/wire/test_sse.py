"""Event streams: heartbeats while quiet, and an end when the token of the reader ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import pytest

from tests.unit.server.asgi import HOST, run_app
from tests.unit.server.garbage import garbage_of
from tests.unit.server.wire.test_client_stream import FOR_EVER, Client, stream_to
from turnledger import Ledger
from turnledger.errors import TurnledgerError
from turnledger.hosting import Host
from turnledger.model.event import TurnStarted
from turnledger.model.ids import TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import Quotas
from turnledger.server.access.token_watch import TokenWatch
from turnledger.server.config.settings import ServerLimits
from turnledger.server.ops.counters import LocalCounters
from turnledger.server.ops.metrics import Metrics
from turnledger.server.wire.client_stream import ClientStream
from turnledger.server.wire.events import COMMENT, event_bytes
from turnledger.server.wire.sse import Stream, Streams
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock

TURN = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbca9")
OTHER = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbcaa")


LOCAL = Principal("local", frozenset(), 0)


def watch_of(ledger: Ledger) -> TokenWatch:
    return TokenWatch(Host(ledger).tokens, FakeClock(), check_every=FOR_EVER)


def streams_of(watch: TokenWatch, heartbeat_every: float = FOR_EVER) -> Streams:
    """Streams with timers that are off unless the test sets an interval."""
    clock, metrics = FakeClock(), Metrics()
    quotas = Quotas(ServerLimits(), LocalCounters(), metrics, clock)
    return Streams(watch, quotas, metrics, FOR_EVER, heartbeat_every=heartbeat_every)


@pytest.fixture
async def streams() -> AsyncIterator[Streams]:
    async with await Ledger.open() as ledger:
        yield streams_of(watch_of(ledger))


async def sent(
    streams: Streams, client: Client, pieces: AsyncIterator[bytes], who: Principal = LOCAL, **options: Any
) -> None:
    """Send a stream of these pieces."""

    @asynccontextmanager
    async def source(*_: object) -> AsyncIterator[Stream]:
        yield Stream(pieces, **options)

    scope = {"type": "http", "state": {"principal": who}}
    await streams.send(source, scope, client.receive, client.send)


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_heartbeat_is_sent_only_to_streams_quiet_since_the_last_one(streams: Streams) -> None:
    quiet, busy = Client(), Client()
    client_streams = [stream_to(quiet), stream_to(busy)]
    for client_stream in client_streams:
        client_stream.begin(200, ())
        streams.keep_alive(client_stream)
    streams.send_heartbeats()  # both have just begun
    client_streams[1].write(b"event\n\n")
    streams.send_heartbeats()
    assert (quiet.body, busy.body) == (COMMENT, b"event\n\n")
    streams.send_heartbeats()
    assert (quiet.body, busy.body) == (COMMENT * 2, b"event\n\n" + COMMENT)


async def test_heartbeat_is_not_sent_to_ended_released_or_blocked_streams(
    streams: Streams,
) -> None:
    ended, left, slow = Client(), Client(), Client()
    client_streams = [stream_to(each) for each in (ended, left, slow)]
    for client_stream in client_streams:
        client_stream.begin(200, ())
        streams.keep_alive(client_stream)
    client_streams[0].end(b"the end")
    streams.stop_keep_alive(client_streams[1])
    slow.stop_reading()
    client_streams[2].write(b"much")
    for _ in range(3):
        streams.send_heartbeats()
    slow.read_on()
    for client_stream in client_streams:
        await client_stream.close(FOR_EVER)
    assert (ended.body, left.body, slow.body) == (b"the end", b"", b"much")


async def test_heartbeat_timer_runs_only_while_there_are_streams() -> None:
    client = Client()
    async with await Ledger.open() as ledger:
        streams = streams_of(watch_of(ledger), heartbeat_every=0.001)
        client_stream = stream_to(client)
        client_stream.begin(200, ())
        streams.keep_alive(client_stream)
        while client.body.count(COMMENT) < 2:
            await asyncio.sleep(0)
        streams.stop_keep_alive(client_stream)
        while streams._timer is not None:
            await asyncio.sleep(0)
        streams.keep_alive(client_stream)
        assert streams._timer is not None


async def test_stream_of_a_turn_quiet_from_the_start_begins_with_a_heartbeat(
    streams: Streams,
) -> None:
    client, has_begun = Client(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        await has_begun.wait()
        yield event_bytes(TurnStarted(number=1))

    task = asyncio.create_task(sent(streams, client, pieces(), has_heartbeat=True))
    await settle()
    assert client.got == []
    streams.send_heartbeats()
    streams.send_heartbeats()
    assert (client.got[0]["status"], client.body) == (200, COMMENT)
    has_begun.set()
    await task
    streams.send_heartbeats()
    streams.send_heartbeats()
    assert client.body.startswith(COMMENT + b"id: 1\nevent: turn.started\n")
    assert client.body.count(COMMENT) == 1


async def test_turn_events_over_http_have_heartbeats_and_are_released_at_the_end() -> None:
    client = Client()
    async with run_app() as app:
        ledger, streams = app.service.ledger, app.service.streams
        async with ledger.turn("Hello") as turn:
            scope = {
                "type": "http",
                "method": "GET",
                "path": f"/api/turns/{turn.id}/events",
                "headers": [HOST],
                "query_string": b"",
            }
            reading = asyncio.create_task(app(scope, client.receive, client.send))
            while b"turn.started" not in client.body:
                await asyncio.sleep(0)
            streams.send_heartbeats()
            streams.send_heartbeats()
            turn.emit("Hi.")
        await reading
    assert client.body.count(COMMENT) == 1
    assert streams._kept_alive == {}


class Place(NamedTuple):
    ledger: Ledger
    watch: TokenWatch
    streams: Streams


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    async with await Ledger.over(MemoryStore(), clock=FakeClock()) as ledger:
        watch = watch_of(ledger)
        yield Place(ledger, watch, streams_of(watch))


async def events() -> AsyncIterator[bytes]:
    yield event_bytes(TurnStarted(number=1))
    await asyncio.Event().wait()


async def silence() -> AsyncIterator[bytes]:
    await asyncio.Event().wait()
    yield b""


async def test_stream_of_a_slow_reader_whose_token_ends_is_cancelled_once_with_the_reason() -> None:
    async with place() as here:
        token, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=["chats:read"])
        client, others = Client(), asyncio.all_tasks()
        who = Principal("ann", token.scopes, 0, token)
        sending = asyncio.create_task(sent(here.streams, client, events(), who))
        await settle()
        client.stop_reading()
        await Host(here.ledger).tokens.revoke(token.id)
        for _ in range(3):  # the last event waits for the reader, and the tokens are checked again
            await here.watch.check_tokens()
            await settle()
        assert not sending.done()
        client.read_on()
        await sending
        assert b"turn.started" in client.body
        assert b"token_revoked" in client.body
        await settle()
        assert asyncio.all_tasks() == others


@pytest.mark.parametrize("has_begun", [True, False])
async def test_stream_whose_token_ends_leaves_no_reference_cycles(has_begun: bool) -> None:
    async with place() as here:
        token, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=["chats:read"])
        who, code = Principal("ann", token.scopes, 0, token), ""

        async def read() -> None:
            nonlocal code
            try:
                await sent(here.streams, Client(), events() if has_begun else silence(), who)
            except TurnledgerError as reason:
                code = reason.code

        sending = asyncio.create_task(read())
        await settle()
        await Host(here.ledger).tokens.revoke(token.id)
        with garbage_of() as left:
            await here.watch.check_tokens()
            await sending
            del sending
            await settle()
    assert code == ("" if has_begun else "token_revoked")
    assert not {"ClientStream", "Stream", "RequestRefused"} & left


async def test_stream_whose_client_disconnects_before_the_end_leaves_no_task(streams: Streams) -> None:
    client, others, ends = Client(), asyncio.all_tasks(), asyncio.Event()

    async def pieces() -> AsyncIterator[bytes]:
        yield event_bytes(TurnStarted(number=1))
        await ends.wait()

    sending = asyncio.create_task(sent(streams, client, pieces()))
    await settle()
    client.stop_reading()
    ends.set()
    await settle()
    assert not sending.done()
    client.leave()
    await sending
    await settle()
    assert asyncio.all_tasks() == others


async def test_stream_cancelled_while_closing_is_released(
    streams: Streams, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(self: ClientStream, patience: float) -> bool:
        raise asyncio.CancelledError

    async def iterated() -> AsyncIterator[bytes]:
        yield event_bytes(TurnStarted(number=1))

    monkeypatch.setattr(ClientStream, "close", cancelled)
    with pytest.raises(asyncio.CancelledError):
        await sent(streams, Client(), iterated(), has_heartbeat=True)
    assert not streams._kept_alive
