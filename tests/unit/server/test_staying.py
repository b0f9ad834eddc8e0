"""Who reads a stream stays for as long as his token is valid."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from turnledger import Ledger
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


async def test_who_came_without_a_token_has_none_to_lose() -> None:
    async with place() as here:
        with here.staying.stay(Principal("local", frozenset(), 0)):
            await here.staying.look()
