"""Tokens and share links: store operations per call, and the randomness of secrets."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger import Ledger
from turnledger.engine.ports import Sync
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore, Write
from turnledger.errors import LinkNotValid
from turnledger.hosting import Host, TokenScope
from turnledger.model.access.share import new_code
from turnledger.model.access.token import digest_of
from turnledger.stores.memory import MemoryStore


class NotedStore(WrappedStore):
    """Notes what each operation had to survive, and which were reads."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.operations: list[tuple[str, Sync | None]] = []

    async def write(self, write: Write) -> Any:
        self.operations.append((getattr(write.operation, "__name__", ""), write.sync))
        return await super().write(write)

    async def look(self, operation: AnyOperation, request: Any, owner: str | None) -> Any:
        self.operations.append((getattr(operation, "__name__", ""), None))
        return await super().look(operation, request, owner)


async def test_token_operations_use_one_transaction_each_and_note_uses_without_disk_sync() -> None:
    store = NotedStore()
    async with await Ledger.over(store) as ledger:
        store.operations.clear()
        made, text = await Host(ledger).tokens.create(scopes=[TokenScope.TURNS_RUN])
        await Host(ledger).tokens.find(digest_of(text))
        await Host(ledger).tokens.find(None)
        await Host(ledger).tokens.record_uses({made.id: 1})
        await Host(ledger).tokens.record_uses({})
        await Host(ledger).tokens.list()
        await Host(ledger).tokens.revoke(made.id)
        assert store.operations == [
            ("create", Sync.DISK),
            ("find", None),
            ("find", None),
            ("record_uses", Sync.PROCESS),
            ("list_tokens", None),
            ("revoke", Sync.DISK),
        ]


async def test_token_created_with_a_single_scope_and_model_string_has_one_of_each() -> None:
    async with await Ledger.open("memory:") as ledger:
        made, _ = await Host(ledger).tokens.create(scopes="turns:run", models="fast")
    assert (made.scopes, made.models) == ({TokenScope.TURNS_RUN}, ("fast",))


async def test_token_secrets_are_unique_across_ledgers() -> None:
    texts = set()
    for _ in range(3):
        async with await Ledger.open("memory:") as ledger:
            texts.update([(await Host(ledger).tokens.create(scopes=[TokenScope.ADMIN]))[1] for _ in range(3)])
    assert len(texts) == 9


async def test_token_secret_is_made_of_its_own_random_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    fetched: list[int] = []

    def urandom(size: int) -> bytes:
        fetched.append(size)
        return bytes(range(size % 256)) * (size // 255 + 1)

    async with await Ledger.open("memory:") as ledger:
        monkeypatch.setattr("turnledger.model.ids.os.urandom", urandom)
        await Host(ledger).tokens.create(scopes=[TokenScope.ADMIN])
    assert 24 in fetched


NONCE = "n" * 22


async def test_share_exchange_writes_once_and_only_reads_when_repeated() -> None:
    store = NotedStore()
    async with await Ledger.over(store) as ledger:
        _, code = await Host(ledger).shares.create(scope="shop")
        store.operations.clear()
        await Host(ledger).shares.exchange(code, NONCE)
        assert store.operations == [("check_exchange", None), ("exchange", Sync.DISK)]
        store.operations.clear()
        await Host(ledger).shares.exchange(code, NONCE)
        assert store.operations == [("check_exchange", None)]


async def test_share_exchange_with_a_guessed_code_only_reads() -> None:
    store = NotedStore()
    async with await Ledger.over(store) as ledger:
        store.operations.clear()
        for code in ("tls_guessed", new_code(lambda bits: 1)):
            with pytest.raises(LinkNotValid):
                await Host(ledger).shares.exchange(code, NONCE)
        assert store.operations == [("check_exchange", None)]


async def test_share_codes_are_unique() -> None:
    async with await Ledger.open() as ledger:
        codes = {(await Host(ledger).shares.create(scope="shop"))[1] for _ in range(3)}
    assert len(codes) == 3
