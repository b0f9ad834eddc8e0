"""Where the file of a store may be, checked before it is opened: a pipe would block."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
from contextlib import suppress
from pathlib import Path

from turnledger.errors import NotAStore, StoreError, StoreReadOnly, StoreUnavailable

_LONGEST_SUFFIX = len("-journal")
_LONGEST_PATH = 512
"""Bytes that SQLite takes on Unix, with the suffix."""

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
    """Return the file that this path leads to, links followed; it need not exist.

    Raises NotAStore where there can be no store, StoreReadOnly where this user may make none, and
    StoreUnavailable where the disk does not answer.
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
    """What to raise where the system refuses to look at a path."""
    kind = _KIND_OF_ERROR.get(problem.errno or 0, StoreUnavailable)
    return kind(f"{path} cannot be reached: {problem.strerror}. {_REMEDY[kind]}")


def create_private(place: Path) -> None:
    """Create an empty file that its user alone may read, unless there is one. SQLite gives the files that it
    makes beside it the same permissions."""
    with suppress(FileExistsError):
        os.close(os.open(place, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def _check_name(path: str) -> None:
    if "\0" in path:
        raise NotAStore(f"{path!r} has a NUL in it, which no file name can have. Name another file.")
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
        # SQLite finds the log by the name: processes that use two names overwrite each other's turns.
        raise NotAStore(f"{path} is a hard link: the file has {found.st_nlink} names. Remove all but one.")


def unfinished_name() -> str:
    """A new name for a backup that is being written."""
    return f".{secrets.token_hex(8)}.part"


def _remove_backup_name(place: Path, found: os.stat_result) -> bool:
    """Remove the name that a backup had while it was written, if that is the only other one: its process was
    killed after it had given the file its own."""
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
            f"{path} is a link into the folder {folder}, which does not exist. Mend the link, or create the "
            f"folder: mkdir -p {folder}"
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
            f"{path} is too long a name: SQLite keeps other files beside it, with longer ones. Make it "
            f"shorter by {too_long} or more."
        )


def _check_access(path: str, place: Path) -> None:
    # SQLite keeps its log beside the file, so the folder must be writable too.
    if place.exists() and not os.access(place, os.W_OK | os.R_OK):
        raise StoreReadOnly(f"{path} cannot be written to by this user. Check its permissions.")
    if not os.access(place.parent, os.W_OK | os.R_OK | os.X_OK):
        raise StoreReadOnly(f"{place.parent} cannot be written to by this user. Check its permissions.")


NETWORKED = frozenset(
    {"9p", "afs", "ceph", "cifs", "fuse.sshfs", "glusterfs", "nfs", "nfs4", "smb3", "smbfs"}
)
"""Filesystems that several machines can share. The index of SQLite's log is memory of one machine: two
machines that use one store destroy it. One alone may use it, if its locks and syncs can be trusted."""
MOUNTS = Path("/proc/self/mounts")


def network_filesystem(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of network filesystem that a folder is on; None for a local one, or if it is unknown."""
    kind = filesystem_of(folder, mounts)
    return kind if kind in NETWORKED else None


def filesystem_of(folder: Path, mounts: Path = MOUNTS) -> str | None:
    """The kind of the filesystem that a folder is on; None where that cannot be known."""
    try:
        lines = [line.split(" ") for line in mounts.read_text("utf-8", "replace").splitlines()]
    except OSError:
        return None
    points = {Path(line[1].replace("\\040", " ")): line[2] for line in lines if len(line) > 2}
    return next((points[each] for each in (folder, *folder.parents) if each in points), None)
