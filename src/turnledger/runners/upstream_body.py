"""Bodies of an upstream's answers: read up to a limit, whole or for the error they tell."""

from __future__ import annotations

import asyncio
from typing import Any

import aiohttp
import msgspec

from turnledger.errors import MalformedAnswer
from turnledger.runners.upstream_failures import of_answer

ANSWER_BYTES = 16 * 1024 * 1024
"""What a whole answer may take."""
ERROR_BYTES = 64 * 1024
ERROR_SECONDS = 2.0
"""What reading an error may take: where it takes more, the status has to say enough."""


def has_marked_end(response: aiohttp.ClientResponse) -> bool:
    """Whether the transport tells a whole body from one that was cut."""
    return "Transfer-Encoding" in response.headers or "Content-Length" in response.headers


async def read_whole(response: aiohttp.ClientResponse) -> bytes:
    """Read a body, and let go of the connection. Raises a ModelError."""
    try:
        body = await _read(response, ANSWER_BYTES)
    except (aiohttp.ClientError, TimeoutError) as problem:
        raise of_answer(problem) from problem
    if len(body) > ANSWER_BYTES:
        raise MalformedAnswer(f"The model's answer has more than {ANSWER_BYTES} bytes.")
    return body


async def read_error(response: aiohttp.ClientResponse) -> dict[str, Any]:
    """Read the error object of a body, in whichever of its usual places, and let go of the connection; empty
    if there is none, or it is too long or too slow."""
    try:
        async with asyncio.timeout(ERROR_SECONDS):
            body = await _read(response, ERROR_BYTES)
        told = msgspec.json.decode(body[:ERROR_BYTES])
    except (aiohttp.ClientError, TimeoutError, msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return {}
    if not isinstance(told, dict):
        return {}
    error = told.get("error", told)
    if isinstance(error, str):
        return {"message": error}
    if not isinstance(error, dict):
        return {}
    return {name: error[name] for name in ("message", "type", "param", "code") if name in error}


async def _read(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Read a body until it ends, or is longer than the limit."""
    pieces, size = [], 0
    try:
        while size <= limit and (piece := await response.content.readany()):
            pieces.append(piece)
            size += len(piece)
    finally:
        response.release()
    return b"".join(pieces)
