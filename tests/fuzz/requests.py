"""Strategies for malformed and some well-formed requests."""

from __future__ import annotations

import msgspec
from hypothesis import strategies as st

from tests.unit.server.asgi import HOST, JSON

HUGE_NUMBERS = (
    "1e400",
    "-1e400",
    "9" * 400,
    "-" + "9" * 400,
    "0." + "0" * 400 + "1",
    "18446744073709551616",
    "-0",
)
NOT_QUITE_TEXT = (
    r'"\ud800"',
    r'"\udc00\ud800"',
    r'"\u0000"',
    r'"\ud83d\ude00"',
    '"\\u202e\u2028\ufeff"',
    '"' + "a" * 70_000 + '"',
    '"e\u0301\u0301"',
)


def nested(opening: str, closing: str, depth: int) -> str:
    return opening * depth + closing * depth


DEEP = st.sampled_from(
    [nested(*each, depth) for each in (("[", "]"), ('{"a":', "}")) for depth in (50, 900, 1_100, 20_000)]
).map(lambda text: text.replace('{"a":}', '{"a":{}}'))

PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=8,
).map(lambda value: msgspec.json.encode(value, enc_hook=str).decode())

ANY_JSON = PLAIN | DEEP | st.sampled_from(HUGE_NUMBERS) | st.sampled_from(NOT_QUITE_TEXT)
"""The text of a JSON value of any kind."""


def an_object(fields: dict[str, str]) -> str:
    return (
        "{"
        + ", ".join(f"{msgspec.json.encode(name).decode()}: {text}" for name, text in fields.items())
        + "}"
    )


def a_list(texts: list[str]) -> str:
    return "[" + ", ".join(texts) + "]"


def quoted(*choices: str) -> st.SearchStrategy[str]:
    return st.sampled_from(choices).map(lambda text: msgspec.json.encode(text).decode())


def often(usual: st.SearchStrategy[str], odd: st.SearchStrategy[str] = ANY_JSON) -> st.SearchStrategy[str]:
    """Draw mostly usual values: a request with several errors shows only the first."""
    return st.integers(0, 24).flatmap(lambda dice: odd if dice == 17 else usual)


