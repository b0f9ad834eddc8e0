"""The pool lends each connection to one user, waits when all are lent, and loses none."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import asyncpg
import pytest

from turnledger.stores.postgresql.connections import settings_of
from turnledger.stores.postgresql.pool import ConnectionPool


@pytest.fixture
async def pool(url: str) -> AsyncIterator[ConnectionPool]:
    made = ConnectionPool(settings_of(f"{url}&pool=2&wait=0.5"))
    yield made
    await made.close()


async def test_connection_used_last_is_lent_first(pool: ConnectionPool) -> None:
    first, second = await pool.acquire(), await pool.acquire()
    assert first is not second
    pool.release(second)
    pool.release(first)
    assert await pool.acquire() is first
    pool.release(first)


async def test_users_wait_in_order_and_not_for_ever(pool: ConnectionPool) -> None:
    lent = [await pool.acquire(), await pool.acquire()]
    waiting = [asyncio.create_task(pool.acquire()) for _ in range(3)]
    await asyncio.sleep(0)
    for each in lent:
        pool.release(each)
    assert [await waiting[0], await waiting[1]] == lent
    with pytest.raises(TimeoutError):
        await waiting[2]
    for each in lent:
        pool.release(each)


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


async def test_closing_waits_for_lent_connections(url: str) -> None:
    pool = ConnectionPool(settings_of(f"{url}&pool=2"))
    lent = await pool.acquire()
    closing = asyncio.create_task(pool.close())
    assert await lent.fetchval("SELECT 1") == 1
    assert not closing.done()
    pool.release(lent)
    await closing
    assert lent.is_closed()


async def test_pool_opens_connections_again_after_errors(url: str) -> None:
    pool = ConnectionPool(settings_of(f"{url.replace('/test', '/missing')}&pool=2"))
    for _ in range(3):
        with pytest.raises(asyncpg.InvalidCatalogNameError):
            await pool.acquire()
    await pool.close()
