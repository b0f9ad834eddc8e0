"""The pool reuses connections within its bound, first come first served; one timer serves all deadlines."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.runners.http.connections import (
    body_of,
    connection_of,
    eventually,
    exchange,
    pool_at,
    pool_to,
    send_request,
)
from tests.unit.runners.http.raw_server import (
    OK,
    ServerConnection,
    answer_once,
    answer_with,
    fall_silent_after,
    run_raw_server,
)
from turnledger.errors import ModelTimeout, ModelUnavailable
from turnledger.runners.http import pool as module
from turnledger.runners.http.connection import NEVER, Deadlines
from turnledger.runners.http.dial import address_of
from turnledger.runners.upstream.failures import UpstreamFailure


class Loop:
    """Stands for the loop, with a clock that the test sets."""

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


@pytest.fixture
def loop() -> Loop:
    return Loop()


@pytest.fixture
def deadlines(loop: Any) -> Deadlines:
    return Deadlines(loop)


def test_deadlines_expire_each_waiter_at_its_time(loop: Loop, deadlines: Deadlines) -> None:
    waiters = [Waiter(loop, at) for at in (3.0, 1.0, 2.0)]
    for each in waiters:
        deadlines.watch(each)
    loop.pass_until(10.0)
    assert [each.expired_at for each in waiters] == [3.0, 1.0, 2.0]


def test_deadline_that_is_postponed_sets_no_new_timer(loop: Loop, deadlines: Deadlines) -> None:
    waiter = Waiter(loop, 1.0)
    deadlines.watch(waiter)
    for tick in range(1, 100):
        waiter.deadline = 1.0 + tick / 100
    assert len(loop.timers) == 1
    loop.pass_until(10.0)
    assert waiter.expired_at == 1.99
    assert len(loop.timers) == 2


def test_deadline_moved_earlier_expires_at_the_new_time(loop: Loop, deadlines: Deadlines) -> None:
    waiter = Waiter(loop, 100.0)
    deadlines.watch(waiter)
    waiter.deadline = 1.0
    deadlines.watch(waiter)
    loop.pass_until(2.0)
    assert waiter.expired_at == 1.0


def test_deadlines_never_expire_a_forgotten_waiter_or_one_without_a_deadline(
    loop: Loop, deadlines: Deadlines
) -> None:
    patient, gone = Waiter(loop, NEVER), Waiter(loop, 1.0)
    deadlines.watch(patient)
    assert loop.timers == []
    deadlines.watch(gone)
    deadlines.forget(gone)
    loop.pass_until(1000.0)
    assert (patient.expired_at, gone.expired_at) == (None, None)
    assert not any(each.is_set for each in loop.timers)


def test_closed_deadlines_expire_no_waiter(loop: Loop, deadlines: Deadlines) -> None:
    waiter = Waiter(loop, 1.0)
    deadlines.watch(waiter)
    deadlines.close()
    loop.pass_until(10.0)
    assert waiter.expired_at is None


async def test_pool_reuses_a_connection() -> None:
    async with pool_to(answer_with(OK)) as pool:
        await body_of(pool)
        first = pool.take()
        assert first is not None
        assert pool.take() is None


async def test_pool_returns_the_most_recently_used_connection_first() -> None:
    async with pool_to(answer_with(OK)) as pool:
        one, other = await pool.connect(None), await pool.connect(None)
        for connection in (one, other):
            await send_request(connection).wait_for_head()
        assert [pool.take(), pool.take(), pool.take()] == [other, one, None]


async def test_pool_does_not_return_a_connection_closed_by_the_server() -> None:
    async with pool_to(answer_once(OK)) as pool:
        connection = await connection_of(pool)
        await send_request(connection).wait_for_head()
        await eventually(lambda: connection.is_lost)
        assert not pool._free
        assert pool.take() is None


async def test_pool_closes_an_idle_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "IDLE_SECONDS", 0.01)
    async with pool_to(answer_with(OK)) as pool:
        connections = [await pool.connect(None) for _ in range(2)]
        for connection in connections:
            await send_request(connection).wait_for_head()
        await eventually(lambda: all(each.is_lost for each in connections))
        assert pool.take() is None
        await body_of(pool)
        await eventually(lambda: not pool._free)  # the clock was set again


async def test_pool_serves_waiting_callers_in_order() -> None:
    async with pool_to(answer_with(OK), bound=1) as pool:
        held = await connection_of(pool)
        served: list[int] = []

        async def wait(number: int) -> None:
            connection = await pool.connect(None)
            served.append(number)
            await send_request(connection).wait_for_head()

        waiting = [asyncio.create_task(wait(number)) for number in range(5)]
        await eventually(lambda: len(pool._queue) == 5)
        assert pool.take() is None
        await send_request(held).wait_for_head()
        await asyncio.gather(*waiting)
        assert served == [0, 1, 2, 3, 4]
        assert [pool.take(), pool.take()] == [held, None]


async def test_pool_replaces_a_lost_connection_for_a_waiting_caller() -> None:
    async with pool_to(answer_with(OK), bound=1) as pool:
        held = await connection_of(pool)
        waiting = asyncio.create_task(pool.connect(None))
        await eventually(lambda: bool(pool._queue))
        held.close()
        assert await waiting is not held


async def test_pool_wait_beyond_the_limit_raises_a_retryable_timeout() -> None:
    async with pool_to(answer_with(OK), bound=1) as pool:
        held = await connection_of(pool)
        with pytest.raises(UpstreamFailure) as caught:
            await pool.connect(0.01)
        assert isinstance(caught.value.error, ModelTimeout)
        assert caught.value.may_retry
        assert not pool._queue
        await send_request(held).wait_for_head()
        assert pool.take() is held


@pytest.mark.parametrize("place", ["connection", "room"])
async def test_pool_passes_the_slot_of_a_cancelled_caller_to_the_next(place: str) -> None:
    async with pool_to(answer_with(OK), bound=1) as pool:
        held = await connection_of(pool)
        first, second = [asyncio.create_task(pool.connect(None)) for _ in range(2)]
        await eventually(lambda: len(pool._queue) == 2)
        if place == "connection":
            pool._on_freed(held)
        else:
            pool._on_lost(held)
        assert len(pool._queue) == 1
        first.cancel()  # before it can know what it was given
        with pytest.raises(asyncio.CancelledError):
            await first
        assert (await second is held) is (place == "connection")


async def test_pool_connect_at_its_bound_closes_a_free_connection_for_a_new_one() -> None:
    async with pool_to(answer_with(OK), bound=1) as pool:
        await body_of(pool)
        (old,) = pool._free
        assert await pool.connect(None) is not old
        assert old.is_lost


async def test_pool_frees_the_slot_of_a_failed_dial() -> None:
    async with run_raw_server(answer_with(OK)) as port:
        pass
    async with pool_at(port, bound=1) as pool:
        tries = [asyncio.create_task(pool.connect(None)) for _ in range(3)]
        for problem in await asyncio.gather(*tries, return_exceptions=True):
            assert isinstance(problem, UpstreamFailure)
            assert isinstance(problem.error, ModelUnavailable)
            assert problem.may_retry


async def test_pool_frees_the_slot_of_a_cancelled_dial() -> None:
    async with pool_to(answer_with(OK), bound=1) as pool:
        for steps in range(6):
            dialing = asyncio.create_task(pool.connect(None))
            for _ in range(steps):
                await asyncio.sleep(0)
            dialing.cancel()
            for connection in await asyncio.gather(dialing, return_exceptions=True):
                if not isinstance(connection, BaseException):
                    connection.close()
            await eventually(lambda: not pool._open)
        await asyncio.wait_for(pool.connect(None), 10)


async def test_pool_close_fails_a_response_that_is_being_read() -> None:
    async with pool_to(fall_silent_after(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nHi")) as pool:
        response = await exchange(pool)
        reading = asyncio.create_task(response.body(100))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(ModelUnavailable):
            await reading
        assert not pool._open


async def test_pool_close_fails_waiting_and_later_callers() -> None:
    async with pool_to(answer_with(OK), bound=1) as pool:
        await connection_of(pool)
        waiting = asyncio.create_task(pool.connect(None))
        await eventually(lambda: bool(pool._queue))
        await pool.close()
        with pytest.raises(UpstreamFailure, match="closed"):
            await waiting
        with pytest.raises(UpstreamFailure, match="closed"):
            await pool.connect(None)


async def test_pool_close_during_a_dial_fails_the_caller() -> None:
    async with pool_to(answer_with(OK)) as pool:
        dialing = asyncio.create_task(pool.connect(None))
        await asyncio.sleep(0)
        await pool.close()
        with pytest.raises(UpstreamFailure, match="closed"):
            await dialing
        await eventually(lambda: not pool._open)


async def test_pool_does_not_return_a_connection_with_unread_bytes() -> None:
    connections: list[ServerConnection] = []

    async def behave(connection: ServerConnection) -> None:
        connections.append(connection)
        await answer_with(OK)(connection)

    async with pool_to(behave) as pool:
        assert await body_of(pool) == b"ok"
        connections[0].writer.write(OK)  # it is on its way before the loop can look
        assert pool.take() is None
        assert await body_of(pool) == b"ok"
        assert len(connections) == 2


async def test_pool_never_gives_an_unsolicited_response_to_a_waiting_request() -> None:
    async def behave(connection: ServerConnection) -> None:
        while True:
            number = (await connection.request()).split(b"/", 2)[1].split()[0]
            answer = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(number), number)
            await connection.send(answer, answer)

    async with pool_to(behave, bound=2) as pool:
        requests = [b"GET /%d HTTP/1.1\r\nHost: here\r\n\r\n" % number for number in range(60)]
        bodies = await asyncio.gather(*(body_of(pool, request=each) for each in requests))
        assert bodies == [b"%d" % number for number in range(60)]


async def test_pool_without_reuse_opens_a_connection_for_each_request() -> None:
    count = 0

    async def behave(connection: ServerConnection) -> None:
        nonlocal count
        count += 1
        await answer_with(OK)(connection)

    async with run_raw_server(behave) as port:
        pool = module.Pool(address_of(f"http://127.0.0.1:{port}"), None, 1, reuse=False)
        assert [await body_of(pool) for _ in range(3)] == [b"ok"] * 3
        await pool.close()
    assert count == 3
