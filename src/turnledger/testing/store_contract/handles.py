"""The handle of a store: lease, hints to other processes, cancelled callers, closing."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.ports import Store
from turnledger.errors import LedgerClosed
from turnledger.model.ids import LeaseId
from turnledger.testing.store_contract.rows.kit import IDS, do, read, write
from turnledger.testing.store_contract.stage import Contract, OpenStore, soon


class Handles(Contract):
    async def test_kept_lease_exists_until_its_store_closes(self, open_store: OpenStore) -> None:
        here, there = await open_store(), await open_store()
        lease = IDS.new(LeaseId)
        await here.keep_lease(lease, 1_000.0)
        assert await read(there, do("lease", lease)) is not None
        assert not there.is_holder_dead(lease)
        await here.close()
        assert await read(there, do("lease", lease)) is None
        await there.close()

    async def test_kept_lease_is_renewed(self, here: Store, there: Store) -> None:
        lease = IDS.new(LeaseId)
        await here.keep_lease(lease, 0.01)
        first = (await read(there, do("lease", lease))).beat

        await soon(_until_beat(there, lease, first + 2))

    async def test_write_notifies_other_processes(self, stores: list[Store]) -> None:
        if not self.capabilities.gives_hints:
            pytest.skip("the store gives no hints")
        here, there = stores
        notified = asyncio.Event()
        there.watch(notified.set)
        writing = asyncio.create_task(_keep_writing(here))
        try:
            await soon(notified.wait())
        finally:
            writing.cancel()
            await asyncio.wait((writing,))

    async def test_store_works_after_a_caller_is_cancelled(self, stores: list[Store]) -> None:
        lease = IDS.new(LeaseId)
        tasks = [asyncio.create_task(stores[0].transact_whole(renew, lease)) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await soon(asyncio.wait(tasks))
        await write(stores[0], do("beat", lease))
        beat = (await read(stores[1], do("lease", lease))).beat
        await write(stores[1], do("beat", lease))
        assert (await read(stores[0], do("lease", lease))).beat == beat + 1

    async def test_closed_store_refuses_use_and_can_be_closed_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.close()
        await store.close()
        for run in (store.transact, store.read):
            with pytest.raises(LedgerClosed):
                await soon(run(_do_nothing, None, "ann"))
        for run_whole in (store.transact_whole, store.read_whole, store.inspect):
            with pytest.raises(LedgerClosed):
                await soon(run_whole(_do_nothing, None))


async def _do_nothing(rows: object, _: None) -> None: ...


async def _until_beat(store: Store, lease: LeaseId, beat: int) -> None:
    while (await read(store, do("lease", lease))).beat < beat:
        await asyncio.to_thread(int)  # yield to the loop and its threads


async def _keep_writing(store: Store) -> None:
    """Write repeatedly, because a hint may be lost."""
    lease = IDS.new(LeaseId)
    while True:
        await store.transact_whole(renew, lease)
        await asyncio.to_thread(int)
