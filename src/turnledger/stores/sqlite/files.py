"""The files of a store: where they may be, whether they still exist, and whether a fork inherited them.

A path is checked before it is opened: a pipe would block. While a store is open, its files may be removed or
replaced, and SQLite would write where no other process reads. SQLite keeps a table of its locks per process:
a forked process inherits the table but not the locks, so a connection that it opens to the same file would
assume locks that it does not have.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import secrets
import stat
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import apsw

from turnledger.errors import LedgerElsewhere, NotAStore, StoreError, StoreReadOnly, StoreUnavailable
from turnledger.stores.sqlite.header import PAGE_SIZE

_LONGEST_SUFFIX = len("-journal")
_LONGEST_PATH = 512
"""The most bytes that SQLite allows on Unix, with the suffix."""

_UNFINISHED = re.compile(r"\.[0-9a-f]{16}\.part")

_KIND_OF_ERROR: dict[int, type[StoreError]] = {
    errno.EACCES: StoreReadOnly,
    errno.EPERM: StoreReadOnly,
    errno.EROFS: StoreReadOnly,
    errno.ELOOP: NotAStore,
    errno.ENAMETOOLONG: NotAStore,
    errno.ENOTDIR: NotAStore,
}
_REMEDY: dict[type[StoreError], str] = {
    StoreReadOnly: "Check its permissions, and those of the folders above it.",
    NotAStore: "Name another file.",
    StoreUnavailable: "Check its disk, and try again.",
}


def check_place(path: str) -> Path:
    """Return the file at this path, links followed; it need not exist.

    Raises NotAStore if there can be no store, StoreReadOnly if this user may not create one, and
    StoreUnavailable if the disk does not respond.
    """
    _check_name(path)
    try:
        place = Path(os.path.realpath(path))
        _check_kind(path, place)
        _check_folder(path, place.parent)
        _check_length(path, place)
        _check_access(path, place)
    except OSError as problem:
        raise unreachable(path, problem) from problem
    return place


def unreachable(path: str, problem: OSError) -> StoreError:
    """Return the error for a path that the system cannot read."""
    kind = _KIND_OF_ERROR.get(problem.errno or 0, StoreUnavailable)
    return kind(f"{path} cannot be reached: {problem.strerror}. {_REMEDY[kind]}")


def create_private(place: Path) -> None:
    """Create an empty file that only its user may read, if absent. SQLite gives its other files the same
    mode."""
    with suppress(FileExistsError):
        os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check_name(path: str) -> None:
    if "\0" in path:
        raise NotAStore(f"{path!r} contains a NUL character. Name another file.")
    try:
        path.encode()
    except UnicodeEncodeError as problem:
        raise NotAStore(f"{path!r} is not UTF-8, which SQLite needs. Name another file.") from problem
    if os.path.basename(path) in ("", os.curdir, os.pardir):
        raise _is_a_folder(path)


def _check_kind(path: str, place: Path) -> None:
    try:
        found = place.stat()
    except FileNotFoundError:
        return
    mode = found.st_mode
    if stat.S_ISDIR(mode):
        raise _is_a_folder(path)
    if not stat.S_ISREG(mode):
        raise NotAStore(
            f"{path} is a pipe, a socket or a device. Name a file, or one that does not exist yet."
        )
    if found.st_nlink > 1 and not _remove_backup_name(place, found):
        # SQLite derives the log's name from the path: processes that use two names overwrite each other's
        # turns.
        raise NotAStore(f"{path} is a hard link: the file has {found.st_nlink} names. Remove all but one.")


def temporary_name() -> str:
    return f".{secrets.token_hex(8)}.part"


def _remove_backup_name(place: Path, found: os.stat_result) -> bool:
    """Remove the temporary name of a backup, if that is the only other one: its process was killed after it
    had given the file its final name."""
    if found.st_nlink != 2:
        return False
    for other in place.parent.glob(".*.part"):
        if _UNFINISHED.fullmatch(other.name) and os.path.samestat(other.lstat(), found):
            other.unlink(missing_ok=True)
            return True
    return False


def _is_a_folder(path: str) -> NotAStore:
    return NotAStore(f"{path or '.'} is a folder. Name a file in it, for example {Path(path) / 'chats.db'}.")


def _check_folder(path: str, folder: Path) -> None:
    if folder.is_dir():
        return
    if os.path.islink(path):
        raise NotAStore(
            f"{path} links to the missing folder {folder}. Fix the link, or create the folder: "
            f"mkdir -p {folder}"
        )
    raise NotAStore(f"The folder {folder} does not exist. Create it first: mkdir -p {folder}")


def _check_length(path: str, place: Path) -> None:
    if sys.platform == "win32":
        return
    too_long = max(
        len(os.fsencode(place.name)) + _LONGEST_SUFFIX - os.pathconf(place.parent, "PC_NAME_MAX"),
        len(os.fsencode(place)) + _LONGEST_SUFFIX - _LONGEST_PATH,
    )
    if too_long > 0:
        raise NotAStore(
            f"{path} is too long: SQLite adds files with longer names. Shorten it by at least {too_long}."
        )


def _check_access(path: str, place: Path) -> None:
    # SQLite keeps its log beside the file, so the folder must be writable, too.
    if place.exists() and not os.access(place, os.W_OK | os.R_OK):
        raise StoreReadOnly(f"{path} cannot be written to by this user. Check its permissions.")
    if not os.access(place.parent, os.W_OK | os.R_OK | os.X_OK):
        raise StoreReadOnly(f"{place.parent} cannot be written to by this user. Check its permissions.")


NETWORKED = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs"}
)
"""Filesystems that several machines can share. The index of SQLite's log is memory of one machine: two
machines destroy the store. A single one may use it, if locks and syncs are reliable."""
MOUNTS = Path("/proc/self/mounts")


def network_filesystem(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """Return the kind of network filesystem of a folder; None if it is local or unknown."""
    kind = filesystem_of(folder, mounts)
    return kind if kind in NETWORKED else None


def filesystem_of(folder: Path, mounts: Path = MOUNTS) -> str | None:
    try:
        lines = [line.split(" ") for line in mounts.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return None
    points = {Path(line[1].replace("\\040", " ")): line[2] for line in lines if len(line) > 2}
    return next((points[each] for each in (folder, *folder.parents) if each in points), None)


Identity: TypeAlias = tuple[int, int]

_LOG_HEADER, _FRAME_HEADER = 32, 24
_TRIES = 3
_UNKNOWN: Identity = (-1, -1)
_STOP_ALL = "Nothing was written; stop all processes of the store, then restart."


class OpenFiles:
    """The files of one connection: the store itself, its log, and the index of the log (`-shm`).

    `lost` is the path of one that was removed or replaced, by the last `find_lost`. A store that has lost one
    must not be used: a process that opens it now has another log, or locks that this one does not see.
    """

    def __init__(self, connection: apsw.Connection) -> None:
        self._connection = connection
        self._answer = ctypes.c_int(0)
        connection.pragma("user_version")  # a first read opens the log
        self._file = connection.filename
        self._log, self._index = f"{self._file}-wal", f"{self._file}-shm"
        found = [(path, _identity(path)) for path in (self._log, self._index)]
        self._beside = [(path, identity) for path, identity in found if identity]
        self.lost: str | None = None

    def find_lost(self) -> str | None:
        """Return which file is lost, if any. One that was put back is not."""
        self.lost = self._file if self._has_moved() else None
        for path, identity in self._beside:
            if _identity(path) != identity:
                self.lost = self.lost or path
        return self.lost

    def is_log_truncated(self) -> bool:
        """Return whether the log was truncated in place. Not within a transaction."""
        if is_cut(self._connection):
            self.lost = self._log
        return self.lost is not None

    def _has_moved(self) -> bool:
        """Return whether the path no longer leads to the store. False if the system cannot tell."""
        self._connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(self._answer))
        return bool(self._answer.value)

    def error(self) -> StoreUnavailable:
        """Return the error to raise instead of using the store."""
        error = self._error()
        error.public_message = str(error).replace(str(self.lost), "A file of the store")
        return error

    def _error(self) -> StoreUnavailable:
        if self.lost == self._file:
            return StoreUnavailable(
                f"{self.lost} was removed or replaced while open. Nothing was written; restore the "
                "file and reopen the ledger."
            )
        if self.lost == self._log and (self._log, _identity(self._log)) in self._beside:
            return StoreUnavailable(f"{self.lost} was cut short; turns may be lost. {_STOP_ALL}")
        return StoreUnavailable(f"{self.lost} was removed or replaced while open. {_STOP_ALL}")

    def save_log(self) -> None:
        """Copy a removed log into the store: its turns may exist nowhere else. Not if another process has
        meanwhile opened the store with files of its own: its index has other locks, and it would overwrite
        the copy with what it read before."""
        if self.lost != self._log:
            return
        own = dict(self._beside)
        is_cut = _identity(self._log) == own[self._log]
        is_alone = _identity(self._index) in (None, own.get(self._index)) and not size_of(self._log)
        if is_alone and not is_cut:
            with suppress(apsw.Error):  # another process is in the way; repeated at the next look
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        """Close the connection; the last process to do so leaves a single file, if possible."""
        # On failure, acknowledged writes are safe in the log for the next process.
        with suppress(apsw.Error):
            if self._has_moved():
                self._empty_the_log()
            elif any(_identity(path) not in (None, identity) for path, identity in self._beside):
                # Another process has files of its own there, which SQLite would remove.
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        with suppress(apsw.Error):
            self._connection.close(True)

    def _empty_the_log(self) -> None:
        """Checkpoint the log to the file, wherever that is now. SQLite itself would not, since the file with
        the log's name may belong to another store."""
        self._connection.set_busy_timeout(0)
        # Beside a foreign file the log must be empty; alone, it may be all that is left.
        is_replaced = _identity(self._file) is not None
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if is_replaced else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._connection.wal_checkpoint(mode=mode)


