"""Where no store can lie, and how that is said."""

import asyncio
import os
import socket
import stat
import sys
import threading
from pathlib import Path

import pytest

from turnledger import Ledger
from turnledger.errors import NotAStore, StoreError, StoreUnavailable
from turnledger.stores.sqlite import SqliteStore
from turnledger.stores.sqlite.connections import prepare
from turnledger.stores.sqlite.files import check_place

posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX files")


def refused(path: str | Path, kind: type[StoreError] = NotAStore) -> str:
    with pytest.raises(StoreError) as caught:
        check_place(str(path))
    assert type(caught.value) is kind
    return str(caught.value)


def resources() -> tuple[set[threading.Thread], int]:
    """Threads, and how many files are open."""
    return set(threading.enumerate()), len(list(Path("/dev/fd").iterdir()))


@posix
def test_what_is_no_regular_file_is_refused_without_opening_it(tmp_path: Path) -> None:
    pipe, door = tmp_path / "pipe", tmp_path / "door"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(door))
        for place in (pipe, door, Path("/dev/null"), Path("/dev/zero")):
            assert f"{place} is a pipe, a socket or a device" in refused(place)


@pytest.mark.parametrize("name", ["a\0b.db", "a\ud800.db"])
def test_a_name_that_no_file_can_have_is_refused(name: str) -> None:
    message = refused(name)
    assert repr(name) in message
    message.encode()


@pytest.mark.parametrize("name", ["chats/", "", ".", "chats/.."])
def test_a_name_of_a_folder_is_refused(name: str) -> None:
    assert "Name a file in it" in refused(name)


@posix
def test_a_name_too_long_for_the_files_beside_it_is_refused(tmp_path: Path) -> None:
    check_place(str(tmp_path / ("x" * 247)))
    assert "shorter by 1 or more" in refused(tmp_path / ("x" * 248))
    assert "File name too long" in refused(tmp_path / ("x" * 300))


@posix
def test_a_path_too_long_for_sqlite_is_refused(tmp_path: Path) -> None:
    folder = tmp_path
    while len(str(folder)) < 500:
        folder /= "x" * 50
    folder.mkdir(parents=True)
    assert "too long" in refused(folder / "chats.db")


def test_a_file_is_no_folder(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    assert "Not a directory" in refused(tmp_path / "file" / "chats.db")


@posix
def test_links_are_followed_and_need_not_lead_to_a_file_yet(tmp_path: Path) -> None:
    link, target = tmp_path / "link.db", tmp_path / "target.db"
    link.symlink_to(target)
    assert check_place(str(link)) == target


@posix
def test_a_link_that_leads_nowhere_is_refused_by_its_name(tmp_path: Path) -> None:
    link, circle = tmp_path / "link.db", tmp_path / "circle.db"
    link.symlink_to(tmp_path / "nowhere" / "chats.db")
    circle.symlink_to(circle)
    assert refused(link).startswith(f"{link} is a link into the folder {tmp_path / 'nowhere'}")
    assert "symbolic links" in refused(circle)


def test_a_disk_that_does_not_answer_makes_the_store_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "stat", fail)
    assert "Check its disk" in refused(tmp_path / "chats.db", StoreUnavailable)


@posix
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
async def test_a_refusal_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StoreError):
        await SqliteStore.open(pipe)  # starts the pool of threads
    before = resources()
    for path in (pipe, "/dev/null", "/proc/chats.db", "a\0b", "a\ud800", "x" * 300, tmp_path, "chats/"):
        with pytest.raises(StoreError):
            await SqliteStore.open(path, inline=True)
    assert resources() == before


@posix
def test_file_with_two_names_is_refused_by_both(path: Path) -> None:
    prepare(str(path))
    other = path.with_name("other.db")
    os.link(path, other)
    assert "has 2 names. Remove all but one." in refused(path)
    assert "has 2 names" in refused(other)
    other.unlink()
    prepare(str(path))


async def modes(path: Path) -> dict[str, str]:
    """The permissions of all files of a store in use, where the user has not asked for any."""
    before = os.umask(0)
    try:
        async with await Ledger.open(f"sqlite:///{path}") as ledger:
            await ledger.conversation()
            return {each.suffix: stat.filemode(each.stat().st_mode) for each in path.parent.rglob("*")}
    finally:
        os.umask(before)


@posix
def test_files_of_a_new_store_can_be_read_by_its_user_only(path: Path) -> None:
    assert asyncio.run(modes(path)) == {
        **dict.fromkeys((".db", ".db-wal", ".db-shm", ".lock"), "-rw-------"),
        ".db-leases": "drwx------",
    }


@posix
def test_store_that_a_group_shares_keeps_its_permissions(path: Path) -> None:
    asyncio.run(modes(path))
    path.chmod(0o660)
    assert asyncio.run(modes(path)) == {
        **dict.fromkeys((".db", ".db-wal", ".db-shm"), "-rw-rw----"),
        ".db-leases": "drwxrwx---",
        ".lock": "-rw-------",
    }
