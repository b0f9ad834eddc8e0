"""A file that was removed or replaced while it was open: SQLite would go on writing where nobody looks."""

from __future__ import annotations

import ctypes
from contextlib import suppress
from pathlib import Path

import apsw

from turnledger.errors import StoreUnavailable


def has_moved(connection: apsw.Connection) -> bool:
    """Whether the path of this connection leads to its file no more. False where the system cannot tell."""
    answer = ctypes.c_int(0)
    connection.file_control("main", apsw.SQLITE_FCNTL_HAS_MOVED, ctypes.addressof(answer))
    return bool(answer.value)


def moved(path: str) -> StoreUnavailable:
    """What to raise instead of writing to it."""
    return StoreUnavailable(
        f"{path} was removed or replaced while it was open. Nothing was written; close the ledger, put the "
        "file back, and open it again."
    )


def close(connection: apsw.Connection) -> None:
    """Close the connection; the last process to do so leaves a single file behind, if it can."""
    # What was acknowledged is safe in the log, for the next to carry over.
    with suppress(apsw.Error):
        if has_moved(connection):
            _empty_the_log(connection)
    with suppress(apsw.Error):
        connection.close(True)


def _empty_the_log(connection: apsw.Connection) -> None:
    """Carry over to the file, wherever that is by now, what the log holds. SQLite itself would leave the
    log as it is, since what has its name may be the log of another file."""
    connection.set_busy_timeout(0)
    # Beside a file that it does not belong to, the log must be empty; alone, it may be all that is left.
    is_replaced = Path(connection.filename).exists()
    mode = apsw.SQLITE_CHECKPOINT_TRUNCATE if is_replaced else apsw.SQLITE_CHECKPOINT_PASSIVE
    connection.wal_checkpoint(mode=mode)
