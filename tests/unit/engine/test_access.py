"""Tokens and share links when answers are lost or processes race: made once, used once and ended once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from turnledger import Ledger, TokenScope
from turnledger.engine.access.shares import create as create_share
from turnledger.engine.access.shares import exchange
from turnledger.engine.access.shares import revoke as revoke_share
from turnledger.engine.access.tokens import create, revoke
from turnledger.engine.limits import Limits
from turnledger.errors import LinkNotValid, TokenEnded, TooManyTokens
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import Fate, GatedStore

ALL = tuple(TokenScope)


@pytest.fixture
def database() -> Database:
    return Database()


@pytest.fixture
async def store(database: Database) -> GatedStore:
    return GatedStore(MemoryStore(database))


@pytest.fixture
async def ledger(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store, limits=Limits(tokens=2)) as ledger:
        yield ledger


@pytest.mark.parametrize("fate", Fate)
async def test_a_token_is_made_once_though_the_answer_was_lost(
    ledger: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    store.lose_answer(create, fate)
    made, _ = await ledger.tokens.create(scopes=ALL)
    assert list(database.tokens.values()) == [made]
    assert (await ledger.tokens.find(made.digest)).token == made
    assert database.admissions == {"local": 1}


@pytest.mark.parametrize("fate", Fate)
async def test_a_token_is_revoked_once_though_the_answer_was_lost(
    ledger: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    parent, _ = await ledger.tokens.create(owner="ann", scopes=ALL)
    child, _ = await ledger.tokens.create(scopes=ALL, parent=parent.id)
    store.lose_answer(revoke, fate)
    ended = await ledger.tokens.revoke(parent.id)
    assert [each.id for each in ended] == [parent.id, child.id]
    assert list(database.tokens.values()) == list(ended)
    assert database.admissions["ann"] == 1


async def test_a_maker_that_is_revoked_meanwhile_makes_nothing(
    ledger: Ledger, store: GatedStore, database: Database
) -> None:
    parent, _ = await ledger.tokens.create(scopes=ALL)
    with store.hold(create) as gate:
        making = asyncio.create_task(ledger.tokens.create(scopes=ALL, parent=parent.id))
        await gate.arrived()
        await ledger.tokens.revoke(parent.id)
    with pytest.raises(TokenEnded):
        await making
    assert list(database.tokens) == [parent.id]


async def test_the_limit_is_kept_by_who_come_at_once(ledger: Ledger, database: Database) -> None:
    made = await asyncio.gather(*(ledger.tokens.create(scopes=ALL) for _ in range(5)), return_exceptions=True)
    assert sum(isinstance(each, TooManyTokens) for each in made) == 3
    assert len(database.tokens) == 2


NONCE, OTHER = "n" * 22, "o" * 22


@pytest.fixture
async def unbounded(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store) as unbounded:
        yield unbounded


@pytest.mark.parametrize("fate", Fate)
async def test_a_link_is_made_once_though_the_answer_was_lost(
    unbounded: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    store.lose_answer(create_share, fate)
    made, _ = await unbounded.shares.create(scope="shop")
    assert list(database.shares.values()) == [made]
    assert database.admissions == {"local": 1}


@pytest.mark.parametrize("fate", Fate)
async def test_a_visitor_counts_once_though_the_answer_was_lost(
    unbounded: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    share, code = await unbounded.shares.create(scope="shop", max_uses=1)
    store.lose_answer(exchange, fate)
    visit = await unbounded.shares.exchange(code, NONCE)
    assert list(database.tokens.values()) == [visit.token]
    assert database.shares[share.id].uses == 1
    assert (await unbounded.shares.exchange(code, NONCE)).text == visit.text


@pytest.mark.parametrize("fate", Fate)
async def test_a_link_is_revoked_once_though_the_answer_was_lost(
    unbounded: Ledger, store: GatedStore, database: Database, fate: Fate
) -> None:
    share, code = await unbounded.shares.create(scope="shop")
    visit = await unbounded.shares.exchange(code, NONCE)
    store.lose_answer(revoke_share, fate)
    ended = await unbounded.shares.revoke(share.id)
    assert list(database.shares.values()) == [ended]
    assert database.tokens[visit.token.id].revoked_at == ended.revoked_at
    assert database.admissions[visit.token.owner] == 1


async def test_who_is_not_fast_enough_for_the_last_use_is_refused(
    unbounded: Ledger, store: GatedStore, database: Database
) -> None:
    share, code = await unbounded.shares.create(scope="shop", max_uses=1)
    with store.hold(exchange) as gate:
        slow = asyncio.create_task(unbounded.shares.exchange(code, NONCE))
        await gate.arrived()
        async with await Ledger.over(MemoryStore(database)) as other:
            await other.shares.exchange(code, OTHER)
    with pytest.raises(LinkNotValid):
        await slow
    assert (database.shares[share.id].uses, len(database.tokens)) == (1, 1)


async def test_a_maker_that_is_revoked_meanwhile_makes_no_link(
    unbounded: Ledger, store: GatedStore, database: Database
) -> None:
    boss, _ = await unbounded.tokens.create(owner="ann", scopes=tuple(TokenScope))
    with store.hold(create_share) as gate:
        making = asyncio.create_task(unbounded.shares.create(scope="shop", parent=boss.id))
        await gate.arrived()
        await unbounded.tokens.revoke(boss.id)
    with pytest.raises(TokenEnded):
        await making
    assert database.shares == {}
