"""A store URL opens a store, or is refused with the known forms and without its secrets."""

import pytest

from turnledger.errors import NotAStore, StoreUnavailable
from turnledger.stores.memory import Database, MemoryStore
from turnledger.stores.url import open_store


async def database_of(url: str) -> Database:
    store = await open_store(url)
    assert isinstance(store, MemoryStore)
    return store._db


@pytest.mark.parametrize(
    "url",
    [
        "",
        "chats.db",
        ":memory:",
        "memory",
        "memory://",
        "MEMORY:",
        "mysql://host/db",
        "https://example.org",
        " memory:",
        "file:chats.db",
    ],
)
async def test_unknown_store_url_is_refused_with_the_known_forms(url: str) -> None:
    with pytest.raises(NotAStore) as caught:
        await open_store(url)
    message = str(caught.value)
    assert "memory:" in message
    assert "sqlite:///" in message


@pytest.mark.parametrize(
    "url",
    [
        "mysql://ann:hunter2@db.example.org/chats",
        "redis://:hunter2@db.example.org",
        "postgres:ann:hunter2@db.example.org",
        "postgresql:/ann:hunter2@db.example.org",
        "postgresql://ann:hunter2@db.example.org/chats?pool=none",
    ],
)
async def test_refused_store_url_does_not_echo_the_password(url: str) -> None:
    with pytest.raises(NotAStore) as caught:
        await open_store(url)
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "postgres://ann:hunter2@127.0.0.1:1/chats",
        "postgres://ann:hunter2@127.0.0.1:1/chats?sslmode=require",
        "postgres://ann:p@hunter2@127.0.0.1:1/chats",
        "postgres://127.0.0.1:1/chats?user=ann&password=hunter2",
        "postgres:///chats?host=127.0.0.1&port=1&password=hunter2",
    ],
)
async def test_unreachable_database_is_named_without_the_password(url: str) -> None:
    with pytest.raises(StoreUnavailable) as caught:
        await open_store(url)
    assert "127.0.0.1/chats" in str(caught.value)
    assert "hunter2" not in str(caught.value)


async def test_memory_url_without_parameters_is_unbounded() -> None:
    for url in ("memory:", "memory:?"):
        database = await database_of(url)
        assert (database.max_conversations, database.ttl_ms) == (None, None)


async def test_memory_url_opens_a_new_store_each_time() -> None:
    assert await database_of("memory:") is not await database_of("memory:")


@pytest.mark.parametrize(
    ("url", "maximum", "ttl_ms"),
    [
        ("memory:?max=1", 1, None),
        ("memory:?ttl=3600", None, 3_600_000),
        ("memory:?ttl=0.5", None, 500),
        ("memory:?max=1000&ttl=60", 1_000, 60_000),
        ("memory:?ttl=60&max=1000", 1_000, 60_000),
    ],
)
async def test_memory_url_sets_the_conversation_limit_and_time_to_live(
    url: str, maximum: int | None, ttl_ms: int | None
) -> None:
    database = await database_of(url)
    assert (database.max_conversations, database.ttl_ms) == (maximum, ttl_ms)


@pytest.mark.parametrize(
    "query",
    [
        "max=many",
        "max=1.5",
        "max=-1",
        "max=0",
        "max=",
        "max",
        "ttl=soon",
        "ttl=-1",
        "ttl=0",
        "ttl=0.0001",
        "ttl=",
        "ttl=nan",
        "ttl=inf",
        "size=5",
        "max=5&size=5",
        "Max=5",
    ],
)
async def test_memory_url_with_invalid_parameters_is_refused(query: str) -> None:
    with pytest.raises(NotAStore, match="`max` and `ttl`"):
        await open_store(f"memory:?{query}")
