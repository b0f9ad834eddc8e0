"""Streamed deltas: roles and names once, reasoning within a bound, tool calls put together from pieces."""

from __future__ import annotations

import json
import sys
import tracemalloc
from typing import Any

import pytest

from turnledger.errors import MalformedAnswer, MalformedItems
from turnledger.runners.chat_model import Delta, chunk_of
from turnledger.runners.chat_runner import CallDeltas, SaidOnce, Thoughts


def chunk(*deltas: dict[str, Any] | None, **fields: Any) -> bytes:
    choices = [{"index": index, "delta": delta} for index, delta in enumerate(deltas)]
    return json.dumps({"id": "c", "choices": choices, **fields}, separators=(",", ":")).encode()


def call_delta(index: int, call_id: str | None, name: str | None, arguments: str = "") -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def told(*payloads: bytes) -> list[bytes]:
    return list(map(SaidOnce().without_repeats, payloads))


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
def test_what_repeats_nothing_stays_the_very_same_bytes(payloads: list[bytes]) -> None:
    assert all(now is was for now, was in zip(told(*payloads), payloads, strict=True))


def test_a_role_is_told_once_for_each_choice() -> None:
    said = {"role": "assistant", "content": "x"}
    assert told(chunk(said, said), chunk(said, {"content": "y"}), chunk({"content": "z"}, said)) == [
        chunk(said, said),
        chunk({"content": "x"}, {"content": "y"}),
        chunk({"content": "z"}, {"content": "x"}),
    ]


def test_ids_and_names_are_told_once_for_each_call() -> None:
    first, second = call_delta(0, "a", "look", "{"), call_delta(1, "b", "look", "{")
    again = {"index": 0, "function": {"arguments": "{"}}
    assert told(chunk({"tool_calls": [first]}), chunk({"tool_calls": [first, second]})) == [
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [again, second]}),
    ]


def test_what_comes_later_for_the_first_time_is_told() -> None:
    late = [
        chunk({"tool_calls": [call_delta(0, "a", None)]}),
        chunk({"role": "assistant", "tool_calls": [call_delta(0, None, "look")]}),
    ]
    assert told(*late) == late


def test_a_custom_tool_has_a_name_too() -> None:
    piece = {"index": 0, "type": "custom", "custom": {"name": "sh", "input": "l"}}
    again = {"index": 0, "type": "custom", "custom": {"input": "l"}}
    payload = chunk({"tool_calls": [piece]})
    assert told(payload, payload) == [payload, chunk({"tool_calls": [again]})]


def test_all_else_stays_in_what_is_written_anew() -> None:
    """Also half a character, whose other half is in the next chunk."""
    fields = {"usage": {"cost": 0.1}, "timings": [1, None, 10**20]}
    said = chunk({"role": "assistant", "content": "\ud83c", "reasoning": "Hm."}, **fields)
    [_, again] = told(said, said)
    assert json.loads(again) == json.loads(chunk({"content": "\ud83c", "reasoning": "Hm."}, **fields))


def thoughts_of(*deltas: Delta, most: int = 1000) -> list[Any]:
    thoughts = Thoughts(most)
    for delta in deltas:
        thoughts.add(delta)
    texts = [item.fields["content"][0]["text"] for item in thoughts.take()]
    assert thoughts.take() == ()
    assert not thoughts
    return texts


def test_pieces_become_one_text() -> None:
    assert thoughts_of(Delta(reasoning="Hm, "), Delta(reasoning="well.")) == ["Hm, well."]


def test_who_says_it_under_both_names_says_it_once() -> None:
    assert thoughts_of(Delta(reasoning="Hm.", reasoning_content="Hm.")) == ["Hm."]
    assert thoughts_of(Delta(reasoning="Hm.", reasoning_content="")) == ["Hm."]


@pytest.mark.parametrize("odd", [{"effort": "low"}, ["Hm."], 1, True, "", None])
def test_what_is_no_text_is_left_alone(odd: object) -> None:
    assert thoughts_of(Delta(reasoning=odd)) == []


def test_halves_of_characters_meet_or_are_replaced() -> None:
    assert thoughts_of(Delta(reasoning="\ud83d"), Delta(reasoning="\ude00 \ud83d")) == ["😀 \ufffd"]


def test_there_is_an_end_to_it() -> None:
    assert thoughts_of(Delta(reasoning="12345"), most=5) == ["12345"]
    with pytest.raises(MalformedItems, match="grown past 5 bytes"):
        thoughts_of(Delta(reasoning="12345"), Delta(reasoning="6"), most=5)


def test_thoughts_in_pieces_of_one_character_take_little_more_memory_than_their_text() -> None:
    thoughts, payload = Thoughts(100_000), b'{"choices": [{"delta": {"reasoning": "h"}}]}'
    tracemalloc.start()
    for _ in range(100_000):
        [choice] = chunk_of(payload).choices or ()
        assert choice.delta is not None
        thoughts.add(choice.delta)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert taken < 3 * sys.getsizeof("h" * 100_000)


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
