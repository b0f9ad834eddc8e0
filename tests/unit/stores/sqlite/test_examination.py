"""A store is looked at closely, and left exactly as it was."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.unit.engine.lived_in import live_in
from turnledger import Ledger
from turnledger.errors import NotAStore, StoreError, StoreTooNew
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import SqliteStore, visit
from turnledger.stores.sqlite.leases import LockFiles
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.stores.sqlite.visit import examine, sqlite_version


def contents(path: Path) -> dict[str, bytes]:
    return {each.name: each.read_bytes() for each in path.parent.iterdir()}


def only_file_in(folder: Path) -> Path:
    [file] = folder.iterdir()
    return file


@pytest.fixture
async def lived_in(path: Path) -> Path:
    await (await live_in(await SqliteStore.open(path))).ledger.close()
    return path


async def test_a_store_at_rest_is_described_and_left_as_it_was(lived_in: Path) -> None:
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


async def test_an_empty_one_has_no_newest_turn(path: Path) -> None:
    await (await SqliteStore.open(path)).close()
    assert examine(str(path)).newest_ms is None


async def test_who_takes_part_is_told_from_who_died(path: Path) -> None:
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


async def test_a_neighbour_that_does_not_let_go_is_noticed(
    lived_in: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(visit, "PATIENCE_MS", 0)
    neighbour = apsw.Connection(str(lived_in))
    neighbour.execute("BEGIN IMMEDIATE")
    assert examine(str(lived_in)).is_stuck
    neighbour.execute("ROLLBACK")
    assert not examine(str(lived_in)).is_stuck
    neighbour.close()


async def test_another_journal_mode_is_seen(lived_in: Path) -> None:
    other = apsw.Connection(str(lived_in))
    assert other.pragma("journal_mode", "delete") == "delete"
    other.close()
    assert examine(str(lived_in)).journal_mode == "delete"


async def test_what_is_no_store_of_this_version_is_refused(lived_in: Path, tmp_path: Path) -> None:
    with pytest.raises(NotAStore):
        examine(str(tmp_path / "nothing.db"))
    for version, kind in ((VERSION + 1, StoreTooNew), (0, StoreError)):
        other = apsw.Connection(str(lived_in))
        other.pragma("user_version", version)
        other.close()
        with pytest.raises(kind):
            examine(str(lived_in))


def test_the_sqlite_in_use_is_a_safe_one() -> None:
    assert sqlite_version() == apsw.sqlite_lib_version()
