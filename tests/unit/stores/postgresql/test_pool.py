"""The pool lends each connection to one user, waits when all are lent, and loses none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import asyncpg
import pytest

from turnledger.stores.postgresql.connections import QuietConnection, settings_of
from turnledger.stores.postgresql.pool import ConnectionPool, OwnerGate


@pytest.fixture
async def pool(url: str) -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool(settings_of(f"{url}&pool=2&wait=60"))
    yield made
    await made.close()


async def test_connection_used_last_is_lent_first(pool: ConnectionPool) -> None:
    first, second = await pool.acquire(), await pool.acquire()
    assert first is not second
    pool.release(second)
    pool.release(first)
    assert await pool.acquire() is first
    pool.release(first)


async def test_users_wait_in_order(pool: ConnectionPool) -> None:
    lent = [await pool.acquire(), await pool.acquire()]
    waiting = [asyncio.create_task(pool.acquire()) for _ in range(2)]
    await asyncio.sleep(0)
    for each in lent:
        pool.release(each)
    assert [await each for each in waiting] == lent
    for each in lent:
        pool.release(each)


async def test_user_does_not_wait_for_ever(pool: ConnectionPool) -> None:
    lent = [await pool.acquire(), await pool.acquire()]
    pool._settings = replace(pool._settings, wait=0.01)
    with pytest.raises(TimeoutError):
        await pool.acquire()
    for each in lent:
        pool.release(each)
    assert await pool.acquire() is lent[1]
    pool.release(lent[1])


@pytest.mark.parametrize("is_lent_meanwhile", [False, True])
async def test_user_cancelled_while_waiting_takes_no_connection(
    pool: ConnectionPool, is_lent_meanwhile: bool
) -> None:
    lent = [await pool.acquire(), await pool.acquire()]
    waiting = [asyncio.create_task(pool.acquire()) for _ in range(2)]
    await asyncio.sleep(0)
    if is_lent_meanwhile:
        pool.release(lent[0])
        waiting[0].cancel()
    else:
        waiting[0].cancel()
        pool.release(lent[0])
    assert await waiting[1] is lent[0]
    assert waiting[0].cancelled()
    for each in lent:
        pool.release(each)


async def test_user_cancelled_while_connecting_leaves_its_place_to_another(pool: ConnectionPool) -> None:
    lent = await pool.acquire()
    connecting, waiting = asyncio.create_task(pool.acquire()), asyncio.create_task(pool.acquire())
    await asyncio.sleep(0)
    connecting.cancel()
    found = await waiting
    assert found is not lent
    pool.release(found)
    pool.release(lent)


async def test_connection_that_is_gone_is_replaced(pool: ConnectionPool, url: str) -> None:
    idle, lent = await pool.acquire(), await pool.acquire()
    pool.release(idle)
    waiting = [asyncio.create_task(pool.acquire()) for _ in range(2)]
    for each in (idle, lent):
        each.terminate()
    pool.release(lent)
    for each in await asyncio.gather(*waiting):
        assert await each.fetchval("SELECT 1") == 1
        pool.release(each)


async def test_connection_is_not_lent_after_a_timeout(pool: ConnectionPool) -> None:
    """Its statement may still run."""
    connection = await pool.acquire()
    with pytest.raises(TimeoutError):
        await connection.execute("SELECT pg_sleep(60)", timeout=0.01)
    pool.release(connection)
    other = await pool.acquire()
    assert other is not connection
    assert await other.fetchval("SELECT 1") == 1
    pool.release(other)


async def test_connections_that_nobody_needed_are_closed(pool: ConnectionPool, url: str) -> None:
    lent = [await pool.acquire(), await pool.acquire()]
    for each in lent:
        pool.release(each)
    pool._close_spare()  # from now on, one is used and one is not
    pool.release(await pool.acquire())
    pool._close_spare()
    assert [each.is_closed() for each in lent] == [True, False]


async def test_pool_opens_connections_again_after_errors(url: str) -> None:
    pool = ConnectionPool(settings_of(f"{url.replace('/test', '/missing')}&pool=2"))
    for _ in range(3):
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await pool.acquire()
    await pool.close()


async def entered(gate: OwnerGate, owner: str, count: int) -> list[asyncio.Task[None]]:
    tasks = [asyncio.create_task(gate.enter(owner)) for _ in range(count)]
    await asyncio.sleep(0)
    return tasks


async def test_gate_lets_writes_of_an_owner_in_as_others_leave() -> None:
    gate = OwnerGate(2)
    anns, bobs = await entered(gate, "ann", 4), await entered(gate, "bob", 1)
    assert [each.done() for each in (*anns, *bobs)] == [True, True, False, False, True]
    gate.leave("ann")
    await anns[2]
    assert not anns[3].done()
    for _ in range(3):
        gate.leave("ann")
    await anns[3]
    gate.leave("bob")
    assert (gate._running, gate._waiting) == ({}, {})


@pytest.mark.parametrize("is_in", [False, True])
async def test_gate_gives_the_place_of_a_cancelled_write_to_the_next(is_in: bool) -> None:
    gate = OwnerGate(1)
    [first, second, third] = await entered(gate, "ann", 3)
    if is_in:
        gate.leave("ann")
        second.cancel()
    else:
        second.cancel()
        gate.leave("ann")
    await third
    assert first.done()
    assert second.cancelled()
    gate.leave("ann")
    assert (gate._running, gate._waiting) == ({}, {})


async def test_connections_are_closed_side_by_side(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each may wait for a host that is silent."""
    pool, all_closing = ConnectionPool(settings_of(f"{url}&pool=2")), asyncio.Barrier(2)
    lent = [await pool.acquire(), await pool.acquire()]
    for each in lent:
        pool.release(each)
    original = QuietConnection.close

    async def close(connection: QuietConnection, *, timeout: float) -> None:
        await all_closing.wait()
        await original(connection, timeout=timeout)

    monkeypatch.setattr(QuietConnection, "close", close)
    await pool.close()
    assert all(each.is_closed() for each in lent)
