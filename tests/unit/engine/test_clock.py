"""The trusted clock: written times never fall, due times never run ahead, and jumps affect neither."""

from __future__ import annotations

import logging

import pytest

from turnledger import Ledger
from turnledger.engine.clock import TrustedClock, read_clock_marks
from turnledger.engine.tables.maintenance import ClockMark
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.machine import MemoryMachine

START = 1_700_000_000_000
HOUR = 3600.0
YEAR = 365 * 24 * HOUR


def made(clock: FakeClock, unseen: float = YEAR) -> TrustedClock:
    return TrustedClock(clock, tolerance=HOUR, agreement=HOUR, unseen=unseen)


def jump(clock: FakeClock, seconds: float) -> None:
    clock.set_wall_clock(clock.now_ms() + round(seconds * 1000))


def test_trusted_clock_without_a_jump_equals_the_wall_clock() -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    for seconds in (0.001, 1.0, 0.5, 86_400.0):
        clock.advance(seconds)
        assert trusted.now_ms() == trusted.due_ms() == clock.now_ms()
    clock.sleep(86_400.0)
    assert trusted.is_trusted
    assert trusted.now_ms() == trusted.due_ms() == clock.now_ms()


@pytest.mark.parametrize("seconds", [HOUR + 1, YEAR, -HOUR - 1, -YEAR])
def test_due_time_after_a_large_jump_stands_still_until_confirmed(seconds: float) -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    jump(clock, seconds)
    assert trusted.due_ms() == START
    assert trusted.times() == (trusted.now_ms(), START)
    clock.advance(HOUR - 1)
    assert trusted.due_ms() == START
    assert not trusted.is_trusted
    clock.advance(1)
    assert trusted.is_trusted
    assert trusted.due_ms() == trusted.now_ms() == clock.now_ms()


def test_due_time_after_a_second_jump_waits_for_confirmation_again() -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    jump(clock, YEAR)
    assert trusted.due_ms() == START
    clock.advance(HOUR - 1)
    jump(clock, -YEAR)
    assert trusted.due_ms() == START
    clock.advance(HOUR - 1)
    assert trusted.due_ms() == START
    clock.advance(1)
    assert trusted.due_ms() == clock.now_ms()


@pytest.mark.parametrize("seconds", [-0.5, -60.0, -HOUR, -YEAR])
def test_written_time_after_a_jump_back_still_rises(seconds: float) -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    last = trusted.now_ms()
    jump(clock, seconds)
    for _ in range(100):
        clock.advance(10.0)
        assert trusted.now_ms() > last
        last = trusted.now_ms()


def test_written_time_after_a_jump_ahead_and_back_is_correct() -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    jump(clock, YEAR)
    assert trusted.now_ms() == clock.now_ms()
    clock.advance(0.5)
    jump(clock, -YEAR)
    assert trusted.now_ms() == clock.now_ms() == START + 500


def test_due_time_after_a_small_jump_ahead_follows_slowly() -> None:
    """A chat that was used a moment ago does not expire at once."""
    clock = FakeClock(START)
    trusted = made(clock)
    jump(clock, 1800.0)
    assert trusted.due_ms() == START
    assert trusted.is_trusted
    clock.advance(60.0)
    assert trusted.due_ms() == START + 90_000
    clock.advance(3600.0)
    assert trusted.due_ms() == clock.now_ms()


def test_clock_jump_and_its_end_are_each_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    with caplog.at_level(logging.INFO, "turnledger"):
        for seconds in (YEAR, -YEAR):
            jump(clock, seconds)
            for _ in range(3):
                trusted.due_ms()
                clock.advance(1.0)
        clock.advance(HOUR)
        trusted.due_ms()
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]


@pytest.mark.parametrize("known", [START - 2 * 3_600_000, START + 2 * 3_600_000])
def test_clock_far_from_the_newest_stored_time_at_start_is_in_doubt(known: int) -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    trusted.compare(None, known)
    assert not trusted.is_trusted
    assert trusted.due_ms() == min(START, known)
    assert trusted.now_ms() == max(START, known)
    clock.advance(HOUR)
    assert trusted.due_ms() == trusted.now_ms() == clock.now_ms()


@pytest.mark.parametrize("known", [None, START - 3_600_000, START + 3_600_000])
def test_clock_near_the_newest_stored_time_at_start_is_trusted(known: int | None) -> None:
    trusted = made(FakeClock(START))
    trusted.compare(None, known)
    assert trusted.is_trusted


