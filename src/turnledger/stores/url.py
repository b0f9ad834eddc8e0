"""Open a store by its URL."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

from turnledger.engine.ports import Store, StoreReader
from turnledger.engine.tables.records import RecordSource, RecordTarget
from turnledger.errors import NotAStore
from turnledger.stores.memory import Database, MemoryStore
from turnledger.stores.sqlite import ReadOnlySqlite, SqliteStore, path_of
from turnledger.stores.sqlite.backup import Progress, back_up
from turnledger.stores.sqlite.connections import deletes_securely
from turnledger.stores.sqlite.copies import SqliteCopy, SqliteRecords

if TYPE_CHECKING:
    from turnledger.stores.postgresql import PostgresStore

SCHEMES = (
    "memory:, memory:?max=1000&ttl=3600, sqlite:///relative/path.db, sqlite:////absolute/path.db, "
    "sqlite:///path.db?secure_delete=on, postgresql://user@host/database"
)


async def open_store(url: str, *, page_bytes: int | None = None) -> Store:
    """Open the store at the URL; `page_bytes` bounds its page cache. Raises NotAStore for an unknown URL."""
    if url == "memory:" or url.startswith("memory:?"):
        return _open_memory(url)
    if url.startswith("sqlite:"):
        return await SqliteStore.open(
            path_of(url), page_bytes=page_bytes, secure_delete=deletes_securely(url)
        )
    if is_postgresql(url):
        return await _postgres_store().open(url)
    # Not echoed: the rest of the URL may hold a password.
    raise NotAStore(f"This URL does not name a store. Known forms: {SCHEMES}.")


async def open_read_only(url: str) -> StoreReader:
    """Open the store at the URL for reading only; raise NotAStore if it does not exist."""
    if url.startswith("memory:"):
        raise NotAStore("Other processes cannot open a memory store. Name a SQLite file.")
    if url.startswith("sqlite:"):
        return await ReadOnlySqlite.open(path_of(url))
    if is_postgresql(url):
        return await _postgres_store().open_read_only(url)
    raise NotAStore(f"This URL does not name a store. Known forms: {SCHEMES}.")


async def open_source(url: str) -> RecordSource:
    """Open the store at the URL to copy its records; raise NotAStore if it does not exist."""
    if url.startswith("sqlite:"):
        return await SqliteRecords.open(path_of(url))
    if is_postgresql(url):
        _postgres_store()
        from turnledger.stores.postgresql.copies import PostgresRecords

        return await PostgresRecords.open(url)
    raise _not_copied(url)


async def open_target(url: str) -> RecordTarget:
    """Open the store at the URL to copy records into it; create it if needed."""
    if url.startswith("sqlite:"):
        return await SqliteCopy.open(path_of(url))
    if is_postgresql(url):
        _postgres_store()
        from turnledger.stores.postgresql.copies import PostgresCopy

        return await PostgresCopy.open(url)
    raise _not_copied(url)


def _not_copied(url: str) -> NotAStore:
    if url.startswith("memory:"):
        return NotAStore("A store in memory cannot be copied. Name a SQLite file or a PostgreSQL database.")
    return NotAStore(f"This URL does not name a store. Known forms: {SCHEMES}.")


def names_store(url: str) -> bool:
    """Return whether the URL names a kind of store that is known here."""
    return url.startswith(("memory:", "sqlite:")) or is_postgresql(url)


def is_postgresql(url: str) -> bool:
    return url.startswith(("postgresql://", "postgres://"))


def _postgres_store() -> type[PostgresStore]:
    try:
        from turnledger.stores.postgresql import PostgresStore
    except ImportError as problem:
        raise NotAStore(
            "PostgreSQL needs the package asyncpg: pip install 'turnledger[postgresql]'."
        ) from problem
    return PostgresStore


def store_exists(url: str) -> bool:
    """Return whether the URL names an existing file, or a database."""
    return is_postgresql(url) or (url.startswith("sqlite:") and Path(path_of(url)).exists())


def described(url: str) -> str:
    """Return a URL to show: without user and password."""
    if not is_postgresql(url):
        return url
    _postgres_store()
    from turnledger.stores.postgresql.connections import settings_of

    return settings_of(url).place


def back_up_store(url: str, file: str, progress: Progress) -> None:
    """Copy the store at the URL, in use or not, into a new file. Blocks. Raises NotAStore if it is not in a
    file, InvalidInput if the new file cannot be made, and StoreErrors."""
    if url.startswith("memory:"):
        raise NotAStore("A store in memory cannot be backed up. Name a SQLite file.")
    if is_postgresql(url):
        raise NotAStore(
            "Back up a PostgreSQL database with pg_basebackup, or with the tools of its operator."
        )
    if not url.startswith("sqlite:"):
        raise NotAStore(f"This URL does not name a store. Known forms: {SCHEMES}.")
    back_up(path_of(url), file, progress)


def _open_memory(url: str) -> Store:
    settings = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))
    try:
        maximum = int(settings.pop("max")) if "max" in settings else None
        ttl = round(float(settings.pop("ttl")) * 1000) if "ttl" in settings else None
    except (ValueError, OverflowError):
        raise NotAStore("`max` and `ttl` (in seconds) of a memory store must be numbers.") from None
    if settings or (maximum is not None and maximum < 1) or (ttl is not None and ttl < 1):
        raise NotAStore("A memory store takes `max` and `ttl` (in seconds), both above 0, and nothing else.")
    return MemoryStore(Database(maximum, ttl))
