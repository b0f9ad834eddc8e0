"""Heartbeats: a quiet stream says that it is there, and no other does; one timer serves them all."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

from tests.unit.server.asgi import HOST
from tests.unit.server.test_outlet import FOR_EVER, Client, outlet_to
from turnledger import Ledger
from turnledger.model.event import Event, TurnStarted
from turnledger.server.answer import EventAnswer
from turnledger.server.app import make_app
from turnledger.server.event_stream import send_events
from turnledger.server.heartbeats import SIGN, Heartbeats
from turnledger.server.metrics import Metrics
from turnledger.server.models import Models
from turnledger.server.settings import Settings


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_only_who_was_told_nothing_since_the_last_beat_hears_one() -> None:
    quiet, busy, heartbeats = Client(), Client(), Heartbeats(FOR_EVER)
    outlets = [outlet_to(quiet), outlet_to(busy)]
    for outlet in outlets:
        outlet.begin(200, ())
        heartbeats.join(outlet)
    heartbeats.beat()  # both have just begun
    outlets[1].write(b"event\n\n")
    heartbeats.beat()
    assert (quiet.body, busy.body) == (SIGN, b"event\n\n")
    heartbeats.beat()
    assert (quiet.body, busy.body) == (SIGN * 2, b"event\n\n" + SIGN)


async def test_nothing_is_said_behind_the_end_nor_to_who_has_left_nor_to_who_does_not_read() -> None:
    ended, left, slow = Client(), Client(), Client()
    heartbeats = Heartbeats(FOR_EVER)
    outlets = [outlet_to(each) for each in (ended, left, slow)]
    for outlet in outlets:
        outlet.begin(200, ())
        heartbeats.join(outlet)
    outlets[0].end(b"the end")
    heartbeats.leave(outlets[1])
    slow.stop_reading()
    outlets[2].write(b"much")
    for _ in range(3):
        heartbeats.beat()
    slow.read_on()
    for outlet in outlets:
        await outlet.close(FOR_EVER)
    assert (ended.body, left.body, slow.body) == (b"the end", b"", b"much")


async def test_the_timer_is_there_for_as_long_as_there_is_a_stream() -> None:
    client, heartbeats = Client(), Heartbeats(every=0.001)
    outlet = outlet_to(client)
    outlet.begin(200, ())
    heartbeats.join(outlet)
    while client.body.count(SIGN) < 2:
        await asyncio.sleep(0)
    heartbeats.leave(outlet)
    while heartbeats._timer is not None:
        await asyncio.sleep(0)
    heartbeats.join(outlet)
    assert heartbeats._timer is not None


async def test_a_stream_of_a_turn_that_is_quiet_from_the_beginning_begins_with_a_sign_of_life() -> None:
    client, heartbeats = Client(), Heartbeats(FOR_EVER)
    has_begun = asyncio.Event()

    async def events() -> AsyncIterator[Event]:
        await has_begun.wait()
        yield TurnStarted(number=1)

    sending = send_events(events(), {}, client.receive, client.send, FOR_EVER, heartbeats=heartbeats)
    task = asyncio.create_task(sending)
    await settle()
    assert client.got == []
    heartbeats.beat()
    heartbeats.beat()
    assert (client.got[0]["status"], client.body) == (200, SIGN)
    has_begun.set()
    await task
    heartbeats.beat()
    heartbeats.beat()
    assert client.body.startswith(SIGN + b"id: 1\nevent: turn.started\n")
    assert client.body.count(SIGN) == 1


async def test_an_answer_of_events_is_kept_alive_from_its_first_event_to_its_last() -> None:
    client, heartbeats = Client(), Heartbeats(FOR_EVER)
    answer = EventAnswer(outlet_to(client), Metrics(), heartbeats)
    heartbeats.beat()
    answer.event(TurnStarted(number=1))
    heartbeats.beat()
    heartbeats.beat()
    answer.end()
    answer.close()
    heartbeats.beat()
    assert client.body.endswith(b"\n\n" + SIGN)
    assert client.body.count(SIGN) == 1


async def test_who_reads_a_turn_over_http_hears_that_it_is_quiet_and_nobody_is_left_behind() -> None:
    client = Client()
    async with await Ledger.open() as ledger:
        app = make_app(ledger, Models({}), Settings())
        heartbeats = app.service.heartbeats
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
            heartbeats.beat()
            heartbeats.beat()
            turn.emit("Hi.")
        await reading
    assert client.body.count(SIGN) == 1
    assert heartbeats._open == {}
