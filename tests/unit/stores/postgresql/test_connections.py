"""URLs of PostgreSQL stores, the errors of databases that cannot be used, and the pool."""

from __future__ import annotations

import asyncio
import re
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

from turnledger.engine.ports import Tables
from turnledger.errors import LedgerClosed, NotAStore, StoreReadOnly, StoreTooNew, StoreUnavailable
from turnledger.server import doctor
from turnledger.server.doctor import Level, check_store
from turnledger.stores.postgresql import PostgresStore
from turnledger.stores.postgresql.connections import arguments, connect, decoded, encoded, settings_of
from turnledger.stores.postgresql.migrations import MIGRATIONS, VERSION
from turnledger.stores.postgresql.tables.queries import sql_text
from turnledger.stores.url import back_up_store, described, open_read_only, open_store
from turnledger.testing.postgresql import PostgresServer
from turnledger.testing.store_contract.rows.kit import change, do, write

SECRET = "hunter2"


def test_url_has_settings_of_the_store_and_of_the_connection() -> None:
    settings = settings_of(f"postgresql://ann:{SECRET}@db/chats?sslmode=require&pool=7&pgbouncer=on&wait=0.5")
    assert (settings.pool, settings.wait, settings.pgbouncer) == (7, 0.5, True)
    assert settings.dsn == f"postgresql://ann:{SECRET}@db/chats?sslmode=require"
    assert settings.place == described(f"postgres://ann:{SECRET}@db/chats") == "postgresql://db/chats"


def test_url_may_name_the_hosts_of_a_cluster() -> None:
    url = f"postgresql://ann:{SECRET}@db1:5432,db2:5433/chats?target_session_attrs=primary"
    settings = settings_of(url)
    assert settings.dsn == url
    assert settings.place == "postgresql://db1,db2/chats"
    assert settings.hosts == [("db1", 5432), ("db2", 5433)]
    assert settings_of("postgresql:///chats?host=db1,db2").hosts == [("db1", None), ("db2", None)]
    with pytest.raises(NotAStore):
        settings_of(url.replace("5433", "port"))


@pytest.mark.parametrize(
    "wrong",
    [
        "pool=x",
        "pool=1",
        "wait=0",
        "timeout=-1",
        "pgbouncer=maybe",
        "connect_timeout=x",
        "connect_timeout=-1",
    ],
)
def test_wrong_setting_in_a_url_is_refused_without_the_password(wrong: str) -> None:
    with pytest.raises(NotAStore) as caught:
        settings_of(f"postgresql://ann:{SECRET}@db/chats?{wrong}")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("name", ["keepalives_idle", "channel_binding", "hostaddr"])
def test_setting_that_the_driver_lacks_is_refused_by_name(name: str) -> None:
    with pytest.raises(NotAStore, match=f"`{name}`"):
        settings_of(f"postgresql://ann:{SECRET}@db/chats?{name}=1")


@pytest.mark.parametrize("query", [f"{SECRET}@db/chats", f"x={SECRET}", f"{SECRET}=x&pool=3"])
def test_unknown_setting_is_refused_and_not_repeated(query: str) -> None:
    with pytest.raises(NotAStore, match=r"unknown setting.*[Pp]ercent-encode") as caught:
        settings_of(f"postgresql://ann:12?{query}")
    assert SECRET not in str(caught.value)


async def test_settings_of_the_connection_reach_the_server(url: str) -> None:
    options = quote("-c work_mem=5MB -c search_path=public")
    place = f"{url}&connect_timeout=7&application_name=shop&options={options}"
    connection = await connect(settings_of(place))
    names = ("application_name", "work_mem", "lock_timeout")
    assert [await connection.fetchval(f"SHOW {name}") for name in names] == ["shop", "5MB", "20s"]
    await connection.close()
    assert arguments(settings_of(place))["timeout"] == 7
    assert arguments(settings_of(f"{url}&connect_timeout=0"))["timeout"] is None
    assert arguments(settings_of(f"{url}&wait=3"))["timeout"] == 3
    store = await PostgresStore.open(f"{place}&pool=2")
    await store.close()


