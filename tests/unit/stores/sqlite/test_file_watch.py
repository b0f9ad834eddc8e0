"""Files removed or replaced while the store is open: it refuses writes and loses no turn."""

import asyncio
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.unit.stores.sqlite.conftest import Neighbour
from tests.unit.stores.sqlite.operations import add_claims, beat_of, has_claim, ids, refuse
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import NotAStore, StoreCorrupt, StoreUnavailable
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import SqliteStore, connections
from turnledger.stores.sqlite.threads import Job, Writer

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="there, an open file cannot be removed")


@pytest.fixture
def writer(path: Path) -> Iterator[Writer]:
    connections.prepare(str(path))
    writer = Writer(connections.connect_writer(str(path)), str(path))
    add(writer, "first").outcome()
    yield writer
    writer.close()


def add(writer: Writer, claim: str, sync: Sync = Sync.DISK) -> Job:
    job = Job(add_claims, (claim,), "owner", sync)
    writer.run_batch([job])
    return job


async def has(path: Path, claim: str) -> bool:
    store = await SqliteStore.open(path, inline=True)
    found = await store.read(has_claim, claim, "owner")
    await store.close()
    return found


def content_of(path: Path) -> bytes:
    return path.read_bytes()


def log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def test_writer_whose_file_was_removed_refuses_writes(path: Path, writer: Writer) -> None:
    path.unlink()
    jobs = [Job(add_claims, ("a",), "owner"), Job(refuse, None), Job(has_claim, "a", "owner")]
    writer.run_batch(jobs)
    for job in jobs:
        with pytest.raises(StoreUnavailable, match=rf"{path} was removed or replaced .* restore the file"):
            job.outcome()


def test_writer_whose_file_was_replaced_refuses_writes(path: Path, writer: Writer) -> None:
    shutil.copy(path, path.with_name("copy"))
    path.with_name("copy").replace(path)
    with pytest.raises(StoreUnavailable):
        add(writer, "a").outcome()


def test_writer_whose_file_was_removed_still_serves_reads_and_unsynced_writes(
    path: Path, writer: Writer
) -> None:
    path.unlink()
    job = Job(has_claim, "first", "owner")
    writer.run_batch([job])
    assert job.outcome() is True
    assert add(writer, "a", Sync.PROCESS).error is None


def test_writer_whose_file_was_put_back_writes_again(path: Path, writer: Writer) -> None:
    path.rename(path.with_name("aside"))
    refused = add(writer, "a")
    path.with_name("aside").rename(path)
    assert isinstance(refused.error, StoreUnavailable)
    assert add(writer, "b").error is None
    assert asyncio.run(has(path, "b"))
    assert not asyncio.run(has(path, "a"))


async def test_close_leaves_the_log_of_a_process_that_created_a_new_file(
    path: Path, neighbour: Neighbour
) -> None:
    store = await SqliteStore.open(path)
    await store.transact(add_claims, ("a",), "owner")
    for each in path.parent.iterdir():
        each.unlink()
    await asyncio.to_thread(neighbour, "write", path, ids.new(LeaseId))
    size = log_of(path).stat().st_size
    await store.close()
    assert log_of(path).stat().st_size == size > 0


def test_close_leaves_the_log_when_its_file_was_removed(path: Path, writer: Writer) -> None:
    path.unlink()
    writer.close()
    assert log_of(path).stat().st_size > 0
    with pytest.raises(StoreCorrupt, match="may hold turns"):
        connections.prepare(str(path))


def test_close_writes_the_log_into_a_file_that_was_moved(path: Path, writer: Writer) -> None:
    elsewhere = path.with_name("elsewhere.db")
    path.rename(elsewhere)
    writer.close()
    log_of(path).unlink()
    assert asyncio.run(has(elsewhere, "first"))


def test_close_empties_the_log_next_to_a_file_that_replaced_its_own(path: Path, writer: Writer) -> None:
    other = path.with_name("other.db")
    connections.prepare(str(other))
    other.replace(path)
    writer.close()
    assert log_of(path).stat().st_size == 0
    assert not asyncio.run(has(path, "first"))


@pytest.fixture(params=["-wal", "-shm"])
def beside(path: Path, request: pytest.FixtureRequest) -> Path:
    """One of the files beside a store."""
    return path.with_name(f"{path.name}{request.param}")


def test_writer_whose_log_or_index_was_removed_refuses_writes(writer: Writer, beside: Path) -> None:
    beside.unlink()
    with pytest.raises(StoreUnavailable, match=rf"{beside} was removed .* stop all processes .* restart"):
        add(writer, "a").outcome()
    with pytest.raises(StoreUnavailable):
        add(writer, "b", Sync.PROCESS).outcome()


def test_writer_whose_log_or_index_was_replaced_refuses_writes(writer: Writer, beside: Path) -> None:
    shutil.copy(beside, beside.with_name("copy"))
    beside.with_name("copy").replace(beside)
    with pytest.raises(StoreUnavailable, match=rf"{beside} was removed or replaced"):
        add(writer, "a").outcome()


def test_writer_whose_log_or_index_was_put_back_writes_again(
    path: Path, writer: Writer, beside: Path
) -> None:
    beside.rename(beside.with_name("aside"))
    assert isinstance(add(writer, "a").error, StoreUnavailable)
    beside.with_name("aside").rename(beside)
    assert add(writer, "b").error is None
    writer.close()
    assert [asyncio.run(has(path, claim)) for claim in ("first", "a", "b")] == [True, False, True]


