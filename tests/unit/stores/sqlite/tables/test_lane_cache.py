"""The lanes that the writer keeps in memory are those of the file, and of their owner."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tests.unit.stores.sqlite.operations import ids
from turnledger.engine.ports import Tables
from turnledger.engine.tables.lanes import Lane
from turnledger.errors import StoreError
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.ids import BranchId, ConversationId, LeaseId
from turnledger.model.item import Item
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.tables import tables as tables_module

CALL = Item(b'{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}')
OWN = ids.new(LeaseId)


@pytest.fixture
async def store(path: Path) -> AsyncIterator[SqliteStore]:
    store = await SqliteStore.open(path, inline=True)
    yield store
    await store.close()


async def add_chat(tables: Tables, _: None) -> ConversationId:
    id, branch = ids.new(ConversationId), ids.new(BranchId)
    await tables.add_conversation(
        Conversation(id=id, owner=tables.owner, branch=branch, created_at=1, touched_at=1)
    )
    await tables.add_branch(Branch(id=branch, conversation=id))
    await tables.beat(OWN)
    return id


async def kept(store: SqliteStore) -> Lane:
    """Add a chat, and return its lane, which is now in memory."""
    found = await lane_of(store, await store.transact(add_chat, None, "ann"))
    assert found is not None
    assert store._writer.lanes.holds(found.conversation.id)
    return found


async def lane_of(
    store: SqliteStore, id: ConversationId, owner: str = "ann", lease: LeaseId = OWN
) -> Lane | None:
    async def lane(tables: Tables, _: None) -> Lane | None:
        return await tables.lane(id, lease)

    return await store.transact(lane, None, owner)


async def branch_of(store: SqliteStore, id: BranchId, owner: str) -> Branch | None:
    async def branch(tables: Tables, _: None) -> Branch | None:
        return await tables.branch(id)

    return await store.transact(branch, None, owner)


async def test_lane_in_memory_is_not_there_for_another_owner_or_lease(store: SqliteStore) -> None:
    lane = await kept(store)
    assert await branch_of(store, lane.branch.id, "ann") == lane.branch
    assert await branch_of(store, lane.branch.id, "bob") is None
    assert await lane_of(store, lane.conversation.id, "bob") is None
    found = await lane_of(store, lane.conversation.id, lease=ids.new(LeaseId))
    assert found == replace(lane, has_lease=False)


@pytest.mark.parametrize("by_sqlite", [False, True])
async def test_lane_saved_in_a_transaction_that_is_rolled_back_is_read_again(
    store: SqliteStore, by_sqlite: bool
) -> None:
    lane = await kept(store)

    async def save_and_fail(tables: Any, _: None) -> None:
        await tables.save_branch(replace(lane.branch, fence=9))
        assert await tables.lane(lane.conversation.id, OWN) != lane
        if by_sqlite:  # as it does when the disk fails
            tables._cursor.execute("ROLLBACK")
        raise apsw.IOError

    with pytest.raises(StoreError):
        await store.transact(save_and_fail, None, "ann")
    assert await lane_of(store, lane.conversation.id) == lane


async def test_lane_with_pending_calls_is_read_whole(store: SqliteStore) -> None:
    lane = await kept(store)

    async def save(tables: Tables, branch: Branch) -> None:
        await tables.save_branch(branch)

    for pending in ((CALL,), (), (CALL,)):
        saved = replace(lane.branch, pending=pending)
        await store.transact(save, saved, "ann")
        assert await lane_of(store, lane.conversation.id) == replace(lane, branch=saved)
        assert store._writer.lanes.holds(lane.conversation.id) == (not pending)


async def test_lanes_beyond_the_most_are_read_again(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables_module, "MOST_LANES", 2)
    chats = [await store.transact(add_chat, None, "ann") for _ in range(4)]
    lanes = [await lane_of(store, id) for id in chats]
    assert [store._writer.lanes.holds(id) for id in chats] == [False, False, True, True]
    assert [await lane_of(store, id) for id in chats] == lanes


async def test_lane_in_memory_keeps_the_later_time_and_the_tickets_of_the_store(store: SqliteStore) -> None:
    lane = await kept(store)
    id, branch = lane.conversation.id, lane.branch

    async def touch_and_save(tables: Tables, _: None) -> None:
        await tables.touch_conversation(id, 9)
        await tables.touch_conversation(id, 5)
        await tables.save_branch(replace(branch, fence=3, last_ticket=7))

    await store.transact(touch_and_save, None, "ann")
    assert store._writer.lanes.holds(id)
    found = await lane_of(store, id)
    assert found is not None
    assert (found.conversation.touched_at, found.branch.fence, found.branch.last_ticket) == (9, 3, 0)
