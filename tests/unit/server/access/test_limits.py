"""Turns per minute as a sliding estimate with an exact wait, and the limits per owner and per server.
Refused requests change no count."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from random import Random

import pytest

from tests.unit.server.shared_counters import two_workers
from turnledger.server.access.limits import (
    MINUTE_MS,
    REQUESTS,
    STARTED_TURNS,
    STREAMS,
    TURNS,
    WAITING,
    Caller,
    Quotas,
    RateLimit,
    Slot,
)
from turnledger.server.config.settings import ServerLimits
from turnledger.server.errors import RequestRefused, kind_of
from turnledger.server.ops.counters import Counters, LocalCounters, SharedCounters
from turnledger.server.ops.metrics import Metrics
from turnledger.testing.fake_clock import FakeClock

ANN, BOB, LOCAL = Caller("ann"), Caller("bob"), Caller("local", is_tokenless=True)
START = 1_700_000_000_000 // MINUTE_MS * MINUTE_MS


def made(most: int, counters: LocalCounters | None = None) -> tuple[RateLimit, FakeClock]:
    clock = FakeClock(START)
    return RateLimit(counters or LocalCounters(), clock, most), clock


def fill(pace: RateLimit, owner: str = "ann") -> int:
    """Begin turns until there is no room; how many."""
    begun = 0
    while not pace.wait_seconds(owner):
        pace.count(owner)
        begun += 1
    return begun


def test_rate_limit_admits_its_number_of_turns_and_no_more() -> None:
    pace, _ = made(5)
    assert (fill(pace), pace.wait_seconds("bob")) == (5, 0.0)


def test_rate_limit_frees_capacity_gradually_as_the_window_slides() -> None:
    pace, clock = made(60)
    assert fill(pace) == 60
    clock.advance(60)
    assert fill(pace) == 0
    clock.advance(30)
    assert fill(pace) == 30
    clock.advance(15)
    assert fill(pace) == 15


def test_rate_limit_resets_after_two_idle_minutes() -> None:
    pace, clock = made(3)
    fill(pace)
    clock.advance(120)
    assert fill(pace) == 3


def test_rate_limit_wait_is_exact_for_every_limit_and_offset() -> None:
    for most in (1, 2, 7, 60):
        for offset in (0.0, 0.25, 31.0, 59.999):
            pace, clock = made(most)
            clock.advance(offset)
            fill(pace)
            clock.advance(3.0)
            for _ in range(most + 2):
                fill(pace)
                wait = pace.wait_seconds("ann")
                clock.advance(wait - 0.001)
                assert pace.wait_seconds("ann") > 0, (most, offset)
                clock.advance(0.001)
                assert pace.wait_seconds("ann") == 0, (most, offset)


def test_rate_limit_is_barely_exceeded_within_any_sliding_minute() -> None:
    pace, clock = made(10)
    begun: list[float] = []
    for _ in range(600):
        for _ in range(fill(pace)):
            begun.append(clock.monotonic())
        clock.advance(0.5)
    most = max(sum(1 for each in begun if at <= each < at + 60) for at in begun)
    assert 10 <= most <= 12
    assert len(begun) >= 40


def test_rate_limit_refund_frees_capacity() -> None:
    pace, _ = made(1)
    pace.uncount("ann", pace.count("ann"))
    assert pace.wait_seconds("ann") == 0


def test_rate_limit_is_shared_between_workers() -> None:
    counters = LocalCounters()
    one, _ = made(2, counters)
    other, _ = made(2, counters)
    one.count("ann")
    other.count("ann")
    assert one.wait_seconds("ann") > 0 < other.wait_seconds("ann")


def test_rate_limit_removes_old_counts_from_the_board() -> None:
    counters = LocalCounters()
    pace, clock = made(1_000, counters)
    for minute in range(10):
        for number in range(50):
            pace.count(f"{minute}-{number}")
        clock.advance(60)
    assert counters.sum(STARTED_TURNS) <= 150


def test_rate_limit_leaves_no_stale_counts_when_the_clock_is_set_back() -> None:
    counters = LocalCounters()
    pace, clock = made(10, counters)
    pace.count("ann")
    clock.set_wall_clock(START - 3_600_000)
    pace.count("ann")
    assert (counters.sum(STARTED_TURNS), pace.wait_seconds("ann")) == (1, 0.0)


def quotas(counters: Counters | None = None, clock: FakeClock | None = None, **limits: int | None) -> Quotas:
    return Quotas(ServerLimits(**limits), counters or LocalCounters(), Metrics(), clock or FakeClock())  # type: ignore[arg-type]


def turn(by: Quotas, owner: str = "ann") -> Slot:
    return by.admit_turn(Caller(owner))


def as_many_as_may_be(by: Quotas, caller: Caller = ANN) -> list[Slot]:
    places = []
    try:
        while True:
            places.append(by.admit_turn(caller))
    except RequestRefused:
        return places


def refusal(act: Callable[[], object]) -> tuple[str, str]:
    """The code, and the seconds to wait."""
    with pytest.raises(RequestRefused) as caught:
        act()
    kind = kind_of(caught.value)
    assert (kind.status, kind.type) == (429, "rate_limit_error")
    return caught.value.code, dict(kind.headers)[b"retry-after"].decode()


def test_owner_turns_limit_holds_for_each_owner_separately() -> None:
    by = quotas(owner_turns=2)
    first = turn(by)
    turn(by)
    assert refusal(lambda: turn(by)) == ("too_many_turns", "2")
    turn(by, "bob")
    first.release()
    turn(by)


def test_owner_requests_limit_holds_for_each_owner_separately() -> None:
    by = quotas(owner_requests=1, owner_turns=1, owner_streams=1)
    first = by.admit_other(ANN)
    with pytest.raises(RequestRefused, match="`owner_requests`"):
        by.admit_other(ANN)
    assert refusal(lambda: by.admit_other(ANN)) == ("too_many_requests", "2")
    by.admit_other(BOB)
    turn(by)
    by.admit_stream(ANN)
    first.release()
    by.admit_other(ANN)


def test_turn_that_has_begun_no_longer_counts_as_waiting() -> None:
    by = quotas(owner_waiting=1)
    first = turn(by)
    assert refusal(lambda: turn(by)) == ("too_many_waiting", "2")
    first.begin()
    turn(by)


def test_streams_are_counted_separately_from_turns() -> None:
    by = quotas(owner_streams=1, owner_turns=1)
    turn(by)
    reader = by.admit_stream(ANN)
    assert refusal(lambda: by.admit_stream(ANN))[0] == "too_many_streams"
    assert refusal(lambda: by.check_streams(ANN))[0] == "too_many_streams"
    by.check_streams(BOB)
    reader.release()
    by.admit_stream(ANN)


@pytest.mark.parametrize("limit", ["turns", "waiting"])
def test_server_limit_holds_for_all_owners_together(limit: str) -> None:
    by = quotas(**{limit: 3})
    for owner in ("ann", "bob", "cyd"):
        turn(by, owner)
    assert refusal(lambda: turn(by, "dan")) == ("server_busy", "2")
    assert refusal(lambda: by.admit_turn(LOCAL)) == ("server_busy", "2")


def test_tokenless_caller_is_bounded_by_server_limits_only() -> None:
    by = quotas(turns=10, owner_turns=1, owner_waiting=1, owner_streams=1, owner_turns_per_minute=1)
    assert len(as_many_as_may_be(by, LOCAL)) == 10
    by.admit_stream(LOCAL)
    by.admit_stream(LOCAL)


def test_open_requests_beyond_the_limit_are_refused() -> None:
    by = quotas(requests=1)
    by.request_opened()
    by.check_requests()
    by.request_opened()
    assert refusal(by.check_requests) == ("server_busy", "2")
    by.request_closed()
    by.check_requests()


def test_refused_turn_changes_no_count_for_any_limit() -> None:
    counters, clock = LocalCounters(), FakeClock()
    by = quotas(
        counters, clock, turns=30, waiting=20, owner_turns=5, owner_waiting=4, owner_turns_per_minute=9
    )
    random, places, codes = Random(5), list[Slot](), set[str]()
    for _ in range(3_000):
        before = dict(counters._counts)
        try:
            places.append(turn(by, f"owner {random.randrange(12)}"))
        except RequestRefused as problem:
            codes.add(problem.code)
            assert dict(counters._counts) == before
        if random.random() < 0.5 and places:
            places.pop(random.randrange(len(places))).release()
        elif places:
            random.choice(places).begin()
        clock.advance(random.random())
    assert codes == {"server_busy", "too_many_turns", "too_many_waiting", "too_many_turns_per_minute"}
    for place in places:
        place.release()
        place.release()
    assert (counters.sum(TURNS), counters.sum(WAITING)) == (0, 0)


def test_turns_per_minute_refusal_reports_the_seconds_until_there_is_room() -> None:
    clock = FakeClock(0)
    by = quotas(clock=clock, owner_turns_per_minute=2)
    for _ in range(2):
        turn(by).release()
    code, seconds = refusal(lambda: turn(by))
    assert (code, seconds) == ("too_many_turns_per_minute", "90")
    turn(by, "bob")
    clock.advance(int(seconds))
    turn(by)


def test_single_owner_cannot_take_the_last_fifth_of_the_turns() -> None:
    by = quotas(turns=100, owner_turns=None, owner_waiting=None)
    assert len(as_many_as_may_be(by)) == 80
    assert refusal(lambda: turn(by)) == ("server_busy", "2")
    turn(by, "bob")


def test_competing_owners_get_about_equal_shares_of_the_turns() -> None:
    by = quotas(turns=1_000, owner_turns=None, owner_waiting=None)
    random = Random(7)
    held: dict[str, list[Slot]] = {"first": as_many_as_may_be(by, Caller("first")), "second": [], "third": []}
    for _ in range(20_000):
        owner = random.choice(list(held))
        with contextlib.suppress(RequestRefused):
            held[owner].append(turn(by, owner))
        ending = held[random.choice(list(held))]
        if ending and random.random() < 0.4:
            ending.pop().release()
    counts = sorted(map(len, held.values()))
    assert counts[0] > 0.8 * counts[2]
    assert sum(counts) > 850
    turn(by, "a newcomer")


def test_single_owner_can_take_all_turns_of_a_small_limit() -> None:
    assert [len(as_many_as_may_be(quotas(turns=most))) for most in (1, 2, 4, 5)] == [1, 2, 4, 4]


def test_refusals_are_counted_in_metrics_by_limit() -> None:
    metrics = Metrics()
    by = Quotas(ServerLimits(turns=5, owner_turns=2), LocalCounters(), metrics, FakeClock())
    for owner in ("ann", "ann", "ann", "bob", "bob", "cyd", "dan"):
        with contextlib.suppress(RequestRefused):
            turn(by, owner)
    text = metrics.text().decode()
    assert 'turnledger_refusals_total{limit="owner_turns"} 1.0' in text
    assert 'turnledger_refusals_total{limit="turns"} 1.0' in text


def test_refusal_names_the_limit_and_the_remedy() -> None:
    by = quotas(turns=5, owner_turns=1)
    turn(by)
    with pytest.raises(RequestRefused, match=r"`owner_turns`.*Try again when one has ended\."):
        turn(by)


@pytest.fixture
def parts() -> Iterator[list[SharedCounters]]:
    with two_workers() as (_, parts):
        yield parts


def test_workers_share_every_limit(parts: list[SharedCounters]) -> None:
    limits = {"owner_turns": 2, "owner_streams": 1, "requests": 1}
    here, there = (quotas(counters, **limits) for counters in parts)
    turn(here)
    turn(there)
    assert refusal(lambda: turn(here))[0] == refusal(lambda: turn(there))[0] == "too_many_turns"
    here.admit_stream(ANN)
    assert refusal(lambda: there.admit_stream(ANN))[0] == "too_many_streams"
    here.request_opened()
    there.request_opened()
    assert refusal(here.check_requests)[0] == "server_busy"
    assert [parts[0].sum(kind) for kind in (TURNS, WAITING, STREAMS, REQUESTS)] == [2, 2, 1, 2]


@pytest.mark.parametrize(
    ("kind", "limit", "code"),
    [
        (TURNS, "owner_turns", "too_many_turns"),
        (STARTED_TURNS, "owner_turns_per_minute", "too_many_turns_per_minute"),
    ],
)
def test_limit_holds_when_two_workers_admit_at_the_same_moment(
    parts: list[SharedCounters], kind: str, limit: str, code: str
) -> None:
    class Raced(LocalCounters):
        """Counts in the shared counters, after another worker has admitted one."""

        def add(self, kind_added: str, name: str, by: int = 1) -> None:
            if by > 0 and kind_added == kind and not there:
                there.append(turn(quotas(parts[1], **{limit: 1})))
            parts[0].add(kind_added, name, by)

        def total(self, wanted_kind: str, name: str) -> int:
            return parts[0].total(wanted_kind, name)

        def sum(self, wanted_kind: str) -> int:
            return parts[0].sum(wanted_kind)

    there: list[Slot] = []
    assert refusal(lambda: turn(quotas(Raced(), **{limit: 1})))[0] == code
    assert [parts[0].sum(each) for each in (TURNS, WAITING)] == [1, 1]
    assert parts[0].sum(STARTED_TURNS) == (kind == STARTED_TURNS)
