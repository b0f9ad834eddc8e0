"""Bodies: bounded in size and time, decoded once, and a mistake is told with its place."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, ask, echo, serving
from turnledger.errors import InvalidInput
from turnledger.model.codec import MOST_VALUES
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.errors import Refused
from turnledger.server.requests.body import check_seconds, decode_body, read_body

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
