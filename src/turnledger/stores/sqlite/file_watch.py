"""Files removed or replaced while the store is open: SQLite would go on writing where nobody looks."""

from __future__ import annotations

import ctypes
import os
from contextlib import suppress
from typing import TypeAlias

import apsw

from turnledger.errors import StoreUnavailable
from turnledger.stores.sqlite.header import PAGE_SIZE

Identity: TypeAlias = tuple[int, int]

_LOG_HEADER, _FRAME_HEADER = 32, 24
_TRIES = 3
_UNKNOWN: Identity = (-1, -1)
_REMEDY = "Nothing was written; stop every process that uses the store, then start again."


class OpenFiles:
    """The files of one connection: the store itself, its log, and the index of the log (`-shm`).

    `lost` is the path of one that was removed or replaced, as of the last `look`. A store that has lost one
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

    def look(self) -> str | None:
        """Find out which of the files is lost, if any. One that was put back is not."""
        self.lost = self._file if self._has_moved() else None
        for path, identity in self._beside:
            if _identity(path) != identity:
                self.lost = self.lost or path
        return self.lost

    def look_at_log(self) -> bool:
        """Find out whether the log was cut short in place. Not within a transaction."""
        if is_cut(self._connection):
            self.lost = self._log
        return self.lost is not None

    def _has_moved(self) -> bool:
        """Whether the path leads to the store no more. False where the system cannot tell."""
        self._connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(self._answer))
        return bool(self._answer.value)

    def error(self) -> StoreUnavailable:
        """What to raise instead of using the store."""
        if self.lost == self._file:
            return StoreUnavailable(
                f"{self.lost} was removed or replaced while it was open. Nothing was written; close the "
                "ledger, put the file back, and open it again."
            )
        if self.lost == self._log and (self._log, _identity(self._log)) in self._beside:
            return StoreUnavailable(
                f"{self.lost} was cut short while the store was open, and turns may be lost. {_REMEDY}"
            )
        return StoreUnavailable(f"{self.lost} was removed or replaced while the store was open. {_REMEDY}")

    def save_log(self) -> None:
        """Copy a log that was removed into the store: the turns in it may be nowhere else. Not if another
        process has opened the store with files of its own in the meantime: the locks in its index are not
        those of this one, and it would write what it read before the copy."""
        if self.lost != self._log:
            return
        own = dict(self._beside)
        is_cut = _identity(self._log) == own[self._log]
        is_alone = _identity(self._index) in (None, own.get(self._index)) and not _size(self._log)
        if is_alone and not is_cut:
            with suppress(apsw.Error):  # a neighbour is in the way; tried again at the next look
                self._connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_PASSIVE)

    def close(self) -> None:
        """Close the connection; the last process to do so leaves a single file behind, if it can."""
        # What was acknowledged is safe in the log, for the next to carry over.
        with suppress(apsw.Error):
            if self._has_moved():
                self._empty_the_log()
            elif any(_identity(path) not in (None, identity) for path, identity in self._beside):
                # Another process has files of its own there: SQLite would remove them.
                self._connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1)
        with suppress(apsw.Error):
            self._connection.close(True)

    def _empty_the_log(self) -> None:
        """Carry over to the file, wherever that is by now, what the log holds. SQLite itself would leave the
        log as it is, since what has its name may be the log of another file."""
        self._connection.set_busy_timeout(0)
        # Beside a file that it does not belong to, the log must be empty; alone, it may be all that is left.
        is_replaced = _identity(self._file) is not None
        mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if is_replaced else apsw.SQLITE_CHECKPOINT_PASSIVE
        self._connection.wal_checkpoint(mode=mode)


def check_log(connection: apsw.Connection) -> None:
    """Refuse a store whose log was removed while another process uses it: the index, which all share, counts
    pages that the log at this path does not have. Raises StoreUnavailable."""
    with suppress(apsw.IOError):  # where the log ends too soon; a first read opens it all the same
        connection.pragma("user_version")
    if is_cut(connection):
        log = f"{connection.filename}-wal"
        raise StoreUnavailable(
            f"{log} was removed or replaced while another process used the store. {_REMEDY}"
        )


def is_cut(connection: apsw.Connection) -> bool:
    """Whether the log at the path is shorter than the index, which all processes share, says."""
    for _ in range(_TRIES):  # a log that is being emptied may shrink between the two looks
        frames, _ = connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_NOOP)
        length = _LOG_HEADER + frames * (_FRAME_HEADER + PAGE_SIZE)
        if frames <= 0 or _size(f"{connection.filename}-wal") >= length:
            return False
    return True


def _identity(path: str) -> Identity | None:
    """Which file is there; None if there is none. Where the system refuses to say, as without permission, it
    may be anybody's: no file of this store has that identity."""
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return _UNKNOWN
    return found.st_dev, found.st_ino


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size
    except OSError:
        return 0
