"""Opening a store: which paths and files are refused, with which message, and left untouched."""

import asyncio
import os
import socket
import stat
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import apsw
import pytest

from tests.unit.stores.sqlite.conftest import ROOT, Neighbour, wait_until_ready
from tests.unit.stores.sqlite.operations import beat, beat_of, ids
from turnledger import Ledger
from turnledger.errors import (
    NotAStore,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
    UnsafeSqlite,
)
from turnledger.model.ids import LeaseId
from turnledger.stores.sqlite import SqliteStore, connections, path_of
from turnledger.stores.sqlite.connections import (
    APPLICATION_ID,
    BUSY_TIMEOUT,
    LONG_WAIT,
    SHORT_WAIT,
    Patience,
    check_sqlite,
    connect_read_only,
    connect_writer,
    prepare,
)
from turnledger.stores.sqlite.files import check_place
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.testing.faulty_disk import FaultyDisk

NOBODY = 65534


def snapshot(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


@pytest.fixture
def shelf() -> Iterator[Path]:
    """A folder that every user can reach; pytest's own are private."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)
        Path(folder).chmod(0o700)


def make_store(path: Path) -> None:
    prepare(str(path))


def refused(path: Path, kind: type[StoreError], vfs: str | None = None) -> str:
    """Open it, expect this error, and that nothing changed; return the message."""
    before = snapshot(path.parent) if path.is_file() else None
    with pytest.raises(StoreError) as caught:
        prepare(str(path), vfs)
    assert type(caught.value) is kind
    assert before is None or snapshot(path.parent) == before
    return str(caught.value)


@pytest.mark.parametrize(
    ("url", "path"),
    [
        ("sqlite:///chats.db", "chats.db"),
        ("sqlite:///data/chats.db", "data/chats.db"),
        ("sqlite:////var/lib/chats.db", "/var/lib/chats.db"),
        ("sqlite:///50% off.db", "50% off.db"),
        ("sqlite:///chats.db?secure_delete=on", "chats.db"),
        ("sqlite:///why?.db", "why?.db"),
    ],
)
def test_sqlite_url_names_a_file(url: str, path: str) -> None:
    assert path_of(url) == path


@pytest.mark.parametrize(
    "url", ["sqlite:///", "sqlite://", "chats.db", "sqlite:///:memory:", "files:chats", "sqlite:///chats/"]
)
def test_sqlite_url_without_a_file_is_refused(url: str) -> None:
    with pytest.raises(NotAStore):
        path_of(url)


@pytest.mark.parametrize("version", ["3.40.1", "3.44.5", "3.45.0", "3.50.6", "3.51.0", "3.51.2"])
def test_unsafe_sqlite_version_is_refused(version: str) -> None:
    with pytest.raises(UnsafeSqlite, match=version):
        check_sqlite(version)


@pytest.mark.parametrize("version", ["3.44.6", "3.50.7", "3.51.3", "3.54.1", "4.0.0"])
def test_safe_sqlite_version_is_accepted(version: str) -> None:
    check_sqlite(version)


def test_new_store_has_the_application_id_and_uses_the_wal(path: Path) -> None:
    make_store(path)
    connection = apsw.Connection(str(path))
    assert connection.pragma("application_id") == APPLICATION_ID
    assert connection.pragma("user_version") == VERSION
    assert connection.pragma("journal_mode") == "wal"
    connection.close()


def test_closed_store_leaves_a_single_file(path: Path) -> None:
    make_store(path)
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_empty_file_becomes_a_store(path: Path) -> None:
    path.touch()
    make_store(path)
    assert path.stat().st_size > 0


def test_newer_store_is_refused_and_left_untouched(path: Path) -> None:
    make_store(path)
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", VERSION + 1)
    connection.close()
    assert f"schema {VERSION + 1}" in refused(path, StoreTooNew)


def test_newer_store_with_a_log_is_refused_and_left_untouched(path: Path) -> None:
    make_store(path)
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.pragma("user_version", VERSION + 1)
    connection.close()
    log = path.with_name(f"{path.name}-wal")
    before = path.read_bytes(), log.read_bytes()
    with pytest.raises(StoreTooNew):
        prepare(str(path))
    assert (path.read_bytes(), log.read_bytes()) == before


def test_database_of_another_program_is_refused_and_left_untouched(path: Path) -> None:
    connection = apsw.Connection(str(path))
    connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    assert "not a Turnledger store" in refused(path, NotAStore)


def test_file_that_is_not_a_database_is_refused_and_left_untouched(path: Path) -> None:
    path.write_text("Dear diary,\n" * 100)
    assert "not a database" in refused(path, NotAStore)


def test_path_of_a_folder_is_refused_with_a_hint(path: Path) -> None:
    path.mkdir()
    assert str(path / "chats.db") in refused(path, NotAStore)


def test_path_in_a_missing_folder_is_refused_with_the_remedy(path: Path) -> None:
    assert f"mkdir -p {path.parent / 'no'}" in refused(path.parent / "no" / "chats.db", NotAStore)


@pytest.mark.parametrize(("start", "end"), [(100, 4096), (16, 68)])
def test_damaged_store_is_refused_and_left_untouched(path: Path, start: int, end: int) -> None:
    make_store(path)
    content = bytearray(path.read_bytes())
    content[start:end] = b"\xff" * (end - start)
    path.write_bytes(content)
    assert "backup" in refused(path, StoreCorrupt)


def leave_log(path: Path) -> Path:
    """Write as a process that then dies: what it wrote, first page included, is in the log alone."""
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute("INSERT INTO lease (id, beat) VALUES (?, 1)", (bytes(16),))
    connection.pragma("user_version", VERSION)
    connection.close()
    return path.with_name(f"{path.name}-wal")


@pytest.mark.parametrize("filler", [b"\0", b"\xa5"])
@pytest.mark.parametrize(("start", "end"), [(0, 16), (0, 100), (0, 4096), (0, 8192), (16, 8192)])
def test_store_whose_first_page_was_torn_by_a_crash_opens_from_its_log(
    path: Path, start: int, end: int, filler: bytes
) -> None:
    make_store(path)
    leave_log(path)
    content = bytearray(path.read_bytes())
    content[start:end] = filler * (end - start)
    path.write_bytes(content)
    visitor = connect_read_only(str(path))
    assert visitor.execute("SELECT count(*) FROM lease").get == 1
    visitor.close()
    make_store(path)
    connection = apsw.Connection(str(path))
    assert connection.execute("SELECT count(*) FROM lease").get == 1
    assert connection.pragma("integrity_check") == "ok"
    connection.close()


def test_store_torn_beyond_its_log_is_corrupt_and_left_untouched(path: Path) -> None:
    make_store(path)
    log = leave_log(path)
    path.write_bytes(bytes(path.stat().st_size))
    whole = bytearray(log.read_bytes())
    whole[16:24] = bytes(8)  # the salts: no frame is valid any more
    log.write_bytes(whole)
    before = path.read_bytes(), log.read_bytes()
    with pytest.raises(StoreCorrupt, match="restore it from a backup"):
        prepare(str(path))
    assert (path.read_bytes(), log.read_bytes()) == before


@pytest.mark.parametrize("suffix", ["-wal", "-journal"])
def test_foreign_file_with_a_log_of_another_program_is_refused(path: Path, suffix: str) -> None:
    other = apsw.Connection(str(path))
    other.pragma("journal_mode", suffix.strip("-").replace("journal", "persist"))
    other.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    other.execute("CREATE TABLE theirs (x)")
    other.execute("INSERT INTO theirs VALUES (1)")
    other.close()
    assert path.with_name(path.name + suffix).stat().st_size
    assert "not a Turnledger store" in refused(path, NotAStore)
    path.write_bytes(b"Dear diary," * 1000)
    assert "not a database" in refused(path, NotAStore)


@pytest.mark.parametrize("is_absent", [True, False])
def test_log_without_its_file_is_refused_and_left_untouched(path: Path, is_absent: bool) -> None:
    make_store(path)
    connection = apsw.Connection(str(path))
    connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
    connection.execute("INSERT INTO lease (id, beat) VALUES (x'00', 1)")
    connection.close()
    path.unlink()
    if not is_absent:
        path.touch()
    before = snapshot(path.parent)
    assert "may hold turns" in refused(path, StoreCorrupt)
    assert snapshot(path.parent) == before
    log = path.with_name(f"{path.name}-wal")
    assert log.stat().st_size > 0
    log.rename(path.with_name("aside"))
    make_store(path)


def test_log_of_a_symbolic_link_is_sought_next_to_its_target(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    path.with_name(f"{path.name}-wal").write_text("turns")
    assert "may hold turns" in refused(link, StoreCorrupt)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX locks")
def test_store_opened_again_keeps_the_locks_of_the_process(path: Path) -> None:
    make_store(path)
    connection = apsw.Connection(str(path))
    connection.execute("SELECT * FROM lease").fetchall()
    make_store(path)
    # The range that SQLite locks for sharing; free, it would let a neighbour remove the log.
    script = (
        "import fcntl, sys\n"
        "with open(sys.argv[1], 'r+b') as file:\n"
        "    try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)\n"
        "    except OSError: print('locked')\n"
    )
    ran = subprocess.run([sys.executable, "-c", script, path], capture_output=True, text=True, check=True)
    assert ran.stdout == "locked\n"
    connection.close()


def test_log_shrinks_again_after_a_long_reader(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "LOG_LIMIT", 50_000)
    make_store(path)
    reader, writer = connections.connect_reader(str(path)), connections.connect_writer(str(path))
    writer.pragma("wal_autocheckpoint", 5)
    log = path.with_name(f"{path.name}-wal")

    def write(times: int) -> int:
        for _ in range(times):
            writer.execute("INSERT INTO lease (id, beat) VALUES (randomblob(16), 1)")
        return log.stat().st_size

    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM lease").fetchall()
    assert write(50) > 400_000
    reader.execute("ROLLBACK")
    assert write(20) <= 50_000
    reader.close()
    writer.close()


def test_store_on_a_read_only_disk_is_refused(path: Path, disk: FaultyDisk) -> None:
    make_store(path)
    disk.read_only = True
    assert "is read-only" in refused(path, StoreReadOnly, disk.name)


@pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX permissions")
@pytest.mark.parametrize("place", ["file", "folder"])
def test_store_without_write_permission_is_refused(place: str, shelf: Path) -> None:
    make_store(shelf / "chats.db")
    shelf.joinpath("chats.db").chmod(0o444 if place == "file" else 0o666)
    shelf.chmod(0o555 if place == "folder" else 0o777)
    script = (
        "import os, sys\n"
        "from turnledger.errors import StoreReadOnly\n"
        "from turnledger.stores.sqlite.connections import prepare\n"
        "os.chdir(sys.argv[1])\n"
        f"os.getuid() or os.setuid({NOBODY})\n"
        "try: prepare('chats.db')\n"
        "except StoreReadOnly as problem: print(problem)\n"
    )
    command = [sys.executable, "-c", script, str(shelf)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert "Check its permissions" in ran.stdout, ran.stderr


@pytest.mark.skipif("unix-none" not in apsw.vfs_names(), reason="needs a VFS without shared memory")
def test_store_on_a_file_system_without_shared_memory_is_refused(path: Path) -> None:
    assert "local disk" in refused(path, StoreError, vfs="unix-none")


async def test_store_created_by_several_processes_at_once_is_one_store(
    path: Path, neighbour: Neighbour
) -> None:
    lease = ids.new(LeaseId)
    processes = [neighbour("write", path, lease, wait=False) for _ in range(4)]
    store = await SqliteStore.open(path)
    await store.transact_whole(beat, lease)
    for process in processes:
        await asyncio.to_thread(wait_until_ready, process)
    assert await store.read_whole(beat_of, lease) == 5
    await store.close()


class Hours:
    """Time that passes only while somebody sleeps."""

    def __init__(self) -> None:
        self.now = 100.0
        self.slept: list[float] = []

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def test_busy_writer_retries_often_at_first_and_gives_up_after_the_timeout(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hours = Hours()
    monkeypatch.setattr(connections, "time", hours)
    patience = Patience()
    for _ in range(2):  # each wait has its own time
        hours.slept.clear()
        tries = 0
        while patience(tries):
            tries += 1
        assert (hours.slept[0], hours.slept[-1]) == (SHORT_WAIT, LONG_WAIT)
        assert BUSY_TIMEOUT <= sum(hours.slept) <= BUSY_TIMEOUT + 2 * LONG_WAIT


def test_busy_writer_waits_for_the_writer_before_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = (connect_writer(f"{tmp_path}/x.db") for _ in range(2))
    first.execute("CREATE TABLE t (x); BEGIN IMMEDIATE; INSERT INTO t VALUES (1)")
    hours = Hours()
    monkeypatch.setattr(hours, "sleep", lambda _: first.execute("COMMIT"))
    monkeypatch.setattr(connections, "time", hours)
    second.execute("BEGIN IMMEDIATE; INSERT INTO t VALUES (2); COMMIT")
    assert second.execute("SELECT count(*) FROM t").fetchall() == [(2,)]
    first.close()
    second.close()


@pytest.mark.parametrize("kind", ["database", "text"])
def test_foreign_file_with_a_log_of_ours_is_refused_and_left_untouched(path: Path, kind: str) -> None:
    connections.prepare(str(path))
    first, second = (connect_writer(str(path)) for _ in range(2))
    first.pragma("user_version", first.pragma("user_version"))
    log = Path(f"{path}-wal").read_bytes()
    first.close()
    second.close()
    path.unlink()
    if kind == "text":
        path.write_text("Somebody's words. " * 10_000)
    else:
        foreign = apsw.Connection(str(path))
        foreign.pragma("application_id", 7)
        foreign.execute("CREATE TABLE theirs (a)")
        foreign.close()
    before = path.read_bytes()
    Path(f"{path}-wal").write_bytes(log)
    with pytest.raises((StoreCorrupt, NotAStore)):
        connections.prepare(str(path))
    assert path.read_bytes() == before


posix = pytest.mark.skipif(sys.platform == "win32", reason="needs POSIX files")


def refused_place(path: str | Path, kind: type[StoreError] = NotAStore) -> str:
    with pytest.raises(StoreError) as caught:
        check_place(str(path))
    assert type(caught.value) is kind
    return str(caught.value)


def resources() -> tuple[set[threading.Thread], int]:
    """Threads, and how many files are open."""
    return set(threading.enumerate()), len(list(Path("/dev/fd").iterdir()))


@posix
def test_path_of_a_pipe_socket_or_device_is_refused_without_opening_it(tmp_path: Path) -> None:
    pipe, door = tmp_path / "pipe", tmp_path / "door"
    os.mkfifo(pipe)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(door))
        for place in (pipe, door, Path("/dev/null"), Path("/dev/zero")):
            assert f"{place} is a pipe, a socket or a device" in refused_place(place)


@pytest.mark.parametrize("name", ["a\0b.db", "a\ud800.db"])
def test_path_with_an_impossible_name_is_refused(name: str) -> None:
    message = refused_place(name)
    assert repr(name) in message
    message.encode()


@pytest.mark.parametrize("name", ["chats/", "", ".", "chats/.."])
def test_path_with_the_name_of_a_folder_is_refused(name: str) -> None:
    assert "Name a file in it" in refused_place(name)


@posix
def test_path_with_a_name_too_long_for_its_log_is_refused(tmp_path: Path) -> None:
    check_place(str(tmp_path / ("x" * 247)))
    assert "Shorten it by at least 1" in refused_place(tmp_path / ("x" * 248))
    assert "File name too long" in refused_place(tmp_path / ("x" * 300))


@posix
def test_path_too_long_for_sqlite_is_refused(tmp_path: Path) -> None:
    folder = tmp_path
    while len(str(folder)) < 500:
        folder /= "x" * 50
    folder.mkdir(parents=True)
    assert "too long" in refused_place(folder / "chats.db")


def test_path_below_a_file_is_refused(tmp_path: Path) -> None:
    tmp_path.joinpath("file").touch()
    assert "Not a directory" in refused_place(tmp_path / "file" / "chats.db")


@posix
def test_symbolic_link_is_followed_even_to_a_missing_file(tmp_path: Path) -> None:
    link, target = tmp_path / "link.db", tmp_path / "target.db"
    link.symlink_to(target)
    assert check_place(str(link)) == target


@posix
def test_symbolic_link_to_a_missing_folder_or_itself_is_refused(tmp_path: Path) -> None:
    link, circle = tmp_path / "link.db", tmp_path / "circle.db"
    link.symlink_to(tmp_path / "nowhere" / "chats.db")
    circle.symlink_to(circle)
    assert refused_place(link).startswith(f"{link} links to the missing folder {tmp_path / 'nowhere'}")
    assert "symbolic links" in refused_place(circle)


def test_disk_with_an_io_error_makes_the_store_unavailable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*arguments: object, **options: object) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(Path, "stat", fail)
    assert "Check its disk" in refused_place(tmp_path / "chats.db", StoreUnavailable)


@posix
@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
async def test_refused_path_leaves_no_thread_and_no_open_file(tmp_path: Path) -> None:
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
def test_file_with_two_hard_links_is_refused_under_both_names(path: Path) -> None:
    prepare(str(path))
    other = path.with_name("other.db")
    os.link(path, other)
    assert "has 2 names. Remove all but one." in refused_place(path)
    assert "has 2 names" in refused_place(other)
    other.unlink()
    prepare(str(path))


async def modes(path: Path) -> dict[str, str]:
    """The permissions of all files of a store in use, where the user has set none."""
    before = os.umask(0)
    try:
        async with await Ledger.open(f"sqlite:///{path}") as ledger:
            await ledger.conversation()
            return {each.suffix: stat.filemode(each.stat().st_mode) for each in path.parent.rglob("*")}
    finally:
        os.umask(before)


@posix
def test_files_of_a_new_store_are_readable_by_its_user_only(path: Path) -> None:
    assert asyncio.run(modes(path)) == {
        **dict.fromkeys((".db", ".db-wal", ".db-shm", ".lock"), "-rw-------"),
        ".db-leases": "drwx------",
    }


@posix
def test_store_shared_by_a_group_keeps_its_permissions(path: Path) -> None:
    asyncio.run(modes(path))
    path.chmod(0o660)
    assert asyncio.run(modes(path)) == {
        **dict.fromkeys((".db", ".db-wal", ".db-shm"), "-rw-rw----"),
        ".db-leases": "drwxrwx---",
        ".lock": "-rw-------",
    }
