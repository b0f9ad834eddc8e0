"""Bodies of an upstream's answers: read up to a limit, whole or for the error they tell."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from turnledger.errors import MalformedAnswer, ModelError
from turnledger.runners.http.response import Response

ANSWER_BYTES = 16 * 1024 * 1024
"""What a whole answer may take."""
ERROR_BYTES = 64 * 1024
ERROR_SECONDS = 2.0
"""What reading an error may take: where it takes more, the status has to say enough."""


_PLAIN = frozenset({None, b"", b"chunked", b"identity"})


def is_encoded(response: Response) -> bool:
    """Whether a body came in a form for which there is no decoder."""
    headers = response.headers
    if response.decoder is not None:
        return headers.get(b"transfer-encoding", b"").strip().lower() not in _PLAIN
    if b"content-encoding" not in headers and headers.get(b"transfer-encoding") in _PLAIN:
        return False
    named = [
        *headers.get(b"content-encoding", b"").split(b","),
        *headers.get(b"transfer-encoding", b"").split(b","),
    ]
    return any(each.strip().lower() not in _PLAIN for each in named)


async def read_whole(response: Response) -> bytes:
    """Read a body, and let go of the connection. Raises a ModelError."""
    body = await _read(response, ANSWER_BYTES)
    if len(body) > ANSWER_BYTES:
        raise MalformedAnswer(f"The model's answer has more than {ANSWER_BYTES} bytes.")
    return body


async def read_error(response: Response) -> dict[str, Any]:
    """Read the error object of a body, in whichever of its usual places, and let go of the connection; empty
    if there is none, or it is too long or too slow."""
    try:
        async with asyncio.timeout(ERROR_SECONDS):
            body = await _read(response, ERROR_BYTES)
        told = msgspec.json.decode(body[:ERROR_BYTES])
    except (ModelError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    error = told.get("error", told)
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, dict):
        return {}
    return {name: error[name] for name in ("message", "type", "param", "code") if name in error}


async def _read(response: Response, limit: int) -> bytes:
    """Read a body until it ends, or is longer than the limit."""
    try:
        return await response.body(limit)
    finally:
        response.release()
