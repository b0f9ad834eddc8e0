"""Migrate a store to the current schema: an empty database at once, an older one by numbered files."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from turnledger.errors import NotAStore, StoreTooNew
from turnledger.stores.copies import UNFINISHED
from turnledger.stores.postgresql.tables.queries import sql_text

if TYPE_CHECKING:
    from turnledger.stores.postgresql.connections import AnyConnection

MIGRATIONS = ("0001_first_tables.sql", "0002_epochs.sql", "0003_key_digests.sql")
"""In order; the n-th leads to version n. Released ones are never edited."""

VERSION = len(MIGRATIONS)
"""The schema version of this Turnledger, as in the table `store`."""

_ONE_AT_A_TIME = 0x7475726E6C656467
"""Of the lock that servers take which start at the same time."""


async def version_of(connection: AnyConnection) -> int:
    """Return the schema version, 0 for a database without tables of Turnledger."""
    if await connection.fetchval("SELECT to_regclass('store')") is None:
        return 0
    columns = await connection.fetch(
        "SELECT attname::text FROM pg_attribute WHERE attrelid = 'store'::regclass AND attnum > 0"
    )
    if not {"version", "secret"} <= {name for (name,) in columns}:
        raise NotAStore("This database has a table `store` of another program. Use a database of its own.")
    return int(await connection.fetchval("SELECT version FROM store") or 0)


def check_version(version: int) -> None:
    """Raise StoreTooNew for a store of a newer Turnledger, and NotAStore for an unfinished copy."""
    if version >= UNFINISHED:
        raise NotAStore(
            "The database is an unfinished copy. Repeat `turnledger copy` to finish it, or drop the database."
        )
    if version > VERSION:
        raise StoreTooNew(
            f"The database was written by a newer Turnledger (schema {version}; this one knows {VERSION}). "
            "It was left untouched; upgrade Turnledger."
        )


def check_unchanged(version: int, place: str) -> None:
    """Raise StoreTooNew if a newer Turnledger has migrated the database since it was opened."""
    if version > VERSION:
        newer = StoreTooNew(
            f"{place}: a newer Turnledger has migrated it (schema {version}; this one knows {VERSION}). "
            "Restart with the newer version."
        )
        newer.public_message = "A newer Turnledger has migrated the store. Restart with the newer version."
        raise newer


async def migrate(connection: AnyConnection) -> None:
    """Run the missing steps in one transaction; servers that start at once take turns."""
    version = await version_of(connection)
    check_version(version)
    if version == VERSION:
        return
    async with connection.transaction(isolation="read_committed"):  # sees what others made meanwhile
        await connection.execute("SELECT pg_advisory_xact_lock($1)", _ONE_AT_A_TIME)
        version = await version_of(connection)
        check_version(version)
        if version == 0:  # an empty database needs no migrations
            await connection.execute(sql_text("schema.sql"))
            await connection.execute(
                "INSERT INTO store (id, version, secret) VALUES (1, $1, $2)", VERSION, os.urandom(32)
            )
            return
        for number in range(version, VERSION):
            await connection.execute(sql_text(f"migrations/{MIGRATIONS[number]}"))
        await connection.execute("UPDATE store SET version = $1", VERSION)
