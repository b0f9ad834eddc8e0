"""Chat completions and chunks made from committed turns and their events."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnledger.errors import ServerUnavailable
from turnledger.model.event import (
    ArgumentsDelta,
    Event,
    ItemAdded,
    ItemDone,
    ReasoningDelta,
    RefusalDelta,
    TextDelta,
    TurnFinished,
    TurnResumed,
    TurnStarted,
)
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import (
    Item,
    call_of,
    message,
    opening_of,
    raw_object,
    reasoning,
    refusal,
    result_of,
)
from turnledger.model.turn import AttemptState, Turn, TurnKind
from turnledger.server.turns.chat_completions import Chunks, completion, finish_reason, replace_ids

ID = TurnId("turn_01a1e0ce5b527f3f9ca41eb7623820a5")
CALL = Item.of({"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"})
OTHER = Item.of({"type": "function_call", "call_id": "c2", "name": "see", "arguments": "{}"})


def turn(*output: Item, kind: TurnKind = TurnKind.COMPLETED, **details: Any) -> Turn:
    return Turn.of(
        id=ID,
        branch=BranchId("branch_01a1e0ce5b527f3f9ca41eb7623820a4"),
        number=1,
        parent=None,
        kind=kind,
        created_at=1_794_772_982_610,
        committed_at=1_794_772_982_611,
        input=(message("user", "q"),),
        output=output,
        details=raw_object("details", details) if details else b"",
    )


def chunks_of(events: list[Event], committed: Turn, *, include_usage: bool = False) -> list[dict[str, Any]]:
    chunks = Chunks(ID, "m", include_usage=include_usage)
    payloads = [payload for event in events for payload in chunks.from_event(event)]
    return [msgspec.json.decode(each) for each in (*payloads, *chunks.last(committed))]


def deltas(chunks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [chunk["choices"][0]["delta"] for chunk in chunks if chunk["choices"]]


def test_committed_turn_becomes_a_chat_completion() -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    made = msgspec.json.decode(
        completion(turn(message("assistant", "a"), model="m", finish_reason="stop", usage=usage))
    )
    assert made == {
        "id": ID,
        "object": "chat.completion",
        "created": 1_794_772_982,
        "model": "m",
        "choices": [
            {
                "index": 0,
                "message": {"role": "assistant", "content": "a", "refusal": None},
                "logprobs": None,
                "finish_reason": "stop",
            }
        ],
        "usage": usage,
    }


def test_completion_joins_texts_and_lists_only_open_tool_calls() -> None:
    answered = (
        message("assistant", "one "),
        CALL,
        result_of(CALL, "seen"),
        message("assistant", "two"),
        OTHER,
    )
    choice = msgspec.json.decode(completion(turn(*answered)))["choices"][0]
    assert choice["message"]["content"] == "one two"
    assert [call["id"] for call in choice["message"]["tool_calls"]] == ["c2"]
    assert choice["finish_reason"] == "tool_calls"


def test_interrupted_turn_has_finish_reason_length() -> None:
    assert finish_reason(turn(message("assistant", "a"))) == "stop"
    assert finish_reason(turn(message("assistant", "a"), kind=TurnKind.INTERRUPTED)) == "length"


def test_turn_events_become_chunks_without_repetition() -> None:
    text = message("assistant", "Hello")
    events: list[Event] = [
        TurnStarted(number=1),
        TextDelta(number=2, text="Hel"),
        TextDelta(number=3, text="lo"),
        ItemDone(number=4, item=msgspec.Raw(text.raw)),
        ItemDone(number=5, item=msgspec.Raw(CALL.raw)),
        TurnFinished(number=6, state=AttemptState.COMPLETED),
    ]
    chunks = chunks_of(events, turn(text, CALL))
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    assert deltas(chunks) == [
        {"role": "assistant", "content": "Hel"},
        {"content": "lo"},
        {"tool_calls": [{"index": 0, **call}]},
        {},
    ]
    assert [chunk["choices"][0]["finish_reason"] for chunk in chunks] == [None, None, None, "tool_calls"]
    assert {chunk["id"] for chunk in chunks} == {ID}
    assert {chunk["created"] for chunk in chunks} == {1_794_772_982}


def test_refusal_item_without_deltas_becomes_one_chunk() -> None:
    refused = refusal("No.")
    chunks = chunks_of([ItemDone(number=2, item=msgspec.Raw(refused.raw))], turn(refused))
    assert deltas(chunks)[0] == {"role": "assistant", "refusal": "No."}


def test_usage_chunk_is_last_and_only_sent_on_request() -> None:
    committed = turn(message("assistant", "a"), usage={"total_tokens": 3})
    with_usage = chunks_of([], committed, include_usage=True)
    assert (with_usage[-1]["choices"], with_usage[-1]["usage"]) == ([], {"total_tokens": 3})
    assert all(chunk["usage"] is None for chunk in with_usage[:-1])
    assert all("usage" not in chunk for chunk in chunks_of([], committed))


def test_deltas_of_every_kind_become_chunks_as_they_came() -> None:
    refused = refusal("No.")
    finished = Item.of({**CALL.fields, "arguments": "{}", "chat_only": {"call": {"sig": "s"}}})
    run = call_of("custom_tool_call", "c2", "run", "ls")
    events: list[Event] = [
        TurnStarted(number=1),
        ReasoningDelta(number=2, text="Hm."),
        RefusalDelta(number=3, text="No."),
        ItemAdded(number=4, item=msgspec.Raw(opening_of(CALL).raw)),
        ItemAdded(number=5, item=msgspec.Raw(opening_of(run).raw)),
        ArgumentsDelta(number=6, call_id="c1", text="{"),
        ArgumentsDelta(number=7, call_id="c2", text="ls"),
        ArgumentsDelta(number=8, call_id="c1", text="}"),
        *(
            ItemDone(number=number, item=msgspec.Raw(item.raw))
            for number, item in enumerate((reasoning("Hm."), refused, finished, run), 9)
        ),
        TurnFinished(number=13, state=AttemptState.COMPLETED),
    ]
    made = deltas(chunks_of(events, turn(reasoning("Hm."), refused, finished, run)))
    assert made[:2] == [{"role": "assistant", "reasoning_content": "Hm."}, {"refusal": "No."}]
    assert [call for delta in made[2:-1] for call in delta["tool_calls"]] == [
        {"index": 0, "id": "c1", "type": "function", "function": {"name": "look", "arguments": ""}},
        {"index": 1, "id": "c2", "type": "custom", "custom": {"name": "run", "input": ""}},
        {"index": 0, "function": {"arguments": "{"}},
        {"index": 1, "custom": {"input": "ls"}},
        {"index": 0, "function": {"arguments": "}"}},
        {"index": 0, "sig": "s"},
    ]
    assert made[-1] == {}


def test_chunks_of_a_resumed_turn_end_with_an_error_because_none_can_be_taken_back() -> None:
    chunks = Chunks(ID, "m", include_usage=False)
    assert list(chunks.from_event(TurnResumed(number=2))) == []
    assert len(list(chunks.from_event(TextDelta(number=3, text="Hel")))) == 1
    with pytest.raises(ServerUnavailable):
        list(chunks.from_event(TurnResumed(number=4)))


def test_completion_rename_changes_only_the_top_level_id() -> None:
    assert replace_ids([b'{"id":"a", "x":"a"}'], "a", "turn_1") == [b'{"id":"turn_1", "x":"a"}']
    assert replace_ids([b'{"id":"a","x":{"id":"a"}}'], "a", "turn_1") == [b'{"id":"turn_1","x":{"id":"a"}}']
    assert replace_ids([b'{"x":"a", "id":"a"}'], "a", "turn_1") == [b'{"x":"a", "id":"turn_1"}']
    assert replace_ids([], "a", "turn_1") == []
    assert msgspec.json.decode(replace_ids([b'{"x":"a"}'], "", "turn_1")[0]) == {"id": "turn_1", "x": "a"}