def check_log(connection: apsw.Connection) -> None:
    """Raise StoreUnavailable for a store whose log was removed while another process uses it: the shared
    index counts pages that the log at this path does not have."""
    with suppress(apsw.IOError):  # if the log ends too early; a first read still opens it
        connection.pragma("user_version")
    if is_cut(connection):
        log = f"{connection.filename}-wal"
        raise StoreUnavailable(f"{log} was removed or replaced while in use. {_STOP_ALL}")


def is_cut(connection: apsw.Connection) -> bool:
    """Return whether the log at the path is shorter than the shared index says."""
    for _ in range(_TRIES):  # a log that is being emptied may shrink between the two reads
        frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        length = _LOG_HEADER + frames * (_FRAME_HEADER + PAGE_SIZE)
        if frames <= 0 or size_of(f"{connection.filename}-wal") >= length:
            return False
    return True


def _identity(path: str) -> Identity | None:
    """Return which file is there; None if there is none. If the system does not tell, as without permission,
    return an identity that no file of this store has."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNKNOWN
    return found.st_dev, found.st_ino


def size_of(path: str | Path) -> int:
    """Return the size of a file; 0 if unknown."""
    try:
        return os.stat(path).st_size
    except OSError:
        return 0


_open: Counter[str] = Counter()
_inherited: set[str] = set()


def check_not_inherited(place: Path) -> None:
    """Raise LedgerElsewhere if the parent had this file open at the fork."""
    if str(place) in _inherited:
        raise LedgerElsewhere(f"{place} was open when this process was forked. Fork first, or use spawn.")


def note_open(place: str) -> None:
    _open[place] += 1


def note_closed(place: str) -> None:
    _open[place] -= 1
    if not _open[place]:
        del _open[place]


def _inherit() -> None:
    _inherited.update(_open)
    _open.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_inherit)
