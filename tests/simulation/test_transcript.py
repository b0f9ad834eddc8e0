"""A transcript is what a client saw: questions and answers, and the calls that are its own to answer."""

from __future__ import annotations

from typing import Any

from turnledger.model.ids import BranchId, IdSource, TurnId
from turnledger.model.item import Item, message, result_of
from turnledger.model.messages.calls import closed
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.simulation.clients.transcript import shown_as, words_of

IDS = IdSource(lambda: 0, lambda bits: 1)


def turn(input: list[Item], output: list[Item]) -> Turn:
    return Turn.of(
        id=IDS.new(TurnId),
        branch=IDS.new(BranchId),
        number=1,
        parent=None,
        kind=TurnKind.COMPLETED,
        created_at=0,
        committed_at=0,
        input=tuple(input),
        output=tuple(output),
    )


def call(call_id: str) -> Item:
    return Item.of({"type": "function_call", "call_id": call_id, "name": "look", "arguments": "{}"})


def test_what_was_done_on_the_other_side_is_not_shown() -> None:
    done = call("c")
    output = [
        message("assistant", "Let me see. "),
        done,
        result_of(done, "found"),
        message("assistant", "Yes."),
    ]
    assert shown_as(turn([message("user", "q")], output)) == [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": "Let me see. Yes."},
    ]


def test_a_call_that_is_left_is_shown_and_a_result_that_was_stated_is_not() -> None:
    left = call("c")
    shown: list[dict[str, Any]] = shown_as(turn([*closed([left]), message("user", "q")], [left]))
    assert [each["role"] for each in shown] == ["user", "assistant"]
    assert [each["id"] for each in shown[1]["tool_calls"]] == ["c"]


def test_pieces_say_the_same_as_the_whole_and_results_say_nothing() -> None:
    whole = [{"role": "user", "content": " a b "}, {"role": "assistant", "content": "c d"}]
    pieces = [
        {"role": "user", "content": "a b"},
        {"role": "assistant", "content": "c "},
        {"role": "tool", "tool_call_id": "c", "content": "x"},
        {"role": "assistant", "content": "d"},
    ]
    assert words_of(whole) == words_of(pieces) == [("user", "a b"), ("assistant", "c"), ("assistant", "d")]
