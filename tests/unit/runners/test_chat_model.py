"""Requests are passed on as they are given, and answers are read as far as they are looked at."""

from __future__ import annotations

import json

import msgspec
import pytest

from turnledger.errors import MalformedAnswer, ModelUnavailable
from turnledger.runners.chat_model import ModelRequest, chunk_of, completion_of, failure_of

HELLO = [{"role": "user", "content": "Hello"}]


def test_a_request_holds_all_fields_that_were_given() -> None:
    asked = ModelRequest(HELLO, {"model": "m", "seed": 7, "x_unknown": {"a": [1]}}, {"include_usage": True})
    fields = {"model": "m", "seed": 7, "x_unknown": {"a": [1]}, "messages": HELLO}
    assert json.loads(asked.body(stream=False)) == {**fields, "stream": False}
    streamed = {**fields, "stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(asked.body(stream=True)) == streamed


def test_values_given_as_json_are_passed_on_verbatim() -> None:
    messages = b'[ {"role": "user",  "content": "1e2"} ]'
    body = ModelRequest(msgspec.Raw(messages), {"temperature": msgspec.Raw(b"1.00")}).body(stream=False)
    assert messages in body
    assert b'"temperature":1.00' in body


def test_a_chunk_is_read_as_far_as_it_is_looked_at() -> None:
    chunk = chunk_of(
        b'{"id": "c", "model": "m", "new": {"x": 1}, "usage": null,'
        b' "choices": [{"index": 0, "logprobs": null, "delta": {"content": "Hi", "reasoning": "hm"},'
        b' "finish_reason": null}]}'
    )
    assert (chunk.id, chunk.model, chunk.usage, chunk.error) == ("c", "m", None, None)
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "Hi"


@pytest.mark.parametrize(
    "payload",
    [
        b"{}",
        b'{"choices": null}',
        b'{"choices": [{"delta": null}]}',
        b'{"choices": [{"delta": {"content": null}}]}',
    ],
)
def test_what_models_leave_out_is_left_out(payload: bytes) -> None:
    assert chunk_of(payload).usage is None


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"{",
        b"[]",
        b"[DONE]",
        b"\xff",
        b'{"x_unknown": "\xff", "choices": []}',
        b'{"\xff": 1, "choices": []}',
        b'{"choices": 1}',
        b'{"choices": [{"delta": {"content": 1}}]}',
        b"[" * 99_999,
    ],
)
def test_what_is_no_answer_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedAnswer, match=r"cannot be read: .*\.$"):
        chunk_of(payload)
    with pytest.raises(MalformedAnswer):
        completion_of(payload)


def test_half_a_character_is_read() -> None:
    chunk = chunk_of(rb'{"choices": [{"delta": {"content": "\ud83d"}}]}')
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "\ud83d"


@pytest.mark.parametrize("error", [{"message": "It  broke.", "code": 1}, "It broke"])
def test_an_error_within_an_answer_is_told(error: object) -> None:
    failure = failure_of(error)
    assert type(failure) is ModelUnavailable
    assert str(failure) == "The model broke off with an error: It broke."


@pytest.mark.parametrize("code", [401, "401", 402, 403, 407])
def test_an_error_about_the_operators_account_is_not_passed_on(code: object) -> None:
    told = str(failure_of({"message": "key sk-secret of org-7 is not valid", "code": code}))
    assert "sk-secret" not in told
    assert "api_key" in told


@pytest.mark.parametrize("code", [None, 429, "rate_limited"])
def test_other_errors_within_an_answer_are_told(code: object) -> None:
    assert "too long" in str(failure_of({"message": "too long", "code": code}))
