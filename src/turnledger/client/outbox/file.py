"""The record of unsent messages: a small SQLite file that survives the program, and that several may share.

A message is recorded, and synced, before its first byte is sent, and removed once its outcome is known.
Messages found later are sent again under their idempotency_key, so that each is carried out once.
"""

from __future__ import annotations

import hashlib
import logging
import os
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from turnledger.client.core.steps import Forget, Keep, Record, SendState
from turnledger.client.outbox.outbox import Claimant, Outbox, UnsentMessage
from turnledger.errors import (
    NotAStore,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)

log = logging.getLogger("turnledger")

APPLICATION = 0x74_6C_6F_62
"""The application id of these SQLite files: "tlob"."""
VERSION = 1
SCHEMA = """
CREATE TABLE unsent (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    base_url TEXT NOT NULL,
    sender TEXT NOT NULL,
    idempotency_key TEXT NOT NULL,
    place BLOB NOT NULL,
    body BLOB NOT NULL,
    headers BLOB NOT NULL,
    recorded_at INTEGER NOT NULL,
    first_tried_at INTEGER,
    claimed_by TEXT,
    claimed_until INTEGER NOT NULL DEFAULT 0,
    UNIQUE (base_url, sender, idempotency_key)
)
"""
_WHERE_KEY = "WHERE base_url = ? AND sender = ? AND idempotency_key = ?"
_COLUMNS = "id, base_url, idempotency_key, body, headers, recorded_at, first_tried_at"
SKEW_MS = 60_000
"""How far in the future a message may be: clocks are set back a little all the time."""
CLAIM_MS = 300_000
"""How long a message stays claimed by a sender that does not report back. Claiming it later, or wrongly, is
harmless: the message has its idempotency_key."""
PATIENCE = 10.0
"""Seconds to wait for other programs that write to the file."""
_CREATE_LOCK = threading.Lock()
INHERITED: list[sqlite3.Connection] = []
"""Connections of the parent process before a fork. Without a reference, one would be closed, which undoes
what the parent is writing."""


