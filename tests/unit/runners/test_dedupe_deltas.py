"""Roles, and ids and names of calls, are told once, and everything else as it came."""

from __future__ import annotations

import json
from typing import Any

import pytest

from turnledger.runners.chat_runner import SaidOnce


def chunk(*deltas: dict[str, Any] | None, **fields: Any) -> bytes:
    choices = [{"index": index, "delta": delta} for index, delta in enumerate(deltas)]
    return json.dumps({"id": "c", "choices": choices, **fields}, separators=(",", ":")).encode()


def call(index: int, call_id: str | None, name: str | None, arguments: str = "") -> dict[str, Any]:
    return {"index": index, "id": call_id, "function": {"name": name, "arguments": arguments}}


def told(*payloads: bytes) -> list[bytes]:
    return list(map(SaidOnce().without_repeats, payloads))


WELL_BEHAVED = [
    chunk({"role": "assistant", "content": ""}),
    chunk({"content": 'the word "role"', "tool_calls": None}),
    chunk({"tool_calls": [call(0, "a", "look")]}),
    chunk({"tool_calls": [call(1, "b", "look")]}),
    chunk({"tool_calls": [call(0, None, None, "{}"), call(1, "", "", "{}")]}),
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
    first, second = call(0, "a", "look", "{"), call(1, "b", "look", "{")
    again = {"index": 0, "function": {"arguments": "{"}}
    assert told(chunk({"tool_calls": [first]}), chunk({"tool_calls": [first, second]})) == [
        chunk({"tool_calls": [first]}),
        chunk({"tool_calls": [again, second]}),
    ]


def test_what_comes_later_for_the_first_time_is_told() -> None:
    late = [
        chunk({"tool_calls": [call(0, "a", None)]}),
        chunk({"role": "assistant", "tool_calls": [call(0, None, "look")]}),
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
