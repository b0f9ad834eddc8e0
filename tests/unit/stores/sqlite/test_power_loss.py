"""Power loss at any moment loses no acknowledged write; every error of SQLite has its place in the tree."""

from pathlib import Path
from random import Random
from typing import cast

import apsw
import pytest

from tests.unit.stores.sqlite.operations import beat, beat_of, ids
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import (
    InvalidInput,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreUnavailable,
    Superseded,
    TurnReplayed,
)
from turnledger.ledger import Ledger
from turnledger.model.ids import LeaseId
from turnledger.model.turn import Turn
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.failures import _REMEDY, MEANING, meaning_of, not_committed, translated
from turnledger.stores.sqlite.threads import Job
from turnledger.testing.faulty_disk import FaultyDisk

WRITES = 1200
"""Enough for the log to be carried over into the file, and begun anew."""


async def survived(image: Path, lease: LeaseId) -> int:
    store = await SqliteStore.open(image, inline=True)
    beats = await store.read(beat_of, lease)
    await store.close()
    return beats


async def test_every_acknowledged_write_survives(path: Path, disk: FaultyDisk, tmp_path: Path) -> None:
    random = Random(0)
    lease = ids.new(LeaseId)
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    opened = len(disk.syncs)
    acknowledged = 0
    moments = {*random.sample(range(WRITES), 25), *range(990, WRITES, 20)}
    for moment in range(WRITES):
        sync = Sync.DISK if random.random() < 0.7 else Sync.PROCESS
        await store.transact(beat, lease, sync)
        if sync is Sync.DISK:
            acknowledged = moment + 1
        if moment in moments:
            for kind, coin in (("nothing", None), ("something", random)):
                image = disk.lose_power(path, tmp_path / f"{moment}-{kind}", coin)
                assert acknowledged <= await survived(image, lease) <= moment + 1
    assert disk.syncs[opened:].count(str(path)) > 0  # the log was carried over on the way
    await store.close()


