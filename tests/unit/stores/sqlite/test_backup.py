"""Backup and examination: consistent during writes, and the store is left unchanged."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import apsw
import pytest

from tests.unit.engine.populated_store import populate, run_turn
from tests.unit.stores.sqlite.operations import migrate_further
from turnledger import Ledger
from turnledger.engine.check.check import CheckRequest, check
from turnledger.errors import InvalidInput, NotAStore, StoreTooNew
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import ReadOnlySqlite, SqliteStore, backup, read_only
from turnledger.stores.sqlite.connections import prepare
from turnledger.stores.sqlite.leases import LockFiles
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.stores.sqlite.read_only import examine, sqlite_version


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def size(path: Path) -> int:
    return path.stat().st_size


def copied(path: Path, copy: Path) -> None:
    backup.back_up(str(path), str(copy), lambda done, total: None)


async def findings(path: Path) -> list[str]:
    store = await ReadOnlySqlite.open(path)
    report = await store.inspect(check, CheckRequest())
    await store.close()
    return [finding.message for finding in report.findings]


async def test_backup_of_a_store_is_complete_and_passes_the_check(path: Path, tmp_path: Path) -> None:
    lived = await populate(await SqliteStore.open(path))
    copy = tmp_path / "copy.db"
    seen: list[tuple[int, int]] = []
    await Ledger.backup(f"sqlite:///{path}", copy, progress=lambda *at: seen.append(at))
    turns = [turn.body for turn in await lived.plain.turns()]
    await lived.ledger.close()
    assert names(tmp_path) == ["chats.db", "copy.db"]
    assert seen[-1] == (size(copy), size(copy))
    assert await findings(copy) == []
    async with await Ledger.open(f"sqlite:///{copy}") as ledger:
        chat = await ledger.for_owner(lived.plain.owner).conversation(str(lived.plain.id))
        assert [turn.body for turn in await chat.turns()] == turns


async def test_backup_during_commits_is_one_consistent_snapshot(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGES", 1)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation()
        await run_turn(chat, "Before")
        loop = asyncio.get_running_loop()
        steps: list[int] = []

        def report(done: int, total: int) -> None:
            """Commit a turn between any two pages of the copy."""
            steps.append(done)
            if len(steps) < 20:
                asyncio.run_coroutine_threadsafe(run_turn(chat, "During"), loop).result()

        copy = tmp_path / "copy.db"
        await Ledger.backup(f"sqlite:///{path}", copy, progress=report)
        assert steps == sorted(steps)
        assert len(await chat.turns()) == 20
    assert await findings(copy) == []
    async with await Ledger.open(f"sqlite:///{copy}") as ledger:
        assert len(await (await ledger.conversation(str(chat.id))).turns()) == 1


@pytest.mark.parametrize("suffix", ["", "-wal", "-journal"])
def test_backup_onto_a_file_that_exists_is_refused(path: Path, tmp_path: Path, suffix: str) -> None:
    prepare(str(path))
    there = tmp_path / f"copy.db{suffix}"
    there.touch()
    with pytest.raises(InvalidInput, match="already exists"):
        copied(path, tmp_path / "copy.db")
    assert names(tmp_path) == ["chats.db", there.name]
    assert size(there) == 0


def test_backup_onto_a_file_that_appears_meanwhile_is_refused(path: Path, tmp_path: Path) -> None:
    prepare(str(path))
    copy = tmp_path / "copy.db"
    with pytest.raises(InvalidInput, match="already exists"):
        backup.back_up(str(path), str(copy), lambda done, total: copy.touch())
    assert size(copy) == 0
    assert names(tmp_path) == ["chats.db", "copy.db"]


def test_backup_that_is_interrupted_leaves_no_file(path: Path, tmp_path: Path) -> None:
    prepare(str(path))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup.back_up(str(path), str(tmp_path / "copy.db"), interrupt)
    assert names(tmp_path) == ["chats.db"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
def test_backup_is_readable_by_its_user_only(path: Path, tmp_path: Path) -> None:
    prepare(str(path))
    path.chmod(0o644)
    copied(path, tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600


def test_backup_of_an_older_store_keeps_its_schema_version(path: Path, tmp_path: Path) -> None:
    prepare(str(path))
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 7)
    connection.close()
    copied(path, tmp_path / "copy.db")
    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.pragma("user_version") == 7
    copy.close()


async def test_backup_of_a_missing_memory_or_newer_store_is_refused(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy.db"
    with pytest.raises(NotAStore):
        await Ledger.backup("memory:", copy)
    with pytest.raises(NotAStore):
        await Ledger.backup(f"sqlite:///{path}", copy)
    prepare(str(path))
    with pytest.raises(NotAStore, match="does not exist"):
        await Ledger.backup(f"sqlite:///{path}", tmp_path / "no" / "copy.db")
    migrate_further(str(path))
    with pytest.raises(StoreTooNew):
        await Ledger.backup(f"sqlite:///{path}", copy)
    assert names(tmp_path) == ["chats.db"]


async def test_backup_killed_before_its_temporary_name_was_removed_can_be_opened(
    path: Path, tmp_path: Path
) -> None:
    await (await SqliteStore.open(path)).close()
    target = tmp_path / "copy.db"
    backup.back_up(str(path), str(target), lambda *_: None)
    left = tmp_path / ".0123456789abcdef.part"
    os.link(target, left)
    await (await SqliteStore.open(target)).close()
    assert not left.exists()
    os.link(target, tmp_path / "another.db")
    with pytest.raises(NotAStore, match="hard link"):
        await SqliteStore.open(target)


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


def only_file_in(folder: Path) -> Path:
    [file] = folder.iterdir()
    return file


@pytest.fixture
async def lived_in(path: Path) -> Path:
    await (await populate(await SqliteStore.open(path))).ledger.close()
    return path


async def test_examination_describes_an_idle_store_and_leaves_it_unchanged(lived_in: Path) -> None:
    before = contents(lived_in)
    found = examine(str(lived_in))
    assert (found.schema, found.journal_mode, found.file_bytes) == (
        VERSION,
        "wal",
        len(before[lived_in.name]),
    )
    assert (found.living, found.dead, found.unknown, found.is_stuck) == (0, 0, 0, False)
    assert found.newest_ms is not None
    assert contents(lived_in) == before
    assert list(before) == [lived_in.name]


async def test_examination_of_an_empty_store_has_no_newest_turn(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    assert examine(str(path)).newest_ms is None


async def test_examination_counts_live_dead_and_unknown_processes(path: Path) -> None:
    async with await Ledger.open(f"sqlite:///{path}"):
        found = examine(str(path))
        assert (found.living, found.dead, found.unknown) == (1, 0, 0)
        assert found.log_bytes > 0
        lock = only_file_in(Path(f"{path}-leases"))
        own = LeaseId(lock.stem)
        kept = lock.rename(lock.with_suffix(".away"))
        assert examine(str(path)).unknown == 1
        lock.touch()  # a file that nobody has locked: that is what a dead process leaves
        assert LockFiles(str(path)).is_unlocked(own)
        assert examine(str(path)).dead == 1
        kept.rename(lock)
        assert examine(str(path)).living == 1


async def test_examination_reports_a_store_whose_write_lock_is_held(
    lived_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(read_only, "PATIENCE_MS", 0)
    neighbour = apsw.Connection(str(lived_in))
    neighbour.execute("BEGIN IMMEDIATE")
    assert examine(str(lived_in)).is_stuck
    neighbour.execute("ROLLBACK")
    assert not examine(str(lived_in)).is_stuck
    neighbour.close()


async def test_examination_reports_another_journal_mode(lived_in: Path) -> None:
    other = apsw.Connection(str(lived_in))
    assert other.pragma("journal_mode", "delete") == "delete"
    other.close()
    assert examine(str(lived_in)).journal_mode == "delete"


def test_sqlite_version_is_that_of_the_loaded_library() -> None:
    assert sqlite_version() == apsw.sqlite_lib_version()
