"""Share links when answers are lost or somebody is faster: each is made once, used once, and ended once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger import Ledger, TokenScope
from turnledger.engine.access.shares import create, exchange, revoke
from turnledger.errors import LinkNotValid, TokenEnded
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import Fate, GatedStore

NONCE, OTHER = "n" * 22, "o" * 22


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def store(database: Database) -> GatedStore:
    return GatedStore(MemoryStore(database))


@pytest.fixture
async def ledger(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store) as ledger:
        yield ledger


@pytest.mark.parametrize("fate", Fate)
async def test_a_link_is_made_once_though_the_answer_was_lost(
    ledger: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    store.lose_answer(create, fate)
    made, _ = await ledger.shares.create(scope="shop")
    assert list(database.shares.values()) == [made]
    assert database.admissions == {"local": 1}


@pytest.mark.parametrize("fate", Fate)
async def test_a_visitor_counts_once_though_the_answer_was_lost(
    ledger: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    share, code = await ledger.shares.create(scope="shop", max_uses=1)
    store.lose_answer(exchange, fate)
    visit = await ledger.shares.exchange(code, NONCE)
    assert list(database.tokens.values()) == [visit.token]
    assert database.shares[share.id].uses == 1
    assert (await ledger.shares.exchange(code, NONCE)).text == visit.text


@pytest.mark.parametrize("fate", Fate)
async def test_a_link_is_revoked_once_though_the_answer_was_lost(
    ledger: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    share, code = await ledger.shares.create(scope="shop")
    visit = await ledger.shares.exchange(code, NONCE)
    store.lose_answer(revoke, fate)
    ended = await ledger.shares.revoke(share.id)
    assert list(database.shares.values()) == [ended]
    assert database.tokens[visit.token.id].revoked_at == ended.revoked_at
    assert database.admissions[visit.token.owner] == 1


async def test_who_is_not_fast_enough_for_the_last_use_is_refused(
    ledger: Ledger, store: GatedStore, database: Database
) -> None:
    share, code = await ledger.shares.create(scope="shop", max_uses=1)
    with store.hold(exchange) as gate:
        slow = asyncio.create_task(ledger.shares.exchange(code, NONCE))
        await gate.arrived()
        async with await Ledger.over(MemoryStore(database)) as other:
            await other.shares.exchange(code, OTHER)
    with pytest.raises(LinkNotValid):
        await slow
    assert (database.shares[share.id].uses, len(database.tokens)) == (1, 1)


async def test_a_maker_that_is_revoked_meanwhile_makes_no_link(
    ledger: Ledger, store: GatedStore, database: Database
) -> None:
    boss, _ = await ledger.tokens.create(owner="ann", scopes=tuple(TokenScope))
    with store.hold(create) as gate:
        making = asyncio.create_task(ledger.shares.create(scope="shop", parent=boss.id))
        await gate.arrived()
        await ledger.tokens.revoke(boss.id)
    with pytest.raises(TokenEnded):
        await making
    assert database.shares == {}
