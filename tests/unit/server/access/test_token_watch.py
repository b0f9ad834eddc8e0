"""The watch of tokens: a stream ends with the token of its caller."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from tests.unit.server.wire.test_client_stream import FOR_EVER
from turnledger import Ledger
from turnledger.errors import LedgerClosed, TurnledgerError
from turnledger.hosting import Host
from turnledger.server.access.auth import Principal
from turnledger.server.access.token_watch import TokenWatch
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock


class Place:
    def __init__(self, ledger: Ledger, clock: FakeClock) -> None:
        self.ledger, self.clock = ledger, clock
        self.watch = TokenWatch(Host(ledger).tokens, clock, check_every=FOR_EVER)

    async def reader(self, **fields: float) -> tuple[str, asyncio.Task[str]]:
        token, _ = await Host(self.ledger).tokens.create(owner="ann", scopes=["chats:read"], **fields)  # type: ignore[arg-type]
        reading = asyncio.create_task(self._read(Principal("ann", token.scopes, 0, token)))
        await asyncio.sleep(0)
        return token.id, reading

    async def _read(self, principal: Principal) -> str:
        try:
            with self.watch.while_authorized(principal):
                await asyncio.Event().wait()
        except TurnledgerError as reason:
            return reason.code
        raise AssertionError


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    clock = FakeClock()
    async with await Ledger.over(MemoryStore(), clock=clock) as ledger:
        yield Place(ledger, clock)


async def test_stream_ends_when_its_token_is_revoked_or_expires_and_others_continue() -> None:
    async with place() as here:
        revoked, first = await here.reader()
        _, second = await here.reader(lifetime=10)
        _, third = await here.reader()
        await here.watch.check_tokens()
        assert not any(reading.done() for reading in (first, second, third))
        await Host(here.ledger).tokens.revoke(revoked)
        await here.watch.check_tokens()
        assert await first == "token_revoked"
        here.clock.advance(10)
        await here.watch.check_tokens()
        assert await second == "token_expired"
        assert not third.done()
        third.cancel()
        with pytest.raises(asyncio.CancelledError):
            await third
        await here.watch.check_tokens()


async def test_token_check_task_runs_only_while_there_are_readers() -> None:
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


async def test_tokenless_reader_is_ended_once_a_token_exists() -> None:
    async with place() as here:
        reading = asyncio.create_task(here._read(Principal("local", frozenset(), 0)))
        await asyncio.sleep(0)
        await here.watch.check_tokens()
        await Host(here.ledger).tokens.create(owner="ann", scopes=["chats:read"])
        assert not reading.done()
        await here.watch.check_tokens()
        assert await reading == "missing_token"


async def test_token_check_that_fails_is_repeated() -> None:
    async with place() as here:
        watch = TokenWatch(Host(here.ledger).tokens, here.clock, check_every=0)
        looks = 0

        async def look() -> None:
            nonlocal looks
            looks += 1
            raise LedgerClosed

        watch.check_tokens = look  # type: ignore[method-assign]
        token, _ = await Host(here.ledger).tokens.create(owner="ann", scopes=["chats:read"])
        with watch.while_authorized(Principal("ann", token.scopes, 0, token)):
            for _ in range(10):
                await asyncio.sleep(0)
        assert looks > 1
