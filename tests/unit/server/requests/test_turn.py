"""Turn requests, native and chat completion: fields, headers, and refusals by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.policies import NO_POLICIES, OnDisconnect
from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.turn import OnBusy, OnStop
from turnledger.server.errors import RequestRefused
from turnledger.server.requests.turn import (
    CREATE_HEADER_NAMES,
    KEY,
    MOVE_HEADER_NAMES,
    TURN_HEADER_NAMES,
    ChatRequest,
    TurnRequest,
    chat_request,
    must_exist,
    opts_out_of_storage,
    policies_of,
    read_headers,
    read_supported_headers,
    retry_count_of,
    text_of,
    turn_request,
)


def make_turn_request(headers: dict[str, str] | None = None, **fields: Any) -> TurnRequest:
    raw = [(name.lower().encode(), value.encode()) for name, value in (headers or {}).items()]
    return turn_request("/api/turns", raw, msgspec.json.encode({"model": "m", **fields}))


def test_turn_settings_reach_the_model_unchanged_except_stream_options() -> None:
    made = make_turn_request(
        input="Hi", stream=True, settings={"x": [1.0], "stream_options": {"include_usage": True}}
    )
    assert msgspec.json.encode(made.settings) == b'{"x":[1.0],"model":"m"}'
    assert (made.stream, bytes(made.stream_options or b"")) == (True, b'{"include_usage":true}')
    assert make_turn_request(input="Hi", settings=None).settings == {"model": "m"}


def test_turn_headers_set_disconnect_policy_and_existence_requirement() -> None:
    made = make_turn_request(
        {"X-Turn-On-Disconnect": "keep", "X-Conversation-Expect": "continued"}, input="Hi"
    )
    assert made.policies.on_disconnect is OnDisconnect.KEEP
    assert made.must_exist


def test_turn_fingerprint_ignores_delivery_and_chat_address() -> None:
    key = {"Idempotency-Key": "k"}
    one = make_turn_request(key, input="Hi", chat="conv_1").fingerprint
    assert one == make_turn_request(key, input="Hi", conversation_key="k", scope="s", stream=True).fingerprint
    others: list[dict[str, Any]] = [{"input": "Hi", "primer": "Ho"}]
    others += [{"input": "Ho"}, {"input": "Hi", "settings": {"n": 1}}, {"input": "Hi", "instructions": ""}]
    assert all(make_turn_request(key, **other).fingerprint != one for other in others)
    assert make_turn_request(input="Hi").fingerprint == b""


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"replaces": "turn_1"}, "need `chat`"),
        ({"regenerates": True}, "need `chat`"),
        ({"chat": "conv_1", "scope": "confessional"}, "scope: .* Omit it"),
        ({"settings": {"model": "other"}}, "`model` does not belong"),
        ({"settings": {"stream": True}}, "`stream` does not belong"),
        ({"settings": {"functions": []}}, "functions"),
        ({"settings": {"web_search_options": {}}}, "web_search_options"),
    ],
)
def test_turn_with_contradictory_fields_is_refused_by_name(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        make_turn_request(input="Hi", **fields)


@pytest.mark.parametrize(
    "fields", [{"input": 1}, {"settings": []}, {"stream": "yes"}, {"more": 1}, {"chat": 1}]
)
def test_turn_with_a_field_of_the_wrong_type_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(RequestRefused) as refused:
        make_turn_request(**fields)
    assert refused.value.status == 400


def test_turn_with_regenerates_false_is_accepted() -> None:
    assert make_turn_request(input="Hi", regenerates=False).body.regenerates is False


@pytest.mark.parametrize(
    ("settings", "param"), [(5, "settings"), ([], "settings"), ({"tools": 5}, "settings.tools")]
)
def test_invalid_turn_settings_are_reported_with_their_path(settings: Any, param: str) -> None:
    with pytest.raises(RequestRefused, match=f"`{param}`: Expected") as refused:
        make_turn_request(input="Hi", settings=settings)
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
        assert [item.type for item in make_turn_request(input="Hi", primer=primer).primer] == kinds
    assert [item.text for item in make_turn_request(input="Hi", primer="Weather?").primer] == ["Weather?"]
    assert make_turn_request(input="Hi").primer == make_turn_request(input="Hi", primer=None).primer == ()


@pytest.mark.parametrize("primer", [[{"role": "wizard", "content": "Hi"}], [{"a": 1}], [{"type": "message"}]])
def test_primer_with_invalid_items_is_refused(primer: Any) -> None:
    with pytest.raises(MalformedItems, match=r"^primer: "):
        make_turn_request(input="Hi", primer=primer)


BODY = {"model": "m", "messages": [{"role": "user", "content": "Hello"}]}


def make_chat_request(headers: dict[str, str] | None = None, **fields: Any) -> ChatRequest:
    raw = [(name.lower().encode(), value.encode("latin-1")) for name, value in (headers or {}).items()]
    return chat_request("/v1/chat/completions", raw, msgspec.json.encode({**BODY, **fields}))


def test_chat_completion_settings_pass_through_unchanged() -> None:
    made = make_chat_request(
        temperature=0.5, unknown={"b": [1.0, None]}, stream=True, stream_options={"include_usage": True}
    )
    assert msgspec.json.decode(msgspec.json.encode(made.settings)) == {
        "model": "m",
        "temperature": 0.5,
        "unknown": {"b": [1.0, None]},
    }
    assert (made.stream, made.include_usage, made.has_conversation) == (True, True, False)


def test_conversation_header_distinguishes_an_id_from_a_key() -> None:
    id = "conv_01a1e0b957d57957aec3deffa10a5cc7"
    assert make_chat_request({"X-Conversation-Id": id}).conversation == id
    made = make_chat_request({"X-Conversation-Id": "ada%2Fsupport%20%C3%A4"})
    assert (made.conversation, made.conversation_key) == (None, "ada/support ä")


@pytest.mark.parametrize("value", ["", "%20", "%FF", "%ED%A0%80"])
def test_conversation_header_that_is_blank_or_not_utf8_is_refused(value: str) -> None:
    with pytest.raises(InvalidInput, match="x-conversation-id must be text"):
        make_chat_request({"X-Conversation-Id": value})


def test_chat_completion_policies_are_read_from_headers() -> None:
    made = make_chat_request(
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
    assert (policies.messages, policies.on_busy, policies.on_stop) == (
        SentMessages.NEW,
        OnBusy.REJECT,
        OnStop.DISCARD,
    )
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
def test_unknown_policy_value_is_refused_with_the_known_ones(header: str, known: str) -> None:
    with pytest.raises(InvalidInput, match=known):
        make_chat_request({"X-Conversation-Id": "ada", header: "whatever"})


@pytest.mark.parametrize("value", ["", "some", "last", "last=-1", "last=x", "budget=1.5", "last=1, all"])
def test_invalid_context_is_refused_with_the_known_values(value: str) -> None:
    for make, headers in ((make_chat_request, {"X-Conversation-Id": "ada"}), (make_turn_request, {})):
        with pytest.raises(InvalidInput, match=r"x-context: .*all, last=TURNS or budget=TOKENS"):
            make({**headers, "X-Context": value})


@pytest.mark.parametrize(
    ("header", "value"), [("x-turn-on-busy", "queue"), ("x-context", "all"), ("idempotency-key", "once")]
)
def test_header_of_turns_without_a_conversation_is_refused(header: str, value: str) -> None:
    with pytest.raises(InvalidInput, match=f"{header}: requires X-Conversation-Id"):
        make_chat_request({header: value})


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"n": 2}, "n:"),
        ({"modalities": ["text", "audio"]}, "modalities: audio"),
        ({"audio": {"voice": "ash", "format": "wav"}}, "modalities: audio"),
        ({"functions": [{"name": "f", "parameters": {}}]}, "functions: .* Send `tools`"),
    ],
)
def test_field_that_conversations_cannot_store_is_refused_by_name(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        make_chat_request({"X-Conversation-Id": "ada"}, **fields)
    assert refused.value.code == "unsupported_parameter"
    assert make_chat_request(**fields).settings.keys() >= fields.keys()
    assert make_chat_request({"X-Conversation-Id": "ada"}, n=1, audio=None).has_conversation


@pytest.mark.parametrize("conversation", [{"X-Conversation-Id": "ada"}, {}])
@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"tools": [{"type": "function"}, {"type": "mcp", "server_url": "http://evil"}]}, "tools: 'mcp'"),
        ({"tools": [{"type": "web_search"}]}, "tools: 'web_search'"),
        ({"web_search_options": {}}, "web_search_options:"),
    ],
)
def test_server_side_tools_are_refused_by_name(
    conversation: dict[str, str], fields: dict[str, Any], named: str
) -> None:
    with pytest.raises(InvalidInput, match=named) as refused:
        make_chat_request(conversation, **fields)
    assert refused.value.code == "unsupported_tool"


@pytest.mark.parametrize(
    "tools", [None, [], [{"type": "function", "function": {"name": "f"}}, {"type": "custom"}]]
)
def test_client_side_tools_are_passed_on(tools: Any) -> None:
    assert msgspec.json.decode(make_chat_request(tools=tools).settings["tools"]) == tools


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b'{"model": 1}', b'{"model": "m"}', b'{"messages": []}'])
def test_chat_completion_body_that_is_malformed_is_refused(body: bytes) -> None:
    with pytest.raises(RequestRefused) as refused:
        chat_request("/v1/chat/completions", [], body)
    assert refused.value.status == 400


def test_chat_completion_fingerprint_of_a_key_ignores_delivery() -> None:
    headers = {"X-Conversation-Id": "ada", "Idempotency-Key": "once"}
    whole, streamed = make_chat_request(headers), make_chat_request(headers, stream=True)
    assert whole.fingerprint == streamed.fingerprint != b""


def test_chat_completion_fingerprint_ignores_the_retry_count() -> None:
    first = make_chat_request({"X-Conversation-Id": "ada", "x-stainless-retry-count": "0"})
    again = make_chat_request({"X-Conversation-Id": "ada", "x-stainless-retry-count": "2"})
    assert (first.retry, again.retry) == (0, 2)
    assert first.fingerprint == again.fingerprint != b""
    for other in (
        make_chat_request({"X-Conversation-Id": "bob", "x-stainless-retry-count": "0"}),
        make_chat_request({"X-Conversation-Id": "ada", "x-stainless-retry-count": "0"}, temperature=1),
        make_chat_request({"X-Conversation-Id": "ada", "x-stainless-retry-count": "0"}, messages=[]),
    ):
        assert other.fingerprint != first.fingerprint


@pytest.mark.parametrize("count", ["", "-1", "x", "1.5", "1" * 9])
def test_malformed_retry_count_is_ignored(count: str) -> None:
    assert make_chat_request({"X-Conversation-Id": "ada", "x-stainless-retry-count": count}).retry is None


def test_header_parser_reads_only_known_headers() -> None:
    assert read_headers([(b"accept", b"*/*"), (b"idempotency-key", b"a"), (b"x-other", b"b")]) == {KEY: b"a"}


def test_header_given_twice_is_refused() -> None:
    with pytest.raises(InvalidInput, match="idempotency-key: repeated"):
        read_headers([(b"idempotency-key", b"a"), (b"idempotency-key", b"a")])


@pytest.mark.parametrize(
    ("taken", "refused"),
    [
        (CREATE_HEADER_NAMES, b"x-turn-on-busy"),
        (MOVE_HEADER_NAMES, b"x-turn-on-stop"),
        (MOVE_HEADER_NAMES, b"x-conversation-id"),
        (TURN_HEADER_NAMES, b"x-conversation-id"),
        (TURN_HEADER_NAMES, b"x-conversation-keep"),
        (TURN_HEADER_NAMES, b"x-turn-on-divergence"),
    ],
)
def test_header_that_a_route_does_not_support_is_refused_by_name(
    taken: frozenset[bytes], refused: bytes
) -> None:
    with pytest.raises(InvalidInput, match=refused.decode()):
        read_supported_headers([(refused, b"no"), (b"idempotency-key", b"a")], taken)
    # Clients send this one by themselves.
    assert KEY in read_supported_headers(
        [(b"x-stainless-retry-count", b"0"), (b"idempotency-key", b"a")], taken
    )


def test_header_values_are_parsed_and_default_when_absent() -> None:
    named = {b"x-turn-on-busy": b"reject", KEY: b"%C3%A4", b"x-conversation-expect": b"continued"}
    assert policies_of(named).on_busy is OnBusy.REJECT
    assert text_of(named, KEY) == "ä"
    assert must_exist(named)
    assert not opts_out_of_storage(named)
    assert (policies_of({}), text_of({}, KEY), must_exist({}), retry_count_of({})) == (
        NO_POLICIES,
        None,
        False,
        None,
    )


@pytest.mark.parametrize("name", ["x-conversation-expect", "x-conversation-keep", "x-turn-on-busy"])
def test_header_with_an_unknown_value_is_refused_by_name(name: str) -> None:
    named = {name.encode(): b"maybe"}
    with pytest.raises(InvalidInput, match=name):
        (must_exist(named), opts_out_of_storage(named), policies_of(named))
