from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnledger.engine.resend.match import Sent
from turnledger.errors import InvalidInput
from turnledger.model.turn import OnBusy, OnStop
from turnledger.server.errors import Refused
from turnledger.server.requests.turn import ChatRequest, OnDisconnect, chat_request

BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def asked(headers: dict[str, str] | None = None, **fields: Any) -> ChatRequest:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return chat_request("/v1/chat/completions", raw, msgspec.json.encode({**BODY, **fields}))


def test_what_is_passed_on_goes_as_it_came() -> None:
    made = asked(
        temperature=0.5, unknown={"b": [1.0, None]}, stream=True, stream_options={"include_usage": True}
    )
    assert msgspec.json.decode(msgspec.json.encode(made.settings)) == {
        "model": "m",
        "temperature": 0.5,
        "unknown": {"b": [1.0, None]},
    }
    assert (made.stream, made.include_usage, made.has_conversation) == (True, True, False)


def test_an_id_and_a_conversation_key_are_told_apart() -> None:
    id = "conv_01a1e0b957d57957aec3deffa10a5cc7"
    assert asked({"X-Conversation-Id": id}).conversation == id
    made = asked({"X-Conversation-Id": "ada%2Fsupport%20%C3%A4"})
    assert (made.conversation, made.conversation_key) == (None, "ada/support ä")


@pytest.mark.parametrize("value", ["", "%20", "%FF", "%ED%A0%80"])
def test_what_is_no_text_is_no_conversation(value: str) -> None:
    with pytest.raises(InvalidInput, match="x-conversation-id must be text"):
        asked({"X-Conversation-Id": value})


def test_policies_are_read_from_headers() -> None:
    made = asked(
        {
            "X-Conversation-Id": "ada",
            "X-Conversation-Expect": "continued",
            "X-Conversation-Messages": "new",
            "X-Turn-On-Busy": "reject",
            "X-Turn-On-Stop": "discard",
            "X-Turn-On-Disconnect": "keep",
        }
    )
    assert made.must_exist
    policies = made.policies
    assert (policies.sent, policies.on_busy, policies.on_stop) == (Sent.NEW, OnBusy.REJECT, OnStop.DISCARD)
    assert policies.on_disconnect is OnDisconnect.KEEP
    assert (policies.on_failure, policies.on_divergence) == (None, None)


@pytest.mark.parametrize(
    ("header", "known"),
    [
        ("X-Turn-On-Busy", "queue, reject, interrupt, rollback"),
        ("X-Turn-On-Stop", "keep, discard"),
        ("X-Turn-On-Failure", "settle, keep, forget"),
        ("X-Turn-On-Divergence", "branch, reject"),
        ("X-Turn-On-Disconnect", "continue, keep, discard"),
        ("X-Conversation-Messages", "new, full"),
        ("X-Conversation-Expect", "continued"),
    ],
)
def test_an_unknown_value_is_refused_with_the_known_ones(header: str, known: str) -> None:
    with pytest.raises(InvalidInput, match=known):
        asked({"X-Conversation-Id": "ada", header: "whatever"})


def test_a_policy_without_a_conversation_is_a_mistake() -> None:
    with pytest.raises(InvalidInput, match="x-turn-on-busy: these need X-Conversation-Id"):
        asked({"X-Turn-On-Busy": "queue"})


@pytest.mark.parametrize(
    ("fields", "named"), [({"n": 2}, "n:"), ({"modalities": ["text", "audio"]}, "modal")]
)
def test_what_a_conversation_cannot_keep_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        asked({"X-Conversation-Id": "ada"}, **fields)
    assert refused.value.code == "unsupported_parameter"
    assert asked(**fields).settings.keys() >= fields.keys()


@pytest.mark.parametrize("conversation", [{"X-Conversation-Id": "ada"}, {}])
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": [{"type": "function"}, {"type": "mcp", "server_url": "http://evil"}]}, "tools: 'mcp'"),
        ({"tools": [{"type": "web_search"}]}, "tools: 'web_search'"),
        ({"web_search_options": {}}, "web_search_options:"),
    ],
)
def test_tools_that_others_would_run_are_refused(
    conversation: dict[str, str], fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        asked(conversation, **fields)
    assert refused.value.code == "unsupported_tool"


@pytest.mark.parametrize(
    "tools", [None, [], [{"type": "function", "function": {"name": "f"}}, {"type": "custom"}]]
)
def test_tools_of_the_client_are_passed_on(tools: Any) -> None:
    assert msgspec.json.decode(asked(tools=tools).settings["tools"]) == tools


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 1}', b'{"model": "m"}', b'{"messages": []}'])
def test_what_is_no_request_is_refused(body: bytes) -> None:
    with pytest.raises(Refused) as refused:
        chat_request("/v1/chat/completions", [], body)
    assert refused.value.status == 400


def test_a_request_is_the_same_however_it_is_delivered() -> None:
    first = asked({"X-Conversation-Id": "ada", "x-stainless-retry-count": "0"}, stream=True)
    again = asked({"X-Conversation-Id": "ada", "x-stainless-retry-count": "2"})
    assert (first.retry, again.retry) == (0, 2)
    assert first.fingerprint == again.fingerprint != b""
    for other in (
        asked({"X-Conversation-Id": "bob", "x-stainless-retry-count": "0"}),
        asked({"X-Conversation-Id": "ada", "x-stainless-retry-count": "0"}, temperature=1),
        asked({"X-Conversation-Id": "ada", "x-stainless-retry-count": "0"}, messages=[]),
    ):
        assert other.fingerprint != first.fingerprint


@pytest.mark.parametrize("count", ["", "-1", "x", "1.5", "1" * 9])
def test_a_count_that_is_none_counts_for_nothing(count: str) -> None:
    assert asked({"X-Conversation-Id": "ada", "x-stainless-retry-count": count}).retry is None


def test_a_key_that_nobody_could_keep_is_refused() -> None:
    with pytest.raises(InvalidInput, match="idempotency-key: these need X-Conversation-Id"):
        asked({"Idempotency-Key": "once"})
