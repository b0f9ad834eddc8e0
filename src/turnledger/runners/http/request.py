"""Requests: the lines that each begins with, and one that is made on its own."""

from __future__ import annotations

import asyncio
import os
from typing import NamedTuple

from turnledger.runners.http.address import Address, address_of, checked_api_key
from turnledger.runners.http.connection import PhaseTimeouts
from turnledger.runners.http.dial import Proxy, proxy_for
from turnledger.runners.http.pool import Pool, tls_of

_FIELDS = (
    "Content-Type: application/json",
    "Accept: */*",
    "Accept-Encoding: gzip",
    "User-Agent: turnledger",
)
_NO_LIMITS = PhaseTimeouts(None, None, None)


class Got(NamedTuple):
    """What a server answered, whatever it is."""

    status: int
    headers: dict[bytes, bytes]
    """With names in lower case."""
    body: bytes
    """All of it, or its beginning, which is longer than the limit."""


def head_of(
    method: str, address: Address, below: str, api_key: str | None, proxy: Proxy | None = None
) -> bytes:
    """The lines of a request, up to those of its own. Raises InvalidInput for an api_key that cannot be
    sent."""
    fields, target = [f"Host: {address.authority}", *_FIELDS], address.target(below)
    if proxy is not None and not address.is_secure:  # else the proxy sees a tunnel only
        target = f"http://{address.authority}{target}"
        fields += proxy.fields
    if api_key:
        fields.append(f"Authorization: Bearer {checked_api_key(api_key)}")
    return "\r\n".join([f"{method} {target} HTTP/1.1", *fields, ""]).encode()


async def get(
    base_url: str, below: str, api_key: str | None, *, seconds: float, limit: int, proxy: bool | str = True
) -> Got:
    """Ask once for something below a URL, over a connection of its own. Raises InvalidInput, a ModelError for
    half an answer, BrokenOff for none (its cause is the OSError, if there is one), TimeoutError."""
    address = address_of(base_url)
    through = proxy_for(address, proxy, os.environ)
    request = head_of("GET", address, below, api_key, through) + b"\r\n"
    pool = Pool(address, tls_of(address), 1, proxy=through)
    try:
        async with asyncio.timeout(seconds):
            connection = await pool.connect(None)
            response = connection.ask(request, _NO_LIMITS, room=limit, in_pieces=False)
            await response.begun()
            return Got(response.status, response.headers, await response.body(limit))
    finally:
        await pool.close()
