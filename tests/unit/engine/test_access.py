"""Tokens, share links and admission under races between processes, and the cost of quotas."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
from msgspec.structs import replace

from tests.unit.engine.stage import branch, conversation, drive, memory_tables, memory_whole
from tests.unit.model.shapes import assistant, some_id, turn
from turnledger import Ledger
from turnledger.engine.access.shares import create as create_share
from turnledger.engine.access.shares import exchange
from turnledger.engine.access.tokens import create
from turnledger.engine.admission import Authorization, check_admitted, persist_admitted
from turnledger.engine.limits import Limits, Quota, check_quota, store_turn, usage
from turnledger.engine.ports import Operation, Request, Result, Tables
from turnledger.engine.process import Process
from turnledger.errors import AdmissionMoved, LinkNotValid, StorageFull, TokenEnded, TooManyTokens
from turnledger.hosting import Host, TokenScope
from turnledger.model.conversation import BLOCK, ROW, Usage
from turnledger.model.ids import TurnId
from turnledger.stores.memory import Database, MemoryStore, MemoryTables
from turnledger.stores.memory.database import UndoLog
from turnledger.testing.gates import GatedStore

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


async def test_token_whose_parent_is_revoked_meanwhile_is_not_created(
    ledger: Ledger, store: GatedStore, database: Database
) -> None:
    parent, _ = await Host(ledger).tokens.create(scopes=ALL)
    with store.hold(create) as gate:
        making = asyncio.create_task(Host(ledger).tokens.create(scopes=ALL, parent=parent.id))
        await gate.arrived()
        await Host(ledger).tokens.revoke(parent.id)
    with pytest.raises(TokenEnded):
        await making
    assert list(database.tokens) == [parent.id]


async def test_token_limit_holds_for_concurrent_creations(ledger: Ledger, database: Database) -> None:
    made = await asyncio.gather(
        *(Host(ledger).tokens.create(scopes=ALL) for _ in range(5)), return_exceptions=True
    )
    assert sum(isinstance(each, TooManyTokens) for each in made) == 3
    assert len(database.tokens) == 2


NONCE, OTHER = "n" * 22, "o" * 22


@pytest.fixture
async def unbounded(store: GatedStore) -> AsyncIterator[Ledger]:
    async with await Ledger.over(store) as unbounded:
        yield unbounded


async def test_share_link_with_one_use_refuses_the_slower_of_two_visitors(
    unbounded: Ledger, store: GatedStore, database: Database
) -> None:
    share, code = await Host(unbounded).shares.create(scope="shop", max_uses=1)
    with store.hold(exchange) as gate:
        slow = asyncio.create_task(Host(unbounded).shares.exchange(code, NONCE))
        await gate.arrived()
        async with await Ledger.over(MemoryStore(database)) as other:
            await Host(other).shares.exchange(code, OTHER)
    with pytest.raises(LinkNotValid):
        await slow
    assert (database.shares[share.id].uses, len(database.tokens)) == (1, 1)


async def test_share_link_whose_parent_token_is_revoked_meanwhile_is_not_created(
    unbounded: Ledger, store: GatedStore, database: Database
) -> None:
    boss, _ = await Host(unbounded).tokens.create(owner="ann", scopes=tuple(TokenScope))
    with store.hold(create_share) as gate:
        making = asyncio.create_task(Host(unbounded).shares.create(scope="shop", parent=boss.id))
        await gate.arrived()
        await Host(unbounded).tokens.revoke(boss.id)
    with pytest.raises(TokenEnded):
        await making
    assert database.shares == {}


@dataclass(frozen=True)
class AdmittedRequest:
    admitted: int | None


async def done(tables: Tables, request: AdmittedRequest) -> int | None:
    await check_admitted(tables, request.admitted)
    return request.admitted


class Persisting(Process):
    """A process of which only this is needed."""

    def __init__(self) -> None:
        self.whole = memory_whole()
        self.tried = 0

    async def persist(
        self, operation: Operation[Request, Result], request: Request, owner: str, *_: object, **__: object
    ) -> Result:
        self.tried += 1
        return await operation(self.whole.of(owner), request)


async def test_operation_with_current_or_no_admission_is_run() -> None:
    process = Persisting()
    assert await persist_admitted(process, done, AdmittedRequest(0), "ann", None) == 0
    assert await persist_admitted(process, done, AdmittedRequest(None), "ann", None) is None


async def test_operation_with_an_old_admission_is_readmitted_and_run_again() -> None:
    process = Persisting()
    await process.whole.raise_admission("ann")

    async def readmit() -> int:
        return await process.whole.of("ann").admission()

    authorization = Authorization(0, readmit=readmit)
    assert await persist_admitted(process, done, AdmittedRequest(0), "ann", authorization) == 1
    assert process.tried == 2


async def test_operation_whose_readmission_is_also_old_raises_admission_moved() -> None:
    process = Persisting()
    await process.whole.raise_admission("ann")

    async def knows_nothing_new() -> int:
        return 0

    for readmit in (None, knows_nothing_new):
        with pytest.raises(AdmissionMoved):
            await persist_admitted(
                process, done, AdmittedRequest(0), "ann", Authorization(0, readmit=readmit)
            )
    assert process.tried == 2


class Counted(MemoryTables):
    """Notes how often the owner's row is written."""

    def __init__(self) -> None:
        super().__init__(Database(), UndoLog(), "ann")
        self.written: list[int] = []
        drive(self.add_conversation(conversation()))
        drive(self.add_branch(branch()))

    async def count_bytes(self, more: int) -> None:
        self.written.append(more)
        await super().count_bytes(more)


def test_owner_row_is_written_once_per_block_of_bytes() -> None:
    tables, line, size = Counted(), branch(), 0
    for number in range(1, 41):
        made = replace(turn(number, output=[assistant("y" * 1_000)]), branch=line.id)
        size += len(made.body) + 3
        line = replace(line, bytes=drive(store_turn(tables, line, made, b"log")))
    assert line.bytes == size
    assert tables.written == [BLOCK] * ((size + ROW) // BLOCK)
    assert drive(usage(tables, None)) == Usage(bytes=(1 + len(tables.written)) * BLOCK, chats=1)
    assert drive(tables.turn_log(some_id(TurnId, 40))) == b"log"


def test_check_room_refuses_once_the_storage_quota_is_reached() -> None:
    tables = Counted()
    drive(check_quota(tables, Quota(BLOCK + 1)))
    drive(check_quota(memory_tables(tables._db, "eve"), Quota(BLOCK)))
    with pytest.raises(StorageFull) as refused:
        drive(check_quota(tables, Quota(BLOCK)))
    assert refused.value.limit == BLOCK


def test_check_room_does_not_count_the_conversation_being_created() -> None:
    tables = Counted()
    drive(check_quota(tables, Quota(1, 1), made=conversation()))
    drive(check_quota(tables, Quota(chats=2), adds_chat=True))
    with pytest.raises(StorageFull, match="1 chats"):
        drive(check_quota(tables, Quota(chats=1), adds_chat=True))
