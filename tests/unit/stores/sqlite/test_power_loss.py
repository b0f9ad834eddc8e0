"""Power loss loses no acknowledged write; every SQLite error maps to a Turnledger error."""

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
from turnledger.stores.sqlite.failures import (
    _REMEDY,
    ERROR_CLASSES,
    commit_failure,
    error_class_of,
    translate,
)
from turnledger.stores.sqlite.threads import Job
from turnledger.testing.faulty_disk import FaultyDisk

WRITES = 1200
"""Enough for the log to be carried over into the file, and begun anew."""


async def survived(image: Path, lease: LeaseId) -> int:
    store = await SqliteStore.open(image, inline=True)
    beats = await store.read_whole(beat_of, lease)
    await store.close()
    return beats


async def test_acknowledged_writes_survive_a_power_loss(path: Path, disk: FaultyDisk, tmp_path: Path) -> None:
    random = Random(0)
    lease = ids.new(LeaseId)
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    opened = len(disk.syncs)
    acknowledged = 0
    moments = {*random.sample(range(WRITES), 25), *range(990, WRITES, 20)}
    for moment in range(WRITES):
        sync = Sync.DISK if random.random() < 0.7 else Sync.PROCESS
        await store.transact_whole(beat, lease, sync)
        if sync is Sync.DISK:
            acknowledged = moment + 1
        if moment in moments:
            for kind, coin in (("nothing", None), ("something", random)):
                image = disk.lose_power(path, tmp_path / f"{moment}-{kind}", coin)
                assert acknowledged <= await survived(image, lease) <= moment + 1
    assert disk.syncs[opened:].count(str(path)) > 0  # the log was carried over on the way
    await store.close()


async def test_batch_with_one_disk_sync_survives_a_power_loss_whole(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    random = Random(5)
    lease = ids.new(LeaseId)
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    beats = 0
    for round in range(10):
        for batch in ((Sync.PROCESS,), random.sample((Sync.DISK, *[Sync.PROCESS] * 4), 5)):
            jobs = [Job(beat, lease, None, sync) for sync in batch]
            store._writer.run_batch(jobs)
            assert [job.error for job in jobs] == [None] * len(jobs)
            beats += len(batch)
        for kind, coin in (("nothing", None), ("something", random)):
            image = disk.lose_power(path, tmp_path / f"{round}-{kind}", coin)
            assert await survived(image, lease) == beats
    await store.close()


async def test_commit_left_unsynced_by_a_killed_process_is_synced_on_open(
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


async def test_unsynced_writes_are_lost_by_the_simulated_disk(
    path: Path, disk: FaultyDisk, tmp_path: Path
) -> None:
    lease = ids.new(LeaseId)
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    for _ in range(10):
        await store.transact_whole(beat, lease, Sync.PROCESS)
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
        await store.transact_whole(beat, lease)
        acknowledged += 1
    await store.close()
    disk.before_call = None
    for beats, image in images:
        assert beats <= await survived(image, lease) <= beats + 1


async def test_every_sync_flushes_the_disk_cache(path: Path, disk: FaultyDisk) -> None:
    store = await SqliteStore.open(path, inline=True, vfs=disk.name)
    await store.transact_whole(beat, ids.new(LeaseId))
    await store.close()
    assert disk.sync_flags == {apsw.SQLITE_SYNC_FULL}


async def test_store_whose_creation_was_cut_after_its_first_page_is_created_again(
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


def test_error_map_names_every_error_class_of_apsw() -> None:
    assert set(ERROR_CLASSES) == CLASSES


def test_error_map_has_a_remedy_for_every_meaning() -> None:
    assert set(ERROR_CLASSES.values()) <= set(_REMEDY)


@pytest.mark.parametrize("kind", sorted(CLASSES, key=str))
def test_translated_error_names_the_file_and_keeps_the_cause(kind: type[apsw.Error]) -> None:
    problem = kind("why")
    failure = translate(problem, "chats.db")
    assert type(failure) is ERROR_CLASSES[kind]
    assert str(failure).startswith("chats.db: why. ")
    assert failure.__cause__ is problem


def test_extended_error_code_overrides_the_error_class() -> None:
    assert error_class_of(error(apsw.IOError, apsw.SQLITE_IOERR_CORRUPTFS)) is StoreCorrupt
    assert error_class_of(error(apsw.IOError, apsw.SQLITE_IOERR_READ)) is StoreUnavailable
    assert error_class_of(error(apsw.FullError, apsw.SQLITE_FULL)) is StoreFull


def test_not_a_database_error_of_an_open_store_is_corrupt() -> None:
    assert error_class_of(apsw.NotADBError("not a database")) is StoreCorrupt


def test_cannot_open_error_carries_a_remedy() -> None:
    failure = translate(apsw.CantOpenError("unable to open database file"), "/proc/chats.db")
    assert isinstance(failure, StoreUnavailable)
    assert "Check its folder and the limit of open files" in str(failure)


def test_unknown_outcome_error_does_not_claim_that_nothing_was_written() -> None:
    failure = commit_failure(apsw.CorruptError("malformed"), "chats.db")
    assert type(failure) is OutcomeUnknown
    assert "Nothing was written" not in str(failure)
    assert failure.because is StoreCorrupt


def test_full_disk_at_commit_raises_store_full_and_not_outcome_unknown() -> None:
    assert type(commit_failure(apsw.FullError("full"), "chats.db")) is StoreFull


def test_value_that_sqlite_cannot_hold_raises_invalid_input() -> None:
    assert isinstance(translate(OverflowError("too large"), "chats.db"), InvalidInput)


async def test_bug_in_the_tables_is_not_reported_as_damage(path: Path) -> None:
    async def add_nothing(tables: Tables, _: None) -> None:
        await tables.add_turn(cast(Turn, None))

    store = await SqliteStore.open(path, inline=True)
    with pytest.raises(AttributeError):
        await store.transact(add_nothing, None, "ann")
    with pytest.raises(AttributeError):
        await store.read(add_nothing, None, "ann")
    await store.close()


def test_error_of_another_kind_is_returned_unchanged() -> None:
    refusal = Superseded()
    assert translate(refusal, "chats.db") is refusal
    assert issubclass(ERROR_CLASSES[apsw.Error], StoreError)
