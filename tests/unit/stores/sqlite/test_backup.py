"""Backups: consistent while others write, whole or not there, and never in place of another file."""

from __future__ import annotations

import asyncio
import os
import stat
import sys
from pathlib import Path

import apsw
import pytest

from tests.unit.engine.lived_in import live_in, say
from tests.unit.stores.sqlite.operations import migrate_further
from turnledger import Ledger
from turnledger.engine.check.check import CheckRequest, check
from turnledger.errors import InvalidInput, NotAStore, StoreTooNew
from turnledger.stores.sqlite import SqliteStore, SqliteVisit, backup
from turnledger.stores.sqlite.connections import prepare


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def size(path: Path) -> int:
    return path.stat().st_size


def copied(path: Path, copy: Path) -> None:
    backup.back_up(str(path), str(copy), lambda done, total: None)


async def findings(path: Path) -> list[str]:
    visit = await SqliteVisit.open(path)
    report = await visit.read(check, CheckRequest())
    await visit.close()
    return [finding.message for finding in report.findings]


async def test_backup_of_a_store_has_everything_and_passes_the_check(path: Path, tmp_path: Path) -> None:
    lived = await live_in(await SqliteStore.open(path))
    copy = tmp_path / "copy.db"
    seen: list[tuple[int, int]] = []
    await Ledger.backup(f"sqlite:///{path}", copy, progress=lambda *at: seen.append(at))
    turns = [turn.body for turn in await lived.plain.turns()]
    await lived.ledger.close()
    assert names(tmp_path) == ["chats.db", "copy.db"]
    assert seen[-1] == (size(copy), size(copy))
    assert await findings(copy) == []
    async with await Ledger.open(f"sqlite:///{copy}") as ledger:
        chat = await ledger.conversation(str(lived.plain.id), owner=lived.plain.owner)
        assert [turn.body for turn in await chat.turns()] == turns


async def test_backup_while_turns_are_committed_is_one_moment_of_the_store(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backup, "PAGES", 1)
    async with await Ledger.open(f"sqlite:///{path}") as ledger:
        chat = await ledger.conversation()
        await say(chat, "Before")
        loop = asyncio.get_running_loop()
        steps: list[int] = []

        def report(done: int, total: int) -> None:
            """Commit a turn between any two pages of the copy."""
            steps.append(done)
            if len(steps) < 20:
                asyncio.run_coroutine_threadsafe(say(chat, "During"), loop).result()

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
    with pytest.raises(InvalidInput, match="exists already"):
        copied(path, tmp_path / "copy.db")
    assert names(tmp_path) == ["chats.db", there.name]
    assert size(there) == 0


def test_backup_onto_a_file_that_appears_meanwhile_is_refused(path: Path, tmp_path: Path) -> None:
    prepare(str(path))
    copy = tmp_path / "copy.db"
    with pytest.raises(InvalidInput, match="exists already"):
        backup.back_up(str(path), str(copy), lambda done, total: copy.touch())
    assert size(copy) == 0
    assert names(tmp_path) == ["chats.db", "copy.db"]


def test_backup_that_is_interrupted_leaves_nothing(path: Path, tmp_path: Path) -> None:
    prepare(str(path))

    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        backup.back_up(str(path), str(tmp_path / "copy.db"), interrupt)
    assert names(tmp_path) == ["chats.db"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
def test_backup_can_be_read_by_its_user_only(path: Path, tmp_path: Path) -> None:
    prepare(str(path))
    path.chmod(0o644)
    copied(path, tmp_path / "copy.db")
    assert stat.S_IMODE((tmp_path / "copy.db").stat().st_mode) == 0o600


def test_backup_of_an_older_store_is_that_store(path: Path, tmp_path: Path) -> None:
    prepare(str(path))
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 7)
    connection.close()
    copied(path, tmp_path / "copy.db")
    copy = apsw.Connection(str(tmp_path / "copy.db"))
    assert copy.pragma("user_version") == 7
    copy.close()


async def test_backup_of_what_is_no_store_is_refused(path: Path, tmp_path: Path) -> None:
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


async def test_backup_killed_before_it_dropped_its_first_name_can_be_opened(
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