async def test_one_operation_that_asks_for_the_disk_brings_its_whole_batch_there(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    random = Random(5)
    lease = ids.new(LeaseId)
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    beats = 0
    for round in range(10):
        for batch in ((Sync.PROCESS,), random.sample((Sync.DISK, *[Sync.PROCESS] * 4), 5)):
            jobs = [Job(beat, lease, sync) for sync in batch]
            store._writer.run_batch(jobs)
            assert [job.error for job in jobs] == [None] * len(jobs)
            beats += len(batch)
        for kind, coin in (("nothing", None), ("something", random)):
            image = disk.lose_power(path, tmp_path / f"{round}-{kind}", coin)
            assert await survived(image, lease) == beats
    await store.close()


async def test_commit_that_a_killed_process_left_unsynced_is_synced_when_the_store_is_opened(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    """A process dies between write and sync of a commit. Two others start, recover the commit from the
    log, and may repeat its answer to a client: it must not be lost after that."""
    ledger = await Ledger.over(await SqliteStore.open(path, inline=True, vfs=disk.name))
    chat = await ledger.conversation()
    killed = tmp_path / "killed"

    def kill_before_sync(call: str, name: str) -> None:
        if call == "sync" and not killed.exists():
            disk.kill(path, killed)

    async with chat.turn("q", idempotency_key="once") as turn:
        turn.emit("a")
        disk.before_call = kill_before_sync
    disk.before_call = None
    await ledger.close()

    # While it is open, no other connection is the last one to be closed, which would sync the log.
    neighbour = apsw.Connection(str(killed / path.name), vfs=disk.name)
    neighbour.execute("SELECT * FROM sqlite_schema").fetchall()
    later = await Ledger.over(await SqliteStore.open(killed / path.name, inline=True, vfs=disk.name))
    with pytest.raises(TurnReplayed) as replayed:
        async with (await later.conversation(chat.id)).turn("q", idempotency_key="once"):
            pass
    image = disk.lose_power(killed / path.name, tmp_path / "lost")
    await later.close()
    neighbour.close()
    last = await Ledger.over(await SqliteStore.open(image, inline=True))
    assert await (await last.conversation(chat.id)).turns() == [replayed.value.turn]
    await last.close()


async def test_without_sync_the_disk_does_forget(path: Path, disk: FaultyDisk, tmp_path: Path) -> None:
    lease = ids.new(LeaseId)
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    for _ in range(10):
        await store.transact(beat, lease, Sync.PROCESS)
    assert await survived(disk.lose_power(path, tmp_path / "lost"), lease) < 10
    await store.close()


async def test_power_loss_at_any_write_of_a_new_file_leaves_a_store_that_opens(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    random = Random(1)
    lease = ids.new(LeaseId)
    acknowledged = 0
    images: list[tuple[int, Path]] = []

    def lose_power(call: str, name: str) -> None:
        folder = tmp_path / f"{len(images)}"
        images.append((acknowledged, disk.lose_power(path, folder, random)))

    disk.before_call = lose_power
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    for _ in range(3):
        await store.transact(beat, lease)
        acknowledged += 1
    await store.close()
    disk.before_call = None
    for beats, image in images:
        assert beats <= await survived(image, lease) <= beats + 1


async def test_every_sync_asks_for_a_flush_of_the_disks_own_cache(path: Path, disk: FaultyDisk) -> None:
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    await store.transact(beat, ids.new(LeaseId))
    await store.close()
    assert disk.sync_flags == {apsw.SQLITE_SYNC_FULL}


async def test_store_whose_creation_was_cut_after_its_first_page_is_created_anew(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    """The page names the store as ours, but the journal beside it undoes the page: the file is empty."""
    images: list[Path] = []

    def cut_before_sync(call: str, name: str) -> None:
        if call == "sync" and name == str(path):
            images.append(disk.kill(path, tmp_path / f"{len(images)}"))

    disk.before_call = cut_before_sync
    await (await SqliteStore.open(path, inline=True, vfs=disk.name)).close()
    sound = apsw.Connection(str(path))
    expected = {name: sound.pragma(name) for name in ("application_id", "page_size")}
    assert len(images) > 1
    for image in images:
        for _ in range(2):  # what the first open made is a store to the second
            async with await Ledger.over(await SqliteStore.open(image, inline=True)) as ledger:
                await ledger.conversation()
        opened = apsw.Connection(str(image))
        assert {name: opened.pragma(name) for name in expected} == expected


CLASSES = {kind for kind in vars(apsw).values() if isinstance(kind, type) and issubclass(kind, apsw.Error)}


def error(kind: type[apsw.Error], code: int) -> apsw.Error:
    problem = kind("why")
    problem.extendedresult = code
    return problem


def test_the_map_names_every_error_class_of_apsw() -> None:
    assert set(MEANING) == CLASSES


def test_every_meaning_has_a_remedy() -> None:
    assert set(MEANING.values()) <= set(_REMEDY)


@pytest.mark.parametrize("kind", sorted(CLASSES, key=str))
def test_the_message_names_the_file_and_the_cause_is_kept(kind: type[apsw.Error]) -> None:
    problem = kind("why")
    failure = translated(problem, "chats.db")
    assert type(failure) is MEANING[kind]
    assert str(failure).startswith("chats.db: why. ")
    assert failure.__cause__ is problem


def test_an_extended_code_says_more_than_its_class() -> None:
    assert meaning_of(error(apsw.IOError, apsw.SQLITE_IOERR_CORRUPTFS)) is StoreCorrupt
    assert meaning_of(error(apsw.IOError, apsw.SQLITE_IOERR_READ)) is StoreUnavailable
    assert meaning_of(error(apsw.FullError, apsw.SQLITE_FULL)) is StoreFull


def test_an_open_store_that_is_no_database_any_more_is_damaged() -> None:
    assert meaning_of(apsw.NotADBError("not a database")) is StoreCorrupt


def test_a_file_that_cannot_be_opened_comes_with_what_to_look_at() -> None:
    failure = translated(apsw.CantOpenError("unable to open database file"), "/proc/chats.db")
    assert isinstance(failure, StoreUnavailable)
    assert "Check that its folder can hold files" in str(failure)


def test_an_unknown_outcome_never_claims_that_nothing_was_written() -> None:
    failure = not_committed(apsw.CorruptError("malformed"), "chats.db")
    assert type(failure) is OutcomeUnknown
    assert "Nothing was written" not in str(failure)
    assert failure.because is StoreCorrupt


def test_full_disk_at_commit_is_certain_not_to_have_committed() -> None:
    assert type(not_committed(apsw.FullError("full"), "chats.db")) is StoreFull


def test_values_that_sqlite_cannot_hold_are_the_callers_mistake() -> None:
    assert isinstance(translated(OverflowError("too large"), "chats.db"), InvalidInput)


async def test_bug_below_the_store_is_not_reported_as_damage(path: Path) -> None:
    async def add_nothing(tables: Tables, _: None) -> None:
        await tables.add_turn(cast(Turn, None))

    store = await SqliteStore.open(path, inline=True)
    with pytest.raises(AttributeError):
        await store.transact(add_nothing, None)
    with pytest.raises(AttributeError):
        await store.read(add_nothing, None)
    await store.close()


def test_other_errors_pass_as_they_are() -> None:
    refusal = Superseded()
    assert translated(refusal, "chats.db") is refusal
    assert issubclass(MEANING[apsw.Error], StoreError)
