"""Request bodies keep all given fields; answers are parsed by their known fields only."""

from __future__ import annotations

import json

import msgspec
import pytest

from turnledger.errors import MalformedAnswer, ModelUnavailable
from turnledger.runners.chat_model import ModelRequest, chunk_of, completion_of, failure_of

HELLO = [{"role": "user", "content": "Hello"}]


def test_request_body_holds_every_given_field() -> None:
    request = ModelRequest(HELLO, {"model": "m", "seed": 7, "x_unknown": {"a": [1]}}, {"include_usage": True})
    fields = {"model": "m", "seed": 7, "x_unknown": {"a": [1]}, "messages": HELLO}
    assert json.loads(request.body(stream=False)) == {**fields, "stream": False}
    streamed = {**fields, "stream": True, "stream_options": {"include_usage": True}}
    assert json.loads(request.body(stream=True)) == streamed


def test_request_body_passes_raw_json_values_on_verbatim() -> None:
    messages = b'[ {"role": "user",  "content": "1e2"} ]'
    body = ModelRequest(msgspec.Raw(messages), {"temperature": msgspec.Raw(b"1.00")}).body(stream=False)
    assert messages in body
    assert b'"temperature":1.00' in body


def test_chunk_with_unknown_fields_is_parsed_by_its_known_ones() -> None:
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
def test_chunk_with_missing_or_null_fields_is_parsed(payload: bytes) -> None:
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
def test_payload_that_is_not_an_answer_is_malformed(payload: bytes) -> None:
    with pytest.raises(MalformedAnswer, match=r"cannot be read: .*\.$"):
        chunk_of(payload)
    with pytest.raises(MalformedAnswer):
        completion_of(payload)


def test_chunk_with_half_a_surrogate_pair_is_parsed() -> None:
    chunk = chunk_of(rb'{"choices": [{"delta": {"content": "\ud83d"}}]}')
    assert chunk.choices is not None
    assert chunk.choices[0].delta is not None
    assert chunk.choices[0].delta.content == "\ud83d"


@pytest.mark.parametrize("error", [{"message": "It  broke.", "code": 1}, "It broke"])
def test_failure_of_an_error_object_carries_its_message(error: object) -> None:
    failure = failure_of(error)
    assert type(failure) is ModelUnavailable
    assert str(failure) == "The model stopped early with an error: It broke. Try again."


@pytest.mark.parametrize(
    ("code", "hides"), [(401, True), ("401", True), (402, False), (403, True), (407, True)]
)
def test_failure_about_the_operators_account_hides_what_may_concern_credentials(
    code: object, hides: bool
) -> None:
    failure = failure_of({"message": "key sk-secret of org-7 is not valid", "code": code})
    assert "sk-secret" not in str(failure)
    assert ("org-7" in str(failure)) is not hides
    assert ("api_key" in str(failure)) is (str(code) == "401")
    assert not failure.should_retry


@pytest.mark.parametrize("code", [None, 429, "rate_limited"])
def test_failure_with_any_other_code_repeats_the_message(code: object) -> None:
    assert "too long" in str(failure_of({"message": "too long", "code": code}))
