"""The body of a request: bounded in size and time, and decoded once."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TypeVar

import msgspec
from starlette.types import Receive, Scope

from turnledger.engine.limits import MOST_VALUES, has_more_values
from turnledger.errors import InvalidInput
from turnledger.model.conversation import LONGEST
from turnledger.server.errors import ClientGone, RequestRefused
from turnledger.server.wire.client_stream import EagerCoroutine

CLOSE = ((b"connection", b"close"),)
"""For a connection that cannot be used again. Not for a body refused while it is being sent: closing would
lose the response, so the server reads on, and discards."""

SMALL_BODY_BYTES = 1024 * 1024
"""Bytes that suffice for any request but a turn: titles, tags, metadata and names are bounded."""

Decoded = TypeVar("Decoded")
FIELDS = msgspec.json.Decoder(dict[str, msgspec.Raw])
"""Decodes an object, and leaves the values of its fields as they are."""
_ABOUT_FIELD = ("Object missing required field `", "Object contains unknown field `")
"""How the decoder begins an error that names a field in its text, and not as its place."""


async def read_body(scope: Scope, receive: Receive, *, limit: int, wait: float) -> bytes:
    """Read the whole body. Raises RequestRefused if it has more than `limit` bytes (413; at once if
    announced) or takes longer than `wait` seconds (408), ClientGone if the client leaves."""
    content_length = _content_length(scope)
    if content_length is not None and content_length > limit:
        raise _too_large_error(limit)
    gather = EagerCoroutine(_read_all(receive, limit))
    if gather.is_done:  # most bodies arrive with their headers
        return gather.result
    try:
        async with asyncio.timeout(wait):
            return await gather
    except TimeoutError:
        message = f"The body did not arrive within {wait:g} seconds. Send it faster, or send less."
        raise RequestRefused(408, "body_too_slow", message, headers=CLOSE) from None


async def body_pieces(receive: Receive, wait: float) -> AsyncIterator[bytes]:
    """Yield the pieces of a body of any length. Raises RequestRefused (408) if none arrives for `wait`
    seconds, and ClientGone if the client leaves."""
    while True:
        try:
            async with asyncio.timeout(wait):
                message = await receive()
        except TimeoutError:
            reason = f"The rest of the body did not arrive within {wait:g} seconds. Send it faster."
            raise RequestRefused(408, "body_too_slow", reason) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            return


async def _read_all(receive: Receive, limit: int) -> bytes:
    parts: list[bytes] = []
    size = 0
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        part = message.get("body", b"")
        size += len(part)
        if size > limit:
            raise _too_large_error(limit)
        parts.append(part)
        if not message.get("more_body", False):
            return parts[0] if len(parts) == 1 else b"".join(parts)


def decode_body(body: bytes, decoder: msgspec.json.Decoder[Decoded], field: str = "") -> Decoded:
    """Decode the JSON of a body, or of a field `field` it. Raises RequestRefused: 400 with the position of
    the syntax error, or the invalid field; 413, before any is built, for too many values."""
    if not field and has_more_values(body, MOST_VALUES):
        message = f"The body has more than {MOST_VALUES} JSON values. Send fewer."
        raise RequestRefused(413, "too_many_values", message)
    try:
        if not body.isascii():
            body.decode()  # the decoder checks only the fields it decodes; the rest is passed on or stored
        return decoder.decode(body)
    except msgspec.ValidationError as problem:
        reason, _, path = str(problem).partition(" - at `")
        param = f"{field}{path.removeprefix('$').rstrip('`')}".replace("[...]", "").strip(".") or None
        if param is None and reason.startswith(_ABOUT_FIELD):
            param = reason.split("`")[1]
        prefix = f"`{param}`: " if param else ""
        raise RequestRefused(
            400, "invalid_body", f"The body is not valid: {prefix}{reason}.", param=param
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as problem:
        raise RequestRefused(400, "malformed_json", _describe_malformed(body, problem)) from None


def check_seconds(name: str, seconds: float | None) -> None:
    """Raise InvalidInput for a number of seconds out of range; `name` is the field of the body."""
    if seconds is not None and not 0 < seconds <= LONGEST:
        raise InvalidInput(f"{name} must be above 0 and at most {LONGEST:.0f} seconds.", param=name)


def _describe_malformed(body: bytes, problem: Exception) -> str:
    if not body:
        return "The body is empty. Send a JSON object."
    if body.isspace():
        return "The body has only white space. Send a JSON object."
    if isinstance(problem, RecursionError):
        return "The JSON of the body is nested too deeply. Flatten it."
    if isinstance(problem, UnicodeDecodeError):
        return f"The body is not UTF-8: {_position(body, problem.start)}. Encode it as UTF-8."
    reason, _, position = str(problem).partition("(byte ")
    offset = int(position.rstrip(")")) if position.rstrip(")").isdigit() else len(body)
    reason = reason.removeprefix("JSON is malformed:").strip()
    return f"The body is not JSON: {reason[:1].lower()}{reason[1:]} at {_position(body, offset)}."


def _position(body: bytes, offset: int) -> str:
    before = body[:offset]
    line_start = before.rfind(b"\n") + 1
    column = len(before[line_start:].decode("utf-8", "replace")) + 1
    return f"line {before.count(bytes([10])) + 1}, column {column}"


def _content_length(scope: Scope) -> int | None:
    for name, value in scope["headers"]:
        if name == b"content-length":
            if not value.isdigit():
                raise RequestRefused(
                    400, "bad_content_length", "Content-Length must be a number.", headers=CLOSE
                )
            return int(value) if len(value) < 20 else 10**20
    return None


def _too_large_error(limit: int) -> RequestRefused:
    remedy = "." if limit == SMALL_BODY_BYTES else ", or raise the server's limit `body_bytes`."
    message = f"The body is larger than {limit} bytes. Send less{remedy}"
    return RequestRefused(413, "body_too_large", message)
