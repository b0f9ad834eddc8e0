"""What the doctor says of a store, its file and its disk."""

from __future__ import annotations

import os
from pathlib import Path

import apsw
import msgspec
import pytest

from turnledger import Ledger
from turnledger.errors import UnsafeSqlite
from turnledger.server import doctor
from turnledger.server.doctor import (
    Diagnosis,
    Level,
    check_disk,
    check_file,
    check_filesystem,
    check_participants,
    check_permissions,
    check_sqlite,
    check_store,
)
from turnledger.stores.sqlite.files import filesystem_of
from turnledger.stores.sqlite.visit import Examination

SOUND = Examination(
    schema=1,
    journal_mode="wal",
    file_bytes=8192,
    log_bytes=0,
    living=1,
    dead=0,
    unknown=0,
    newest_ms=None,
    is_stuck=False,
)


def levels(found: list[Diagnosis]) -> dict[str, Level]:
    return {each.subject: each.level for each in found}


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    async with await Ledger.open(f"sqlite:///{tmp_path}/chats.db") as ledger:
        await ledger.conversation()
    (tmp_path / "chats.db").chmod(0o600)
    return tmp_path / "chats.db"


async def test_a_sound_store_is_sound(store: Path) -> None:
    found, examined = check_store(f"sqlite:///{store}")
    assert set(levels(found).values()) == {Level.OK}
    assert levels(found).keys() == {"store", "processes", "permissions", "disk"}
    assert examined is not None
    assert all(not each.remedy for each in found)


def test_a_store_that_is_yet_to_be_made_is_none_of_its_business(tmp_path: Path) -> None:
    found, examined = check_store(f"sqlite:///{tmp_path}/chats.db")
    assert (levels(found)["store"], examined) == (Level.OK, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "level"),
    [
        (lambda path: path.write_text("no database" * 50), Level.FAIL),
        (lambda path: path.mkdir(), Level.FAIL),
        (lambda path: apsw.Connection(str(path)).pragma("user_version", 7), Level.FAIL),
    ],
)
def test_what_is_no_store_is_told(tmp_path: Path, make: object, level: Level) -> None:
    path = tmp_path / "chats.db"
    assert callable(make)
    make(path)
    found, examined = check_store(f"sqlite:///{path}")
    assert (levels(found)["store"], examined) == (level, None)
    assert str(path) in found[0].told


async def test_an_older_store_is_only_worth_a_word(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.pragma("user_version", 0)
    connection.close()
    assert levels(check_store(f"sqlite:///{store}")[0])["store"] is Level.WARN


def test_a_store_in_memory_is_worth_a_word() -> None:
    assert levels(check_store("memory:")[0]) == {"store": Level.WARN}


@pytest.mark.parametrize(
    ("change", "subject", "level"),
    [
        ({"journal_mode": "delete"}, "store log", Level.WARN),
        ({"log_bytes": 10**10}, "store log", Level.WARN),
        ({"is_stuck": True}, "store lock", Level.FAIL),
        ({"dead": 1}, "processes", Level.WARN),
        ({"unknown": 2}, "processes", Level.WARN),
        ({}, "processes", Level.OK),
    ],
)
def test_each_thing_that_is_odd_about_a_file(change: dict[str, int], subject: str, level: Level) -> None:
    found = check_file(Path("/somewhere/chats.db"), msgspec.structs.replace(SOUND, **change))
    assert levels(found)[subject] is level
    assert all(each.remedy for each in found if each.level is not Level.OK)


def test_processes_are_counted() -> None:
    assert check_participants(msgspec.structs.replace(SOUND, living=0))[0].told.startswith("0 processes")
    assert check_participants(SOUND)[0].told.startswith("1 process at")


def test_a_disk_that_takes_nothing_and_one_that_is_nearly_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert levels(check_disk(tmp_path)) == {"disk": Level.OK}
    [lost] = check_disk(tmp_path / "nowhere")
    assert (lost.level, "No such file" in lost.told) == (Level.FAIL, True)
    for bound in ("LITTLE", "TOO_LITTLE"):
        monkeypatch.setattr(doctor, bound, 10**18)
        expected = {"LITTLE": Level.WARN, "TOO_LITTLE": Level.FAIL}[bound]
        assert levels(check_disk(tmp_path)) == {"disk": expected}
    assert list(tmp_path.iterdir()) == []


def test_a_network_filesystem_is_told(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nhost:/x /mnt/my\\040disk nfs4 rw 0 0\nshort\n")
    assert filesystem_of(Path("/home/a"), mounts) == "ext4"
    assert check_filesystem(Path("/home/a"), mounts) == []
    assert levels(check_filesystem(Path("/mnt/my disk/deep/below"), mounts)) == {"filesystem": Level.WARN}
    assert filesystem_of(Path("/"), tmp_path / "nothing") is None


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_who_else_can_read_the_conversations(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "parents", property(lambda self: (tmp_path,)))
    place = tmp_path / "chats.db"
    place.touch()
    for folder, mode, told in (
        (0o755, 0o644, "everybody"),
        (0o750, 0o644, "the group"),
        (0o755, 0o640, "the group"),
        (0o700, 0o644, "its user only"),
        (0o755, 0o600, "its user only"),
    ):
        tmp_path.chmod(folder)
        place.chmod(mode)
        [found] = check_permissions(place)
        assert told in found.told
        assert (found.level is Level.OK) == ("user only" in told)
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert "another user" in check_permissions(place)[0].told


def test_an_unsafe_sqlite_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(check_sqlite()) == {"SQLite": Level.OK}

    def unsafe() -> str:
        raise UnsafeSqlite

    monkeypatch.setattr(doctor, "sqlite_version", unsafe)
    assert levels(check_sqlite()) == {"SQLite": Level.FAIL}
