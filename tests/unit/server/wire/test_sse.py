"""Heartbeats: a quiet stream says that it is there, and no other does; one timer serves them all.

Who reads a stream stays for as long as his token is valid.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.server.asgi import HOST
from tests.unit.server.wire.test_client_stream import FOR_EVER, Client, outlet_to
from turnledger import Ledger
from turnledger.errors import LedgerClosed
from turnledger.model.event import Event, TurnStarted
from turnledger.server.access.auth import Principal
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.server.ops.metrics import Metrics
from turnledger.server.turns.response import EventAnswer
from turnledger.server.wire.sse import SIGN, Heartbeats, Staying, reason_of, send_events
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock


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


class Place:
    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.staying = Staying(ledger.tokens, clock, every=3600)

    async def reader(self, **asked: float) -> tuple[str, asyncio.Task[str]]:
        token, _ = await self.ledger.tokens.create(owner="ann", scopes=["chats:read"], **asked)  # type: ignore[arg-type]
        reading = asyncio.create_task(self._read(Principal("ann", token.scopes, 0, token)))
        await asyncio.sleep(0)
        return token.id, reading

    async def _read(self, principal: Principal) -> str:
        with self.staying.stay(principal):
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError as cancelled:
                reason = reason_of(cancelled)
                if reason is None:
                    raise
                return reason.code
        raise AssertionError


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    clock = FakeClock()
    async with await Ledger.over(MemoryStore(), clock=clock) as ledger:
        yield Place(ledger, clock)


async def test_a_reader_goes_when_his_token_is_revoked_or_expires_and_no_other() -> None:
    async with place() as here:
        revoked, first = await here.reader()
        _, second = await here.reader(lifetime=10)
        _, third = await here.reader()
        await here.staying.look()
        assert not any(reading.done() for reading in (first, second, third))
        await here.ledger.tokens.revoke(revoked)
        await here.staying.look()
        assert await first == "token_revoked"
        here.clock.advance(10)
        await here.staying.look()
        assert await second == "token_expired"
        assert not third.done()
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        await here.staying.look()


async def test_looking_again_lasts_as_long_as_there_are_readers() -> None:
    async with place() as here:

        def lookers() -> int:
            return sum(task.get_name() == "turnledger tokens" for task in asyncio.all_tasks())

        assert lookers() == 0
        _, one = await here.reader()
        _, two = await here.reader()
        assert lookers() == 1
        for reading in (one, two):
            reading.cancel()
            await asyncio.wait((reading,))
        await asyncio.sleep(0)
        assert lookers() == 0


async def test_who_came_without_a_token_stays_until_there_is_one() -> None:
    async with place() as here:
        reading = asyncio.create_task(here._read(Principal("local", frozenset(), 0)))
        await asyncio.sleep(0)
        await here.staying.look()
        await here.ledger.tokens.create(owner="ann", scopes=["chats:read"])
        assert not reading.done()
        await here.staying.look()
        assert await reading == "missing_token"


async def test_who_is_slow_to_leave_is_shown_the_door_once() -> None:
    async with place() as here:
        token, _ = await here.ledger.tokens.create(owner="ann", scopes=["chats:read"])
        leaving, told = asyncio.Event(), list[str]()

        async def read() -> None:
            with here.staying.stay(Principal("ann", token.scopes, 0, token)):
                try:
                    await asyncio.Event().wait()
                except asyncio.CancelledError as cancelled:
                    told.append(getattr(reason_of(cancelled), "code", ""))
                await leaving.wait()  # as a client who takes his time for the rest

        reading = asyncio.create_task(read())
        await asyncio.sleep(0)
        await here.ledger.tokens.revoke(token.id)
        for _ in range(3):
            await here.staying.look()
            await asyncio.sleep(0)
        leaving.set()
        await reading
        assert told == ["token_revoked"]


async def test_what_the_store_fails_to_tell_is_asked_again() -> None:
    async with place() as here:
        staying = Staying(here.ledger.tokens, here.clock, every=0)
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1
            raise LedgerClosed

        staying.look = look  # type: ignore[method-assign]
        token, _ = await here.ledger.tokens.create(owner="ann", scopes=["chats:read"])
        with staying.stay(Principal("ann", token.scopes, 0, token)):
            for _ in range(10):
                await asyncio.sleep(0)
        assert looks > 1
