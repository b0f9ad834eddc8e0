"""Leases and lock files across real processes."""

import asyncio
import errno
import logging
import os
from pathlib import Path

import pytest

from tests.unit.stores.sqlite.conftest import Neighbour
from tests.unit.stores.sqlite.operations import beat_of, ids, leases
from turnledger.engine.ports import WholeStore
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.leases import LockFiles

pytestmark = pytest.mark.skipif("sys.platform == 'win32'", reason="needs lock files")


async def drop(whole: WholeStore, id: LeaseId) -> None:
    await whole.drop_lease(id)


def full(*arguments: object, **options: object) -> None:
    raise OSError(errno.ENOSPC, "No space left on device")


def open_files() -> int:
    return len(list(Path("/dev/fd").iterdir()))


def locks(path: Path) -> list[str]:
    return sorted(each.name for each in path.with_name(f"{path.name}-leases").glob("*"))


async def test_lease_of_the_own_process_is_not_gone(store: SqliteStore) -> None:
    lease = ids.new(LeaseId)
    await store.keep_lease(lease, every=60)
    assert store.is_holder_dead(lease) is False
    assert await store.read_whole(beat_of, lease) == 1


async def test_lease_without_a_lock_file_is_not_reported_gone(store: SqliteStore) -> None:
    assert store.is_holder_dead(ids.new(LeaseId)) is False


async def test_lease_is_renewed_while_the_event_loop_is_blocked(store: SqliteStore, path: Path) -> None:
    lease = ids.new(LeaseId)
    await store.keep_lease(lease, every=0.001)
    other = await SqliteStore.open(path, inline=True)  # its reads hold up the loop
    while await other.read_whole(beat_of, lease) < 4:
        pass
    await other.close()


async def test_lease_of_a_killed_process_is_gone_at_once(
    store: SqliteStore, path: Path, neighbour: Neighbour
) -> None:
    lease = ids.new(LeaseId)
    process = await asyncio.to_thread(neighbour, "hold", path, lease)
    assert lease in await store.read_whole(leases, None)
    assert store.is_holder_dead(lease) is False
    process.kill()
    await asyncio.to_thread(process.wait)
    assert store.is_holder_dead(lease) is True


async def test_lock_file_of_a_dead_process_is_removed_after_its_lease(
    store: SqliteStore, path: Path, neighbour: Neighbour
) -> None:
    dead, own, next_one = ids.new(LeaseId), ids.new(LeaseId), ids.new(LeaseId)
    process = await asyncio.to_thread(neighbour, "hold", path, dead)
    process.kill()
    await asyncio.to_thread(process.wait)
    await store.keep_lease(own, every=60)
    assert locks(path) == sorted([f"{dead}.lock", f"{own}.lock"])
    await store.transact_whole(drop, dead)
    other = await SqliteStore.open(path)
    await other.keep_lease(next_one, every=60)
    assert locks(path) == sorted([f"{own}.lock", f"{next_one}.lock"])
    await other.close()


async def test_closed_store_ends_its_lease_and_removes_its_lock_file(store: SqliteStore, path: Path) -> None:
    lease = ids.new(LeaseId)
    other = await SqliteStore.open(path)
    await other.keep_lease(lease, every=60)
    await other.close()
    assert await store.read_whole(leases, None) == set()
    assert locks(path) == []
    assert store.is_holder_dead(lease) is False


async def test_inline_store_beats_once_and_leaves_no_lock_file(path: Path) -> None:
    lease = ids.new(LeaseId)
    store = await SqliteStore.open(path, inline=True)
    await store.keep_lease(lease, every=0.001)
    assert await store.read_whole(beat_of, lease) == 1
    assert store.is_holder_dead(lease) is False
    assert locks(path) == []
    await store.close()


def test_sweep_removes_lock_files_that_a_crash_left_unfinished(path: Path) -> None:
    folder = path.with_name(f"{path.name}-leases")
    folder.mkdir()
    orphan, named = ids.new(LeaseId), ids.new(LeaseId)
    for name in (f"{orphan}.new", f"{named}.new", "notes.new"):
        folder.joinpath(name).touch()
    LockFiles(str(path)).sweep({named})
    assert locks(path) == ["notes.new"]


async def test_lease_without_a_place_for_lock_files_is_kept_with_a_warning(
    store: SqliteStore, path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path.with_name(f"{path.name}-leases").write_text("not a folder")
    lease = ids.new(LeaseId)
    with caplog.at_level(logging.WARNING):
        await store.keep_lease(lease, every=60)
        await store.close()
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert "-leases" in caplog.text
    assert path.with_name(f"{path.name}-leases").read_text() == "not a folder"


def test_lock_file_on_a_full_disk_leaves_no_file_and_no_handle(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files = LockFiles(str(path))
    before = open_files()
    with monkeypatch.context() as patch:
        patch.setattr(Path, "rename", full)
        files.take(ids.new(LeaseId))
    assert "No space left" in caplog.text
    assert locks(path) == []
    files.release()
    assert open_files() == before


def test_lock_file_that_cannot_be_removed_is_still_unlocked(
    path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    files, lease = LockFiles(str(path)), ids.new(LeaseId)
    files.take(lease)
    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", full)
        files.release()
    assert "cannot be removed" in caplog.text
    assert LockFiles(str(path)).is_unlocked(lease)


def test_lock_folder_is_removed_by_the_last_process(path: Path) -> None:
    first, last = LockFiles(str(path)), LockFiles(str(path))
    first.take(ids.new(LeaseId))
    last.take(ids.new(LeaseId))
    first.release()
    assert len(locks(path)) == 1
    last.release()
    assert not path.with_name(f"{path.name}-leases").exists()


def test_lock_folder_that_vanishes_meanwhile_is_created_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_file, opened = os.open, list[object]()

    def open_late(place: Path, *arguments: int) -> int:
        opened.append(place)
        if len(opened) == 1:
            place.parent.rmdir()
        return open_file(place, *arguments)

    files, lease = LockFiles(str(path)), ids.new(LeaseId)
    with monkeypatch.context() as patch:
        patch.setattr(os, "open", open_late)
        files.take(lease)
    assert locks(path) == [f"{lease}.lock"]
    files.release()


async def test_store_opened_by_a_symbolic_link_uses_the_same_lock_files(
    store: SqliteStore, path: Path
) -> None:
    link, lease = path.with_name("link.db"), ids.new(LeaseId)
    link.symlink_to(path)
    other = await SqliteStore.open(link)
    await other.keep_lease(lease, every=60)
    assert locks(path) == [f"{lease}.lock"]
    await other.close()


def test_sweep_keeps_locked_named_and_foreign_files(path: Path) -> None:
    held, named = ids.new(LeaseId), ids.new(LeaseId)
    files, others = LockFiles(str(path)), LockFiles(str(path))
    files.take(held)
    folder = path.with_name(f"{path.name}-leases")
    for name in (f"{named}.lock", "notes.lock", f"{ids.new(LeaseId)}.lock"):
        folder.joinpath(name).touch()
    others.sweep({named})
    assert locks(path) == sorted([f"{held}.lock", f"{named}.lock", "notes.lock"])
    files.release()
