"""The handle of a store: its lease, its hints to other processes, cancelled callers, and closing."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.engine.lane.lease import renew
from turnledger.engine.ports import Store
from turnledger.errors import LedgerClosed
from turnledger.model.ids import LeaseId
from turnledger.testing.store_contract.rows import IDS, do, read, write
from turnledger.testing.store_contract.stage import Contract, OpenStore, soon


class Handles(Contract):
    async def test_a_kept_lease_is_there_until_its_store_is_closed(self, open_store: OpenStore) -> None:
        here, there = await open_store(), await open_store()
        lease = IDS.new(LeaseId)
        await here.keep_lease(lease, 1_000.0)
        assert await read(there, do("lease", lease)) is not None
        assert not there.holder_is_gone(lease)
        await here.close()
        assert await read(there, do("lease", lease)) is None
        await there.close()

    async def test_a_kept_lease_is_renewed(self, stores: list[Store]) -> None:
        here, there = stores
        lease = IDS.new(LeaseId)
        await here.keep_lease(lease, 0.01)
        first = (await read(there, do("lease", lease))).beat

        await soon(_until_beat(there, lease, first + 2))

    async def test_a_write_is_hinted_to_other_processes(self, stores: list[Store]) -> None:
        if not self.capabilities.gives_hints:
            pytest.skip("the store gives no hints")
        here, there = stores
        heard = asyncio.Event()
        there.watch(heard.set)
        writing = asyncio.create_task(_keep_writing(here))
        try:
            await soon(heard.wait())
        finally:
            writing.cancel()
            await asyncio.wait((writing,))

    async def test_a_cancelled_caller_leaves_the_store_in_order(self, stores: list[Store]) -> None:
        lease = IDS.new(LeaseId)
        tasks = [asyncio.create_task(stores[0].transact(renew, lease)) for _ in range(10)]
        await asyncio.sleep(0)
        for task in tasks:
            task.cancel()
        await soon(asyncio.wait(tasks))
        await write(stores[0], do("beat", lease))
        beat = (await read(stores[1], do("lease", lease))).beat
        await write(stores[1], do("beat", lease))
        assert (await read(stores[0], do("lease", lease))).beat == beat + 1

    async def test_a_closed_store_says_so_and_can_be_closed_again(self, open_store: OpenStore) -> None:
        store = await open_store()
        await store.close()
        await store.close()
        with pytest.raises(LedgerClosed):
            await write(store, do("beat", IDS.new(LeaseId)))
        with pytest.raises(LedgerClosed):
            await read(store, do("leases"))


async def _until_beat(store: Store, lease: LeaseId, beat: int) -> None:
    while (await read(store, do("lease", lease))).beat < beat:
        await asyncio.to_thread(int)  # let loop and threads go on


async def _keep_writing(store: Store) -> None:
    """Hints may be lost, so one write does not have to be heard of."""
    lease = IDS.new(LeaseId)
    while True:
        await store.transact(renew, lease)
        await asyncio.to_thread(int)
