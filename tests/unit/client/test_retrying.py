"""Tries are counted, pauses grow, and there is an end to it."""

from __future__ import annotations

from math import nan

import pytest

from turnledger.client.retrying import Pacing, Retries, Timeouts, Trying
from turnledger.errors import InvalidInput


class Now:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def trying(chance: float = 1.0, now: Now | None = None, **retries: float) -> Trying:
    pacing = Pacing(now=now or Now(), chance=lambda: chance)
    return Trying(Retries(**{"times": 5, "first": 1.0, "most": 6.0, "patience": 100.0, **retries}), pacing)


def test_each_pause_is_twice_as_long_up_to_the_longest_and_then_there_is_none() -> None:
    counted = trying()
    assert [counted.pause() for _ in range(6)] == [1.0, 2.0, 4.0, 6.0, 6.0, None]


def test_chance_makes_pauses_shorter_but_never_by_more_than_half() -> None:
    assert trying(chance=0.0).pause() == 0.5
    assert trying(chance=0.5).pause() == 0.75


def test_progress_begins_the_count_anew() -> None:
    counted = trying()
    assert [counted.pause(), counted.pause()] == [1.0, 2.0]
    counted.failed = 0
    assert counted.pause() == 1.0


def test_what_the_server_asks_for_is_waited() -> None:
    assert trying().pause(30.0) == 30.0
    assert trying().pause(0.0) == 1.0


def test_those_who_are_told_the_same_time_do_not_come_back_at_the_same_time() -> None:
    assert trying(chance=0.5).pause(4.0) == 5.0
    assert trying(chance=0.0).pause(4.0) == 6.0
    assert trying(chance=0.0).pause(80.0) == 86.0


def test_who_waits_for_ever_waits_as_long_as_the_longest_pause_and_comes_by_chance() -> None:
    assert trying().longest() == 6.0
    assert trying(chance=0.0).longest() == 3.0
    assert trying().longest(40.0) == 40.0


def test_patience_ends_before_a_pause_that_would_outlast_it() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    assert counted.pause() == 1.0
    now.seconds = 9.5
    assert counted.pause() is None
    assert trying(patience=10.0).pause(11.0) is None


def test_patience_counts_from_the_first_failure_since_there_was_progress() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    counted.pause()
    now.seconds = 500.0
    counted.failed = 0
    assert counted.pause() == 1.0


def test_without_retries_there_is_one_try() -> None:
    assert trying(times=0).pause() is None


@pytest.mark.parametrize("wrong", [{"times": -1}, {"first": -0.1}, {"patience": -1.0}, {"most": nan}])
def test_retries_below_zero_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Retries(**wrong)  # type: ignore[arg-type]


def test_timeouts_are_above_zero() -> None:
    with pytest.raises(InvalidInput):
        Timeouts(silence=0)
    with pytest.raises(InvalidInput):
        Timeouts(connect=nan)
