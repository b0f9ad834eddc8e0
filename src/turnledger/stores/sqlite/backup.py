"""A copy of a store in one file, made while other processes use it, by SQLite's online backup."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path

import apsw

from turnledger.errors import InvalidInput
from turnledger.stores.sqlite import connections
from turnledger.stores.sqlite.failures import translate
from turnledger.stores.sqlite.files import check_place, create_private, temporary_name

PAGES = 256
"""Pages copied between two reports of progress."""

Progress = Callable[[int, int], None]
"""Called with the bytes copied, and the total."""


def back_up(path: str, target: str, progress: Progress) -> None:
    """Copy the store at this path into a new file, as of one moment. Blocks.

    The file gets its name only when it is complete and on disk. Raises InvalidInput if the name is taken, and
    as `ReadOnlySqlite.open` does. A store of an older version is copied as it is.
    """
    place = check_place(target)
    _refuse_to_overwrite(target, place)
    connections.check_sqlite(apsw.sqlite_lib_version())
    source = connections.connect_read_only(path, any_version=True)
    unfinished = place.with_name(temporary_name())
    try:
        create_private(unfinished)
        _copy(source, unfinished, progress)
        _sync(unfinished)
        _name(unfinished, target, place)
        _sync(place.parent)
    except apsw.Error as problem:
        raise translate(problem, target) from problem
    except OSError as problem:
        raise InvalidInput(f"{target} cannot be written: {problem.strerror}. Name another file.") from problem
    finally:
        source.close(True)
        unfinished.unlink(missing_ok=True)


def _refuse_to_overwrite(target: str, place: Path) -> None:
    beside = (Path(f"{place}{suffix}") for suffix in ("", "-wal", "-journal"))
    if any(os.path.lexists(each) for each in beside):
        raise InvalidInput(f"{target} or its log already exists. Name another file.")


def _copy(source: apsw.Connection, unfinished: Path, progress: Progress) -> None:
    # In one transaction: otherwise every write by another process restarts the copy.
    source.execute("BEGIN")
    source.pragma("user_version")  # the first read starts the transaction
    size = source.pragma("page_size")
    copy = apsw.Connection(str(unfinished))
    try:
        # An unfinished copy needs no journal; it is synced as a whole.
        copy.pragma("journal_mode", "OFF")
        copy.pragma("synchronous", "OFF")
        with copy.backup("main", source, "main") as backup:
            while not backup.done:
                backup.step(PAGES)
                progress((backup.page_count - backup.remaining) * size, backup.page_count * size)
    finally:
        copy.close(True)


def _sync(place: Path) -> None:
    file = os.open(place, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _name(unfinished: Path, target: str, place: Path) -> None:
    """Give the copy its name without replacing a file: unlike a rename, a link fails if there is one."""
    try:
        os.link(unfinished, place)
    except FileExistsError:
        raise InvalidInput(f"{target} already exists. Name another file.") from None
    except OSError as problem:
        if problem.errno not in (errno.EPERM, errno.EOPNOTSUPP, errno.EMLINK, errno.ENOSYS):
            raise
        _refuse_to_overwrite(target, place)  # a filesystem without links
        unfinished.rename(place)
