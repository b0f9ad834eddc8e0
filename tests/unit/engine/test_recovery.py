"""Tending: a round of house-keeping removes all that is due, and makes way when that takes long."""

from __future__ import annotations

from random import Random

import pytest

from turnledger.engine.limits import Limits
from turnledger.engine.ports import Tables
from turnledger.ledger import Ledger
from turnledger.model.conversation import Claim
from turnledger.model.ids import ConversationId, TurnId
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock

pytestmark = pytest.mark.anyio

CLAIMS = 50


class SlowClock(FakeClock):
    """A clock by which each look at it takes a second."""

    def monotonic(self) -> float:
        self.advance(1.0)
        return super().monotonic()


async def ledger_with_claims(clock: FakeClock, limits: Limits) -> Ledger:
    ledger = await Ledger.over(MemoryStore(), limits=limits, clock=clock, random=Random(1))
    await ledger._process.store.transact(add_claims, ledger)
    return ledger


async def add_claims(tables: Tables, ledger: Ledger) -> None:
    ids = ledger._process.ids
    for number in range(CLAIMS):
        await tables.save_claim(
            Claim(
                owner="ann",
                idempotency_key=f"key {number}",
                fingerprint=b"",
                conversation=ids.new(ConversationId),
                attempt=ids.new(TurnId),
                expires_at=1,
            )
        )


async def claims_left(tables: Tables, _: None) -> int:
    return len(await tables.all_claims(None, CLAIMS))


async def test_purge_with_more_due_than_one_step_takes_removes_all() -> None:
    async with await ledger_with_claims(FakeClock(), Limits(purge_rows=3)) as ledger:
        await ledger._tending.tend()
        assert await ledger._process.store.read(claims_left, None) == 0
        assert not ledger._tending.is_behind


async def test_purge_that_takes_too_long_stops_and_goes_on_in_the_next_round() -> None:
    async with await ledger_with_claims(SlowClock(), Limits(purge_rows=3, purge_time=5.0)) as ledger:
        await ledger._tending.tend()
        left = await ledger._process.store.read(claims_left, None)
        assert 0 < left < CLAIMS - 3
        assert ledger._tending.is_behind
        while ledger._tending.is_behind:
            await ledger._tending.tend()
        assert await ledger._process.store.read(claims_left, None) == 0