@pytest.mark.parametrize("mark", ["/", "#", "?"])
def test_password_that_is_not_percent_encoded_is_refused_and_not_shown(mark: str) -> None:
    with pytest.raises(NotAStore, match="percent-encode") as caught:
        settings_of(f"postgresql://ann:a{mark}{SECRET}@db/chats")
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("text", ["", "a\x00b", "\ue000", "\ue000\ue001", "\x00\ue000\x00", "né😀"])
def test_every_text_is_read_as_it_was_stored_and_without_nul(text: str) -> None:
    assert decoded(encoded(text)) == text
    assert b"\x00" not in encoded(text)


async def make_user(server: PostgresServer, url: str, name: str, hba: str | None = None) -> str:
    """Create a user without rights; return its URL."""
    connection = await asyncpg.connect(url)
    await connection.execute(f"CREATE USER {name} PASSWORD '{SECRET}'")
    if hba is not None:
        file = server.data / "pg_hba.conf"
        file.write_text(f"local all {name} {hba}\n{file.read_text()}")
        await connection.execute("SELECT pg_reload_conf()")
    await connection.close()
    return url.replace("postgres@", f"{name}:wrong-{SECRET}@")


async def test_unusable_database_is_named_in_one_line_without_the_password(
    server: PostgresServer, url: str
) -> None:
    password = await make_user(server, url, "locked", "scram-sha-256")
    right = await make_user(server, url, "guest")
    connection = await asyncpg.connect(url)
    await connection.execute("REVOKE CREATE ON SCHEMA public FROM PUBLIC")
    await connection.close()
    cases = {
        "host": (f"postgresql://ann:{SECRET}@127.0.0.1:1/chats?wait=2", StoreUnavailable, "127.0.0.1"),
        "database": (url.replace("/test", f"/{'x' * 5}"), NotAStore, "does not exist"),
        "password": (password, StoreUnavailable, "password authentication failed"),
        "right": (right, StoreReadOnly, "permission denied"),
        "user": (url.replace("postgres@", "stranger@"), StoreUnavailable, "refused this user"),
        "options": (f"{url}&options=-c%20colour%3Dred", NotAStore, "colour"),
        "value": (f"{url}&options=-c%20lock_timeout%3Dred", NotAStore, "lock_timeout"),
        "mode": (f"{url}&sslmode=perhaps", NotAStore, "sslmode"),
    }
    for name, (wrong, kind, words) in cases.items():
        with pytest.raises(kind) as caught:
            await open_store(wrong)
        [diagnosis], _ = await asyncio.to_thread(check_store, wrong)
        for text in (str(caught.value), diagnosis.message):
            assert SECRET not in text, name
            assert "\n" not in text, name
            assert "bug" not in text, name
            assert not any(user in text for user in ("ann", "locked", "guest", "stranger")), name
        assert words in str(caught.value), name


async def test_database_of_a_newer_version_is_refused_untouched(url: str) -> None:
    await (await PostgresStore.open(url)).close()
    connection = await asyncpg.connect(url)
    await connection.execute("UPDATE store SET version = version + 1")
    for attempt in (open_store, open_read_only):
        with pytest.raises(StoreTooNew):
            await attempt(url)
    assert await connection.fetchval("SELECT version FROM store") == VERSION + 1
    await connection.close()


