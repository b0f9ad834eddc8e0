"""What cannot be read is reported with its line, and the next line is looked at."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from turnledger.engine.limits import Limits
from turnledger.engine.transfer import import_parse
from turnledger.engine.transfer.import_parse import ChatReader, ReadChat
from turnledger.model.transfer import Did, ImportReport

CHAT = {"type": "chat", "schema_version": 1, "id": "a", "created_at": 1, "touched_at": 2}
TURN = {
    "type": "turn",
    "schema_version": 1,
    "chat": "a",
    "id": "t",
    "parent": None,
    "kind": "completed",
    "created_at": 1,
    "committed_at": 2,
    "input": [],
    "output": [],
}


def lines(*values: Any) -> bytes:
    return b"".join(
        value if isinstance(value, bytes) else msgspec.json.encode(value) + b"\n" for value in values
    )


def read(file: bytes, size: int = 1 << 20, **limits: int) -> list[ReadChat | ImportReport]:
    reader = ChatReader(Limits(**limits))
    found: list[ReadChat | ImportReport] = []
    for at in range(0, len(file), size):
        found += reader.feed(file[at : at + size])
    return [*found, *reader.close()]


def chats(found: Iterable[ReadChat | ImportReport]) -> list[ReadChat]:
    return [each for each in found if isinstance(each, ReadChat)]


def reports(found: Iterable[ReadChat | ImportReport]) -> list[ImportReport]:
    told: list[ImportReport] = []
    for each in found:
        told += each.notes.all() if isinstance(each, ReadChat) else [each]
    return told


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_pieces_of_any_size_are_the_same_chats(size: int) -> None:
    other = {**CHAT, "id": "b"}
    found = read(lines(CHAT, TURN, {**TURN, "id": "u"}, other), size)
    assert [(each.id, each.line, [line for line, _ in each.turns]) for each in chats(found)] == [
        ("a", 1, [2, 3]),
        ("b", 4, []),
    ]
    assert reports(found) == []


def test_the_last_line_needs_no_end() -> None:
    [chat] = chats(read(lines(CHAT, TURN)[:-1]))
    assert len(chat.turns) == 1


def test_a_last_line_that_is_cut_off_is_reported() -> None:
    found = read(lines(CHAT, TURN, TURN)[:-20])
    assert [len(each.turns) for each in chats(found)] == [1]
    [report] = reports(found)
    assert (report.line, report.did, report.chat) == (3, Did.REFUSED, "a")
    assert "cut off" in report.why


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"{]\n", "not a JSON object"),
        (b"[1]\n", "not a JSON object"),
        (b"\xff\xfe{}\n", "not a JSON object"),
        (b"{" * 100_000 + b"\n", "not a JSON object"),
        ({"type": "note", "schema_version": 1}, "must be one of chat, turn"),
        ({"type": ["chat"], "schema_version": 1}, "must be one of chat, turn"),
        ({"schema_version": 1}, "must be one of chat, turn"),
        ({**TURN, "schema_version": 2}, "newer"),
        ({**TURN, "schema_version": True}, "schema_version"),
        ({**TURN, "schema_version": "1"}, "schema_version"),
        ({"type": "turn"}, "schema_version"),
        ({**TURN, "input": 1}, "Expected `array`"),
    ],
)
def test_a_line_that_cannot_be_read_is_passed_over(line: Any, word: str) -> None:
    found = read(lines(CHAT, line, {**TURN, "id": "u"}))
    [chat] = chats(found)
    assert [turn.id for _, turn in chat.turns] == ["u"]
    [report] = reports(found)
    assert (report.line, report.did) == (2, Did.REFUSED)
    assert word in report.why


def test_a_turn_needs_its_chat_before_it() -> None:
    found = read(lines(TURN, CHAT, {**TURN, "chat": "b"}))
    assert [(each.line, each.did, each.turn) for each in reports(found)] == [
        (1, Did.REFUSED, "t"),
        (3, Did.REFUSED, "t"),
    ]
    assert [each.turns for each in chats(found)] == [[]]


def test_fields_that_are_not_known_are_told() -> None:
    found = read(lines({**CHAT, "color": "red"}, {**TURN, "mood": 1}))
    assert [(each.line, each.did, each.turn) for each in reports(found)] == [
        (1, Did.DROPPED, None),
        (2, Did.DROPPED, "t"),
    ]
    assert "color" in reports(found)[0].why
    assert len(chats(found)[0].turns) == 1


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"created_at": "now"}, {"branches": 3}])
def test_a_chat_whose_line_cannot_be_read_is_refused_with_its_turns(change: dict[str, Any]) -> None:
    found = read(lines({**CHAT, **change}, {**TURN, **change}, CHAT))
    refused, taken = chats(found)
    assert refused.refused
    assert refused.id == "a"
    assert taken.refused is None


def test_a_line_beyond_its_bound_is_passed_over_and_not_held() -> None:
    reader = ChatReader(Limits(import_line_bytes=1000))
    for _ in range(100):
        assert list(reader.feed(b"x" * 1000)) == []
    assert len(reader._rest) <= 1000
    [report] = reader.feed(b"\n")
    assert "too long: 100000 bytes" in report.why
    assert [each.id for each in chats([*reader.feed(lines(CHAT)), *reader.close()])] == ["a"]


@pytest.mark.parametrize("limits", [{"import_chat_bytes": 1000}, {"import_turns": 99}])
def test_a_chat_beyond_its_bound_is_refused_and_not_held(limits: dict[str, int]) -> None:
    found = read(lines(CHAT, *[TURN] * 100, {**CHAT, "id": "b"}), **limits)
    large, next_one = chats(found)
    assert "too large" in (large.refused or "")
    assert large.turns == []
    assert next_one.refused is None


@pytest.mark.parametrize(
    ("field", "element"),
    [("input", 0), ("output", {}), ("instructions", 0), ("flags", {"item": 1}), ("effects", 1)],
)
def test_chat_of_small_lines_with_many_items_is_refused_and_not_held(field: str, element: Any) -> None:
    turn = {**TURN, field: [element] * 100}
    large = chats(read(lines(CHAT, *[turn] * 20), import_chat_bytes=40_000))[0]
    assert "too large" in (large.refused or "")
    assert large.turns == []


def test_line_of_too_many_values_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_parse, "MOST_VALUES", 100)
    found = read(lines(CHAT, {**TURN, "output": [0] * 300}, TURN))
    assert [report.why for report in reports(found)] == ["The line holds more than 100 JSON values."]
    assert len(chats(found)[0].turns) == 1


def test_blank_lines_are_nothing() -> None:
    found = read(b"\n \n" + lines(CHAT) + b"\r\n")
    assert reports(found) == []
    assert [each.line for each in chats(found)] == [3]


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_the_mark_that_editors_begin_a_file_with_is_no_part_of_it(size: int) -> None:
    found = read(b"\xef\xbb\xbf" + lines(CHAT, TURN), size)
    assert [len(chat.turns) for chat in chats(found)] == [1]
    assert reports(found) == []


def test_a_last_line_that_is_whole_and_wrong_is_not_called_cut_off() -> None:
    [report] = reports(read(lines(CHAT) + b'{"type": nonsense}'))
    assert "It is not a JSON object" in report.why
