"""Gates, the gated store, the fake clock and the check of change sequences."""

import asyncio

import pytest

from turnledger.engine.lane.lease_watch import all_leases, renew
from turnledger.engine.ports import WholeStore
from turnledger.errors import OutcomeUnknown, StoreFull, StoreUnavailable
from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.change_audit import ChangeKind, is_valid_sequence
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import Fate, Gate, GatedStore, When

LEASE = LeaseId("lease_01890a5d000070008000000000000000")


@pytest.fixture
def store() -> GatedStore:
    return GatedStore(MemoryStore())


async def beats(store: GatedStore) -> int:
    leases = await store.read_whole(all_leases, None)
    return leases[0].beat if leases else 0


async def test_gate_counts_arrivals_and_opens_once_released() -> None:
    gate = Gate()
    tasks = [asyncio.create_task(gate.pass_through()) for _ in range(2)]
    await gate.arrived(2)
    assert not any(task.done() for task in tasks)
    gate.release()
    await asyncio.gather(*tasks, gate.pass_through())
    await gate.arrived(3)


@pytest.mark.parametrize(("when", "written"), [(When.BEFORE, 0), (When.AFTER, 1)])
async def test_gated_store_holds_an_operation_before_or_after_the_write(
    store: GatedStore, when: When, written: int
) -> None:
    with store.hold(renew, when) as gate:
        task = asyncio.create_task(store.transact_whole(renew, LEASE))
        await gate.arrived()
        assert await beats(store) == written
        assert not task.done()
    await task
    await store.transact_whole(renew, LEASE)
    assert await beats(store) == 2


async def test_gated_store_holds_reads(store: GatedStore) -> None:
    with store.hold(all_leases) as gate:
        task = asyncio.create_task(store.read_whole(all_leases, None))
        await gate.arrived()
        await store.transact_whole(renew, LEASE)
        gate.release()
        assert await task == [Lease(LEASE, 1)]


async def test_gated_store_refuses_operations_without_writing_and_passes_the_next(store: GatedStore) -> None:
    store.refuse(renew, times=2)
    store.refuse(renew, StoreFull())
    for error in (StoreUnavailable, StoreUnavailable, StoreFull):
        with pytest.raises(error):
            await store.transact_whole(renew, LEASE)
    assert await beats(store) == 0
    await store.transact_whole(renew, LEASE)
    assert store.operations == ["all_leases", "renew"]


async def test_gated_store_refuses_a_read(store: GatedStore) -> None:
    store.refuse(all_leases)
    with pytest.raises(StoreUnavailable):
        await store.read_whole(all_leases, None)
    assert await store.read_whole(all_leases, None) == []


@pytest.mark.parametrize(
    ("fate", "at_once", "in_the_end"), [("written", 1, 2), ("lost", 0, 1), ("late", 0, 2)]
)
async def test_gated_store_loses_the_answer_of_a_write_with_the_given_fate(
    store: GatedStore, fate: str, at_once: int, in_the_end: int
) -> None:
    store.lose_answer(renew, Fate(fate))
    with pytest.raises(OutcomeUnknown):
        await store.transact_whole(renew, LEASE)
    assert await beats(store) == at_once
    await store.transact_whole(renew, LEASE)
    assert await beats(store) == in_the_end


async def test_gated_store_drops_a_late_write_that_is_refused_meanwhile(store: GatedStore) -> None:
    async def only_first(whole: WholeStore, lease: LeaseId) -> None:
        if await whole.lease(lease):
            raise StoreFull
        await whole.beat(lease)

    store.lose_answer(only_first, Fate.LATE, Fate.LATE)
    for _ in range(2):
        with pytest.raises(OutcomeUnknown):
            await store.transact_whole(only_first, LEASE)
    await store.transact_whole(renew, LEASE)
    assert await beats(store) == 2


async def test_gated_store_announces_writes_to_neighbours_that_do_not_ignore_hints() -> None:
    notified: list[str] = []
    neighbours: list[GatedStore] = []
    stores = {name: GatedStore(MemoryStore(), neighbours=neighbours) for name in ("one", "two", "deaf")}
    for name, store in stores.items():
        store.watch(lambda name=name: notified.append(name))
    stores["deaf"].ignores_hints = True
    await stores["one"].transact_whole(renew, LEASE)
    await asyncio.sleep(0)
    assert notified == ["two"]
    await stores["two"].close()
    await stores["one"].transact_whole(renew, LEASE)
    await asyncio.sleep(0)
    assert notified == ["two"]


async def test_gated_store_without_renewal_renews_its_lease_only_by_hand() -> None:
    store = GatedStore(MemoryStore(Database()), renews=False)
    await store.keep_lease(LEASE, every=0.0)
    for _ in range(5):
        await asyncio.sleep(0)
    assert await beats(store) == 1
    await store.beat()
    assert await beats(store) == 2
    await store.close()


def test_fake_clock_moves_only_when_advanced() -> None:
    clock = FakeClock(now_ms=1_000)
    assert (clock.now_ms(), clock.monotonic()) == (1_000, 0.0)
    clock.advance(2.5)
    assert (clock.now_ms(), clock.monotonic()) == (3_500, 2.5)


def test_fake_clock_with_the_wall_clock_set_back_keeps_monotonic_time() -> None:
    clock = FakeClock(now_ms=1_000)
    clock.set_wall_clock(10)
    assert (clock.now_ms(), clock.monotonic()) == (10, 0.0)


def test_fake_clock_refuses_to_go_back() -> None:
    with pytest.raises(ValueError, match="must not be negative"):
        FakeClock().advance(-1)


def kinds(*names: str) -> list[ChangeKind]:
    return [ChangeKind(f"turn.{name}") for name in names]


@pytest.mark.parametrize(
    "changes",
    [
        ("running", "committed"),
        ("queued", "running", "failed"),
        ("running", "failed", "committed"),
        ("running", "stopped", "committed"),
        ("queued", "stopped"),
        ("queued", "failed"),
        ("queued", "withdrawn"),
        ("withdrawn",),
        ("queued", "withdrawn", "queued", "running", "committed"),
        ("queued", "withdrawn", "running", "failed"),
    ],
)
def test_turn_changes_in_a_possible_order_are_valid(changes: tuple[str, ...]) -> None:
    assert is_valid_sequence(kinds(*changes))


@pytest.mark.parametrize(
    "changes",
    [
        (),
        ("running",),
        ("queued",),
        ("committed",),
        ("queued", "running"),
        ("queued", "committed"),
        ("running", "queued", "committed"),
        ("running", "running", "committed"),
        ("running", "committed", "committed"),
        ("running", "committed", "failed"),
        ("running", "failed", "stopped"),
        ("queued", "withdrawn", "queued"),
    ],
)
def test_turn_changes_in_an_impossible_order_are_invalid(changes: tuple[str, ...]) -> None:
    assert not is_valid_sequence(kinds(*changes))
