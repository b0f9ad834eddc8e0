"""Query parameters and bodies: bounded, decoded once, and each error names its field or position."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, echo, fetch, run_app
from turnledger.engine.limits import MOST_VALUES
from turnledger.errors import InvalidInput
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.errors import RequestRefused
from turnledger.server.requests.body import check_seconds, decode_body, read_body
from turnledger.server.requests.query import MAX_NUMBER, choice_of, flag_of, number_of


def test_number_parameter_is_its_default_or_up_to_the_maximum() -> None:
    assert (number_of(None, "limit", 50), number_of(None, "before", None)) == (50, None)
    assert (number_of("0", "limit", 50), number_of(str(MAX_NUMBER), "limit", 50)) == (0, MAX_NUMBER)


@pytest.mark.parametrize("given", ["", "-1", "1.0", "٣", " 1", "1000000000"])
def test_number_parameter_that_is_malformed_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="limit must be a number"):
        number_of(given, "limit", 50)


def test_boolean_parameter_accepts_true_and_false_only() -> None:
    assert [flag_of(given, "purge", default=False) for given in ("true", "false", None)] == [
        True,
        False,
        False,
    ]
    assert flag_of(None, "purge", default=True)
    with pytest.raises(InvalidInput, match="purge must be true or false"):
        flag_of("1", "purge", default=False)


def test_choice_parameter_maps_known_words_and_defaults() -> None:
    known = {"true": 1, "false": 0}
    assert [choice_of(given, "pinned", known, 7) for given in ("true", "false", None)] == [1, 0, 7]


@pytest.mark.parametrize("given", ["", "True", "1", "any"])
def test_choice_parameter_that_is_unknown_is_refused_with_the_known_words(given: str) -> None:
    with pytest.raises(InvalidInput, match="pinned must be one of true, false"):
        choice_of(given, "pinned", {"true": 1, "false": 0}, 7)


NO_BODY = (b"content-length", b"0")


@pytest.mark.parametrize(
    ("path", "query", "message"),
    [
        ("/api/chats", b"scopes=shop", "scope, tag, archived, pinned, deleted, cursor, limit"),
        ("/api/chats", b"tag=a&tag=b", "tag is repeated"),
        ("/api/export", b"scop=shop", "Known: scope."),
        ("/api/search", b"query=heron", "Known: q"),
        ("/api/events", b"after=3", "This path takes no parameters."),
        ("/api/chats", b"%F0%9F%98%80&=", "Known:"),
    ],
)
async def test_query_parameter_that_is_unknown_or_repeated_is_refused_with_the_known_ones(
    path: str, query: bytes, message: str
) -> None:
    async with run_app() as app:
        refused = await fetch(app, path, query=query)
    assert refused.status == 400
    assert refused.code in ("unknown_parameter", "repeated_parameter")
    assert message in refused.json["error"]["message"]


async def test_query_parameters_on_openai_and_public_paths_are_ignored() -> None:
    async with run_app() as app:
        for path in ("/v1/models", "/healthz", "/share"):
            assert (await fetch(app, path, query=b"api-version=2026-01-01")).status == 200


@pytest.mark.parametrize(
    ("header", "value", "remedy"),
    [
        (b"x-conversation-keep", b"no", "/v1/chat/completions"),
        (b"if-match", b'"1"', "PATCH"),
    ],
)
async def test_chat_creation_with_an_unsupported_header_is_refused(
    header: bytes, value: bytes, remedy: str
) -> None:
    async with run_app() as app:
        ledger = app.service.ledger
        headers = [HOST, JSON, NO_BODY, (header, value)]
        refused = await fetch(app, "/api/chats", method="POST", headers=headers)
        assert (refused.status, (await ledger.list()).chats) == (400, ())
        assert remedy in refused.json["error"]["message"]


async def test_delete_with_if_match_of_a_revision_is_refused() -> None:
    async with run_app() as app:
        ledger = app.service.ledger
        chat = await ledger.conversation(title="Orders")
        path = f"/api/chats/{chat.id}"
        refused = await fetch(app, path, method="DELETE", headers=[HOST, (b"if-match", b'"7"')])
        assert (refused.status, refused.code) == (400, "invalid_if_match")
        assert (await chat.info()).title == "Orders"
        # `*` requires only that the chat exists.
        assert (await fetch(app, path, method="DELETE", headers=[HOST, (b"if-match", b"*")])).status == 200


SMALL_BODY_BYTES = Settings(limits=ServerLimits(body_bytes=10))
CHUNKED = (b"transfer-encoding", b"chunked")


def length(count: int) -> tuple[bytes, bytes]:
    return (b"content-length", b"%d" % count)


async def test_body_may_arrive_in_any_number_of_parts() -> None:
    async with run_app(SMALL_BODY_BYTES, echo(SMALL_BODY_BYTES)) as app:
        for parts in ([b"0123456789"], [b"01", b"", b"23456789"], [b"0123456789", b""]):
            reply = await fetch(app, "/echo", method="POST", headers=(HOST, JSON, CHUNKED), parts=parts)
            assert (reply.status, reply.body) == (200, b"0123456789")


async def test_body_with_a_declared_length_above_the_limit_is_refused_unread() -> None:
    async with run_app(SMALL_BODY_BYTES, echo(SMALL_BODY_BYTES)) as app:
        for announced in (11, 10**30):
            headers = (HOST, JSON, length(announced))
            reply = await fetch(app, "/echo", method="POST", headers=headers, parts=[b"{}"])
            assert (reply.status, reply.code) == (413, "body_too_large")
            assert "10 bytes" in reply.json["error"]["message"]


async def test_body_that_exceeds_the_limit_while_read_is_refused() -> None:
    async with run_app(SMALL_BODY_BYTES, echo(SMALL_BODY_BYTES)) as app:
        for headers in ((HOST, JSON, CHUNKED), (HOST, JSON, length(3))):
            parts = [b"01234567", b"89x", b"more"]
            reply = await fetch(app, "/echo", method="POST", headers=headers, parts=parts)
            assert (reply.status, reply.code) == (413, "body_too_large")


@pytest.mark.parametrize("value", [b"-1", b"1e3", b"x", b"", b"1, 1"])
async def test_content_length_that_is_not_a_number_is_refused(value: bytes) -> None:
    async with run_app(SMALL_BODY_BYTES, echo(SMALL_BODY_BYTES)) as app:
        headers = (HOST, JSON, (b"content-length", value))
        reply = await fetch(app, "/echo", method="POST", headers=headers)
        assert (reply.status, reply.code) == (400, "bad_content_length")


async def test_client_that_disconnects_while_sending_is_counted_as_499() -> None:
    async with run_app(SMALL_BODY_BYTES, echo(SMALL_BODY_BYTES)) as app:
        headers = (HOST, JSON, CHUNKED)
        reply = await fetch(app, "/echo", method="POST", headers=headers, parts=[b"0"], leaves=True)
        assert (reply.status, reply.body) == (0, b"")
        assert b'turnledger_requests_total{status="499"} 1.0' in app.service.metrics.text()


async def test_body_that_does_not_arrive_in_time_is_refused_with_408() -> None:
    async def receive() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(RequestRefused, match="within 0 seconds") as refused:
        await read_body({"headers": []}, receive, limit=10, wait=0)
    assert refused.value.status == 408


class Shape(msgspec.Struct):
    model: str
    parts: list[int] = []


DECODER = msgspec.json.Decoder(Shape)


def test_json_body_is_decoded_and_unknown_fields_ignored() -> None:
    assert decode_body(b'{"model": "demo", "unknown": 1}', DECODER) == Shape("demo")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"", "The body is empty. Send a JSON object."),
        (b" \n ", "The body has only white space. Send a JSON object."),
        (b'{"model":', "The body is not JSON: input data was truncated at line 1, column 10."),
        (b'{\n  "model": oops}', "The body is not JSON: invalid character at line 2, column 12."),
        ('{"é": \n"é" x}'.encode(), "The body is not JSON: "),
        (b'{"model": "\xff"}', "The body is not UTF-8: line 1, column 12. Encode it as UTF-8."),
        (b'{"model": ' + b"[" * 100_000, "The body is not valid: `model`: "),
        (b'{"x": ' + b"[" * 100_000, "The JSON of the body is nested too deeply. Flatten it."),
    ],
)
def test_invalid_json_body_is_reported_with_its_position(body: bytes, message: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        decode_body(body, DECODER)
    assert refused.value.status == 400
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model": 1}', "model"),
        (b'{"model": "x", "parts": [1, "x"]}', "parts[1]"),
        (b"[]", None),
        (b"{}", "model"),
    ],
)
def test_invalid_body_field_is_named_in_the_error(body: bytes, param: str | None) -> None:
    with pytest.raises(RequestRefused, match="The body is not valid") as refused:
        decode_body(body, DECODER)
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "invalid_body", param)


@pytest.mark.parametrize("given", [0, -1, 1e300])
def test_invalid_duration_is_refused_under_its_body_field_name(given: float) -> None:
    with pytest.raises(
        InvalidInput, match="visitor_expires_in must be above 0 and at most 1000000000 seconds"
    ):
        check_seconds("visitor_expires_in", given)
    check_seconds("visitor_expires_in", None)
    check_seconds("visitor_expires_in", 0.5)


@pytest.mark.parametrize("element", ["0", '""', "{}", "[]", '{"a":0}', "[[[0]]]"])
@pytest.mark.parametrize("template", ["[%s]", '{"input": [%s]}', '{"a": {"b": [{"c": [%s]}]}}'])
def test_body_with_too_many_values_is_refused_before_any_is_built(template: str, element: str) -> None:
    class Never:
        def decode(self, _: bytes) -> None:
            raise AssertionError("the body was decoded")

    body = (template % ",".join([element] * (MOST_VALUES + 1))).encode()
    with pytest.raises(RequestRefused) as refused:
        decode_body(body, Never())  # type: ignore[arg-type]
    assert (refused.value.status, refused.value.code) == (413, "too_many_values")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/api/turns", '{"model": "demo", "input": [%s]}'),
        ("/v1/chat/completions", '{"model": "demo", "messages": [%s]}'),
    ],
)
async def test_turn_with_too_many_values_is_answered_413(path: str, body: str) -> None:
    parts = ((body % ",".join(['""'] * (MOST_VALUES + 1))).encode(),)
    async with run_app() as app:
        reply = await fetch(app, path, method="POST", headers=(HOST, JSON), parts=parts)
    assert (reply.status, reply.code) == (413, "too_many_values")
