"""SqliteStore with its threads: batches, snapshots, watchers, closing; and read-only visits."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.unit.engine.populated_store import populate, run_turn
from tests.unit.stores.sqlite.conftest import Neighbour, wait_until_ready
from tests.unit.stores.sqlite.operations import (
    add_claims,
    beat,
    beat_of,
    has_claim,
    ids,
    migrate_further,
    purge_ended,
    refuse,
)
from turnledger import Ledger
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.ports import Sync, WholeStore
from turnledger.errors import (
    NotAStore,
    OutcomeUnknown,
    StoreError,
    StoreReadOnly,
    StoreTooNew,
    Superseded,
    TurnledgerError,
)
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import ReadOnlySqlite, SqliteStore
from turnledger.stores.sqlite import store as module
from turnledger.stores.url import open_read_only


def count_commits(store: SqliteStore) -> list[None]:
    commits: list[None] = []
    store._writer._connection.set_commit_hook(lambda: bool(commits.append(None)))
    return commits


async def blocked(rows: object, gate: tuple[threading.Event, threading.Event]) -> None:
    """Hold up the thread that runs this until the test lets it go."""
    entered, leave = gate
    entered.set()
    assert leave.wait(60)


async def test_operations_queued_while_the_writer_works_share_one_transaction(store: SqliteStore) -> None:
    commits = count_commits(store)
    gate = threading.Event(), threading.Event()
    first = asyncio.create_task(store.transact_whole(blocked, gate))
    await asyncio.to_thread(gate[0].wait, 60)
    rest = [asyncio.create_task(store.transact(add_claims, (str(n),), "owner")) for n in range(50)]
    refused = asyncio.create_task(store.transact_whole(refuse, None))
    await asyncio.sleep(0)
    gate[1].set()
    await asyncio.gather(first, *rest)
    with pytest.raises(Superseded):
        await refused
    assert len(commits) == 2  # the first job, and all the others
    assert await store.read(has_claim, "49", "owner")


async def test_read_sees_one_snapshot_throughout(store: SqliteStore) -> None:
    lease = ids.new(LeaseId)
    gate = threading.Event(), threading.Event()

    async def read_twice(whole: WholeStore, _: None) -> tuple[int, int]:
        before = await beat_of(whole, lease)
        await blocked(whole, gate)
        return before, await beat_of(whole, lease)

    reading = asyncio.create_task(store.read_whole(read_twice, None))
    await asyncio.to_thread(gate[0].wait, 60)
    await store.transact_whole(beat, lease)
    gate[1].set()
    assert await reading == (0, 0)
    assert await store.read_whole(beat_of, lease) == 1


async def test_read_that_tries_to_write_raises_store_read_only(store: SqliteStore) -> None:
    lease = ids.new(LeaseId)
    with pytest.raises(StoreReadOnly):
        await store.read(beat, lease, "owner")
    for read in (store.read_whole, store.inspect):
        with pytest.raises(StoreReadOnly):
            await read(beat, lease)


async def test_write_of_a_cancelled_caller_is_still_committed(store: SqliteStore) -> None:
    gate = threading.Event(), threading.Event()
    first = asyncio.create_task(store.transact_whole(blocked, gate))
    await asyncio.to_thread(gate[0].wait, 60)
    second = asyncio.create_task(store.transact(add_claims, ("a",), "owner"))
    await asyncio.sleep(0)
    second.cancel()
    gate[1].set()
    await first
    with pytest.raises(asyncio.CancelledError):
        await second
    await store.transact(add_claims, ("b",), "owner")
    assert await store.read(has_claim, "a", "owner")


async def test_close_finishes_queued_writes(path: Path) -> None:
    store = await SqliteStore.open(path)
    writes = [asyncio.create_task(store.transact(add_claims, (str(n),), "owner")) for n in range(20)]
    await asyncio.sleep(0)
    await store.close()
    await asyncio.gather(*writes)
    again = await SqliteStore.open(path)
    assert await again.read(has_claim, "19", "owner")
    await again.close()


async def test_close_ends_every_thread(path: Path) -> None:
    before = set(threading.enumerate())
    store = await SqliteStore.open(path)
    await store.keep_lease(ids.new(LeaseId), every=60)
    store.watch(lambda: None)
    await store.close()
    left = {thread.name for thread in set(threading.enumerate()) - before}
    assert not any(name.startswith("turnledger") for name in left)


async def test_inline_store_starts_no_threads(path: Path) -> None:
    before = threading.enumerate()
    store = await SqliteStore.open(path, inline=True)
    store.watch(lambda: None)
    await store.transact(add_claims, ("a",), "owner")
    assert await store.read(has_claim, "a", "owner")
    with pytest.raises(Superseded):
        await store.transact_whole(refuse, None)
    assert threading.enumerate() == before
    await store.close()


async def test_write_of_another_process_calls_the_watcher(
    store: SqliteStore, path: Path, neighbour: Neighbour
) -> None:
    noticed = asyncio.Event()
    store.watch(noticed.set)
    await asyncio.to_thread(neighbour, "write", path, ids.new(LeaseId))
    await asyncio.wait_for(noticed.wait(), 60)


async def test_write_made_before_watching_began_calls_the_watcher(
    store: SqliteStore, path: Path, neighbour: Neighbour
) -> None:
    await asyncio.to_thread(neighbour, "write", path, ids.new(LeaseId))
    noticed = asyncio.Event()
    store.watch(noticed.set)
    await asyncio.wait_for(noticed.wait(), 60)


async def test_own_writes_do_not_call_the_watcher(
    store: SqliteStore, path: Path, neighbour: Neighbour, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WATCH_EVERY", 0.0)
    calls: list[int] = []
    polled: list[Any] = []
    noticed = asyncio.Event()
    look = store._poll_changes
    monkeypatch.setattr(store, "_poll_changes", lambda: polled.append(look()))
    store.watch(lambda: (calls.append(1), noticed.set())[-1])
    for n in range(100):
        await store.transact(add_claims, (str(n),), "owner", Sync.PROCESS)
    looks = len(polled)
    while len(polled) < looks + 2:  # the second one began after the last write
        await asyncio.sleep(0)
    assert calls == []
    await asyncio.to_thread(neighbour, "write", path, ids.new(LeaseId))
    await asyncio.wait_for(noticed.wait(), 60)
    assert calls


async def test_three_processes_that_write_one_file_heavily_all_succeed(
    store: SqliteStore, path: Path, neighbour: Neighbour
) -> None:
    count = 300
    others = [neighbour("hammer", path, f"other{n}", count, wait=False) for n in range(2)]
    for n in range(count):
        await store.transact(add_claims, (str(n),), "own")
    for process in others:
        await asyncio.to_thread(wait_until_ready, process)
    for owner in ("own", "other0", "other1"):
        for n in range(count):
            assert await store.read(has_claim, str(n), owner)


async def test_failed_operation_without_a_waiting_caller_is_logged(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    worker = store._write_worker
    assert worker is not None
    with caplog.at_level(logging.WARNING):
        worker.submit(module.Job(refuse, None))
        await store.transact(add_claims, ("a",), "owner")
    assert "took over this conversation" in caplog.text


async def test_bug_in_the_writer_raises_outcome_unknown_to_the_caller(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(jobs: object) -> None:
        raise ZeroDivisionError

    with monkeypatch.context() as patch:
        patch.setattr(store._writer, "run_batch", broken)
        with pytest.raises(OutcomeUnknown, match="ZeroDivisionError"):
            await store.transact(add_claims, ("a",), "owner")
    await store.transact(add_claims, ("b",), "owner")


def test_store_file_is_an_ordinary_sqlite_database(path: Path) -> None:
    async def fill() -> None:
        store = await SqliteStore.open(path)
        await store.transact(add_claims, ("a",), "owner")
        await store.close()

    asyncio.run(fill())
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT owner, idempotency_key FROM claim").fetchall() == [("owner", "a")]
    assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    connection.close()


async def test_ledger_refuses_commits_and_reads_after_a_newer_process_migrated_the_store(path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation()
        with pytest.raises(StoreTooNew):
            async with chat.turn("Hello?") as turn:
                turn.emit("Hello!")
                migrate_further(str(path))
        with pytest.raises(StoreTooNew):
            await chat.turns()
        with pytest.raises(StoreTooNew):
            async with chat.turn("Hello?"):
                pass
    newer = apsw.Connection(str(path))
    assert newer.execute("SELECT count(*) FROM turn").get == 0
    newer.close()


async def test_store_on_a_network_filesystem_opens_with_a_warning(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module.files, "network_filesystem", {path.parent: "nfs4"}.get)
    await (await SqliteStore.open(path)).close()
    assert f"{path} is on nfs4: use it from one machine only" in caplog.text


@pytest.mark.parametrize(("parameter", "is_gone"), [("", False), ("?secure_delete=on", True)])
async def test_purged_text_is_overwritten_only_with_secure_delete(
    path: Path, parameter: str, is_gone: bool
) -> None:
    url = f"sqlite:///{path}{parameter}"
    async with await Ledger.open(url) as ledger:
        await run_turn(await ledger.conversation(title="Herons"), "A heron?")
        chat = await ledger.conversation(title="Quetzals")
        for _ in range(3):
            await run_turn(chat, "A quetzal?", "A quetzal.")
        assert len((await ledger.search("quetzal")).hits) == 1
        await chat.delete(purge=True)
        while await ledger._process.store.transact_whole(purge_ended, None):
            pass
        await ledger.search("quetzal")  # brings the index up to date
    async with await Ledger.open(url) as ledger:
        assert len((await ledger.search("heron")).hits) == 1
    assert (b"quetzal" not in read(path).lower()) is is_gone
    assert b"heron" in read(path)


async def test_search_index_is_rewritten_on_open_only_after_a_removal(path: Path) -> None:
    url = f"sqlite:///{path}?secure_delete=on"
    async with await Ledger.open(url) as ledger:
        chat = await ledger.conversation(title="Herons")
        await run_turn(chat, "A heron?")
        await ledger.search("heron")
        await run_turn(chat, "An egret?")
        await ledger.search("egret")
    segments = segments_of(path)
    assert segments > 1
    await (await Ledger.open(url)).close()
    assert segments_of(path) == segments
    async with await Ledger.open(url) as ledger:
        await (await ledger.conversation(chat.id)).update(title="Egrets")
        await ledger.search("egrets")
    await (await Ledger.open(url)).close()
    assert segments_of(path) == 1


def segments_of(path: Path) -> int:
    """In how many parts the words of turns lie: one after the index was rewritten."""
    connection = apsw.Connection(str(path))
    count: int = connection.execute("SELECT count(DISTINCT segid) FROM turn_words_idx").get
    connection.close()
    return count


def read(path: Path) -> bytes:
    return path.read_bytes()


async def look(path: Path) -> int:
    store = await ReadOnlySqlite.open(path)
    try:
        return (await store.inspect(check, CheckRequest())).conversations
    finally:
        await store.close()


def write(path: Path, text: bytes) -> None:
    path.write_bytes(text)


def contents(path: Path) -> dict[str, bytes]:
    """What a visitor may not change: all but the shared memory, which each reader marks as it reads."""
    return {each.name: each.read_bytes() for each in path.parent.iterdir() if not each.name.endswith("-shm")}


async def test_visit_leaves_the_store_unchanged(path: Path) -> None:
    await (await populate(await SqliteStore.open(path))).ledger.close()
    before = contents(path)
    assert list(before) == [path.name]
    assert await look(path) == 8
    assert contents(path) == before
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_visit_reads_and_keeps_the_log_of_a_dead_process(path: Path, tmp_path: Path) -> None:
    ledger = (await populate(await SqliteStore.open(path))).ledger
    left = tmp_path / "left"
    left.mkdir()
    for each in (path, Path(f"{path}-wal")):
        (left / each.name).write_bytes(each.read_bytes())
    await ledger.close()
    before = contents(left / path.name)
    assert len(before) == 2
    assert await look(left / path.name) == 8
    assert contents(left / path.name) == before


async def test_visit_reads_a_store_in_use(path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        await ledger.conversation()
        assert await look(path) == 1
        chat = await ledger.conversation()
        async with chat.turn("still at work") as turn:
            turn.emit("yes")
        assert await look(path) == 2


async def test_visit_of_a_missing_store_is_refused_and_creates_no_file(path: Path) -> None:
    with pytest.raises(NotAStore, match="No store at"):
        await ReadOnlySqlite.open(path)
    assert contents(path) == {}


@pytest.mark.parametrize(
    ("text", "message"), [(b"", "No store at"), (b"a letter to my bank", "is not a database")]
)
async def test_visit_of_a_file_that_is_not_a_store_is_refused_and_leaves_it_unchanged(
    path: Path, text: bytes, message: str
) -> None:
    write(path, text)
    with pytest.raises(NotAStore, match=message):
        await ReadOnlySqlite.open(path)
    assert contents(path) == {path.name: text}


@pytest.mark.parametrize(("version", "error"), [(99, StoreTooNew), (0, StoreError)])
async def test_visit_of_a_store_of_another_version_is_refused_without_migration(
    path: Path, version: int, error: type[TurnledgerError]
) -> None:
    await (await SqliteStore.open(path)).close()
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", version)
    connection.close()
    before = contents(path)
    with pytest.raises(error, match="newer Turnledger" if version else "older Turnledger"):
        await ReadOnlySqlite.open(path)
    assert contents(path) == before


async def test_visit_by_url_opens_sqlite_stores_only(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    store = await open_read_only(f"sqlite:///{path}")
    assert isinstance(store, ReadOnlySqlite)
    await store.close()
    for url, message in [("memory:", "cannot open a memory store"), ("redis://x", "does not name a store")]:
        with pytest.raises(NotAStore, match=message):
            await open_read_only(url)


async def test_visit_that_tries_to_write_raises_store_read_only(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    store = await ReadOnlySqlite.open(path)

    async def write(rows: Any, request: None) -> None:
        rows._run("mark_swept", 1)

    with pytest.raises(StoreReadOnly):
        await store.read(write, None, "ann")
    for read in (store.read_whole, store.inspect):
        with pytest.raises(StoreReadOnly):
            await read(write, None)
    await store.close()
