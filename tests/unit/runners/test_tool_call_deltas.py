"""Calls are put together from the pieces that models stream, in all the ways they do it."""

from __future__ import annotations

from typing import Any

import pytest

from turnledger.errors import MalformedAnswer
from turnledger.runners.chat_runner import CallDeltas


def gathered(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    calls = CallDeltas()
    for delta in deltas:
        calls.add([delta])
    return calls.whole()


def call(call_id: str = "a", name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_ids_and_names_come_once_and_arguments_in_pieces() -> None:
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in ('{"x"', ": 1}")]
    assert gathered({"index": 0, **call(arguments="")}, *pieces) == [call(arguments='{"x": 1}')]


def test_several_calls_are_told_apart_by_their_index() -> None:
    calls = CallDeltas()
    calls.add([{"index": 1, **call("b", "g", "")}, {"index": 0, **call("a", "f", "")}])
    calls.add([{"index": 0, "function": {"arguments": "1"}}, {"index": 1, "function": {"arguments": "2"}}])
    assert calls.whole() == [call("a", "f", "1"), call("b", "g", "2")]


def test_what_is_repeated_says_nothing_new() -> None:
    assert gathered({"index": 0, **call(arguments="1")}, {"index": 0, **call(arguments="2")}) == [
        call(arguments="12")
    ]


def test_empty_and_null_fields_say_nothing() -> None:
    blank = {"index": 0, "id": "", "type": None, "function": {"name": "", "arguments": None}}
    assert gathered({"index": 0, **call()}, blank) == [call()]


def test_a_call_without_arguments_and_type_is_one() -> None:
    assert gathered({"id": "a", "function": {"name": "f"}}) == [call(arguments="")]


def test_fields_that_only_some_models_know_are_kept() -> None:
    known = {"index": 0, **call(), "extra": {"signature": "s"}}
    known["function"]["strict"] = True
    [found] = gathered(known)
    assert found["extra"] == {"signature": "s"}
    assert found["function"]["strict"] is True


def test_custom_tools_have_input() -> None:
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    assert gathered(first, {"index": 0, "custom": {"input": "y"}}) == [
        {"id": "a", "type": "custom", "custom": {"name": "f", "input": "xy"}}
    ]


def test_the_deltas_are_left_as_they_came() -> None:
    delta = {"index": 0, **call()}
    gathered(delta, {"index": 0, "function": {"arguments": " "}})
    assert delta == {"index": 0, **call()}


@pytest.mark.parametrize(
    "deltas",
    [
        [{"index": "0", **call()}],
        [{"index": True, **call()}],
        [{"index": 0, **call("a")}, {"index": 0, **call("b")}],
        [{"index": 0, "id": "a", "function": {"arguments": "{}"}}],
        [{"index": 0, "function": {"name": "f"}}],
        [{"index": 0, "id": "a", "function": "f"}],
        [{"index": 0, "id": "a", "function": {"name": "f", "arguments": {"x": 1}}}],
        [{"index": 0, "id": "a", "type": "unheard_of", "function": {"name": "f"}}],
        [{"index": 0, "id": "a", "type": ["function"], "function": {"name": "f"}}],
        [{"index": 0, "id": "a", "type": "custom", "function": {"name": "f"}}],
    ],
)
def test_a_call_that_nobody_could_answer_is_malformed(deltas: list[dict[str, Any]]) -> None:
    with pytest.raises(MalformedAnswer):
        gathered(*deltas)