TEXTS = quoted(
    "Hi",
    "",
    "  ",
    "/help",
    "/fail",
    "/fail after 2",
    "/stall",
    "/refuse",
    "/length",
    "/cut after 1",
    '/call f {"a": 1}',
)
PARTS = st.lists(
    often(
        st.fixed_dictionaries(
            {"type": often(quoted("text", "image_url", "input_text", "input_audio", "file", "refusal"))},
            optional={
                "text": often(TEXTS),
                "image_url": often(st.just('{"url": "http://localhost/a.png"}')),
                "file": ANY_JSON,
                "input_audio": ANY_JSON,
            },
        ).map(an_object)
    ),
    max_size=3,
).map(a_list)
CALLS = st.lists(
    often(
        st.fixed_dictionaries(
            {},
            optional={
                "id": often(quoted("call_1", "call_2", "")),
                "type": often(quoted("function", "custom")),
                "function": often(
                    st.fixed_dictionaries(
                        {},
                        optional={"name": often(quoted("f", "")), "arguments": often(quoted("{}", "{", ""))},
                    ).map(an_object)
                ),
                "custom": often(st.just('{"name": "c", "input": "i"}')),
                "index": often(st.just("0")),
            },
        ).map(an_object)
    ),
    max_size=3,
).map(a_list)
MESSAGE = often(
    st.fixed_dictionaries(
        {"role": often(quoted("user", "assistant", "tool", "system", "developer", "function"))},
        optional={
            "content": often(TEXTS | PARTS),
            "tool_calls": often(CALLS),
            "tool_call_id": often(quoted("call_1", "call_2")),
            "name": often(quoted("f")),
            "refusal": often(st.just("null")),
            "function_call": often(st.just("null")),
            "audio": often(st.just("null")),
            "whatever": ANY_JSON,
        },
    ).map(an_object)
)
USER = often(TEXTS | PARTS).map(lambda content: f'{{"role": "user", "content": {content}}}')
MESSAGES = often(
    st.one_of(
        st.lists(MESSAGE, max_size=4).map(a_list),
        st.lists(USER, min_size=1, max_size=2).map(a_list),
        st.tuples(MESSAGE, USER).map(lambda pair: a_list(list(pair))),
        ANY_JSON.map(lambda text: f'[{{"role": "user", "content": "Hi", "x": {text}}}]'),
        ANY_JSON.map(
            lambda text: f'[{{"role": "user", "content": [{{"type": "text", "text": "Hi", "x": {text}}}]}}]'
        ),
    )
)
TOOLS = often(
    st.lists(often(st.just('{"type": "function", "function": {"name": "f"}}')), max_size=2).map(a_list)
)
FIELDS = {
    "model": often(quoted("demo"), ANY_JSON | quoted("none", "\x1b[2J")),
    "messages": MESSAGES,
}
OPTIONAL = {
    "stream": often(st.sampled_from(["true", "false", "null"])),
    "stream_options": often(st.just('{"include_usage": true}')),
    "n": often(st.sampled_from(["1", "null"])),
    "modalities": often(quoted("text").map(lambda text: f"[{text}]")),
    "audio": often(st.just("null")),
    "tools": TOOLS,
    "tool_choice": ANY_JSON,
    "store": ANY_JSON,
    "metadata": ANY_JSON,
    "temperature": ANY_JSON,
    "logprobs": ANY_JSON,
    "x\u0000\ud7ff": ANY_JSON,
}
CHAT_BODY = st.fixed_dictionaries(FIELDS, optional=OPTIONAL).map(an_object)


def spoilt(body: bytes) -> st.SearchStrategy[bytes]:
    """Draw the body, or a damaged one."""
    places = st.integers(0, len(body))
    return st.one_of(
        st.just(body),
        st.just(body),
        places.map(lambda place: body[:place]),
        st.tuples(places, st.binary(min_size=1, max_size=3)).map(
            lambda it: body[: it[0]] + it[1] + body[it[0] :]
        ),
        st.just(body + body),
        st.just(b"\xef\xbb\xbf" + body),
        st.just(body.decode().encode("utf-16")),
    )