class OutboxFile:
    """The file, as one client uses it. Threads and processes may share it. Raises a StoreError if the file
    cannot be read or written: a message that is not recorded is not sent."""

    def __init__(
        self,
        outbox: Outbox,
        base_url: str,
        api_key: str | None,
        *,
        now_ms: Callable[[], int] = lambda: time.time_ns() // 1_000_000,
        claimant: Claimant | None = None,
        open_now: bool = True,
    ) -> None:
        """Open the file, to raise errors at once; without `open_now`, at first use or by `check`."""
        self._outbox = outbox
        self._path = Path(outbox.path).absolute()
        self._key = (base_url, outbox.sender or _digest(api_key))
        self._now = now_ms
        self._claimant = claimant or Claimant()
        self._lock = threading.Lock()
        self._first_tries: set[str] = set()
        """The idempotency_keys of messages that are tried for the first time, only here."""
        self._sending: dict[str, SendState] = {}
        """Messages claimed here, by idempotency_key; their streams may be left without another step."""
        self._db: sqlite3.Connection | None = None
        self._process = 0
        self._file: tuple[int, int] | None = None
        if open_now:
            self.check()

    def check(self) -> None:
        with self._connected():
            pass

    def carry_out(self, step: Record | Keep | Forget) -> None:
        """Carry out a step. If an answered message cannot be removed, its answer is returned anyway: sent
        again, it is carried out once."""
        if isinstance(step, Record):
            self.record(step.idempotency_key, step.request.body or b"", step.request.headers, step.sending)
            return
        try:
            if isinstance(step, Keep):
                self.keep(step.idempotency_key, may_have_arrived=step.may_have_arrived)
            else:
                self.remove(step.idempotency_key)
        except StoreError as problem:
            log.warning("the outbox could not be updated: %s", problem)

    def record(
        self, idempotency_key: str, body: bytes, headers: Mapping[str, str], sending: SendState | None = None
    ) -> None:
        """Record a message that is about to be sent, and claim it. An existing one stays as it is. Raises
        StoreFull."""
        now, key = self._now(), (*self._key, idempotency_key)
        stored_headers = {name: value for name, value in headers.items() if name.lower() != "authorization"}
        with self._transaction() as db:
            existing = db.execute(f"SELECT first_tried_at FROM unsent {_WHERE_KEY}", key).fetchone()  # noqa: S608
            if existing is None:
                self._check_room(db, len(body))
                db.execute(
                    "INSERT INTO unsent (base_url, sender, idempotency_key, place, body, headers,"
                    " recorded_at) VALUES (?, ?, ?, ?, ?, ?, ?)",
                    (*key, chat_of(body), body, msgspec.json.encode(stored_headers), now),
                )
            db.execute(
                "UPDATE unsent SET first_tried_at = coalesce(first_tried_at, ?), claimed_by = ?,"  # noqa: S608
                f" claimed_until = ? {_WHERE_KEY}",
                (now, self._claimant.name, now + CLAIM_MS, *key),
            )
        with self._lock:
            self._sending[idempotency_key] = sending or SendState()
            if existing in (None, (None,)):
                self._first_tries.add(idempotency_key)
            else:
                self._first_tries.discard(idempotency_key)

    def keep(self, idempotency_key: str, *, may_have_arrived: bool) -> None:
        """Release a message of unknown outcome. One that was tried for the first time, and cannot have
        arrived, counts as not tried."""
        with self._lock:
            is_untried = idempotency_key in self._first_tries and not may_have_arrived
            self._first_tries.discard(idempotency_key)
            self._sending.pop(idempotency_key, None)
        with self._transaction() as db:
            db.execute(
                "UPDATE unsent SET claimed_by = NULL, claimed_until = 0,"  # noqa: S608
                f" first_tried_at = CASE WHEN ? THEN NULL ELSE first_tried_at END {_WHERE_KEY}",
                (is_untried, *self._key, idempotency_key),
            )

    def remove(self, idempotency_key: str) -> None:
        with self._lock:
            self._first_tries.discard(idempotency_key)
            self._sending.pop(idempotency_key, None)
        with self._transaction() as db:
            db.execute(f"DELETE FROM unsent {_WHERE_KEY}", (*self._key, idempotency_key))  # noqa: S608

    def pending(self) -> list[UnsentMessage]:
        """Return the messages of this client without a known outcome, the oldest first, including those that
        are being sent."""
        with self._connected() as db:
            rows = db.execute(
                f"SELECT {_COLUMNS} FROM unsent WHERE base_url = ? AND sender = ? ORDER BY id",  # noqa: S608
                self._key,
            ).fetchall()
        return [self._unsent(row) for row in rows]

    def claim(self, after: int) -> UnsentMessage | None:
        """Claim and return the next message after this id that no other program is sending, or None. Those
        of one chat are claimed in order: none while an earlier one is claimed elsewhere, or precedes that id
        and is still unsent. Uncertain ones are not claimed."""
        now, blocked = self._now(), set[bytes]()
        with self._transaction() as db:
            rows = db.execute(
                f"SELECT place, claimed_by, claimed_until, {_COLUMNS} FROM unsent"  # noqa: S608
                " WHERE base_url = ? AND sender = ? ORDER BY id",
                self._key,
            )
            for chat, claimed_by, claimed_until, *row in rows:
                found = self._unsent(row)
                if claimed_until > now and self._is_claimed(found.idempotency_key, claimed_by):
                    blocked.add(chat)
                elif found.id <= after:
                    blocked |= set() if found.is_uncertain else {chat}
                elif chat not in blocked:
                    if not found.is_uncertain:
                        claim = (self._claimant.name, now + CLAIM_MS, found.id)
                        db.execute("UPDATE unsent SET claimed_by = ?, claimed_until = ? WHERE id = ?", claim)
                    return found
        return None

    def _is_claimed(self, idempotency_key: str, claimed_by: str | None) -> bool:
        if claimed_by is None or not self._claimant.is_alive(claimed_by):
            return False
        sending = self._sending.get(idempotency_key) if claimed_by == self._claimant.name else None
        return sending is None or not sending.is_over

    def forget(self, id: int) -> bool:
        """Remove a message, whatever its outcome; return whether it was there."""
        with self._transaction() as db:
            deleted = db.execute(
                "DELETE FROM unsent WHERE base_url = ? AND sender = ? AND id = ?", (*self._key, id)
            )
            return deleted.rowcount > 0

    def close(self) -> None:
        """Close the file, and release all claims. It is opened again if needed."""
        self._claimant.retire()
        with self._lock:
            self._leave_to_parent()
            connection, self._db = self._db, None
            if connection is not None:
                with suppress(sqlite3.Error):
                    connection.close()

    def _unsent(self, row: list[Any] | tuple[Any, ...]) -> UnsentMessage:
        id, base_url, idempotency_key, body, headers, recorded_at, first_tried_at = row
        return UnsentMessage(
            id=id,
            base_url=base_url,
            idempotency_key=idempotency_key,
            body=body,
            headers=msgspec.json.decode(headers),
            recorded_at=recorded_at,
            first_tried_at=first_tried_at,
            is_uncertain=first_tried_at is not None and not self._is_safe(first_tried_at),
        )

    def _is_safe(self, first_tried_at: int) -> bool:
        # A time in the future may be of any age: the clock was set back.
        age = self._now() - first_tried_at
        return -SKEW_MS <= age <= self._outbox.safe_for * 1000

    def _check_room(self, db: sqlite3.Connection, size: int) -> None:
        # Each sender has its own quota: it could not free space held by messages it does not see.
        count, size_stored = db.execute(
            "SELECT count(*), coalesce(sum(length(body)), 0) FROM unsent WHERE base_url = ? AND sender = ?",
            self._key,
        ).fetchone()
        if count >= self._outbox.max_messages or size_stored + size > self._outbox.max_bytes:
            raise StoreFull(
                f"The outbox {self._path.name} is full ({count} messages, {size_stored} bytes). Call "
                "client.outbox.send_all() or forget(). This message was not sent."
            )

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        """Run one transaction, on disk when the block ends."""
        with self._connected() as db:
            db.execute("BEGIN IMMEDIATE")
            try:
                yield db
                db.execute("COMMIT")
            except BaseException:
                with suppress(sqlite3.Error):
                    db.execute("ROLLBACK")
                raise

    @contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection]:
        with self._lock:
            try:
                yield self._connection()
            except sqlite3.Error as problem:
                raise _store_error(self._path, problem) from problem
            except OSError as problem:
                raise StoreUnavailable(
                    f"The outbox {self._path} cannot be opened: {problem}. Check its folder."
                ) from problem

    def _connection(self) -> sqlite3.Connection:
        self._leave_to_parent()
        if self._db is not None and self._file != _identity(self._path):
            self._db.close()  # the file was removed: writes to it would be lost
            self._db = None
        if self._db is None:
            self._db, self._process = open_file(self._path), os.getpid()
            self._file = _identity(self._path)
        return self._db

    def _leave_to_parent(self) -> None:
        """Keep an inherited connection: a child must neither use nor close it."""
        if self._db is not None and self._process != os.getpid():
            INHERITED.append(self._db)
            self._db = None


