"""Open a store: all checks before the first byte is written, and the settings of its connections."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import apsw

from turnledger.errors import (
    NotAStore,
    StoreCorrupt,
    StoreError,
    StoreReadOnly,
    UnsafeSqlite,
)
from turnledger.stores.copies import UNFINISHED, check_copy_version
from turnledger.stores.sqlite import failures, header
from turnledger.stores.sqlite.files import check_log, check_place, create_private, unreachable
from turnledger.stores.sqlite.header import APPLICATION_ID, PAGE_SIZE
from turnledger.stores.sqlite.migrations import VERSION, check_version, immediate, migrate, version_of

BUSY_TIMEOUT = 10.0
"""Seconds to wait for another process's write: some hold the lock for over a second."""
SHORT_WAIT, LONG_WAIT, SHORT_WAITS = 0.0003, 0.01, 100
"""Seconds between two tries to get the lock: for the first hundred tries, and then."""

LOG_LIMIT = 64_000_000
"""Bytes to which the log shrinks after a slow reader that made it grow has left."""

_SCHEME = "sqlite:///"
_SECURE = "?secure_delete=on"


def deletes_securely(url: str) -> bool:
    return url.endswith(_SECURE)


def path_of(url: str) -> str:
    """Return the file in `sqlite:///relative.db` or `sqlite:////absolute.db`, taken literally except for a
    final `?secure_delete=on`."""
    url = url.removesuffix(_SECURE)
    path = url.removeprefix(_SCHEME)
    if path == url or not path:
        raise NotAStore(f"{url!r} does not name a file. Use sqlite:///relative.db or sqlite:////absolute.db.")
    if path == ":memory:" or path.startswith("file:"):
        raise NotAStore(f"{url!r} is not a regular file. For a store without a file, use memory:")
    if path.endswith("/"):
        raise NotAStore(f"{url!r} names a folder. Name a file in it: {url}chats.db")
    return path


def check_sqlite(version: str) -> None:
    """Raise UnsafeSqlite for a version whose WAL reset can lose writes (fixed in 3.51.3)."""
    number = tuple(int(part) for part in version.split("."))
    backported = (3, 44, 6) <= number < (3, 45) or (3, 50, 7) <= number < (3, 51)
    if number < (3, 51, 3) and not backported:
        raise UnsafeSqlite(
            f"SQLite {version} can damage a shared database. Upgrade apsw to a version with SQLite "
            "3.51.3 or later."
        )


def prepare(path: str, vfs: str | None = None, *, unfinished: bool = False) -> Path:
    """Ensure a current store at this path: check the file, create it, migrate it. Return the file, links
    followed. With `unfinished`, it may be an unfinished copy of a store.

    A file that is foreign, newer or damaged is refused and left unchanged. Processes that create the same
    store at the same time end up with one.
    """
    place = check_place(path)
    try:
        is_ours = _check_file(path, place, vfs)
        if is_ours:
            _check_inside(path, place, vfs, unfinished=unfinished)
        else:
            with suppress(OSError):  # SQLite gets the same error, which is translated
                create_private(place)
        connection = _connect(path, vfs)
        try:
            # Even a file with our id may be empty now: a journal left from its creation rolls it back.
            _patiently(lambda: _create(connection, path))
            _patiently(lambda: _use_wal(connection, path))
            migrate(connection, path)
        finally:
            connection.close(True)
    except apsw.Error as problem:
        raise failures.translate(problem, path) from problem
    except OSError as problem:  # from the log or the journal beside it
        raise unreachable(path, problem) from problem
    return place


def connect_read_only(
    path: str, vfs: str | None = None, *, any_version: bool = False, unfinished: bool = False
) -> apsw.Connection:
    """Connect to an existing store without changing it: creates and migrates nothing, and does not checkpoint
    a leftover log. Raises NotAStore if there is none, or unless `unfinished`, if it is an unfinished copy;
    StoreTooNew; and unless `any_version`, StoreError if it is not up to date."""
    place = check_place(path)
    try:
        if not _check_file(path, place, vfs):
            raise NotAStore(f"No store at {path}. Name an existing one.")
        left_log = Path(f"{place}-wal").exists()
        connection = _connect(path, vfs, apsw.SQLITE_OPEN_READWRITE)
        try:
            connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(left_log))
            check_log(connection)
            connection.pragma("query_only", True)
            version = version_of(connection)
            _check_version(version, path, unfinished=unfinished)
            if version < VERSION and not any_version:
                raise StoreError(
                    f"{path} is from an older Turnledger (schema {version}, this one reads "
                    f"{VERSION}). Open it once with this version to upgrade."
                )
        except BaseException:
            connection.close(True)
            raise
    except apsw.Error as problem:
        raise failures.translate(problem, path) from problem
    except OSError as problem:
        raise unreachable(path, problem) from problem
    return connection


PAGE_BYTES = 16 * 1024 * 1024
"""Memory for the writer's page cache: enough for the upper pages of all indexes."""


