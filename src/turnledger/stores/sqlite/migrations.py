"""Migrate a store to the current schema: an empty one at once, an older one by numbered files. Their SQL may
call Python for turns committed before."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager

import apsw

from turnledger.errors import NotAStore, StoreError, StoreTooNew
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn, TurnKind, first_words, preview_of
from turnledger.stores.copies import UNFINISHED
from turnledger.stores.sqlite.tables.records import sql_text


def add_functions(connection: apsw.Connection) -> None:
    """Add the SQL functions `turn_preview` and `turn_title`, each with the body of a turn and its hidden
    places, as a list with commas or NULL."""
    functions: dict[str, Callable[..., str | None]] = {"turn_preview": turn_preview, "turn_title": turn_title}
    for name, function in functions.items():
        connection.create_scalar_function(name, function, 2, deterministic=True)


def turn_preview(body: bytes, hidden: str | None) -> str:
    """Return the beginning of the last visible text of a turn; empty without one, or if unreadable."""
    try:
        return preview_of(_turn(body), _places(hidden))
    except StoreError:
        return ""  # reading the turn, or a check, reports the damage


def turn_title(body: bytes, hidden: str | None) -> str | None:
    """Return the first words of a turn; NULL if there are none, or it cannot be read."""
    try:
        return first_words(_turn(body).input, _places(hidden))
    except StoreError:
        return None


def _turn(body: bytes) -> Turn:
    owner = bytes(16)
    return Turn(TurnId.trusted(owner), BranchId.trusted(owner), 1, None, TurnKind.COMPLETED, 0, 0, body)


def _places(hidden: str | None) -> Collection[int]:
    return {int(place) for place in hidden.split(",")} if hidden else ()


MIGRATIONS = (
    "0001_first_tables.sql",
    "0002_tokens.sql",
    "0003_scopes.sql",
    "0004_catalogue.sql",
    "0005_changes.sql",
    "0006_shares.sql",
    "0007_search.sql",
    "0008_secret.sql",
    "0009_effects.sql",
    "0010_clock.sql",
    "0011_checksums.sql",
    "0012_usage.sql",
    "0013_forgotten_and_interaction.sql",
    "0014_burials_and_words.sql",
    "0015_no_triggers.sql",
    "0016_side_branches.sql",
    "0017_jobs.sql",
    "0018_ticket_keys.sql",
    "0019_unread_turns.sql",
    "0020_token_defaults.sql",
)
"""In order; the n-th leads to version n. Released ones are never edited."""

VERSION = len(MIGRATIONS)
"""The schema version of this Turnledger, as in `PRAGMA user_version`."""


def version_of(connection: apsw.Connection) -> int:
    return int(connection.pragma("user_version"))


def check_version(version: int, path: str) -> None:
    """Raise StoreTooNew for a store of a newer Turnledger, and NotAStore for an unfinished copy."""
    if version >= UNFINISHED:
        raise NotAStore(f"{path} is an unfinished copy. Repeat `turnledger copy` to finish it, or delete it.")
    if version > VERSION:
        raise StoreTooNew(
            f"{path} was written by a newer Turnledger (schema {version}; this one knows {VERSION}). "
            "It was left untouched; upgrade Turnledger."
        )


def migrate(connection: apsw.Connection, path: str) -> None:
    """Run the missing steps. Each commits together with its version, and concurrent processes take turns."""
    if version_of(connection) < VERSION:
        add_functions(connection)
    while version_of(connection) < VERSION:
        with immediate(connection):
            version = version_of(connection)  # another process may have migrated meanwhile
            check_version(version, path)
            if version < VERSION:
                file, leads_to = _step(version)
                connection.execute(sql_text(file))
                connection.pragma("user_version", leads_to)


@contextmanager
def immediate(connection: apsw.Connection) -> Iterator[None]:
    """Run a transaction that takes the write lock at once; an exception inside rolls it back."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def _step(version: int) -> tuple[str, int]:
    if version == 0:
        return "schema.sql", VERSION  # an empty store needs no migrations
    return f"migrations/{MIGRATIONS[version]}", version + 1
