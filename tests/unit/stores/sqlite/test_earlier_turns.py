"""A store that was written before lists showed previews and first words comes out as if it always had."""

from __future__ import annotations

import apsw
import pytest

from tests.unit.stores.sqlite.operations import ids
from turnledger.model.catalogue import Wanted
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, message
from turnledger.model.text.search import sought_in
from turnledger.model.turn import Turn, TurnKind
from turnledger.stores.sqlite.migrations import MIGRATIONS, migrate, turn_preview, turn_title
from turnledger.stores.sqlite.tables.records import sql_text
from turnledger.stores.sqlite.tables.tables import SqliteTables

CALL = Item.of({"type": "function_call", "name": "look", "call_id": "c", "arguments": "{}"})
RESULT = Item.of({"type": "function_call_output", "call_id": "c", "output": "seen"})


@pytest.fixture
def old() -> apsw.Connection:
    """A store of the third version."""
    connection = apsw.Connection(":memory:")
    for name in MIGRATIONS[:3]:
        connection.execute(sql_text(f"migrations/{name}"))
    connection.pragma("user_version", 3)
    return connection


def body(asked: str, *output: Item) -> bytes:
    turn = Turn.of(
        id=ids.new(TurnId),
        branch=ids.new(BranchId),
        number=1,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=1,
        committed_at=1,
        input=(message("user", asked),) if asked else (),
        output=output,
    )
    return turn.body


def add_chat(
    old: apsw.Connection, number: int, bodies: list[bytes], state: str = "live", title: str | None = None
) -> tuple[bytes, list[bytes]]:
    """A chat with its turns; returns its id and theirs."""
    chat, branch = ids.new(ConversationId).raw, ids.new(BranchId).raw
    turns = [ids.new(TurnId).raw for _ in bodies]
    old.execute(
        "INSERT INTO conversation (id, owner, branch, state, internal, title, metadata, revision, created_at,"
        " touched_at) VALUES (?, 'ann', ?, ?, 0, ?, '{\"a\":\"b\"}', 1, 1, ?)",
        (chat, branch, state, title, number),
    )
    head = turns[-1] if turns else None
    old.execute(
        "INSERT INTO branch (id, conversation, fence, head, length) VALUES (?, ?, 1, ?, ?)",
        (branch, chat, head, len(turns)),
    )
    ref = old.last_insert_rowid()
    for place, (turn, text) in enumerate(zip(turns, bodies, strict=True), 1):
        old.execute(
            "INSERT INTO turn (id, branch, number, kind, created_at, committed_at, body)"
            " VALUES (?, ?, ?, 0, 1, 1, ?)",
            (turn, ref, place, text),
        )
    return chat, turns


async def listed(connection: apsw.Connection) -> list[tuple[str | None, str | None, str]]:
    migrate(connection, ":memory:")
    found = await SqliteTables(connection.cursor()).listed(Wanted(owner="ann"), None, 10)
    return [(each.conversation.title, each.conversation.named_by, each.preview) for each in found]


async def test_chats_have_a_preview_and_a_name(old: apsw.Connection) -> None:
    add_chat(old, 3, [body("What is a heron?", message("assistant", "A bird."))])
    add_chat(old, 2, [body("And an egret?", message("assistant", "A heron."))], title="Birds")
    add_chat(old, 1, [])
    assert await listed(old) == [
        ("What is a heron?", "words", "A bird."),
        ("Birds", "person", "A heron."),
        (None, None, ""),
    ]


async def test_a_preview_is_the_last_text_that_is_shown(old: apsw.Connection) -> None:
    said = body("Look.", message("assistant", "I looked."))
    _, turns = add_chat(old, 1, [said, body("", CALL), body("", RESULT)])
    assert len(turns) == 3
    _, [first, last] = add_chat(
        old, 2, [body("one", message("assistant", "two")), body("three", message("assistant", "four"))]
    )
    for turn, place in ((first, 0), (last, 0), (last, 1)):
        old.execute("INSERT INTO item_flag VALUES (?, ?, 'ann', 1, 0, 2, 1)", (turn, place))
    assert await listed(old) == [(None, None, "two"), ("Look.", "words", "I looked.")]


async def test_of_what_was_deleted_nothing_is_kept_that_was_said(old: apsw.Connection) -> None:
    for number, state in enumerate(("deleted", "expired")):
        chat, _ = add_chat(old, number, [body("A secret.")], state, title="Secret")
        old.execute("UPDATE conversation SET former_conversation_key = ? WHERE id = ?", (state, chat))
    old.execute("UPDATE conversation SET conversation_key = 'k' WHERE state = 'expired'")
    assert await listed(old) == []
    rows = old.execute("SELECT state, title, metadata, named_by FROM conversation ORDER BY ref").fetchall()
    assert rows == [("purged", None, None, None), ("expired", None, None, None)]
    assert old.execute("SELECT preview FROM branch").fetchall() == [("",), ("",)]
    keys = old.execute("SELECT conversation_key, former_conversation_key FROM conversation ORDER BY ref")
    assert keys.fetchall() == [(None, None), ("k", "expired")]


async def test_titles_and_turns_are_found(old: apsw.Connection) -> None:
    named, _ = add_chat(old, 1, [body("What is a heron?")], title="Birds")
    unnamed, _ = add_chat(old, 2, [body("Where are birds?")])
    migrate(old, ":memory:")
    tables = SqliteTables(old.cursor())
    while not await tables.is_all_known():
        assert await tables.index_texts(10)
    found = await tables.search("ann", None, sought_in("birds"), None, 10)
    assert [(each.conversation.raw, each.turn is None) for each in found] == [(named, True), (unnamed, False)]


def test_what_cannot_be_read_has_neither() -> None:
    assert turn_preview(b"{", None) == ""
    assert turn_title(b"{", None) is None
    assert turn_title(body("one"), "0") is None
