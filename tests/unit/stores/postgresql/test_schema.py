"""The schema: migrations lead to schema.sql, and every query is valid on it."""

from __future__ import annotations

import asyncpg
import pytest

from turnledger.errors import StoreTooNew
from turnledger.stores.postgresql import PostgresStore
from turnledger.stores.postgresql.migrations import MIGRATIONS, VERSION, migrate
from turnledger.stores.postgresql.tables.queries import QUERIES, sql_text
from turnledger.testing.postgresql import PostgresServer
from turnledger.testing.store_contract.rows.kit import change, claim, do, read, write

SHAPE = """
SELECT table_name, column_name, ordinal_position, data_type, is_nullable, column_default, collation_name
FROM information_schema.columns WHERE table_schema = 'public'
UNION ALL
SELECT relname, relpersistence::text, 0, '', '', '', ''
FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r'
UNION ALL
SELECT proname, pg_get_functiondef(oid), 0, '', '', '', ''
FROM pg_proc WHERE pronamespace = 'public'::regnamespace
UNION ALL
SELECT tablename, indexname, 0, indexdef, '', '', '' FROM pg_indexes WHERE schemaname = 'public'
ORDER BY 1, 2, 3
"""


async def test_migrations_lead_to_the_schema(server: PostgresServer) -> None:
    shapes = []
    for files in (["schema.sql"], [f"migrations/{name}" for name in MIGRATIONS]):
        connection = await asyncpg.connect(server.create_database())
        for file in files:
            await connection.execute(sql_text(file))
        shapes.append([tuple(row) for row in await connection.fetch(SHAPE)])
        await connection.close()
    assert shapes[0] == shapes[1]
    assert {row[0] for row in shapes[0]} > {"conversation", "branch", "turn", "store"}


async def test_older_database_is_migrated_to_the_current_version(url: str) -> None:
    connection = await asyncpg.connect(url)
    await connection.execute(sql_text(f"migrations/{MIGRATIONS[0]}"))
    await connection.execute("INSERT INTO store (id, version, secret) VALUES (1, 1, $1)", bytes(32))
    made = claim(idempotency_key="a\\b")
    await connection.execute(
        "INSERT INTO claim (owner, idempotency_key, fingerprint, conversation, attempt, lost) "
        "VALUES ($1, $2, $3, $4, $5, 0)",
        *(made.owner, made.idempotency_key, made.fingerprint, made.conversation.raw, made.attempt.raw),
    )
    await migrate(connection)
    assert await connection.fetchval("SELECT version FROM store") == VERSION
    await connection.close()
    store = await PostgresStore.open(url)
    await write(store, do("save_claim", made), do("add_change", change()))
    assert await read(store, do("claim", made.idempotency_key)) == made
    await store.close()


async def test_every_query_is_valid(url: str) -> None:
    await (await PostgresStore.open(url)).close()
    connection = await asyncpg.connect(url)
    for name, query in QUERIES.items():
        try:
            await connection.prepare(query)
        except asyncpg.PostgresError as problem:
            pytest.fail(f"{name}: {problem}")
    await connection.close()


@pytest.mark.parametrize("is_noticed", [True, False])
async def test_database_that_a_newer_server_migrated_meanwhile_is_left_alone(
    url: str, is_noticed: bool
) -> None:
    """Until the change is noticed, statements that no longer fit the tables fail."""
    store, connection = await PostgresStore.open(url), await asyncpg.connect(url)
    if is_noticed:
        store.watch(lambda: None)
    else:
        await connection.execute("ALTER TABLE claim RENAME COLUMN fingerprint TO print")
    await connection.execute("UPDATE store SET version = version + 1")
    with pytest.raises(StoreTooNew, match=f"schema {VERSION + 1}.*[Rr]estart") as caught:
        while True:
            await write(store, do("save_claim", claim(expires_at=None)))
            assert is_noticed
    assert "Restart" in caught.value.for_clients()
    await connection.close()
    await store.close()
