"""Leases of processes: renewed on a connection of their own, buried, and taken up again."""

from __future__ import annotations

import asyncio
import logging
import os

import asyncpg
import pytest

from tests.unit.stores.postgresql.test_outcomes import Proxy, proxied
from turnledger.errors import StoreError
from turnledger.model.ids import LeaseId
from turnledger.stores.postgresql import PostgresStore, connections
from turnledger.stores.postgresql.connections import AnyConnection, DatabaseSettings, connect, settings_of
from turnledger.stores.postgresql.leases import LeaseThread
from turnledger.stores.postgresql.notices import Notices

__all__ = ["proxied"]


async def beat_of(connection: asyncpg.Connection, id: LeaseId) -> int | None:
    return await connection.fetchval("SELECT beat FROM lease WHERE id = $1", id.raw)


async def beats(connection: asyncpg.Connection, id: LeaseId) -> None:
    """Return when the lease was renewed."""
    before = await beat_of(connection, id)
    while await beat_of(connection, id) == before:
        await asyncio.sleep(0)


async def test_lease_is_renewed_on_a_new_connection_when_the_old_one_hangs(
    proxied: tuple[str, Proxy], url: str
) -> None:
    place, proxy = proxied
    await (await PostgresStore.open(url)).close()
    connection, id = await asyncpg.connect(url), LeaseId.trusted(os.urandom(16))
    thread = LeaseThread(settings_of(place), id, 0.2)
    await beats(connection, id)
    proxy.silence()
    # One beat may have arrived although its answer did not.
    await beats(connection, id)
    await beats(connection, id)
    await asyncio.to_thread(thread.stop)
    await connection.close()


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError("Connection refused"), RuntimeError("can't start new thread")]
)
async def test_failed_beats_in_a_row_are_logged_once_and_so_is_the_next_one(
    url: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """Otherwise a database that is away fills the log."""
    await (await PostgresStore.open(url)).close()
    connection, id = await asyncpg.connect(url), LeaseId.trusted(os.urandom(16))
    failures = 0

    async def fails(settings: DatabaseSettings) -> AnyConnection:
        nonlocal failures
        if failures < 3:
            failures += 1
            raise error
        return await connect(settings)

    monkeypatch.setattr("turnledger.stores.postgresql.leases.AGAIN", 0.01)
    monkeypatch.setattr(connections, "connect", fails)
    with caplog.at_level(logging.INFO, "turnledger"):
        thread = LeaseThread(settings_of(url), id, 0.2)
        await beats(connection, id)
        await beats(connection, id)
        await asyncio.to_thread(thread.stop)
    assert [record.levelname for record in caplog.records] == ["WARNING", "INFO"]
    await connection.close()


async def test_notices_arrive_on_a_new_connection_when_the_old_one_hangs(
    proxied: tuple[str, Proxy], url: str
) -> None:
    place, proxy = proxied
    await (await PostgresStore.open(url)).close()
    notices, called = Notices(settings_of(f"{place}&wait=0.2")), asyncio.Event()
    notices.watch(called.set)
    await called.wait()
    proxy.silence()
    called.clear()
    await called.wait()
    await notices.close()


def test_lease_that_no_thread_can_renew_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> asyncio.AbstractEventLoop:
        raise OSError("Too many open files")

    for module in (asyncio, asyncio.events):
        monkeypatch.setattr(module, "new_event_loop", fail)
    with pytest.raises(OSError, match="Too many open files"):
        LeaseThread(settings_of("postgresql:///chats"), LeaseId.trusted(os.urandom(16)), 60)


async def test_store_goes_on_after_its_row_was_missing(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """As while a dump is being restored."""
    monkeypatch.setattr("turnledger.stores.postgresql.notices.POLL_EVERY", 0.01)
    store, connection = await PostgresStore.open(url), await asyncpg.connect(url)
    await connection.execute("CREATE TABLE saved AS SELECT * FROM store; DELETE FROM store")
    changed = asyncio.Event()
    store.watch(changed.set)
    await changed.wait()  # because of the connection
    async with store._notices._using:  # a poll is over
        changed.clear()
    with pytest.raises(StoreError):
        await store.read_whole(lambda whole, _: whole._transaction.connection.fetch("SELECT x"), None)
    await connection.execute("INSERT INTO store SELECT * FROM saved")
    await changed.wait()
    assert len(await store.read_whole(lambda whole, _: whole.secret(), None)) == 32
    await connection.close()
    await store.close()


async def test_notices_go_on_after_any_error(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    await (await PostgresStore.open(url)).close()
    monkeypatch.setattr("turnledger.stores.postgresql.notices.POLL_EVERY", 0.01)
    errors: list[Exception] = [RuntimeError("can't start new thread"), ConnectionRefusedError()]

    async def fails(settings: DatabaseSettings) -> AnyConnection:
        if errors:
            raise errors.pop()
        return await connect(settings)

    monkeypatch.setattr(connections, "connect", fails)
    notices, called = Notices(settings_of(url)), asyncio.Event()
    notices.watch(called.set)
    await called.wait()
    await notices.close()


async def test_lease_that_came_back_during_its_burial_can_be_buried_again(url: str) -> None:
    store, connection = await PostgresStore.open(url), await asyncpg.connect(url)
    id = LeaseId.trusted(os.urandom(16))
    await connection.execute("INSERT INTO lease (id, beat) VALUES ($1, 1)", id.raw)
    await connection.execute("INSERT INTO buried_lease (id, beat, number) VALUES ($1, 2, 1)", id.raw)
    await store.transact_whole(lambda whole, id: whole.bury_lease(id), id)
    assert await connection.fetchval("SELECT beat FROM buried_lease WHERE id = $1", id.raw) == 2
    await connection.close()
    await store.close()
