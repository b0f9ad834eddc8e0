"""From a URL to a store."""

from __future__ import annotations

from urllib.parse import parse_qsl

from turnledger.engine.ports import Store
from turnledger.errors import NotAStore

KNOWN = "memory:, memory:?max=1000&ttl=3600, sqlite:///relative/path.db, sqlite:////absolute/path.db"


async def open_store(url: str) -> Store:
    """Open the store that the URL names; raises NotAStore for one that is not understood."""
    if url == "memory:" or url.startswith("memory:?"):
        return _open_memory(url)
    if url.startswith("sqlite:"):
        from turnledger.stores.sqlite.store import SqliteStore

        return await SqliteStore.open(url)
    raise NotAStore(f"{_without_secret(url)!r} names no store. Known forms: {KNOWN}.")


def _open_memory(url: str) -> Store:
    from turnledger.stores.memory import Database, MemoryStore

    settings = dict(parse_qsl(url.partition("?")[2], keep_blank_values=True))
    try:
        maximum, ttl = settings.pop("max", None), settings.pop("ttl", None)
        database = Database(int(maximum) if maximum else None, round(float(ttl) * 1000) if ttl else None)
    except ValueError:
        raise NotAStore(f"`max` and `ttl` must be numbers in {url!r}.") from None
    if settings or (database.max_conversations or 1) < 1 or (database.ttl_ms or 1) < 1:
        raise NotAStore(f"{url!r}: only `max` and `ttl` (in seconds) are known, both above 0.")
    return MemoryStore(database)


def _without_secret(url: str) -> str:
    """The URL without what may be a password."""
    scheme, _, rest = url.partition("://")
    return f"{scheme}://…@{rest.rpartition('@')[2]}" if "@" in rest else url
