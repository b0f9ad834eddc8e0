"""The fake clock stands still until it is moved."""

import pytest

from turnledger.testing.fake_clock import FakeClock


def test_time_stands_still_and_is_moved_by_hand() -> None:
    clock = FakeClock(now_ms=1_000)
    assert (clock.now_ms(), clock.monotonic()) == (1_000, 0.0)
    clock.advance(2.5)
    assert (clock.now_ms(), clock.monotonic()) == (3_500, 2.5)


def test_a_wall_clock_that_is_set_back_lets_no_time_pass() -> None:
    clock = FakeClock(now_ms=1_000)
    clock.set_wall_clock(10)
    assert (clock.now_ms(), clock.monotonic()) == (10, 0.0)


def test_time_does_not_go_back() -> None:
    with pytest.raises(ValueError, match="does not go back"):
        FakeClock().advance(-1)