def open_file(path: Path) -> sqlite3.Connection:
    """Open the file, or create it, for its owner only. Raises StoreError, sqlite3.Error and OSError."""
    with _CREATE_LOCK:
        _create(path)
        db = sqlite3.connect(path, timeout=PATIENCE, isolation_level=None, check_same_thread=False)
    try:
        prepare(db, path)
        _restrict_permissions(path)
    except BaseException:
        db.close()
        raise
    return db


def _identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_dev, found.st_ino


def _create(path: Path) -> None:
    """Create an empty file for its owner only, if there is none. An existing one is not opened: closing it
    would drop all locks of this process on it."""
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600))
    except FileExistsError:
        if not os.access(path, os.R_OK | os.W_OK):
            raise StoreReadOnly(f"The outbox {path} is not writable. Change its permissions.") from None
        return
    if hasattr(os, "O_DIRECTORY"):
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)  # else power loss may take the name, and all that was written
        finally:
            os.close(folder)


def _restrict_permissions(path: Path) -> None:
    """Remove the permissions of others from an existing file, once it is known to be ours."""
    if os.name == "posix" and path.stat().st_mode & 0o077:
        path.chmod(0o600)


def prepare(db: sqlite3.Connection, path: Path) -> None:
    """Create the tables in an empty file. Raises NotAStore or StoreTooNew, and then changes nothing."""
    db.execute("BEGIN")  # one snapshot: a file that another program is creating must not look foreign
    [application] = db.execute("PRAGMA application_id").fetchone()
    [version] = db.execute("PRAGMA user_version").fetchone()
    [tables] = db.execute("SELECT count(*) FROM sqlite_master").fetchone()
    db.execute("COMMIT")
    if application != APPLICATION and (application or tables):
        raise NotAStore(f"{path} is a database of another program. Choose another file for the outbox.")
    if version > VERSION:
        raise StoreTooNew(f"The outbox {path} was made by a newer version. Update this program.")
    # No write-ahead log: older versions of SQLite, as bundled with Python, may damage a shared one.
    db.execute("PRAGMA journal_mode = DELETE")
    db.execute("PRAGMA synchronous = EXTRA")
    db.execute("PRAGMA secure_delete = ON")  # no text stays behind in free pages
    if version < VERSION:
        db.execute("BEGIN IMMEDIATE")
        [version] = db.execute("PRAGMA user_version").fetchone()
        if version < VERSION:  # else another program was faster
            db.execute(SCHEMA)
            db.execute(f"PRAGMA application_id = {APPLICATION}")
            db.execute(f"PRAGMA user_version = {VERSION}")
        db.execute("COMMIT")


