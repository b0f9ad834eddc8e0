"""Translate SQLite's errors to those of errors.py. Every error class of apsw has its place here."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import apsw

from turnledger.errors import (
    InvalidInput,
    LedgerClosed,
    NotAStore,
    OutcomeUnknown,
    StoreCorrupt,
    StoreError,
    StoreFull,
    StoreReadOnly,
    StoreUnavailable,
    TurnledgerError,
)
from turnledger.stores.damage import UNREADABLE, UNSTORABLE, is_from_decoder

ERROR_CLASSES: Mapping[type[apsw.Error], type[TurnledgerError]] = MappingProxyType(
    {
        # Another process is in the way, or the machine is out of a resource: a retry may succeed.
        apsw.BusyError: StoreUnavailable,
        apsw.LockedError: StoreUnavailable,
        apsw.ProtocolError: StoreUnavailable,
        apsw.InterruptError: StoreUnavailable,
        apsw.AbortError: StoreUnavailable,
        apsw.NoMemError: StoreUnavailable,
        apsw.SchemaChangeError: StoreUnavailable,
        apsw.CantOpenError: StoreUnavailable,
        apsw.IOError: StoreUnavailable,
        # The file or its disk.
        apsw.FullError: StoreFull,
        apsw.NoLFSError: StoreFull,
        apsw.ReadOnlyError: StoreReadOnly,
        apsw.PermissionsError: StoreReadOnly,
        apsw.AuthError: StoreReadOnly,
        apsw.CorruptError: StoreCorrupt,
        apsw.FormatError: StoreCorrupt,
        apsw.EmptyError: StoreCorrupt,
        apsw.NotADBError: StoreCorrupt,
        apsw.TooBigError: InvalidInput,
        apsw.ConnectionClosedError: LedgerClosed,
        # A bug of ours: nothing was written, and the cause is attached.
        apsw.Error: StoreError,
        apsw.SQLError: StoreError,
        apsw.ConstraintError: StoreError,
        apsw.MismatchError: StoreError,
        apsw.MisuseError: StoreError,
        apsw.RangeError: StoreError,
        apsw.InternalError: StoreError,
        apsw.NotFoundError: StoreError,
        apsw.BindingsError: StoreError,
        apsw.ConnectionNotClosedError: StoreError,
        apsw.CursorClosedError: StoreError,
        apsw.ExecTraceAbort: StoreError,
        apsw.ExecutionCompleteError: StoreError,
        apsw.ExtensionLoadingError: StoreError,
        apsw.ForkingViolationError: StoreError,
        apsw.IncompleteExecutionError: StoreError,
        apsw.InvalidContextError: StoreError,
        apsw.NoFTS5Error: StoreError,
        apsw.ThreadingViolationError: StoreError,
        apsw.VFSFileClosedError: StoreError,
        apsw.VFSNotImplementedError: StoreError,
    }
)

ERROR_CLASSES_BY_CODE: Mapping[int, type[TurnledgerError]] = MappingProxyType(
    {
        apsw.SQLITE_IOERR_CORRUPTFS: StoreCorrupt,
        apsw.SQLITE_IOERR_DATA: StoreCorrupt,
        apsw.SQLITE_READONLY_DBMOVED: StoreUnavailable,
        apsw.SQLITE_READONLY_RECOVERY: StoreReadOnly,
        apsw.SQLITE_CANTOPEN_ISDIR: NotAStore,
    }
)
"""Extended codes whose meaning differs from that of their class."""

_REMEDY: Mapping[type[TurnledgerError], str] = MappingProxyType(
    {
        StoreUnavailable: "Nothing was written; try again.",
        StoreFull: "The disk is full. Nothing was written; free some space and try again.",
        StoreReadOnly: "Check the permissions of the file and of its folder.",
        StoreCorrupt: "The file is damaged. It was left untouched; restore it from a backup.",
        NotAStore: "Name a file that Turnledger made, or one that does not exist yet.",
        InvalidInput: "The value is too long; shorten it.",
        LedgerClosed: "The ledger was closed. Open a new one.",
        StoreError: "Nothing was written. This is a bug in Turnledger: please report it.",
    }
)

_REMEDY_OF: Mapping[type[apsw.Error], str] = MappingProxyType(
    {
        apsw.CantOpenError: "Nothing was written. Check its folder and the limit of open files, then "
        "try again.",
    }
)
"""Remedies that are more specific than those of the meaning."""

_AFTER_UNKNOWN: Mapping[type[TurnledgerError], str] = MappingProxyType(
    {
        StoreReadOnly: " Check the permissions of the file and of its folder.",
        StoreCorrupt: " The file is damaged: restore it from a backup.",
    }
)


def error_class_of(error: apsw.Error) -> type[TurnledgerError]:
    """Return the class of errors.py that fits this error."""
    special = ERROR_CLASSES_BY_CODE.get(getattr(error, "extendedresult", 0))
    return special or ERROR_CLASSES.get(type(error), StoreError)


def translate(error: BaseException, path: str) -> BaseException:
    """Return the error to raise instead, with the file, the reason and the remedy. An error that came neither
    from SQLite nor from decoding rows is a bug, and is returned as it is."""
    if isinstance(error, UNSTORABLE):
        failure: TurnledgerError = InvalidInput(f"A value cannot be stored: {error}. Correct it.")
    elif isinstance(error, apsw.Error):
        kind = error_class_of(error)
        failure = kind(f"{path}: {reason(error)}. {_REMEDY_OF.get(type(error)) or _REMEDY[kind]}")
    elif isinstance(error, UNREADABLE) and is_from_decoder(error):
        failure = StoreCorrupt(f"{path}: a row cannot be read: {error!r}. {_REMEDY[StoreCorrupt]}")
    else:
        return error
    failure.__cause__ = error
    return failure


def commit_failure(error: apsw.Error, path: str) -> BaseException:
    """Return the error for a failed COMMIT. Its outcome is unknown, since parts may have reached the disk;
    but not if the disk is full, which SQLite reports only for writes: the commit record is then
    incomplete."""
    error_class = error_class_of(error)
    if error_class is StoreFull:
        return translate(error, path)
    remedy = _AFTER_UNKNOWN.get(error_class, "")
    failure = OutcomeUnknown(
        f"{path}: {reason(error)}. The write may be stored or not; read it before retrying.{remedy}"
    )
    failure.because = error_class
    failure.__cause__ = error
    return failure


def reason(error: BaseException) -> str:
    return str(error) or type(error).__name__
