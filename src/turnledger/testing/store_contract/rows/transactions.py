"""A transaction is atomic and isolated."""

from __future__ import annotations

import asyncio

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store, Sync, Tables, WholeStore
from turnledger.errors import Superseded
from turnledger.model.conversation import Branch, Origin, Stretch
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    add_ticket,
    do,
    full_attempt,
    grow,
    insert_conversation,
    read,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import Contract, soon


async def break_off(whole: WholeStore) -> None:
    raise Superseded


async def raise_fence(tables: Tables, named: tuple[ConversationId, LeaseId]) -> int:
    """Do what every begin does: read the lane, and write its branch."""
    lane = await tables.lane(*named)
    assert lane is not None
    raised = replace(lane.branch, fence=lane.branch.fence + 1)
    await tables.save_branch(raised)
    return raised.fence


class Transactions(Contract):
    async def test_lane_is_current_whatever_an_operation_is_said_to_be_about(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_conversation(here), await insert_conversation(here)
        lease = IDS.new(LeaseId)
        await write(here, do("beat", lease))
        fences = [
            await soon(store.transact(raise_fence, (found.id, lease), found.owner, sync, about))
            for about in (None, found.id, other.id, IDS.new(ConversationId))
            for sync in (Sync.PROCESS, Sync.DISK)
            for store in (here, here, there, here)
        ]
        assert fences == list(range(1, len(fences) + 1))

    async def test_operation_that_raises_changes_nothing(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        switches = (IDS.new(TurnId),)
        await write(stores[0], do("save_switches", found.id, switches))
        branch = await read(stores[0], do("branch", found.branch))
        attempt = full_attempt(found)
        with pytest.raises(Superseded):
            await write(
                stores[0],
                do("save_conversation", replace(found, title="changed")),
                do("save_switches", found.id, ()),
                do("save_branch", replace(branch, fence=9)),
                do("add_attempt", attempt),
                do("add_records", attempt.id, 0, [b"record"]),
                do("beat", attempt.lease),
                do("add_turn", turn(found.branch, 1)),
                break_off,
            )
        for store in stores:
            assert await read(store, do("conversation", found.id)) == found
            assert await read(store, do("switches", found.id)) == switches
            assert await read(store, do("branch", found.branch)) == branch
            assert await read(store, do("attempt", attempt.id)) is None
            assert await read(store, do("journal", attempt.id)) == []
            assert await read(store, do("lease", attempt.lease)) is None
            assert await read(store, do("turns", found.branch, 0, 9, 9)) == []

    async def test_branch_of_a_failed_transaction_leaves_no_rows(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        [base] = await grow(stores[0], found.branch, 1)
        made = Branch(id=IDS.new(BranchId), conversation=found.id, start=1, length=1, head=base.id)
        line = (Stretch(found.branch, 0, 1),)
        await add_ticket(stores[0], found)
        with pytest.raises(Superseded):
            await write(
                stores[0],
                do("add_branch", made),
                do("add_origin", Origin(branch=made.id, conversation=found.id, base=base.id, line=line)),
                do("move_conversation", found.id, found.branch, made.id),
                do("move_tickets", found.branch, made.id),
                break_off,
            )
        for store in stores:
            assert await read(store, do("branch", made.id)) is None
            assert await read(store, do("origin", made.id)) is None
            assert await read(store, do("origins", found.id, base.id, 9)) == []
            assert await read(store, do("conversation", found.id)) == found
            assert len(await read(store, do("tickets", found.branch))) == 1

    @pytest.mark.parametrize("sync", Sync)
    async def test_concurrent_updates_of_two_processes_are_all_kept(
        self, stores: list[Store], sync: Sync
    ) -> None:
        found = await insert_conversation(stores[0])

        async def raise_fence(tables: Tables, id: BranchId) -> int:
            branch = await tables.branch(id)
            assert branch is not None
            await tables.save_branch(replace(branch, fence=branch.fence + 1))
            return branch.fence + 1

        raises = [stores[number % 2].transact(raise_fence, found.branch, "ann", sync) for number in range(20)]
        fences = await soon(asyncio.gather(*raises))
        assert sorted(fences) == list(range(1, 21))
        branch = await read(stores[0], do("branch", found.branch))
        assert branch.fence == 20

    async def test_read_sees_writes_acknowledged_before(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        for number in range(5):
            title = str(number)
            await write(here, do("save_conversation", replace(found, title=title)))
            read_back = await read(there, do("conversation", found.id))
            assert read_back.title == title
