"""The books of the SQLite store: damage done to the file by other means is told, row by row."""

from __future__ import annotations

from pathlib import Path

import apsw
import pytest

from tests.unit.engine.lived_in import live_in
from turnledger import Finding, Rule
from turnledger.engine.check.check import CheckRequest, check
from turnledger.stores.sqlite import SqliteStore, SqliteVisit
from turnledger.stores.sqlite.tables.overview import ODD, ODD_WORDS
from turnledger.stores.sqlite.tables.records import QUERIES


@pytest.fixture
async def lived_in(path: Path) -> Path:
    """A file in which everything has happened, and that nobody has open."""
    lived = await live_in(await SqliteStore.open(path))
    await lived.ledger.close()
    return path


async def findings(path: Path) -> list[Finding]:
    visit = await SqliteVisit.open(path)
    try:
        return (await visit.read(check, CheckRequest(at_rest=True))).findings
    finally:
        await visit.close()


def damage(path: Path, statement: str) -> None:
    connection = apsw.Connection(str(path))
    connection.execute(statement)
    assert connection.total_changes() > 0
    connection.close()


A_MADE_BRANCH = "(SELECT ref FROM branch WHERE start > 0 AND length = start LIMIT 1)"


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        (
            "UPDATE branch SET bytes = bytes - 1 WHERE ref = (SELECT min(ref) FROM branch WHERE bytes > 1)",
            "counts other bytes than its turns take",
        ),
        ("UPDATE owner SET bytes = bytes + 1", "The usage of 'ann' is kept as "),
        (
            "INSERT INTO owner (owner, bytes) VALUES ('nobody', 16384)",
            "The usage of 'nobody' is kept as 16384 bytes in 0 chats, but comes to 0 in 0",
        ),
        ("UPDATE owner SET bytes = 0", "The usage of 'ann' is kept as 0 bytes"),
        (
            "INSERT INTO turn SELECT 9999, randomblob(16), 9999, 1, NULL, 0, 1, 1, body, NULL, NULL "
            "FROM turn LIMIT 1",
            "stands on a branch that is not there",
        ),
        (
            f"INSERT INTO turn SELECT 9999, randomblob(16), {A_MADE_BRANCH}, 1, NULL, 0, 1, 1, body, NULL, "
            "NULL FROM turn LIMIT 1",
            "stands before the start of its branch",
        ),
        (
            "INSERT INTO origin SELECT 9999, conversation, base, source, through, line FROM origin LIMIT 1",
            "it keeps turns for nobody",
        ),
        (f"UPDATE origin SET through = 0 WHERE branch = {A_MADE_BRANCH}", "a purge may remove what it needs"),
        (
            "UPDATE origin SET line = unhex(hex(substr(line, 1, 16)) || '0000000000000777' || "
            f"hex(substr(line, 25))) WHERE branch = {A_MADE_BRANCH}",
            "in the wrong place: it reads the turns of another",
        ),
        ("INSERT INTO journal VALUES (randomblob(16), 0, x'7b7d')", "what it says is lost"),
        ("INSERT INTO event_log VALUES (randomblob(16), 0, x'00')", "There is a log of turn_"),
        ("INSERT INTO item_flag VALUES (randomblob(16), 0, 'ann', 0, 0, 1, 1)", "There are flags of turn_"),
        (
            "INSERT INTO item_flag SELECT id, 0, 'ann', 0, 0, branch, number + 1 FROM turn LIMIT 1",
            "nobody goes by them",
        ),
        ("INSERT INTO conversation_tag VALUES ('ann', 'a', randomblob(16))", "filed under other tags"),
        ("UPDATE conversation SET tags = '[\"a\"]' WHERE ref = 1", "filed under other tags"),
        ("INSERT INTO attempt_input VALUES (9999, randomblob(16), x'7b7d')", "it is left over"),
        (
            "UPDATE attempt SET ended = 0 WHERE id = (SELECT id FROM attempt WHERE journaled = 0 LIMIT 1)",
            "lies among the running attempts and is none",
        ),
        ("INSERT INTO turn_words (rowid, words) VALUES (9999, 'left')", "words of turns that are not there"),
        (
            "INSERT INTO title_words (rowid, words) VALUES (9999, 'left')",
            "words of titles that are not there",
        ),
        ("UPDATE search_mark SET turn = 9999", "later ones cannot be found"),
    ],
)
async def test_what_does_not_agree_is_told(lived_in: Path, statement: str, said: str) -> None:
    assert await findings(lived_in) == []
    damage(lived_in, statement)
    [finding] = await findings(lived_in)
    assert finding.rule is Rule.STORE
    assert said in finding.message


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("UPDATE conversation SET state = 'odd' WHERE conversation_key = 'plain'", "KeyError('odd')"),
        (
            "UPDATE conversation SET metadata = '[' WHERE conversation_key = 'plain'",
            "ValidationError",
        ),
        ("UPDATE branch SET pending = x'7b' WHERE pending IS NOT NULL", "A stored document cannot be read"),
        ("UPDATE attempt SET input = x'7b' WHERE journaled = 0 AND state = 'failed'", "A stored document"),
        ("UPDATE attempt SET input = NULL WHERE journaled = 0 AND state = 'failed'", "cannot be read"),
        ("UPDATE attempt SET state = 'odd' WHERE journaled = 0 AND state = 'failed'", "'odd' is not a valid"),
        ("UPDATE journal SET record = x'7b' WHERE number = 0", "Its journal cannot be read"),
        (f"UPDATE origin SET line = x'00' WHERE branch = {A_MADE_BRANCH}", "Its origin cannot be read"),
        (
            "UPDATE turn SET kind = 7, checksum = NULL WHERE number = 3 AND branch = 1",
            "Turn 3 cannot be read: IndexError",
        ),
        ("UPDATE turn SET body = x'00' WHERE number = 2 AND branch = 1", "does not match its checksum"),
    ],
)
async def test_a_row_that_cannot_be_read_is_told_once_and_stops_nobody(
    lived_in: Path, statement: str, said: str
) -> None:
    damage(lived_in, statement)
    found = [finding for finding in await findings(lived_in) if finding.rule is Rule.DOCUMENT]
    assert len(found) == 1, found
    assert said in found[0].message


async def test_a_damaged_file_is_told_in_the_words_of_sqlite(lived_in: Path) -> None:
    connection = apsw.Connection(str(lived_in))
    connection.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 0)
    connection.pragma("writable_schema", 1)
    connection.execute("DELETE FROM sqlite_schema WHERE name = 'conversation_listed'")
    connection.pragma("writable_schema", "RESET")
    connection.close()
    assert any("SQLite says of its file:" in finding.message for finding in await findings(lived_in))


def test_each_oddity_has_a_query() -> None:
    assert {*ODD, *ODD_WORDS} < set(QUERIES)
