"""Translate errors of asyncpg to those of errors.py, and tell what is known of a write that failed."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import asyncpg

from turnledger.errors import (
    InvalidInput,
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

LOST = (
    OSError,
    TimeoutError,
    EOFError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,  # the server ended the connection while it was idle
    asyncpg.PostgresConnectionError,
)
"""The connection is gone, or was never there."""

FAILED = (asyncpg.PostgresError, *LOST)
"""The database could not be asked, or refused."""

ERROR_CLASSES: Mapping[str, type[TurnledgerError]] = MappingProxyType(
    {
        # Two digits name a class of codes, five a single one.
        "08": StoreUnavailable,  # connections
        "40": StoreUnavailable,  # rolled back: serialization, deadlock
        "53": StoreUnavailable,  # out of connections or memory
        "53100": StoreFull,
        "55": StoreUnavailable,  # a lock is not to be had
        "57": StoreUnavailable,  # shut down, cancelled, starting up
        "58": StoreUnavailable,  # a disk of the server failed
        "25P03": StoreUnavailable,  # idle for too long
        "25P04": StoreUnavailable,
        "25006": StoreUnavailable,  # a standby: another server is, or will be, the primary
        "0A000": StoreUnavailable,  # a plan that a migration has made invalid
        "3D000": NotAStore,
        "28": StoreUnavailable,
        "42501": StoreReadOnly,
        "22021": InvalidInput,
        "22P05": InvalidInput,
        "54": InvalidInput,
        "XX001": StoreCorrupt,
        "XX002": StoreCorrupt,
    }
)

_REMEDY: Mapping[type[TurnledgerError], str] = MappingProxyType(
    {
        StoreUnavailable: "Nothing was written; try again.",
        StoreFull: "The disk of the database is full. Nothing was written; free some space and try again.",
        StoreReadOnly: "Grant the user of the URL the rights on the database.",
        StoreCorrupt: "The database is damaged; restore it from a backup.",
        NotAStore: "Create the database, or correct its name in the URL.",
        InvalidInput: "Shorten or correct the value.",
        StoreError: "Nothing was written. This is a bug in Turnledger: please report it.",
    }
)

REPEATED = ("40001", "40P01")
"""Codes after which a transaction is run again: the server has rolled it back for the sake of another."""


WRONG_OPTIONS = ("22023", "42601", "42704")
"""Codes of a connection whose `options` the server does not accept."""

WITHOUT_USER: Mapping[str, str] = MappingProxyType(
    {
        "28": "the server refused this user: create it, or allow it in pg_hba.conf",
        "28P01": "password authentication failed: correct the user or the password",
        "53300": "too many connections",
    }
)
"""What to say instead of messages with the name of a user, in any language."""

GONE = "the connection is lost"

TAKEN = "23505"
"""The code of a key that somebody else has taken."""


def code_of(error: BaseException) -> str:
    return str(getattr(error, "sqlstate", "") or "")


def error_class_of(error: BaseException) -> type[TurnledgerError]:
    """Return the class of errors.py that fits this error."""
    if isinstance(error, LOST):
        return StoreUnavailable
    code = code_of(error)
    return ERROR_CLASSES.get(code) or ERROR_CLASSES.get(code[:2]) or StoreError


def is_lost(error: BaseException) -> bool:
    """Return whether the connection broke, so that the server may have done more than it said."""
    return isinstance(error, LOST) or code_of(error)[:2] in ("08", "57")


def translate(error: BaseException, place: str) -> BaseException:
    """Return the error to raise instead, with the database, the reason and the remedy. An error that came
    neither from the database nor from decoding rows is a bug, and is returned as it is."""
    if isinstance(error, TurnledgerError):
        return error
    if isinstance(error, UNSTORABLE):
        failure: TurnledgerError = InvalidInput(f"A value cannot be stored: {error}. Correct it.")
    elif isinstance(error, asyncpg.DataError):
        failure = InvalidInput(
            "PostgreSQL cannot store a value: a number too large, or a text that is not Unicode. Correct it."
        )
    elif isinstance(error, FAILED):
        kind = error_class_of(error)
        failure = kind(f"{place}: {reason(error)}. {_REMEDY[kind]}")
    elif isinstance(error, UNREADABLE) and is_from_decoder(error):
        failure = StoreCorrupt(f"{place}: a row cannot be read: {error!r}. {_REMEDY[StoreCorrupt]}")
    else:
        return error
    failure.__cause__ = error
    return failure


def commit_failure(error: BaseException, place: str) -> BaseException:
    """Return the error for a failed COMMIT. If the connection broke, the outcome is unknown."""
    if not is_lost(error):
        return translate(error, place)
    failure = OutcomeUnknown(
        f"{place}: {reason(error)}. The write may be stored or not; read it before retrying."
    )
    failure.because = error_class_of(error)
    failure.__cause__ = error
    return failure


def connect_failure(error: BaseException, place: str) -> BaseException:
    """Return the error for a connection that cannot be made."""
    if isinstance(error, asyncpg.ClientConfigurationError) or code_of(error) in WRONG_OPTIONS:
        return NotAStore(f"{place}: {reason(error)}. Correct the settings in the URL.")
    return translate(error, place)


def reason(error: BaseException) -> str:
    """Return what the database says, without the name of the user."""
    hidden = WITHOUT_USER.get(code_of(error)) or WITHOUT_USER.get(code_of(error)[:2])
    if hidden is not None:
        return hidden
    lost = isinstance(error, asyncpg.InterfaceError | asyncpg.InternalClientError)
    is_gone = lost and not isinstance(error, asyncpg.ClientConfigurationError)
    return (GONE if is_gone else str(error) or type(error).__name__).rstrip(".")
