"""A request for a turn, taken apart."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnledger.errors import InvalidInput, MalformedItems
from turnledger.server.errors import Refused
from turnledger.server.requests.turn import OnDisconnect, TurnRequest, turn_request


def asked(headers: dict[str, str] | None = None, **fields: Any) -> TurnRequest:
    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    return turn_request("/api/turns", raw, msgspec.json.encode({"model": "m", **fields}))


def test_settings_go_to_the_model_as_they_came() -> None:
    made = asked(input="Hi", stream=True, settings={"x": [1.0], "stream_options": {"include_usage": True}})
    assert msgspec.json.encode(made.settings) == b'{"x":[1.0],"model":"m"}'
    assert (made.stream, bytes(made.stream_options or b"")) == (True, b'{"include_usage":true}')
    assert asked(input="Hi", settings=None).settings == {"model": "m"}


def test_headers_say_what_becomes_of_it() -> None:
    made = asked({"X-Turn-On-Disconnect": "keep", "X-Conversation-Expect": "continued"}, input="Hi")
    assert made.policies.on_disconnect is OnDisconnect.KEEP
    assert made.must_exist


def test_a_request_is_the_same_however_it_is_delivered_and_its_chat_is_called() -> None:
    key = {"Idempotency-Key": "k"}
    one = asked(key, input="Hi", chat="conv_1").fingerprint
    assert one == asked(key, input="Hi", conversation_key="k", scope="s", stream=True).fingerprint
    others: list[dict[str, Any]] = [{"input": "Hi", "primer": "Ho"}]
    others += [{"input": "Ho"}, {"input": "Hi", "settings": {"n": 1}}, {"input": "Hi", "instructions": ""}]
    assert all(asked(key, **other).fingerprint != one for other in others)
    assert asked(input="Hi").fingerprint == b""


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"replaces": "turn_1"}, "Name that: `chat`"),
        ({"regenerates": True}, "Name that: `chat`"),
        ({"chat": "conv_1", "scope": "confessional"}, "scope: .* Leave it out"),
        ({"settings": {"model": "other"}}, "settings: model"),
        ({"settings": {"stream": True}}, "settings: stream"),
        ({"settings": {"functions": []}}, "functions"),
        ({"settings": {"web_search_options": {}}}, "web_search_options"),
    ],
)
def test_what_cannot_be_is_refused_by_name(fields: dict[str, Any], told: str) -> None:
    with pytest.raises(InvalidInput, match=told):
        asked(input="Hi", **fields)


@pytest.mark.parametrize(
    "fields", [{"input": 1}, {"settings": []}, {"stream": "yes"}, {"more": 1}, {"chat": 1}]
)
def test_what_is_of_another_shape_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(Refused) as refused:
        asked(**fields)
    assert refused.value.status == 400


def test_regenerates_may_be_said_to_be_off() -> None:
    assert asked(input="Hi", regenerates=False).body.regenerates is False


@pytest.mark.parametrize(
    ("settings", "param"), [(5, "settings"), ([], "settings"), ({"tools": 5}, "settings.tools")]
)
def test_what_is_wrong_with_the_settings_is_told_with_its_place(settings: Any, param: str) -> None:
    with pytest.raises(Refused, match=f"`{param}`: Expected") as refused:
        asked(input="Hi", settings=settings)
    assert refused.value.param == param


def test_a_primer_may_be_chat_messages_items_or_texts() -> None:
    messages = [
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}]},
        {"role": "tool", "tool_call_id": "c", "content": "Rain."},
    ]
    items = [
        {"type": "message", "role": "user", "content": "Weather?"},
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "Rain."},
    ]
    kinds = ["message", "function_call", "function_call_output"]
    for primer in (messages, items, ["Weather?", *messages[1:]], [*items[:2], messages[2]]):
        assert [item.type for item in asked(input="Hi", primer=primer).primer] == kinds
    assert [item.text for item in asked(input="Hi", primer="Weather?").primer] == ["Weather?"]
    assert asked(input="Hi").primer == asked(input="Hi", primer=None).primer == ()


@pytest.mark.parametrize("primer", [[{"role": "wizard", "content": "Hi"}], [{"a": 1}], [{"type": "message"}]])
def test_a_primer_that_no_model_could_read_is_refused(primer: Any) -> None:
    with pytest.raises(MalformedItems, match=r"^primer: "):
        asked(input="Hi", primer=primer)