def connect_writer(path: str, vfs: str | None = None, page_bytes: int | None = None) -> apsw.Connection:
    """Connect for writing, with a page cache of this size."""
    connection = _connect(path, vfs)
    connection.set_busy_handler(Patience())
    connection.pragma("cache_size", -((page_bytes or PAGE_BYTES) // 1024))  # below zero: in kB
    connection.pragma("journal_size_limit", LOG_LIMIT)
    return connection


def delete_securely(connection: apsw.Connection) -> None:
    """Overwrite deleted data with zeros on this connection. The search index keeps words of deleted texts
    until it is rewritten. That is done here, if there are any: it is too slow for every deletion, and for
    every process that opens the store."""
    connection.pragma("secure_delete", True)
    if not _has_remains(connection):
        return
    with immediate(connection):
        if _has_remains(connection):  # unless another process was faster
            connection.execute("INSERT INTO turn_words (turn_words) VALUES ('optimize')")
            connection.execute("INSERT INTO title_words (title_words) VALUES ('optimize')")
            connection.execute("UPDATE search_mark SET has_remains = 0")


def _has_remains(connection: apsw.Connection) -> bool:
    return bool(connection.execute("SELECT has_remains FROM search_mark").get)


class Patience:
    """Waits while another process writes. Transactions are short, but SQLite's own busy handler soon tries
    only every few hundredths of a second, which leaves the file idle when several processes write much.

    Ends early once `is_wanted` returns false; `was_cut_short` tells that of the last wait.
    """

    def __init__(self, is_wanted: Callable[[], bool] = lambda: True) -> None:
        self._is_wanted = is_wanted
        self.was_cut_short = False
        self._ends_at = 0.0

    def __call__(self, tries: int) -> bool:
        now = time.monotonic()
        if not tries:
            self._ends_at = now + BUSY_TIMEOUT
        self.was_cut_short = not self._is_wanted()
        if self.was_cut_short:
            return False
        time.sleep(SHORT_WAIT if tries < SHORT_WAITS else LONG_WAIT)
        return now < self._ends_at


def connect_reader(path: str, vfs: str | None = None) -> apsw.Connection:
    connection = _connect(path, vfs)
    connection.pragma("query_only", True)
    return connection


OPEN_OR_CREATE = apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE


def _connect(path: str, vfs: str | None, flags: int = OPEN_OR_CREATE) -> apsw.Connection:
    connection = apsw.Connection(path, flags=flags, vfs=vfs, statementcachesize=200)
    connection.set_busy_timeout(int(BUSY_TIMEOUT * 1000))
    # On macOS a plain sync leaves data in the disk cache; elsewhere this changes nothing.
    connection.pragma("fullfsync", True)
    connection.pragma("checkpoint_fullfsync", True)
    # Otherwise SQLite plans a statement again for each new value, which takes longer than running it.
    connection.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    return connection


def _check_file(path: str, place: Path, vfs: str | None) -> bool:
    """Return whether the file is a store, even one whose first page a crash tore. False for a file that is
    empty, absent or incompletely created, and so ours to create."""
    log, journal = Path(f"{place}-wal"), Path(f"{place}-journal")
    # First: a process that is just creating the store fills the file before there is a log.
    has_log = _size(log) > 0
    found = header.read_header(place, vfs)
    if not found and has_log:
        raise StoreCorrupt(
            f"{path} is missing or empty, but its log {log} may hold turns. Restore the file, or "
            "move the log away."
        )
    if not found:
        return False
    if header.is_ours(found):
        return True
    if header.log_has_our_first_page(log) or header.journal_has_our_first_page(journal):
        if header.may_be_torn(found, _size(place)):
            return True
        raise StoreCorrupt(
            f"{path} is not a Turnledger store, but has the log of one. Restore the store, or move "
            "the log away."
        )
    if not has_log and header.journal_undoes_creation(journal):
        return False
    if not found.startswith(header.MAGIC):
        raise NotAStore(f"{path} is not a database. It was left untouched; name another file.")
    raise NotAStore(
        f"{path} is a SQLite database, but not a Turnledger store. It was left untouched; name another file."
    )


def _size(place: Path) -> int:
    try:
        return place.stat().st_size
    except FileNotFoundError:
        return 0


def _check_inside(path: str, place: Path, vfs: str | None, *, unfinished: bool) -> None:
    """Check version and schema without changing the file or a leftover log."""
    left_log = Path(f"{place}-wal").exists()
    connection = _connect(path, vfs)
    try:
        connection.config(apsw.SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, int(left_log))
        if connection.readonly("main"):
            raise StoreReadOnly(f"{path} is read-only. Check the permissions of the file and its disk.")
        check_log(connection)
        connection.pragma("query_only", True)
        _check_version(version_of(connection), path, unfinished=unfinished)
        connection.execute("SELECT count(*) FROM sqlite_schema").fetchall()
    finally:
        connection.close(True)


def _check_version(version: int, path: str, *, unfinished: bool) -> None:
    if unfinished:
        check_copy_version(version, VERSION, path)
    if not unfinished or version < UNFINISHED:
        check_version(version, path)


def _create(connection: apsw.Connection, path: str) -> None:
    """Mark an empty file as ours, first and alone, so that a crash leaves it empty or known to be ours."""
    if connection.pragma("application_id"):
        return
    connection.pragma("page_size", PAGE_SIZE)
    with immediate(connection):
        if not connection.pragma("application_id"):
            if connection.pragma("schema_version"):
                raise NotAStore(
                    f"{path} is a SQLite database, but not a Turnledger store. It was left untouched; name "
                    "another file."
                )
            connection.pragma("application_id", APPLICATION_ID)


def _use_wal(connection: apsw.Connection, path: str) -> None:
    if connection.pragma("journal_mode") != "wal" and connection.pragma("journal_mode", "wal") != "wal":
        raise StoreError(
            f"The filesystem of {path} lacks the locks or shared memory that SQLite needs. Use a local disk."
        )


def _patiently(step: Callable[[], None]) -> None:
    """Repeat a step while another process is in the way. SQLite does not wait where two could wait for each
    other, as when both switch a new file to WAL."""
    deadline = time.monotonic() + BUSY_TIMEOUT
    while True:
        try:
            return step()
        except apsw.BusyError:
            if time.monotonic() >= deadline:
                raise
            time.sleep(0.005)