BODIES = st.integers(0, 19).flatmap(
    lambda dice: {
        17: CHAT_BODY.map(str.encode).flatmap(spoilt),
        18: ANY_JSON.map(str.encode),
        19: st.binary(max_size=60) | st.just(b" " * 400_000),
    }.get(dice, CHAT_BODY.map(str.encode))
)
CONVERSATIONS = st.one_of(
    st.sampled_from(
        [
            b"a%20known%20chat",
            b"new",
            b"%00",
            b"%",
            b"%zz",
            b"%ff%fe",
            b"%ed%a0%80",
            b"%F0%9F%98%80",
            b"%0d%0aX-Evil: 1",
            b"%2e%2e%2f",
            b"conv_",
            b"conv_1",
            b"conv_%00",
            b"%63onv_x",
            b"conv_" + b"0" * 26,
            b"conv_" + b"z" * 26,
            b"CONV_x",
            b"",
            b" ",
            b"%20",
            b"k" * 70_000,
            b"%41" * 3_000,
            b"\xff\xfe",
            "ü".encode(),
            "e\u0301".encode(),
        ]
    ),
    st.binary(max_size=40),
)
VALUES = st.one_of(
    st.binary(max_size=30),
    st.sampled_from(
        [
            b"",
            b"\x00",
            b"\xff",
            b"-1",
            b"1e9",
            b"9" * 5_000,
            b"continued",
            b"keep",
            b"queue",
            b"new",
            b"last=1",
        ]
    ),
)
HEADERS = st.lists(
    st.one_of(
        st.just((b"accept", b"*/*")),
        st.just((b"x-conversation-id", b"new")),
        st.tuples(st.just(b"x-conversation-id"), CONVERSATIONS),
        st.tuples(
            st.sampled_from(
                [
                    b"x-conversation-expect",
                    b"x-conversation-messages",
                    b"x-context",
                    b"x-turn-on-busy",
                    b"x-turn-on-stop",
                    b"x-turn-on-failure",
                    b"x-turn-on-divergence",
                    b"x-turn-on-disconnect",
                    b"idempotency-key",
                    b"x-stainless-retry-count",
                    b"x-request-id",
                    b"last-event-id",
                    b"content-length",
                    b"content-type",
                    b"transfer-encoding",
                    b"origin",
                    b"host",
                    b"sec-fetch-site",
                    b"x-forwarded-for",
                    b"access-control-request-method",
                    b"accept",
                    b"if-match",
                    b"cookie",
                ]
            ),
            VALUES,
        ),
        st.tuples(
            st.just(b"x-turn-on-busy"), st.sampled_from([b"queue", b"reject", b"interrupt", b"rollback"])
        ),
        st.tuples(st.just(b"x-turn-on-failure"), st.sampled_from([b"settle", b"keep", b"forget"])),
        st.tuples(st.just(b"x-turn-on-divergence"), st.sampled_from([b"branch", b"reject"])),
        st.tuples(st.just(b"x-conversation-messages"), st.sampled_from([b"new", b"full"])),
        st.tuples(st.just(b"idempotency-key"), st.sampled_from([b"again", b"%61gain", b"k" * 5_000])),
    ),
    max_size=4,
).map(lambda more: [HOST, JSON, *more])
KEYS = st.sampled_from([b"a%20known%20chat", b"new", b"other", b"%F0%9F%98%80", b"%00"])
CONVERSING = st.tuples(KEYS | CONVERSATIONS, HEADERS | st.just([HOST, JSON])).map(
    lambda it: [*it[1], (b"x-conversation-id", it[0])]
)
METHODS = st.sampled_from(
    ["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS", "TRACE", "CONNECT", "get", "X" * 300]
)
ENDS = st.text(max_size=12) | st.sampled_from(
    ["\x00", "../..", "%2e%2e", "a" * 9_000, "\u202e", "\ufffd", "\n", "?", "#"]
)
QUERIES = st.one_of(
    st.binary(max_size=30),
    st.tuples(
        st.sampled_from([b"before", b"limit", b"after", b"x"]),
        st.sampled_from(
            [b"1", b"0", b"-1", b"999999999", b"9" * 400, b"\xb2", b"%c2%b2", b"%00", b"", b"1e3", b"%D9%A1"]
        ),
    ).map(lambda it: it[0] + b"=" + it[1]),
)


def paths(chat: str, turn: str) -> st.SearchStrategy[str]:
    """Draw paths close to existing ones."""
    ids = (
        st.sampled_from([chat, turn, chat.upper(), chat[:-1], turn + "0", "conv_", "turn_", "", "\x00", "ü"])
        | ENDS
    )
    return st.one_of(
        st.sampled_from(
            ["/", "", "//", "/v1/chat/completions", "/v1/chat/completions/", "/v1/models", "/healthz"]
        ),
        st.sampled_from(["/readyz", "/metrics", "/openapi.json", "/v1//chat/completions", "/api/chats"]),
        ids.map(lambda id: f"/api/chats/{id}"),
        ids.map(lambda id: f"/api/turns/{id}/stop"),
        ids.map(lambda id: f"/api/turns/{id}/events"),
        ids.map(lambda id: f"/v1/models/{id}"),
        ENDS.map(lambda end: f"/{end}"),
        ENDS.map(lambda end: f"/v1/chat/completions{end}"),
    )
