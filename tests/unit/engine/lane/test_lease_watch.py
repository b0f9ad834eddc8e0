"""When a lease is dead."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.stage import (
    OTHER,
    OWN,
    drive,
    generated,
    memory_whole,
)
from tests.unit.model.shapes import some_id
from turnledger.engine.lane.lease_watch import LeaseWatch, all_leases, is_dead, renew
from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId
from turnledger.testing.fake_clock import FakeClock

LEASE_TIME = 10.0
THIRD = some_id(LeaseId, 3)


def test_lease_is_dead_only_at_the_beat_of_the_judgement() -> None:
    tables = memory_whole()
    drive(tables.beat(OTHER))
    assert drive(is_dead(tables, OTHER, {OTHER: 1}))
    assert not drive(is_dead(tables, OTHER, {OTHER: 0}))
    assert not drive(is_dead(tables, OTHER, {}))
    drive(tables.drop_lease(OTHER))
    assert drive(is_dead(tables, OTHER, {OTHER: None}))
    assert not drive(is_dead(tables, OTHER, {OTHER: 1}))


class Watching:
    def __init__(self) -> None:
        self.clock = FakeClock()
        self.gone: set[LeaseId] = set()
        self.watch = LeaseWatch(OWN, self.clock, LEASE_TIME, self.gone.__contains__)

    def after(self, seconds: float, *beats: tuple[LeaseId, int | None]) -> dict[LeaseId, int | None]:
        self.clock.advance(seconds)
        return self.watch.dead_among(beats)


def test_lease_missing_from_the_store_is_dead_after_the_lease_time() -> None:
    watching = Watching()
    assert watching.after(0, (OTHER, None)) == {}
    assert watching.after(10, (OTHER, None)) == {OTHER: None}
    assert watching.after(0, (OTHER, 1)) == {}


def test_own_lease_is_never_dead() -> None:
    watching = Watching()
    watching.gone.add(OWN)
    watching.after(0, (OWN, 1))
    assert watching.after(1_000, (OWN, 1)) == {}


def test_lease_of_a_process_known_to_be_gone_is_dead_at_once() -> None:
    watching = Watching()
    watching.gone.add(OTHER)
    assert watching.after(0, (OTHER, 5), (THIRD, 5)) == {OTHER: 5}


def test_leases_seen_at_different_times_are_judged_separately() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 1))
    watching.after(5, (THIRD, 1))
    assert watching.after(5, (OTHER, 1), (THIRD, 1)) == {OTHER: 1}
    assert watching.after(5, (OTHER, 1), (THIRD, 1)) == {OTHER: 1, THIRD: 1}


def test_lease_watch_ignores_the_wall_clock() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 1))
    watching.clock.set_wall_clock(watching.clock.now_ms() + 10**9)
    assert watching.after(0, (OTHER, 1)) == {}


def test_lease_that_was_forgotten_is_watched_anew() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 1))
    watching.watch.forget(OTHER)
    watching.watch.forget(THIRD)
    assert watching.after(10, (OTHER, 1)) == {}


@generated
@given(st.lists(st.tuples(st.floats(0, 12), st.integers(1, 3)), max_size=20))
def test_lease_is_dead_exactly_when_its_beat_stood_still_for_the_lease_time(
    steps: list[tuple[float, int]],
) -> None:
    watching = Watching()
    beat, since = 0, 0.0
    for seconds, seen in steps:
        dead = watching.after(seconds, (OTHER, seen))
        if seen != beat:
            beat, since = seen, watching.clock.monotonic()
        assert dead == ({OTHER: beat} if watching.clock.monotonic() - since >= LEASE_TIME else {})


def test_renewal_raises_the_beat_of_a_lease() -> None:
    whole = memory_whole()
    for beat in (1, 2, 3):
        drive(renew(whole, OWN))
        assert drive(all_leases(whole, None)) == [Lease(OWN, beat)]