def test_clock_mark_of_the_same_boot_is_trusted_and_of_another_is_not() -> None:
    clock = FakeClock(START)
    clock.advance(10 * HOUR)
    long_ago = START - round(YEAR * 1000)
    for boot, is_trusted in ((clock.boot_id(), True), ("another", False), ("", False)):
        trusted = made(clock)
        trusted.compare(ClockMark(boot, START, 0, long_ago), long_ago)
        assert trusted.is_trusted is is_trusted
    young = made(clock)
    young.compare(ClockMark(clock.boot_id(), START, round(9.5 * HOUR * 1000), 0), None)
    assert not young.is_trusted
    assert young.mark().since == round(9.5 * HOUR * 1000)


def test_clock_mark_written_in_doubt_keeps_the_last_trusted_time() -> None:
    clock = FakeClock(START)
    trusted = made(clock)
    assert trusted.mark().trusted_at == START
    jump(clock, YEAR)
    assert trusted.mark().trusted_at == START


def test_due_time_of_a_start_in_doubt_is_the_last_trusted_time() -> None:
    """Another process may have written something while its clock was ahead."""
    clock = FakeClock(START)
    jump(clock, YEAR)
    trusted = made(clock)
    trusted.compare(ClockMark(clock.boot_id(), clock.now_ms(), 0, START - 1), clock.now_ms() - 1)
    assert trusted.due_ms() == START - 1


def test_written_and_due_times_within_one_millisecond_are_equal() -> None:
    """A machine's two clocks do not turn to the next millisecond at the same moment."""
    clock = FakeClock(START)
    trusted = made(clock)
    for _ in range(2):
        clock.sleep(0.0004)  # the wall clock does not show that little
        assert trusted.now_ms() == trusted.due_ms() == clock.now_ms() == START


def test_clock_mark_within_the_millisecond_of_the_start_holds_the_wall_time() -> None:
    trusted = made(FakeClock(START))
    assert trusted.now_ms() == START
    trusted.compare(None, None)
    assert trusted.mark().trusted_at == START


def test_wrong_clock_is_not_trusted_after_a_reboot_because_of_times_it_wrote() -> None:
    clock = FakeClock(START + round(YEAR * 1000))
    trusted = made(clock)
    trusted.compare(ClockMark("another boot", 0, 0, START), clock.now_ms())
    assert not trusted.is_trusted
    assert trusted.due_ms() == START


def test_confirmation_of_a_jumped_clock_does_not_count_unobserved_time() -> None:
    """The machine sleeps between two jumps by the same amount, and the clock is right meanwhile."""
    clock = FakeClock(START)
    trusted = made(clock, unseen=60.0)
    jump(clock, YEAR)
    assert trusted.due_ms() == START
    for _ in range(3):
        clock.sleep(10 * HOUR)
        assert not trusted.is_trusted
        assert trusted.due_ms() == START
    for _ in range(60):
        assert not trusted.is_trusted
        clock.advance(60.0)
    assert trusted.is_trusted
    assert trusted.due_ms() == clock.now_ms()


def test_trusted_clock_after_a_long_sleep_stays_trusted() -> None:
    clock = FakeClock(START)
    trusted = made(clock, unseen=60.0)
    clock.sleep(10 * HOUR)
    assert trusted.is_trusted
    assert trusted.now_ms() == trusted.due_ms() == clock.now_ms()


@pytest.mark.parametrize("seconds", [1800.0, -1800.0])
def test_due_time_after_a_small_jump_and_a_restart_follows_slowly(seconds: float) -> None:
    clock = FakeClock(START)
    before = made(clock)
    clock.advance(HOUR)
    mark = before.mark()
    time = clock.now_ms()
    jump(clock, seconds)
    after = made(clock)
    clock.advance(5.0)  # reading the store takes a while
    after.compare(mark, time)
    assert after.is_trusted
    right = time + 5_000
    assert after.due_ms() == min(right, right + round(seconds * 1000))
    assert after.now_ms() == max(right, right + round(seconds * 1000))
    clock.advance(60.0)
    assert after.due_ms() == min(right + 90_000, clock.now_ms())
    clock.advance(2 * HOUR)
    assert after.due_ms() == after.now_ms() == clock.now_ms()


def test_due_time_after_a_reboot_takes_a_wall_clock_within_the_tolerance() -> None:
    """How long the machine was off is not known: there is no line to continue."""
    clock = FakeClock(START)
    trusted = made(clock)
    trusted.compare(ClockMark("another boot", 0, 0, START - 1_800_000), None)
    assert trusted.due_ms() == trusted.now_ms() == START


async def test_first_clock_mark_of_a_store_survives_a_failover() -> None:
    """Without it, a process that starts while the clock is wrong has nothing to compare it with."""
    machine = MemoryMachine()
    async with await Ledger.over(await machine.open()):
        machine.fail_over()
        mark, _ = await (await machine.open()).read_whole(read_clock_marks, None)
        assert mark is not None
