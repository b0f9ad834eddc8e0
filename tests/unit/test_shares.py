"""Share links as a server handles them: what a visitor costs, and what a guess does not."""

from __future__ import annotations

import pytest

from tests.unit.test_tokens import NotedStore
from turnledger import Ledger
from turnledger.engine.ports import Sync
from turnledger.errors import LinkNotValid
from turnledger.model.access.share import new_code

NONCE = "n" * 22


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_a_visitor_is_one_write_and_none_if_he_asks_again() -> None:
    store = NotedStore()
    async with await Ledger.over(store) as ledger:
        _, code = await ledger.shares.create(scope="shop")
        store.trips.clear()
        await ledger.shares.exchange(code, NONCE)
        assert store.trips == [("look", None), ("exchange", Sync.DISK)]
        store.trips.clear()
        await ledger.shares.exchange(code, NONCE)
        assert store.trips == [("look", None)]


async def test_guesses_hold_up_nobody_who_writes() -> None:
    store = NotedStore()
    async with await Ledger.over(store) as ledger:
        store.trips.clear()
        for code in ("tls_guessed", new_code(lambda bits: 1)):
            with pytest.raises(LinkNotValid):
                await ledger.shares.exchange(code, NONCE)
        assert store.trips == [("look", None)]


async def test_codes_are_made_of_secret_bits_of_their_own() -> None:
    async with await Ledger.open() as ledger:
        codes = {(await ledger.shares.create(scope="shop"))[1] for _ in range(3)}
    assert len(codes) == 3
