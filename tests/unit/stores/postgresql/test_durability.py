"""Commits and tool starts wait for the disk, whatever the defaults of the database."""

from __future__ import annotations

import asyncpg
import pytest

from turnledger import Ledger
from turnledger.testing.store_contract.stage import call

RECORD = """
CREATE TABLE seen (written text, setting text);
CREATE FUNCTION record() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO seen VALUES (TG_TABLE_NAME, current_setting('synchronous_commit'));
    RETURN NULL;
END $$
"""
WATCH = """
CREATE CONSTRAINT TRIGGER recorder AFTER INSERT ON {table}
DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION record()
"""
"""As the transaction commits."""


@pytest.mark.parametrize(
    ("default", "expected"), [("off", "on"), ("local", "local"), ("remote_apply", "remote_apply")]
)
@pytest.mark.parametrize("of", ["DATABASE {database}", "ROLE postgres IN DATABASE {database}"])
async def test_commit_and_tool_start_wait_for_the_disk_whatever_the_default(
    url: str, of: str, default: str, expected: str
) -> None:
    async def look() -> str:
        return "in Rome"

    await (await Ledger.open(url)).close()
    connection = await asyncpg.connect(url)
    database = await connection.fetchval("SELECT current_database()")
    await connection.execute(f"ALTER {of.format(database=database)} SET synchronous_commit = {default}")
    await connection.execute(RECORD)
    for table in ("journal", "turn", "attempt", "conversation"):
        await connection.execute(WATCH.format(table=table))
    async with await Ledger.open(url) as ledger:
        chat = await ledger.conversation(conversation_key="lane")
        for _ in range(3):  # first alone, then as single statements
            async with chat.turn("Where is my order?") as turn:
                await turn.add(call("look", "c"))
                await turn.call(call("look", "c"), look)
                turn.emit("It is in Rome.")
    found = {tuple(row) for row in await connection.fetch("SELECT written, setting FROM seen")}
    await connection.close()
    assert found >= {
        ("journal", expected),
        ("turn", expected),
        ("conversation", expected),
        ("attempt", "off"),
    }
    assert {setting for written, setting in found if written != "attempt"} == {expected}