async def test_table_of_another_program_is_refused_untouched(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute("CREATE TABLE store (shelf text)")
    with pytest.raises(NotAStore, match="another program"):
        await open_store(url)
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 1
    await connection.close()


async def test_visit_to_an_empty_database_creates_nothing(url: str) -> None:
    with pytest.raises(NotAStore, match="no tables"):
        await open_read_only(url)
    connection = await asyncpg.connect(url)
    assert await connection.fetchval("SELECT count(*) FROM pg_tables WHERE schemaname = 'public'") == 0
    await connection.close()


async def test_doctor_reports_the_server_and_the_schema(url: str) -> None:
    [before, *_], _ = await asyncio.to_thread(check_store, url)
    await (await PostgresStore.open(url)).close()
    [after, processes, *_], _ = await asyncio.to_thread(check_store, url)
    assert "no tables yet" in before.message
    assert f"schema {VERSION} of {VERSION}" in after.message
    connection = await asyncpg.connect(url)
    version = await connection.fetchval("SHOW server_version")
    await connection.close()
    assert f"PostgreSQL {version.split()[0]}" in after.message
    assert "0 processes" in processes.message


async def test_doctor_warns_of_an_older_schema_and_leaves_it(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(sql_text(f"migrations/{MIGRATIONS[0]}"))
    await connection.execute("INSERT INTO store (id, version, secret) VALUES (1, 1, $1)", bytes(32))
    [found, *_], _ = await asyncio.to_thread(check_store, url)
    assert (found.level, f"schema 1 of {VERSION}" in found.message) == (Level.WARN, True)
    assert await connection.fetchval("SELECT version FROM store") == 1
    await connection.close()


async def test_doctor_warns_of_a_database_that_does_not_sync(url: str) -> None:
    found, _ = await asyncio.to_thread(check_store, url)
    assert ["fsync is off" in each.message for each in found] == [False, False, True]
    assert found[-1].level is Level.WARN


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_doctor_warns_of_a_transaction_that_holds_up_changes(
    server: PostgresServer, url: str, monkeypatch: pytest.MonkeyPatch, is_hidden: bool
) -> None:
    store, elsewhere = await PostgresStore.open(url), await asyncpg.connect(server.url())
    place = url
    if is_hidden:
        place = await make_user(server, url, "watcher")
        connection = await asyncpg.connect(url)
        await connection.execute(
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO watcher"
        )
        await connection.close()
    async with elsewhere.transaction():
        await elsewhere.execute("SELECT pg_current_xact_id(), 'secret words'")
        if is_hidden:  # its age is that of the first change that waits for it
            await write(store, do("add_change", change(at=int(time.time() * 1000) - 5_000)))
        found, _ = await asyncio.to_thread(check_store, place)
        assert "live updates" not in [each.subject for each in found]
        monkeypatch.setattr(doctor, "LONG_TRANSACTION", 0.0)
        found, _ = await asyncio.to_thread(check_store, place)
        [warning] = [each for each in found if each.subject == "live updates"]
    assert re.search(r"open for \d+ seconds", warning.message)
    assert "secret" not in warning.message
    await elsewhere.close()
    await store.close()


def test_backup_of_a_database_names_the_tool_of_postgresql() -> None:
    with pytest.raises(NotAStore, match="pg_basebackup"):
        back_up_store("postgresql://db/chats", "copy.db", lambda *_: None)


async def test_servers_that_start_at_once_create_the_tables_once(url: str) -> None:
    stores = await asyncio.gather(*(PostgresStore.open(f"{url}&pool=2") for _ in range(5)))
    secrets = {await store.read_whole(lambda whole, _: whole.secret(), None) for store in stores}
    for store in stores:
        await store.close()
    assert len(secrets) == 1


async def test_burst_beyond_the_pool_waits_and_then_is_unavailable(url: str) -> None:
    store = await PostgresStore.open(f"{url}&pool=2&wait=60")
    patient = store._pool._settings
    gate, holding = asyncio.Event(), asyncio.Semaphore(0)

    async def hold(tables: object, _: None) -> None:
        holding.release()
        await gate.wait()

    held = [asyncio.create_task(store.transact(hold, None, owner)) for owner in ("ann", "bob")]
    for _ in held:
        await holding.acquire()

    async def newest(whole: object, _: None) -> object:
        return await whole.newest_time()  # type: ignore[attr-defined]

    store._pool._settings = replace(patient, wait=0.05)
    with pytest.raises(StoreUnavailable, match=r"no connection within 0\.05 seconds"):
        await store.read_whole(newest, None)
    store._pool._settings = patient
    gate.set()
    await asyncio.gather(*held)
    patient = await PostgresStore.open(f"{url}&pool=2&wait=60")
    assert await asyncio.gather(*(patient.read_whole(newest, None) for _ in range(50))) == [None] * 50
    await patient.close()
    await store.close()
    with pytest.raises(LedgerClosed):
        await store.read_whole(newest, None)


WAITING = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'
"""


async def test_writes_that_wait_for_a_frozen_owner_leave_connections_for_reads(url: str) -> None:
    """Also those of all owners, which wait for one another besides."""
    store = await PostgresStore.open(f"{url}&pool=4&wait=0.5&connect_timeout=60")

    async def count(tables: Tables, _: None) -> None:
        await tables.count_bytes(1)

    await store.transact(count, None, "ann")
    holder, watcher = await asyncpg.connect(url), await asyncpg.connect(url)
    async with holder.transaction():
        await holder.execute("SELECT 1 FROM owner FOR UPDATE")
        of_ann = [store.transact(count, None, "ann") for _ in range(4)]
        of_all = [store.transact_whole(lambda whole, _: count(whole.of("ann"), None), None) for _ in range(4)]
        waiting = [asyncio.ensure_future(each) for each in (*of_ann, *of_all)]
        while await watcher.fetchval(WAITING) < 3:
            await asyncio.sleep(0)
        assert (await store.read(lambda tables, _: tables.usage(), None, "bob")).bytes == 0
    await asyncio.gather(*waiting)
    assert (await store.read(lambda tables, _: tables.usage(), None, "ann")).bytes == 9
    for each in (holder, watcher, store):
        await each.close()


class SilentHost:
    """Accepts connections and forwards them to a server or, while it is silent, never answers."""

    def __init__(self, server: Path) -> None:
        self._server = server
        self.is_silent = False
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._writers: list[asyncio.StreamWriter] = []

    def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.append(writer)
        if not self.is_silent:
            self._tasks.add(asyncio.create_task(self._connect(reader, writer)))

    def fall_silent(self) -> None:
        """Cut all connections, and answer no new one."""
        self.is_silent = True
        self.connections = 0
        for each in self._writers:
            each.transport.abort()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received, sender = await asyncio.open_unix_connection(self._server / ".s.PGSQL.5432")
        self._writers.append(sender)
        self._tasks.add(asyncio.create_task(self._forward(reader, sender)))
        self._tasks.add(asyncio.create_task(self._forward(received, writer)))

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while received := await reader.read(1 << 16):
                writer.write(received)
        writer.close()

    async def close(self) -> None:
        for each in self._writers:
            each.transport.abort()
        await asyncio.gather(*self._tasks)


@asynccontextmanager
async def silent_host(server: Path) -> AsyncIterator[tuple[SilentHost, int]]:
    """Yield a host that may fall silent, and its port."""
    host = SilentHost(server)
    listening = await asyncio.start_server(host.accept, "127.0.0.1", 0)
    yield host, listening.sockets[0].getsockname()[1]
    listening.close()
    await host.close()


async def probe(store: PostgresStore) -> object:
    return await store.read_whole(lambda whole, _: whole.newest_time(), None)


async def test_host_that_falls_silent_is_tried_by_one_task_while_requests_fail_at_once(
    server: PostgresServer, url: str
) -> None:
    async with silent_host(server.folder) as (host, port):
        place = f"postgresql://postgres@127.0.0.1:{port}{urlsplit(url).path}?sslmode=disable"
        store = await PostgresStore.open(f"{place}&wait=60&connect_timeout=1")
        host.fall_silent()
        for answer in (None, "does not answer"):  # the pool still has a connection
            with pytest.raises(StoreUnavailable, match=answer):
                await probe(store)
        tried = host.connections
        for _ in range(100):
            with pytest.raises(StoreUnavailable, match="does not answer"):
                await probe(store)
        assert host.connections <= tried + 1
        host.is_silent = False
        while True:
            with suppress(StoreUnavailable):
                await probe(store)
                break
            await asyncio.sleep(0)
        await store.close()


async def test_first_host_of_a_cluster_that_is_silent_does_not_keep_from_the_second(
    server: PostgresServer, url: str
) -> None:
    async with silent_host(server.folder) as (silent, first), silent_host(server.folder) as (_, second):
        silent.is_silent = True
        hosts = f"127.0.0.1:{first},127.0.0.1:{second}"
        settings = "sslmode=disable&target_session_attrs=primary&wait=60&connect_timeout=50"
        store = await PostgresStore.open(f"postgresql://postgres@{hosts}{urlsplit(url).path}?{settings}")
        await probe(store)
        tried = silent.connections
        await (await connect(store._settings)).close()
        assert silent.connections == tried  # the one that answered is tried first
        await store.close()


@pytest.mark.skipif(not hasattr(socket, "TCP_USER_TIMEOUT"), reason="a setting of Linux")
async def test_connection_to_a_host_that_falls_silent_is_bounded(server: PostgresServer, url: str) -> None:
    """The kernel ends a connection whose packets nobody acknowledges."""
    async with silent_host(server.folder) as (_, port):
        place = f"postgresql://postgres@127.0.0.1:{port}{urlsplit(url).path}?sslmode=disable"
        connection = await connect(settings_of(f"{place}&connect_timeout=7"))
        with connection._transport.get_extra_info("socket").dup() as made:
            assert made.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) == 7_000
        await connection.close()
