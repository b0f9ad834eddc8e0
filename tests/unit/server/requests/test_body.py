"""Queries and bodies: bounded, decoded once, and each mistake is reported with its place."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, ask, echo, serving
from turnledger import Ledger
from turnledger.errors import InvalidInput
from turnledger.model.codec import MOST_VALUES
from turnledger.server.app import make_app
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.errors import Refused
from turnledger.server.models.models import Models
from turnledger.server.requests.body import check_seconds, decode_body, read_body
from turnledger.server.requests.query import HIGHEST, choice_of, number_of, yes_or_no


def test_what_is_left_out_is_as_it_is_otherwise() -> None:
    assert number_of(None, "limit", 50) == 50
    assert number_of(None, "before", None) is None


def test_nothing_else_counts_as_left_out() -> None:
    assert number_of("0", "limit", 50) == 0
    assert number_of(str(HIGHEST), "limit", 50) == HIGHEST


@pytest.mark.parametrize("given", ["", "-1", "1.0", "٣", " 1", "1000000000"])
def test_anything_else_is_refused(given: str) -> None:
    with pytest.raises(InvalidInput, match="limit is a number"):
        number_of(given, "limit", 50)


def test_yes_or_no_is_true_or_false() -> None:
    assert [yes_or_no(given, "purge", otherwise=False) for given in ("true", "false", None)] == [
        True,
        False,
        False,
    ]
    assert yes_or_no(None, "purge", otherwise=True)
    with pytest.raises(InvalidInput, match="purge is true or false"):
        yes_or_no("1", "purge", otherwise=False)


def test_a_word_stands_for_what_is_known_by_it() -> None:
    known = {"true": 1, "false": 0}
    assert [choice_of(given, "pinned", known, 7) for given in ("true", "false", None)] == [1, 0, 7]


@pytest.mark.parametrize("given", ["", "True", "1", "any"])
def test_another_word_is_refused_with_those_that_are_known(given: str) -> None:
    with pytest.raises(InvalidInput, match="pinned is one of true, false"):
        choice_of(given, "pinned", {"true": 1, "false": 0}, 7)


NO_BODY = (b"content-length", b"0")


@pytest.mark.parametrize(
    ("path", "query", "told"),
    [
        ("/api/chats", b"scopes=shop", "scope, tag, archived, pinned, deleted, cursor, limit"),
        ("/api/chats", b"tag=a&tag=b", "tag: given more than once"),
        ("/api/export", b"scop=shop", "Known: scope."),
        ("/api/search", b"query=heron", "Known: q"),
        ("/api/events", b"after=3", "This path takes none."),
        ("/api/chats", b"%F0%9F%98%80&=", "Known:"),
    ],
)
async def test_a_parameter_that_is_not_known_is_refused_with_those_that_are(
    path: str, query: bytes, told: str
) -> None:
    async with await Ledger.open("memory:") as ledger:
        refused = await ask(make_app(ledger, Models({}), Settings()), path, query=query)
    assert refused.status == 400
    assert refused.code in ("unknown_parameter", "repeated_parameter")
    assert told in refused.json["error"]["message"]


async def test_paths_that_others_speak_too_take_any() -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        for path in ("/v1/models", "/healthz", "/share"):
            assert (await ask(app, path, query=b"api-version=2026-01-01")).status == 200


@pytest.mark.parametrize(
    ("header", "value", "remedy"),
    [
        (b"x-conversation-keep", b"no", "/v1/chat/completions"),
        (b"if-match", b'"1"', "PATCH"),
    ],
)
async def test_a_header_that_asks_for_what_is_not_done_makes_no_chat(
    header: bytes, value: bytes, remedy: str
) -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        headers = [HOST, JSON, NO_BODY, (header, value)]
        refused = await ask(app, "/api/chats", method="POST", headers=headers)
        assert (refused.status, (await ledger.list()).chats) == (400, ())
        assert remedy in refused.json["error"]["message"]


async def test_a_condition_under_which_to_delete_is_not_passed_over() -> None:
    async with await Ledger.open("memory:") as ledger:
        app = make_app(ledger, Models({}), Settings())
        chat = await ledger.conversation(title="Orders")
        path = f"/api/chats/{chat.id}"
        refused = await ask(app, path, method="DELETE", headers=[HOST, (b"if-match", b'"7"')])
        assert (refused.status, refused.code) == (400, "invalid_if_match")
        assert (await chat.info()).title == "Orders"
        # It is there: that is all that this one asks for.
        assert (await ask(app, path, method="DELETE", headers=[HOST, (b"if-match", b"*")])).status == 200


SMALL = Settings(limits=ServerLimits(body_bytes=10))
CHUNKED = (b"transfer-encoding", b"chunked")


def length(count: int) -> tuple[bytes, bytes]:
    return (b"content-length", b"%d" % count)


async def test_a_body_comes_in_any_number_of_parts() -> None:
    async with serving(SMALL, echo(SMALL)) as app:
        for parts in ([b"0123456789"], [b"01", b"", b"23456789"], [b"0123456789", b""]):
            reply = await ask(app, "/echo", method="POST", headers=(HOST, JSON, CHUNKED), parts=parts)
            assert (reply.status, reply.body) == (200, b"0123456789")


async def test_a_body_that_is_announced_as_too_large_is_not_read() -> None:
    async with serving(SMALL, echo(SMALL)) as app:
        for announced in (11, 10**30):
            headers = (HOST, JSON, length(announced))
            reply = await ask(app, "/echo", method="POST", headers=headers, parts=[b"{}"])
            assert (reply.status, reply.code) == (413, "body_too_large")
            assert "10 bytes" in reply.json["error"]["message"]


async def test_a_body_that_turns_out_too_large_is_not_read_on() -> None:
    async with serving(SMALL, echo(SMALL)) as app:
        for headers in ((HOST, JSON, CHUNKED), (HOST, JSON, length(3))):
            parts = [b"01234567", b"89x", b"more"]
            reply = await ask(app, "/echo", method="POST", headers=headers, parts=parts)
            assert (reply.status, reply.code) == (413, "body_too_large")


@pytest.mark.parametrize("value", [b"-1", b"1e3", b"x", b"", b"1, 1"])
async def test_a_length_is_a_number(value: bytes) -> None:
    async with serving(SMALL, echo(SMALL)) as app:
        headers = (HOST, JSON, (b"content-length", value))
        reply = await ask(app, "/echo", method="POST", headers=headers)
        assert (reply.status, reply.code) == (400, "bad_content_length")


async def test_a_client_that_leaves_is_not_answered() -> None:
    async with serving(SMALL, echo(SMALL)) as app:
        headers = (HOST, JSON, CHUNKED)
        reply = await ask(app, "/echo", method="POST", headers=headers, parts=[b"0"], leaves=True)
        assert (reply.status, reply.body) == (0, b"")
        assert b'turnledger_requests_total{status="499"} 1.0' in app.service.metrics.text()


async def test_a_body_that_does_not_come_is_given_up() -> None:
    async def receive() -> Any:
        await asyncio.Event().wait()

    with pytest.raises(Refused, match="within 0 seconds") as refused:
        await read_body({"headers": []}, receive, limit=10, wait=0)
    assert refused.value.status == 408


class Shape(msgspec.Struct):
    model: str
    parts: list[int] = []


DECODER = msgspec.json.Decoder(Shape)


def test_json_is_decoded() -> None:
    assert decode_body(b'{"model": "demo", "unknown": 1}', DECODER) == Shape("demo")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (b"", "The body is empty. Send a JSON object."),
        (b" \n ", "The body is empty. Send a JSON object."),
        (b'{"model":', "The body is not JSON: input data was truncated at line 1, column 10."),
        (b'{\n  "model": oops}', "The body is not JSON: invalid character at line 2, column 12."),
        ('{"é": \n"é" x}'.encode(), "The body is not JSON: "),
        (b'{"model": "\xff"}', "The body is not UTF-8: line 1, column 12."),
        (b'{"model": ' + b"[" * 100_000, "The body is not valid: `model`: "),
        (b'{"x": ' + b"[" * 100_000, "The JSON of the body is nested too deeply."),
    ],
)
def test_what_is_not_json_is_told_with_its_place(body: bytes, told: str) -> None:
    with pytest.raises(Refused) as refused:
        decode_body(body, DECODER)
    assert refused.value.status == 400
    assert str(refused.value).startswith(told)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        (b'{"model": 1}', "model"),
        (b'{"model": "x", "parts": [1, "x"]}', "parts[1]"),
        (b"[]", None),
        (b"{}", None),
    ],
)
def test_a_wrong_field_is_named(body: bytes, param: str | None) -> None:
    with pytest.raises(Refused, match="The body is not valid") as refused:
        decode_body(body, DECODER)
    assert (refused.value.status, refused.value.code, refused.value.param) == (400, "invalid_body", param)


@pytest.mark.parametrize("given", [0, -1, 1e300])
def test_a_time_that_is_none_is_refused_by_the_name_it_has_in_the_body(given: float) -> None:
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
    with pytest.raises(Refused) as refused:
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
    async with serving() as app:
        reply = await ask(app, path, method="POST", headers=(HOST, JSON), parts=parts)
    assert (reply.status, reply.code) == (413, "too_many_values")
