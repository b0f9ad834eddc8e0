"""A store that is closed finishes what is under way, and leaves no connection and no task."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from tests.unit.stores.postgresql.test_outcomes import proxy_to
from turnledger.engine.feed import newest_position
from turnledger.errors import StoreUnavailable
from turnledger.model.ids import LeaseId
from turnledger.stores.postgresql import PostgresStore
from turnledger.testing.postgresql import PostgresServer


async def test_read_that_needs_another_connection_finishes_before_the_store_is_closed(url: str) -> None:
    """It finds that the positions of changes begin anew."""
    store, connection = await PostgresStore.open(f"{url}&pool=2"), await asyncpg.connect(url)
    await connection.execute("TRUNCATE epoch")
    closing: list[asyncio.Task[None]] = []

    async def look(whole: Any, _: None) -> str:
        if not closing:
            closing.append(asyncio.create_task(store.close()))
        return await newest_position(whole, None)

    reading = asyncio.create_task(store.read_whole(look, None))
    while not closing:
        await asyncio.sleep(0)
    await closing[0]
    assert reading.done()
    assert await reading
    assert all(each.is_closed() for each in store._pool._idle)
    await connection.close()


async def test_read_that_fails_to_connect_during_the_closing_leaves_no_task(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = await PostgresStore.open(f"{url}&pool=2")
    store._pool._connector._long = 0.0  # any attempt is a long one
    store._pool._idle.pop().terminate()
    store._pool._open = 0
    closing: list[asyncio.Task[None]] = []
    tries: list[Any] = []

    async def open_connection(settings: object) -> Any:
        if closing:  # the attempt beside the requests, to a host that stays silent
            tries.append(asyncio.current_task())
            try:
                await asyncio.Event().wait()
            finally:
                for _ in range(10):  # its end takes a while
                    await asyncio.sleep(0)
        closing.append(asyncio.create_task(store.close()))
        for _ in range(10):  # as far as it gets
            await asyncio.sleep(0)
        raise OSError("no route to the host")

    monkeypatch.setattr("turnledger.stores.postgresql.connections.open_connection", open_connection)
    with pytest.raises(StoreUnavailable):
        await store.read_whole(newest_position, None)
    await closing[0]
    (trying,) = tries
    assert trying.cancelled()


async def test_lease_whose_end_is_in_doubt_leaves_nothing_open(
    server: PostgresServer, url: str, tmp_path: Path
) -> None:
    async with proxy_to(server.folder, tmp_path) as proxy:
        store = await PostgresStore.open(f"{url.partition('?')[0]}?host={tmp_path}&pool=2")
        await store.keep_lease(LeaseId.trusted(os.urandom(16)), 60)
        proxy.cuts.append("after")
        await store.close()
        assert all(each.is_closed() for each in store._pool._idle)
        assert all(each.done() for each in store._notices._tasks)
