"""Connections to a server of this process, and requests over them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from tests.unit.runners.http.raw_server import Behaviour, run_raw_server
from turnledger.runners.http.connection import Connection, PhaseTimeouts
from turnledger.runners.http.dial import address_of
from turnledger.runners.http.pool import Pool
from turnledger.runners.http.response import Response

REQUEST = b"GET / HTTP/1.1\r\nHost: here\r\n\r\n"
NO_LIMITS = PhaseTimeouts(None, None, None)


@asynccontextmanager
async def pool_at(port: int, bound: int = 100) -> AsyncIterator[Pool]:
    pool = Pool(address_of(f"http://127.0.0.1:{port}"), None, bound)
    try:
        yield pool
    finally:
        await pool.close()


@asynccontextmanager
async def pool_to(behave: Behaviour, bound: int = 100) -> AsyncIterator[Pool]:
    async with run_raw_server(behave) as port, pool_at(port, bound) as pool:
        yield pool


async def connection_of(pool: Pool) -> Connection:
    return pool.take() or await pool.connect(None)


def send_request(connection: Connection, request: bytes = REQUEST, **options: Any) -> Response:
    options = {"limits": NO_LIMITS, "room": 1000, "is_streamed": True, **options}
    return connection.begin_request(request, **options)


async def exchange(pool: Pool, **options: Any) -> Response:
    """Send a request and wait for the head of its response."""
    response = send_request(await connection_of(pool), **options)
    await response.wait_for_head()
    return response


async def body_of(pool: Pool, limit: int = 100_000, **options: Any) -> bytes:
    response = await exchange(pool, **options)
    try:
        return await response.body(limit)
    finally:
        response.release()


async def eventually(holds: Callable[[], bool]) -> None:
    """Yield to the loop until a condition holds; the timeout of the test bounds it."""
    while not holds():
        await asyncio.sleep(0)
