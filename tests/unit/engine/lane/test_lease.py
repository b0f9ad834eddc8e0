"""A lease lapses when its beat stood still for a whole lease time, on the watcher's own clock."""

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.engine.stage import OTHER, OWN, HandClock, drive
from tests.unit.model.shapes import repeatable, some_id
from turnledger.engine.lane.lease import LeaseWatch, all_leases, renew
from turnledger.model.conversation import Lease
from turnledger.model.ids import LeaseId
from turnledger.stores.memory import Database, MemoryTables

LEASE_TIME = 10.0
THIRD = some_id(LeaseId, 3)


class Watching:
    def __init__(self) -> None:
        self.clock = HandClock()
        self.gone: set[LeaseId] = set()
        self.watch = LeaseWatch(OWN, self.clock, LEASE_TIME, self.gone.__contains__)

    def after(self, seconds: float, *beats: tuple[LeaseId, int | None]) -> dict[LeaseId, int | None]:
        self.clock.advance(seconds)
        return self.watch.dead_among(beats)


def test_a_lease_seen_for_the_first_time_is_alive() -> None:
    watching = Watching()
    watching.clock.advance(1_000)
    assert watching.after(0, (OTHER, 5)) == {}


def test_a_lease_lapses_after_a_whole_lease_time_with_the_same_beat() -> None:
    watching = Watching()
    assert watching.after(0, (OTHER, 5)) == {}
    assert watching.after(9.5, (OTHER, 5)) == {}
    assert watching.after(0.5, (OTHER, 5)) == {OTHER: 5}


def test_a_beat_begins_the_lease_time_anew() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 5))
    assert watching.after(9, (OTHER, 6)) == {}
    assert watching.after(9, (OTHER, 6)) == {}
    assert watching.after(1, (OTHER, 6)) == {OTHER: 6}


def test_a_lapsed_lease_that_beats_again_is_alive() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 5))
    assert watching.after(10, (OTHER, 5)) == {OTHER: 5}
    assert watching.after(0, (OTHER, 6)) == {}


def test_a_beat_that_went_back_is_a_sign_of_life_too() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 5))
    assert watching.after(10, (OTHER, 1)) == {}


def test_a_lease_that_is_not_in_the_store_lapses_likewise() -> None:
    watching = Watching()
    assert watching.after(0, (OTHER, None)) == {}
    assert watching.after(10, (OTHER, None)) == {OTHER: None}
    assert watching.after(0, (OTHER, 1)) == {}


def test_the_own_lease_never_lapses() -> None:
    watching = Watching()
    watching.gone.add(OWN)
    watching.after(0, (OWN, 1))
    assert watching.after(1_000, (OWN, 1)) == {}


def test_a_process_known_to_be_gone_is_dead_at_once() -> None:
    watching = Watching()
    watching.gone.add(OTHER)
    assert watching.after(0, (OTHER, 5), (THIRD, 5)) == {OTHER: 5}


def test_each_lease_is_judged_by_itself() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 1))
    watching.after(5, (THIRD, 1))
    assert watching.after(5, (OTHER, 1), (THIRD, 1)) == {OTHER: 1}
    assert watching.after(5, (OTHER, 1), (THIRD, 1)) == {OTHER: 1, THIRD: 1}


def test_the_wall_clock_plays_no_part() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 1))
    watching.clock.wall += 10**9
    assert watching.after(0, (OTHER, 1)) == {}


def test_a_forgotten_lease_is_new_again() -> None:
    watching = Watching()
    watching.after(0, (OTHER, 1))
    watching.watch.forget(OTHER)
    watching.watch.forget(THIRD)
    assert watching.after(10, (OTHER, 1)) == {}


@repeatable
@given(st.lists(st.tuples(st.floats(0, 12), st.integers(1, 3)), max_size=20))
def test_a_lease_is_dead_exactly_when_its_beat_stood_still_long_enough(
    steps: list[tuple[float, int]],
) -> None:
    watching = Watching()
    beat, since = 0, 0.0
    for seconds, seen in steps:
        dead = watching.after(seconds, (OTHER, seen))
        if seen != beat:
            beat, since = seen, watching.clock.elapsed
        assert dead == ({OTHER: beat} if watching.clock.elapsed - since >= LEASE_TIME else {})


def test_renewing_raises_the_beat() -> None:
    tables = MemoryTables(Database())
    for beat in (1, 2, 3):
        drive(renew(tables, OWN))
        assert drive(all_leases(tables, None)) == [Lease(OWN, beat)]