_ERRORS_BY_CODE: Mapping[int, type[StoreError]] = {
    sqlite3.SQLITE_FULL: StoreFull,
    sqlite3.SQLITE_READONLY: StoreReadOnly,
    sqlite3.SQLITE_NOTADB: NotAStore,
    sqlite3.SQLITE_CORRUPT: StoreCorrupt,
}


_REMEDIES: Mapping[type[StoreError], str] = {
    StoreFull: "Free some space.",
    StoreReadOnly: "Check its permissions.",
    NotAStore: "Choose another file.",
    StoreCorrupt: "Restore it, or choose another file.",
    StoreUnavailable: "Try again.",
}


def _store_error(path: Path, problem: sqlite3.Error) -> StoreError:
    code = getattr(problem, "sqlite_errorcode", 0) & 0xFF
    kind = _ERRORS_BY_CODE.get(code, StoreUnavailable)
    return kind(f"The outbox {path} cannot be used: {problem}. {_REMEDIES[kind]}")


class _ChatRef(Struct):
    chat: str | None = None
    conversation_key: str | None = None
    scope: str | None = None


_chat_refs = msgspec.json.Decoder(_ChatRef)


def chat_of(body: bytes) -> bytes:
    """Return the chat of a message, in canonical form."""
    return msgspec.json.encode(_chat_refs.decode(body))


def _digest(api_key: str | None) -> str:
    """Identify an api_key without the secret: it is random, so its digest reveals nothing."""
    return "" if api_key is None else hashlib.sha256(f"outbox {api_key}".encode()).hexdigest()[:32]
