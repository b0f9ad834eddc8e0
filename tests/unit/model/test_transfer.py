"""Lines of an export: their fields, one line each; and bounded import reports."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.model.shapes import BRANCH, CONVERSATION, conversation, turn
from turnledger.model.conversation import TitleSource
from turnledger.model.flags import Flags
from turnledger.model.item import Item, message
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.transfer import (
    MOST_OF_A_CHAT,
    REASON_LENGTH,
    BranchLine,
    ChatLine,
    ImportOutcome,
    ImportReport,
    Notes,
    TurnLine,
    chat_line,
    encode_line,
    turn_line,
    unknown_fields,
)
from turnledger.model.turn import Turn, TurnKind

CHAT = str(CONVERSATION)


def instructed_turn(*input: Item) -> Turn:
    return turn(
        input=input,
        kind=TurnKind.INTERRUPTED,
        instructions=(message("system", "Be brief."),),
        details=b'{"a":\n1}',
    )


def test_chat_line_leaves_out_default_values() -> None:
    chat = conversation(touched_at=2)
    line = encode_line(chat_line(chat, [BranchLine(id=str(BRANCH), head=None)], 0))
    assert line == (
        b'{"type":"chat","schema_version":1,"id":"%(chat)b","created_at":1,"touched_at":2,'
        b'"branches":[{"id":"%(branch)b","head":null}],"current":"%(branch)b","turns":0}\n'
    ) % {b"chat": CHAT.encode(), b"branch": BRANCH.encode()}


def test_chat_line_holds_every_field_except_the_owner() -> None:
    chat = conversation(
        scope="s",
        conversation_key="k",
        former_conversation_key="f",
        title="T",
        named_by=TitleSource.PERSON,
        tags=("x", "y"),
        pinned=True,
        archived=True,
        metadata={"a": "b"},
        revision=7,
        expires_after=9,
        reset_policy=ResetPolicy.daily(3),
        internal=True,
    )
    line = chat_line(chat, [], 0, [b"effect"])
    assert msgspec.json.decode(encode_line(line), type=ChatLine) == line
    assert line.reset_policy is not None
    assert line.reset_policy.policy == chat.reset_policy
    decoded = msgspec.json.decode(encode_line(line))
    assert set(decoded) == {*ChatLine.__struct_encode_fields__, "type"} - {"branches"}
    assert "ann" not in encode_line(line).decode()


def test_turn_line_is_one_line_for_items_written_on_several() -> None:
    pretty = Item(b'{\n  "type": "message",\r\n  "role": "user",\n  "content": "a\\nb"\n}')
    line = encode_line(turn_line(CHAT, instructed_turn(pretty), {1: Flags(to_user=False), 0: Flags()}))
    assert line.count(b"\n") == 1
    assert line.count(b"\r") == 0
    decoded = msgspec.json.decode(line, type=TurnLine)
    assert msgspec.json.decode(decoded.input[0])["content"] == "a\nb"
    assert [(each.item, each.to_model, each.to_user) for each in decoded.flags] == [(1, True, False)]
    assert decoded.instructions_once
    assert (decoded.kind, decoded.parent) == ("interrupted", None)


def test_unknown_fields_are_found_in_nested_parts() -> None:
    chat = {"type": "chat", "branches": [{"id": "b", "head": None}, {"id": "c", "hue": 1}], "mood": 1}
    chat["reset_policy"] = {"daily_at": 3, "weekly": 1}
    turn = {"type": "turn", "flags": [{"item": 0, "to_all": 1}], "failure": {"code": "c", "where": "w"}}
    raw = [
        msgspec.json.decode(msgspec.json.encode(each), type=dict[str, msgspec.Raw]) for each in (chat, turn)
    ]
    assert unknown_fields(raw[0], ChatLine) == ["mood", "branches.hue", "reset_policy.weekly"]
    assert unknown_fields(raw[1], TurnLine) == ["flags.to_all", "failure.where"]


@pytest.mark.parametrize("part", [None, 7, [], {}, [7], "text", [None]])
def test_unknown_fields_of_invalid_parts_are_ignored(part: object) -> None:
    raw = {name: msgspec.Raw(msgspec.json.encode(part)) for name in ("branches", "reset_policy", "failure")}
    assert unknown_fields(raw, ChatLine) == ["failure"]


def test_import_reports_are_sorted_by_line() -> None:
    notes = Notes()
    for line in (3, 1, 2):
        notes.add(line, ImportOutcome.DROPPED, "why", chat="c", turn="t")
    assert [report.line for report in notes.all()] == [1, 2, 3]
    assert notes.all()[0] == ImportReport(line=1, did=ImportOutcome.DROPPED, chat="c", turn="t", why="why")


def test_import_reports_beyond_the_limit_are_counted() -> None:
    notes = Notes()
    for line in range(MOST_OF_A_CHAT + 5):
        notes.add(line, ImportOutcome.DROPPED, "x" * 10_000, chat="c", turn="t" * 10_000)
    *kept, last = notes.all()
    assert len(kept) == MOST_OF_A_CHAT
    assert last.why == "5 more reports of this chat are left out."
    assert {len(report.why) for report in kept} == {REASON_LENGTH}
    assert {len(report.turn or "") for report in kept} == {80}
