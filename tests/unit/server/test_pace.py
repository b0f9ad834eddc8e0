"""Turns per minute: an estimate that slides, and says when there is room again."""

from __future__ import annotations

from turnledger.server.board import OwnBoard
from turnledger.server.pace import MINUTE, STARTS, Pace
from turnledger.testing.fake_clock import FakeClock

START = 1_700_000_000_000 // MINUTE * MINUTE


def made(most: int, board: OwnBoard | None = None) -> tuple[Pace, FakeClock]:
    clock = FakeClock(START)
    return Pace(board or OwnBoard(), clock, most), clock


def fill(pace: Pace, owner: str = "ann") -> int:
    """Begin turns until there is no room; how many."""
    begun = 0
    while not pace.wait(owner):
        pace.count(owner)
        begun += 1
    return begun


def test_there_is_room_for_as_many_as_may_be_and_no_more() -> None:
    pace, _ = made(5)
    assert (fill(pace), pace.wait("bob")) == (5, 0.0)


def test_the_last_minute_slides_out_bit_by_bit() -> None:
    pace, clock = made(60)
    assert fill(pace) == 60
    clock.advance(60)
    assert fill(pace) == 0
    clock.advance(30)
    assert fill(pace) == 30
    clock.advance(15)
    assert fill(pace) == 15


def test_after_two_minutes_of_silence_all_is_forgotten() -> None:
    pace, clock = made(3)
    fill(pace)
    clock.advance(120)
    assert fill(pace) == 3


def test_it_is_worth_another_try_when_it_says_so_and_not_before() -> None:
    for most in (1, 2, 7, 60):
        for offset in (0.0, 0.25, 31.0, 59.999):
            pace, clock = made(most)
            clock.advance(offset)
            fill(pace)
            clock.advance(3.0)
            for _ in range(most + 2):
                fill(pace)
                wait = pace.wait("ann")
                clock.advance(wait - 0.001)
                assert pace.wait("ann") > 0, (most, offset)
                clock.advance(0.001)
                assert pace.wait("ann") == 0, (most, offset)


def test_within_any_minute_there_are_not_many_more_than_may_be() -> None:
    pace, clock = made(10)
    begun: list[float] = []
    for _ in range(600):
        for _ in range(fill(pace)):
            begun.append(clock.monotonic())
        clock.advance(0.5)
    most = max(sum(1 for each in begun if at <= each < at + 60) for at in begun)
    assert 10 <= most <= 12
    assert len(begun) >= 40


def test_what_was_taken_back_leaves_room() -> None:
    pace, _ = made(1)
    pace.take_back("ann", pace.count("ann"))
    assert pace.wait("ann") == 0


def test_workers_count_together() -> None:
    board = OwnBoard()
    one, _ = made(2, board)
    other, _ = made(2, board)
    one.count("ann")
    other.count("ann")
    assert one.wait("ann") > 0 < other.wait("ann")


def test_old_counts_leave_the_board() -> None:
    board = OwnBoard()
    pace, clock = made(1_000, board)
    for minute in range(10):
        for number in range(50):
            pace.count(f"{minute}-{number}")
        clock.advance(60)
    assert board.sum(STARTS) <= 150


def test_a_clock_that_is_set_back_leaves_nothing_behind_for_ever() -> None:
    board = OwnBoard()
    pace, clock = made(10, board)
    pace.count("ann")
    clock.set_wall_clock(START - 3_600_000)
    pace.count("ann")
    assert (board.sum(STARTS), pace.wait("ann")) == (1, 0.0)
