"""A conversation is made once under its idempotency_key, also in another ledger over the same store."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnledger import Ledger
from turnledger.errors import IdempotencyMismatch, InvalidInput
from turnledger.model.conversation import Within


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def test_it_is_the_same_one_after_a_restart(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'chats.db'}"
    async with await Ledger.open(url) as ledger:
        made = await ledger.conversation(title="Orders", idempotency_key="once")
    async with await Ledger.open(url) as ledger:
        again = await ledger.conversation(title="Orders", idempotency_key="once")
        assert (made.is_new, again.is_new, again.id) == (True, False, made.id)
        assert await ledger.check() == []


async def test_another_owner_and_another_scope_have_keys_of_their_own() -> None:
    async with await Ledger.open() as ledger:
        ids = {
            (await ledger.conversation(idempotency_key="once")).id,
            (await ledger.conversation(idempotency_key="once", owner="other")).id,
            (await ledger.conversation(idempotency_key="once", within=Within(scope="shop"))).id,
        }
        assert len(ids) == 3


async def test_a_turn_cannot_go_by_the_key_of_a_conversation_nor_the_other_way_round() -> None:
    async with await Ledger.open() as ledger:
        await ledger.conversation(idempotency_key="chat")
        async with ledger.turn("Hello", idempotency_key="turn") as turn:
            turn.emit("Hi.")
        with pytest.raises(IdempotencyMismatch):
            await ledger.conversation(idempotency_key="turn")
        with pytest.raises(IdempotencyMismatch):
            async with ledger.turn("Hello", idempotency_key="chat"):
                pass


async def test_what_is_named_by_its_id_is_not_made() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        with pytest.raises(InvalidInput):
            await ledger.conversation(chat.id, idempotency_key="once")
        with pytest.raises(InvalidInput):
            await ledger.conversation(conversation_key="k", create=False, idempotency_key="once")
