"""Positions of changes end with their transaction numbers: at a crash, and in a restored dump.

A follower then reads everything anew, and so misses nothing.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from typing import Any

import asyncpg
import pytest

from tests.unit.server.asgi import HOST, fetch
from turnledger import Ledger, Limits
from turnledger.engine.feed import ChangePage, ResumeRequest, TailRequest, newest_position, read_tail, resume
from turnledger.engine.ports import Store, Sync, Tables
from turnledger.errors import StoreUnavailable, Superseded
from turnledger.model.change import LiveChange, Position
from turnledger.server.app import make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models
from turnledger.stores.postgresql import PostgresStore
from turnledger.testing.postgresql import PostgresServer
from turnledger.testing.store_contract.rows.kit import change

CAREFUL = {"fsync": "off", "bgwriter_lru_maxpages": "0", "autovacuum": "off"}
"""Commits are written as far as a crash of the server needs; nothing else writes them."""
MANY = 99


@pytest.fixture(scope="module", params=[16, 18])
def cluster(request: pytest.FixtureRequest) -> Iterator[PostgresServer]:
    with PostgresServer.start(request.param, CAREFUL) as running:
        yield running


async def add(tables: Tables, given: LiveChange) -> None:
    await tables.add_change(given)


async def once_available(call: Callable[[], Awaitable[Any]]) -> Any:
    """Repeat a call until the store has no connection of before the crash."""
    while True:
        try:
            return await call()
        except StoreUnavailable:
            await asyncio.sleep(0)


async def write(store: Store, count: int, sync: Sync = Sync.DISK) -> None:
    for at in range(count):
        await once_available(lambda at=at: store.transact(add, change(at=at), "ann", sync))


async def read(store: Store, after: Position, of_all: bool) -> ChangePage:
    """Read as a follower does: for itself, or for all followers of its process."""
    page: ChangePage = await once_available(
        lambda: (
            store.read_whole(read_tail, TailRequest(after, frozenset({"ann"}), MANY))
            if of_all
            else store.read(resume, ResumeRequest("ann", after, MANY), "ann")
        )
    )
    return page


async def newest(store: Store) -> Position:
    position: Position = await once_available(lambda: store.read_whole(newest_position, None))
    return position


async def freeze_wal_writer(url: str) -> int:
    """Stop the process that writes commits which did not wait for the disk; return its id."""
    connection = await asyncpg.connect(url)
    pid = await connection.fetchval("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'")
    await connection.close()
    os.kill(pid, signal.SIGSTOP)
    return int(pid)


async def recovered(url: str) -> None:
    """Return when the server accepts connections again: none of before the crash is left then, and a write
    cannot meet the end of its own."""
    while True:
        with suppress(OSError, asyncpg.PostgresError):
            await (await asyncpg.connect(url)).close()
            return
        await asyncio.sleep(0)


@pytest.mark.parametrize("victim", ["the postmaster", "one of its processes"])
async def test_follower_that_saw_a_lost_begin_misses_no_change_after_the_crash(
    cluster: PostgresServer, victim: str
) -> None:
    url = cluster.create_database()
    store = await PostgresStore.open(f"{url}&pool=2")
    await write(store, 1)
    watcher, has_crashed = await asyncpg.connect(url), asyncio.Event()
    watcher.add_termination_listener(lambda _: has_crashed.set())
    wal_writer = await freeze_wal_writer(url)
    await write(store, 5, Sync.PROCESS)
    seen = await newest(store)
    if victim == "the postmaster":
        cluster.kill()
        os.kill(wal_writer, signal.SIGKILL)
        await asyncio.to_thread(cluster.resume)
    else:
        os.kill(wal_writer, signal.SIGKILL)  # the postmaster then ends all the others, and recovers
    await has_crashed.wait()
    await recovered(url)
    await write(store, 10)  # under the numbers of the lost begins
    for of_all in (False, True):
        page = await read(store, seen, of_all)
        assert not page.is_whole or len(page.changes) == 10
        assert (await read(store, page.through, of_all)).is_whole
    await store.close()


async def test_position_ends_when_the_server_was_shut_down(cluster: PostgresServer) -> None:
    """The data may be those of a copy that was made before."""
    url = cluster.create_database()
    store = await PostgresStore.open(f"{url}&pool=2")
    await write(store, 3)
    seen = await newest(store)
    cluster._end(signal.SIGINT)
    await asyncio.to_thread(cluster.resume)
    assert not (await read(store, seen, of_all=False)).is_whole
    await store.close()


def database_of(url: str) -> str:
    return url.partition("@/")[2].partition("?")[0]


async def run(server: PostgresServer, program: str, url: str, *arguments: str) -> None:
    """Run a program of PostgreSQL on the database of a URL."""
    options = (f"--host={server.folder}", "--username=postgres", f"--dbname={database_of(url)}", *arguments)
    await asyncio.to_thread(server.run, program, *options)


async def use_numbers(connection: asyncpg.Connection[Any], up_to: int) -> None:
    while await connection.fetchval("SELECT pg_current_xact_id()::text::bigint") < up_to:
        pass


@pytest.mark.parametrize("cluster", [16], indirect=True)
@pytest.mark.parametrize("place", ["another cluster", "the same cluster", "under a running server"])
async def test_restored_dump_takes_every_write_and_followers_read_anew(
    cluster: PostgresServer, server: PostgresServer, place: str
) -> None:
    source, dump = cluster.create_database(), str(cluster.folder / "dump")
    connection = await asyncpg.connect(source)
    store = await PostgresStore.open(f"{source}&pool=2")
    await use_numbers(connection, 2_000)
    await write(store, 20)
    seen = await newest(store)
    first = await connection.fetchval("SELECT min(xid) FROM change")
    await store.close()
    await connection.close()
    await run(cluster, "pg_dump", source, "--format=custom", f"--file={dump}")

    server = cluster if place == "the same cluster" else server
    target = server.create_database()
    if place == "under a running server":
        store = await PostgresStore.open(f"{target}&pool=2")
        await run(server, "psql", target, "--command=TRUNCATE change, store, epoch, lease, owner, clock")
        await run(server, "pg_restore", target, "--data-only", dump)
    else:
        await run(server, "pg_restore", target, dump)
        store = await PostgresStore.open(f"{target}&pool=2")
    connection = await asyncpg.connect(target)
    await use_numbers(connection, first - 5)
    await connection.close()
    await write(store, 40)
    for of_all in (False, True):
        page = await read(store, seen, of_all)
        assert not page.is_whole
        assert len((await read(store, page.through, of_all)).changes) == 0
    await write(store, 10)
    assert len((await read(store, page.through, of_all=False)).changes) == 10
    await store.close()


@pytest.mark.parametrize("is_standby", [False, True])
async def test_physical_copy_takes_every_write_and_followers_read_anew(
    cluster: PostgresServer, is_standby: bool
) -> None:
    url = cluster.create_database()
    store = await PostgresStore.open(f"{url}&pool=2")
    await write(store, 3)
    folder = cluster.folder / f"copy-{is_standby}"
    copied = (
        f"--host={cluster.folder}",
        "--username=postgres",
        f"--pgdata={folder}/data",
        "--checkpoint=fast",
    )
    await asyncio.to_thread(cluster.run, "pg_basebackup", *copied, *(["--write-recovery-conf"] * is_standby))
    await write(store, 10)  # a copy that is no standby knows nothing of these
    seen = await newest(store)
    await store.close()
    copy = PostgresServer(folder, cluster.programs, CAREFUL)
    await asyncio.to_thread(copy.resume)
    try:
        if is_standby:
            await asyncio.to_thread(copy.run, "pg_ctl", "promote", f"--pgdata={copy.data}", "--wait")
        store = await PostgresStore.open(f"{copy.url(database_of(url))}&pool=2")
        await write(store, 20)
        page = await read(store, seen, of_all=False)
        assert not page.is_whole
        assert (await read(store, page.through, of_all=False)).is_whole
        await store.close()
    finally:
        copy.stop()


async def test_server_gives_out_positions_that_it_takes_back(url: str) -> None:
    async with await Ledger.open(url) as ledger:
        app = make_app(ledger, Models({}), Settings())
        async with (await ledger.conversation()).turn("Where is my order?") as turn:
            turn.emit("On its way.")
        listed = await fetch(app, "/api/chats")
        assert listed.status == 200
        at = (b"last-event-id", listed.json["as_of"].encode())
        async with (await ledger.conversation()).turn("And mine?") as turn:
            turn.emit("Here.")
        assert b"event: turn.running" in (await fetch(app, "/api/events", headers=(HOST, at))).body


async def test_holder_of_a_lost_begin_writes_nothing_beside_the_next_turn(cluster: PostgresServer) -> None:
    """Both begins give the branch the same version and fence."""
    url = cluster.create_database()
    limits = Limits(lease_time=60)
    async with await Ledger.open(url, limits=limits) as here, await Ledger.open(url, limits=limits) as there:
        chats = [await each.conversation(conversation_key="lane") for each in (here, there)]
        for _ in range(2):
            async with chats[0].turn("Where is my order?") as turn:
                turn.emit("On its way.")
        wal_writer = await freeze_wal_writer(url)
        begun, resumed = asyncio.Event(), asyncio.Event()

        async def hold() -> None:  # in a task of its own, which is cancelled when it is superseded
            async with chats[0].turn("And now?") as lost:
                begun.set()
                await resumed.wait()
                lost.emit("In Rome.")
                await once_available(here._process.flusher.flush)

        holder = asyncio.create_task(hold())
        await begun.wait()
        cluster.kill()
        os.kill(wal_writer, signal.SIGKILL)
        await asyncio.to_thread(cluster.resume)
        await once_available(lambda: there.list())
        async with chats[1].turn("And now?") as turn:
            resumed.set()
            with pytest.raises(Superseded):
                await holder
            turn.emit("In Oslo.")
        assert [each.text for each in await chats[1].turns()] == ["On its way.", "On its way.", "In Oslo."]
        assert await there.check() == []
