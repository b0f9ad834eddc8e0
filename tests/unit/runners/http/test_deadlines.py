"""One timer serves many deadlines, and is set anew only for one that is sooner."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from turnledger.runners.http.connection import NEVER, Deadlines


class Loop:
    """Stands for the loop: time is what the test says."""

    def __init__(self) -> None:
        self.now = 0.0
        self.timers: list[Timer] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, callback: Callable[[], None]) -> Timer:
        self.timers.append(Timer(when, callback))
        return self.timers[-1]

    def pass_until(self, now: float) -> None:
        while due := [each for each in self.timers if each.is_set and each.when <= now]:
            timer = min(due, key=lambda each: each.when)
            self.now, timer.is_set = timer.when, False
            timer.callback()
        self.now = now


class Timer:
    def __init__(self, when: float, callback: Callable[[], None]) -> None:
        self.when = when
        self.callback = callback
        self.is_set = True

    def cancel(self) -> None:
        self.is_set = False


class Waiter:
    def __init__(self, loop: Loop, deadline: float) -> None:
        self.deadline = deadline
        self.expired_at: float | None = None
        self._loop = loop

    def expire(self) -> None:
        self.expired_at = self._loop.now


def deadlines_of(loop: Any) -> Deadlines:
    fake: asyncio.AbstractEventLoop = loop
    return Deadlines(fake)


def test_each_expires_when_its_time_is_up() -> None:
    loop = Loop()
    deadlines = deadlines_of(loop)
    waiters = [Waiter(loop, at) for at in (3.0, 1.0, 2.0)]
    for each in waiters:
        deadlines.watch(each)
    loop.pass_until(10.0)
    assert [each.expired_at for each in waiters] == [3.0, 1.0, 2.0]


def test_what_is_put_off_costs_no_timer() -> None:
    loop = Loop()
    deadlines, waiter = deadlines_of(loop), Waiter(loop, 1.0)
    deadlines.watch(waiter)
    for tick in range(1, 100):
        waiter.deadline = 1.0 + tick / 100
    assert len(loop.timers) == 1
    loop.pass_until(10.0)
    assert waiter.expired_at == 1.99
    assert len(loop.timers) == 2


def test_a_deadline_that_comes_nearer_is_heeded() -> None:
    loop = Loop()
    deadlines, waiter = deadlines_of(loop), Waiter(loop, 100.0)
    deadlines.watch(waiter)
    waiter.deadline = 1.0
    deadlines.watch(waiter)
    loop.pass_until(2.0)
    assert waiter.expired_at == 1.0


def test_who_is_forgotten_or_has_no_deadline_never_expires() -> None:
    loop = Loop()
    deadlines, patient, gone = deadlines_of(loop), Waiter(loop, NEVER), Waiter(loop, 1.0)
    deadlines.watch(patient)
    assert loop.timers == []
    deadlines.watch(gone)
    deadlines.forget(gone)
    loop.pass_until(1000.0)
    assert (patient.expired_at, gone.expired_at) == (None, None)
    assert not any(each.is_set for each in loop.timers)


def test_after_the_end_nothing_rings() -> None:
    loop = Loop()
    deadlines, waiter = deadlines_of(loop), Waiter(loop, 1.0)
    deadlines.watch(waiter)
    deadlines.close()
    loop.pass_until(10.0)
    assert waiter.expired_at is None
