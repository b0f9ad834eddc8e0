"""The doctor's look at the store: the file, its disk, who may read it, and who takes part."""

from __future__ import annotations

import os
import shutil
import stat
import tempfile
from pathlib import Path

from turnledger.errors import StoreError
from turnledger.server.doctor.diagnosis import Diagnosis, fail, ok, warn
from turnledger.stores.sqlite import path_of
from turnledger.stores.sqlite.files import MOUNTS, check_place, network_filesystem
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.stores.sqlite.visit import Examination, examine, sqlite_version

TOO_LITTLE, LITTLE = 16 * 2**20, 256 * 2**20
"""Bytes of free space with which turns soon fail, and with which somebody should look."""
LONG_LOG = 512 * 2**20
TRIAL = bytes(64 * 1024)


def check_sqlite() -> list[Diagnosis]:
    """The SQLite that is used."""
    try:
        return [ok("SQLite", f"version {sqlite_version()}")]
    except StoreError as problem:
        return [fail("SQLite", str(problem), "pip install --upgrade apsw")]


def check_store(url: str) -> tuple[list[Diagnosis], Examination | None]:
    """All about the store that a URL names, and what is in it. Blocks; leaves the store as it is."""
    if url.startswith("memory:"):
        told = "everything is kept in memory, and gone with the server"
        return [
            warn("store", told, "Name a file to keep conversations: --store sqlite:////path/chats.db")
        ], None
    try:
        path = path_of(url)
        place = check_place(path)
    except StoreError as problem:
        return [fail("store", str(problem), "Name another file with --store, or mend this one.")], None
    around = [*check_disk(place.parent), *check_filesystem(place.parent)]
    if not place.exists() or not place.stat().st_size:
        return [ok("store", f"{place} is not there yet, and will be made"), *around], None
    try:
        found = examine(path)
    except StoreError as problem:
        diagnose = warn if type(problem) is StoreError else fail  # of an older version: serving mends that
        return [diagnose("store", str(problem), "See what is said of it."), *around], None
    return [*check_file(place, found), *check_permissions(place), *around], found


def check_file(place: Path, found: Examination) -> list[Diagnosis]:
    """What the file itself tells."""
    size = f"{place}, {_bytes(found.file_bytes)}, schema {found.schema} of {VERSION}"
    told = [ok("store", size)]
    if found.journal_mode != "wal":
        remedy = "The server sets it when it starts; if it stays so, use a local disk."
        told.append(warn("store log", f"the journal mode is {found.journal_mode}, and should be wal", remedy))
    elif found.log_bytes > LONG_LOG:
        remedy = "Find who reads the file without end, such as an open sqlite3 shell, and end that."
        told.append(warn("store log", f"the log has grown to {_bytes(found.log_bytes)}", remedy))
    if found.is_stuck:
        remedy = f"Find who has the file open, for example with: fuser {place}"
        told.append(fail("store lock", "another process holds the file and does not let go", remedy))
    return [*told, *check_participants(found)]


def check_participants(found: Examination) -> list[Diagnosis]:
    """Who takes part in the store."""
    if found.dead:
        told = f"{_processes(found.dead)} died and left turns or a lease behind"
        remedy = "Nothing needs to be done: the next server to start, or one that runs, takes that up."
        return [warn("processes", told, remedy)]
    if found.unknown:
        told = f"of {_processes(found.unknown)} it cannot be seen here whether they live"
        remedy = "They may be other users', or on other machines, where SQLite files must not be shared."
        return [warn("processes", told, remedy)]
    return [ok("processes", f"{_processes(found.living)} at work in the store")]


def check_disk(folder: Path) -> list[Diagnosis]:
    """Whether the disk takes a write, and how much more."""
    try:
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(TRIAL)
            trial.flush()
            os.fsync(trial.fileno())
    except OSError as problem:
        remedy = "Free some space, or check the permissions and the mount of this folder."
        return [fail("disk", f"{folder} cannot be written to: {problem.strerror}", remedy)]
    free = shutil.disk_usage(folder).free
    told = f"{_bytes(free)} free in {folder}"
    if free < TOO_LITTLE:
        return [fail("disk", told, "Free some space: turns fail when there is none left.")]
    if free < LITTLE:
        return [warn("disk", told, "Free some space soon.")]
    return [ok("disk", told)]


def check_filesystem(folder: Path, mounts: Path = MOUNTS) -> list[Diagnosis]:
    """Whether the disk is this machine's own; nothing is said where that cannot be known."""
    kind = network_filesystem(folder, mounts)
    if kind is None:
        return []
    remedy = "Move the store to a local disk: over a network, locks and the log are not reliable."
    return [warn("filesystem", f"{folder} is on {kind}, which is a network filesystem", remedy)]


def check_permissions(place: Path) -> list[Diagnosis]:
    """Whether others on this machine can read the conversations."""
    if os.name != "posix":
        return []
    open_to = _open_to(place)
    if open_to:
        remedy = f"chmod 600 {place}"
        return [warn("permissions", f"{open_to} on this machine can read {place}", remedy)]
    if place.stat().st_uid != os.getuid():
        remedy = "Serve as the user whom it belongs to: what others write he may not be able to read."
        return [warn("permissions", f"{place} belongs to another user", remedy)]
    return [ok("permissions", "the store can be read by its user only")]


def _open_to(place: Path) -> str:
    for who, reads, enters in (
        ("everybody", stat.S_IROTH, stat.S_IXOTH),
        ("the group", stat.S_IRGRP, stat.S_IXGRP),
    ):
        if place.stat().st_mode & reads and all(each.stat().st_mode & enters for each in place.parents):
            return who
    return ""


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _bytes(count: int) -> str:
    size, unit = float(count), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"