def test_removed_log_is_saved_into_the_file_at_the_next_check(path: Path, writer: Writer) -> None:
    log_of(path).unlink()
    writer.check_files()
    alone = path.with_name("alone.db")
    shutil.copy(path, alone)
    assert asyncio.run(has(alone, "first"))


def test_log_removed_during_a_transaction_is_saved_into_the_file(path: Path, writer: Writer) -> None:
    async def add_and_remove_log(tables: Tables, claim: str) -> None:
        await add_claims(tables, (claim,))
        log_of(path).unlink()

    job = Job(add_and_remove_log, "a", "owner")
    writer.run_batch([job])
    assert isinstance(job.error, StoreUnavailable)
    copy = path.with_name("copy.db")
    shutil.copy(path, copy)
    assert asyncio.run(has(copy, "first"))
    assert not asyncio.run(has(copy, "a"))


@pytest.mark.parametrize("write_is_first", [False, True])
@pytest.mark.parametrize("lost", ["", "-wal"])
def test_writer_reports_a_lost_file_once(
    path: Path, writer: Writer, lost: str, write_is_first: bool, caplog: pytest.LogCaptureFixture
) -> None:
    if lost:
        os.truncate(log_of(path), 0)
    else:
        path.unlink()
    if write_is_first:
        assert isinstance(add(writer, "a").error, StoreUnavailable)
    writer.check_files()
    writer.check_files()
    [record] = caplog.records
    assert f"{path}{lost} was" in record.getMessage()


async def test_store_whose_log_was_removed_soon_refuses_reads(store: SqliteStore, path: Path) -> None:
    await store.transact(add_claims, ("a",), "owner")
    store.watch(lambda: None)
    log_of(path).unlink()
    with pytest.raises(StoreUnavailable, match="-wal was removed"):
        async with asyncio.timeout(60):
            while True:
                await store.read(has_claim, "a", "owner")


async def test_opening_a_store_in_use_without_its_log_is_refused(path: Path, writer: Writer) -> None:
    log_of(path).unlink()
    with pytest.raises(StoreUnavailable, match="while in use"):
        connections.prepare(str(path))
    with pytest.raises(StoreUnavailable, match="while in use"):
        connections.connect_read_only(str(path))
    writer.check_files()
    writer.close()
    assert await has(path, "first")


@pytest.mark.parametrize("suffixes", [["-shm"], ["-wal", "-shm"]])
async def test_close_after_another_process_created_new_files_keeps_its_turns(
    path: Path, writer: Writer, neighbour: Neighbour, suffixes: list[str]
) -> None:
    for suffix in suffixes:
        path.with_name(path.name + suffix).unlink()
    writer.check_files()
    lease = ids.new(LeaseId)
    newcomer = await asyncio.to_thread(neighbour, "write", path, lease)
    newcomer.kill()
    newcomer.wait()
    writer.close()
    store = await SqliteStore.open(path, inline=True)
    assert await store.read_whole(beat_of, lease) == 1
    assert await store.read(has_claim, "first", "owner")
    await store.close()


async def test_removed_log_is_not_saved_next_to_the_index_of_another_process(
    path: Path, writer: Writer, neighbour: Neighbour
) -> None:
    for suffix in ("-wal", "-shm"):
        path.with_name(path.name + suffix).unlink()
    await asyncio.to_thread(neighbour, "open", path)
    assert log_of(path).stat().st_size == 0  # it has read, but not written
    before = content_of(path)
    writer.check_files()
    assert isinstance(add(writer, "a").error, StoreUnavailable)
    assert content_of(path) == before


def test_writer_whose_log_was_truncated_refuses_writes(writer: Writer, path: Path) -> None:
    os.truncate(f"{path}-wal", 0)
    with pytest.raises(StoreUnavailable, match="-wal was cut short"):
        add(writer, "second").outcome()
    assert writer.files.lost == f"{path}-wal"


@pytest.mark.parametrize("suffix", ["", "-wal", "-shm"])
def test_writer_whose_file_cannot_be_looked_up_refuses_writes_until_it_can(
    path: Path, writer: Writer, suffix: str
) -> None:
    place, aside = path.with_name(path.name + suffix), path.with_name("aside")
    place.rename(aside)
    place.symlink_to(place.name)  # a loop: neither there nor absent
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        add(writer, "a").outcome()
    writer.check_files()
    place.unlink()
    aside.rename(place)
    assert add(writer, "b").error is None
    assert not asyncio.run(has(path, "a"))
    assert asyncio.run(has(path, "b"))


def test_writer_whose_folder_became_a_file_refuses_writes(path: Path, writer: Writer) -> None:
    folder, aside = path.parent, path.parent.with_name("aside")
    folder.rename(aside)
    folder.touch()
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        add(writer, "a").outcome()
    writer.check_files()
    writer.close()
    assert asyncio.run(has(aside / path.name, "first"))


def test_store_whose_log_cannot_be_looked_up_is_refused_on_open(path: Path) -> None:
    connections.prepare(str(path))
    log_of(path).symlink_to(log_of(path).name)
    with pytest.raises(NotAStore, match="cannot be reached"):
        connections.prepare(str(path))
