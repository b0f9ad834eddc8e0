"""Streamed deltas: roles and names sent once, tool calls assembled from pieces."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnledger.errors import MalformedAnswer
from turnledger.runners.chat_runner import CallDeltas, RepeatFilter


def chunk(*deltas: dict[str, Any] | None, **fields: Any) -> bytes:
    choices = [{"index": index, "delta": delta} for index, delta in enumerate(deltas)]
    return json.dumps({"id": "c", "choices": choices, **fields}, separators=(",", ":")).encode()


def call_delta(index: int, call_id: str | None, name: str | None, arguments: str = "") -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def filtered(*payloads: bytes) -> list[bytes]:
    return RepeatFilter().without_repeats(list(payloads))


WELL_BEHAVED = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": 'the word "role"', "tool_calls": None}),
    chunk({"tool_calls": [call_delta(0, "a", "look")]}),
    chunk({"tool_calls": [call_delta(1, "b", "look")]}),
    chunk({"tool_calls": [call_delta(0, None, None, "{}"), call_delta(1, "", "", "{}")]}),
    chunk({"role": None, "content": None}),
    chunk(None),
]
NOT_CHUNKS = [b'"role"', b"{", b'{"choices":7,"x":"role"}', b'{"error":{"role":1}}', b'["role"]']


@pytest.mark.parametrize("payloads", [WELL_BEHAVED, NOT_CHUNKS], ids=["well-behaved", "no chunks"])
def test_payloads_without_repetition_are_passed_on_as_the_same_objects(payloads: list[bytes]) -> None:
    assert all(now is was for now, was in zip(filtered(*payloads), payloads, strict=True))


def test_repeated_role_is_sent_once_per_choice() -> None:
    delta = {"role": "assistant", "content": "x"}
    assert filtered(chunk(delta, delta), chunk(delta, {"content": "y"}), chunk({"content": "z"}, delta)) == [
        chunk(delta, delta),
        chunk({"content": "x"}, {"content": "y"}),
        chunk({"content": "z"}, {"content": "x"}),
    ]


def test_repeated_call_id_and_name_are_sent_once_per_call() -> None:
    first, second = call_delta(0, "a", "look", "{"), call_delta(1, "b", "look", "{")
    again = {"index": 0, "function": {"arguments": "{"}}
    assert filtered(chunk({"tool_calls": [first]}), chunk({"tool_calls": [first, second]})) == [
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [again, second]}),
    ]


def test_role_id_or_name_that_first_appears_late_is_sent() -> None:
    late = [
        chunk({"tool_calls": [call_delta(0, "a", None)]}),
        chunk({"role": "assistant", "tool_calls": [call_delta(0, None, "look")]}),
    ]
    assert filtered(*late) == late


def test_repeated_custom_tool_name_is_sent_once() -> None:
    piece = {"index": 0, "type": "custom", "custom": {"name": "sh", "input": "l"}}
    again = {"index": 0, "type": "custom", "custom": {"input": "l"}}
    payload = chunk({"tool_calls": [piece]})
    assert filtered(payload, payload) == [payload, chunk({"tool_calls": [again]})]


def test_rewritten_payload_keeps_all_other_fields() -> None:
    """Also half a character, whose other half is in the next chunk."""
    fields = {"usage": {"cost": 0.1}, "timings": [1, None, 10**20]}
    payload = chunk({"role": "assistant", "content": "\ud83c", "reasoning": "Hm."}, **fields)
    [_, again] = filtered(payload, payload)
    assert json.loads(again) == json.loads(chunk({"content": "\ud83c", "reasoning": "Hm."}, **fields))


def gathered(*deltas: dict[str, Any]) -> list[dict[str, Any]]:
    calls = CallDeltas()
    for delta in deltas:
        calls.add([delta])
    return calls.whole()


def call(call_id: str = "a", name: str = "f", arguments: str = "{}") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def test_call_arguments_in_pieces_are_joined() -> None:
    pieces = [{"index": 0, "function": {"arguments": piece}} for piece in ('{"x"', ": 1}")]
    assert gathered({"index": 0, **call(arguments="")}, *pieces) == [call(arguments='{"x": 1}')]


def test_calls_in_parallel_are_separated_by_their_index() -> None:
    calls = CallDeltas()
    calls.add([{"index": 1, **call("b", "g", "")}, {"index": 0, **call("a", "f", "")}])
    calls.add([{"index": 0, "function": {"arguments": "1"}}, {"index": 1, "function": {"arguments": "2"}}])
    assert calls.whole() == [call("a", "f", "1"), call("b", "g", "2")]


def test_repeated_id_and_name_of_a_call_are_ignored() -> None:
    assert gathered({"index": 0, **call(arguments="1")}, {"index": 0, **call(arguments="2")}) == [
        call(arguments="12")
    ]


def test_empty_and_null_fields_of_a_call_are_ignored() -> None:
    blank = {"index": 0, "id": "", "type": None, "function": {"name": "", "arguments": None}}
    assert gathered({"index": 0, **call()}, blank) == [call()]


def test_call_without_arguments_and_type_is_completed() -> None:
    assert gathered({"id": "a", "function": {"name": "f"}}) == [call(arguments="")]


def test_unknown_fields_of_a_call_are_kept() -> None:
    known = {"index": 0, **call(), "extra": {"signature": "s"}}
    known["function"]["strict"] = True
    [found] = gathered(known)
    assert found["extra"] == {"signature": "s"}
    assert found["function"]["strict"] is True


def test_custom_tool_input_in_pieces_is_joined() -> None:
    first = {"index": 0, "id": "a", "type": "custom", "custom": {"name": "f", "input": "x"}}
    assert gathered(first, {"index": 0, "custom": {"input": "y"}}) == [
        {"id": "a", "type": "custom", "custom": {"name": "f", "input": "xy"}}
    ]


def test_call_deltas_are_not_modified() -> None:
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
def test_incomplete_or_contradictory_call_is_malformed(deltas: list[dict[str, Any]]) -> None:
    with pytest.raises(MalformedAnswer):
        gathered(*deltas)
