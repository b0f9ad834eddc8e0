"""Who reads a stream stays for as long as his token is valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from turnledger import Ledger
from turnledger.errors import LedgerClosed
from turnledger.server.admission import Principal
from turnledger.server.staying import Staying, reason_of
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock


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
