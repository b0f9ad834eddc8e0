"""How long ago something was.

Turns that are over, as they are printed.
"""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from tests.unit.cli.talking.paper import Paper
from turnledger.cli.chat.backend import SeenTurn
from turnledger.cli.chat.turn_view import LONGEST, about, age_of, show_turn, told_item
from turnledger.model.item import Item, message
from turnledger.model.turn import TurnKind

NOW = 1_800_000_000


@pytest.mark.parametrize(
    ("seconds", "told"),
    [
        (-5, "just now"),
        (59, "just now"),
        (60, "1 min ago"),
        (3 * 3600, "3 h ago"),
        (24 * 3600, "yesterday"),
        (5 * 24 * 3600, "5 days ago"),
        (400 * 24 * 3600, "2025-12-"),
    ],
)
def test_it_is_told_as_people_say_it(seconds: int, told: str) -> None:
    assert age_of((NOW - seconds) * 1000, NOW).startswith(told)


def turn(asked: str, *output: Item, kind: TurnKind = TurnKind.COMPLETED, **details: str) -> SeenTurn:
    return SeenTurn(id="turn_1", number=12, kind=kind, asked=asked, output=output, details=dict(details))


def test_what_was_asked_stands_behind_its_number_and_the_answer_below() -> None:
    paper = Paper()
    show_turn(paper.screen, turn("one\ntwo\x1b[2J", message("assistant", "# Three\n\n*four*")))
    assert paper.lines == ["12 › one", "     two\\x1b[2J", "", "Three", "", "four"]


def test_calls_and_results_are_lines_between_the_texts() -> None:
    call = Item.of({"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"at": 1}'})
    result = Item.of({"type": "function_call_output", "call_id": "c", "output": "a\ncat"})
    paper = Paper()
    show_turn(paper.screen, turn("", call, result, message("assistant", "A cat.")))
    assert paper.lines == ["12 › (no message)", "", '⚙ look({"at": 1})', "→ a cat", "", "A cat."]


def test_a_long_call_is_cut_and_other_items_are_not_shown() -> None:
    call = Item.of({"type": "custom_tool_call", "call_id": "c", "name": "write", "input": "x" * 10_000})
    told = told_item(call)
    assert told is not None
    assert len(told.plain) <= LONGEST + 2
    assert told.plain.endswith("…")
    assert told_item(Item.of({"type": "reasoning", "summary": []})) is None


def test_thoughts_are_a_line_that_commands_nothing() -> None:
    thought = {
        "type": "reasoning",
        "summary": [{"type": "summary_text", "text": "First\n\x1b[2J"}, {"text": "then"}],
    }
    told = told_item(Item.of(thought))
    assert told is not None
    assert told.plain == "∴ First \\x1b[2J then"


def test_time_and_tokens_are_told_by_whatever_names_they_have() -> None:
    answered = replace(turn("Hi"), took_ms=1234)
    assert about(answered) == "1.2 s"
    chat = {"prompt_tokens": 10, "completion_tokens": 20, "total_tokens": 30}
    assert about(replace(answered, details={"model": "m\x1b", "usage": chat})) == (
        "m\\x1b, 1.2 s, 10 tokens read, 20 tokens written"
    )
    responses = {"input_tokens": 1, "output_tokens": "many"}
    assert about(replace(answered, details={"usage": responses})) == "1.2 s, 1 tokens read"


def test_how_it_ended_is_said_where_it_did_not_end_well() -> None:
    for kind, details, note in (
        (TurnKind.INTERRUPTED, {}, "■ Stopped: this is as far as it got."),
        (TurnKind.COMPLETED, {"finish_reason": "length"}, "■ The model had no room left: the answer is cut."),
        (TurnKind.COMPLETED, {"finish_reason": "stop"}, "Some"),
    ):
        paper = Paper()
        show_turn(paper.screen, turn("Hi", message("assistant", "Some"), kind=kind, **details))
        assert paper.lines[-1] == note
