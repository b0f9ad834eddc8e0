"""The pool: a bounded number of connections to one upstream, reused. Also the head of each request, and
single requests."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from collections import OrderedDict, deque
from contextlib import suppress
from typing import NamedTuple

from turnledger.runners.http.connection import Connection, Deadlines, PhaseTimeouts
from turnledger.runners.http.dial import (
    Address,
    Proxy,
    address_of,
    check_api_key,
    dial,
    open_tunnel,
    proxy_for,
)
from turnledger.runners.upstream.failures import model_closed, no_response, of_connection, of_proxy

IDLE_SECONDS = 15.0
"""How long an idle connection is kept: less than most servers do."""


def tls_of(address: Address) -> ssl.SSLContext | None:
    """Return the TLS context of a secure address, which verifies certificate and name. Reads the system's
    certificates."""
    if not address.is_secure:
        return None
    context = ssl.create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    return context


class Pool:
    """Belongs to the loop that creates it.

    Takes the free connection used last, so that surplus ones grow old and are closed. At the bound, waiters
    are served in order.
    """

    def __init__(
        self,
        address: Address,
        tls: ssl.SSLContext | None,
        bound: int,
        *,
        reuse: bool = True,
        proxy: Proxy | None = None,
    ) -> None:
        self._address = address
        self._proxy = proxy
        self._tls = tls
        self._bound = bound
        self._reuse = reuse
        self._loop = asyncio.get_running_loop()
        self._deadlines = Deadlines(self._loop)
        # Ordered, and a lost connection is removed without a search.
        self._free: OrderedDict[Connection, None] = OrderedDict()
        self._open: set[Connection] = set()
        self._dialing = 0
        self._queue: deque[asyncio.Future[Connection | None]] = deque()
        self._sweeping: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._emptied: asyncio.Future[None] | None = None

    def take(self) -> Connection | None:
        while self._free:
            connection, _ = self._free.popitem()
            if connection.is_fit:
                return connection
        return None

    async def connect(self, timeout: float | None) -> Connection:
        """Open a connection; at the bound, wait for one. Raises UpstreamFailure."""
        try:
            async with asyncio.timeout(timeout):
                while True:
                    connection = await self._wait_for_slot()
                    if connection is None:
                        return await self._dial()
                    if connection.is_fit:
                        return connection
        except OSError as problem:
            raise of_connection(problem) from problem

    async def close(self) -> None:
        """Close all connections, and wait for that; unfinished responses break off."""
        self._is_closed = True
        self._deadlines.close()
        if self._sweeping is not None:
            self._sweeping.cancel()
        for waiting in self._queue:
            if not waiting.done():
                waiting.set_exception(model_closed())
        for connection in list(self._open):
            connection.close()
        if self._open:
            self._emptied = self._loop.create_future()
            await self._emptied

    # The bound counts open connections, and those about to be opened.

    async def _wait_for_slot(self) -> Connection | None:
        """Wait for a connection, or for a free slot: None."""
        if self._is_closed:
            raise model_closed()
        if len(self._open) + self._dialing < self._bound:
            self._dialing += 1
            return None
        if self._free:
            self._free.popitem(last=False)[0].close()  # a caller comes here only if no free one is fit
        waiting: asyncio.Future[Connection | None] = self._loop.create_future()
        self._queue.append(waiting)
        try:
            return await waiting
        except asyncio.CancelledError:
            if waiting.cancelled():
                with suppress(ValueError):  # `_next` may have dropped it already
                    self._queue.remove(waiting)
            elif waiting.exception() is None:
                self._pass_on(waiting.result())
            raise

    def _next(self) -> asyncio.Future[Connection | None] | None:
        while self._queue:
            waiting = self._queue.popleft()
            if not waiting.done():
                return waiting
        return None

    def _pass_on(self, given: Connection | None) -> None:
        if given is None:
            self._dialing -= 1
            self._offer_place()
        elif not given.is_closing:
            self._on_freed(given)

    def _offer_place(self) -> None:
        if self._queue and len(self._open) + self._dialing < self._bound:
            waiting = self._next()
            if waiting is not None:
                self._dialing += 1
                waiting.set_result(None)

    async def _dial(self) -> Connection:
        """Open a connection in its reserved slot."""
        try:
            connection = await self._open_connection()
            if connection.is_lost:
                raise no_response()
            self._open.add(connection)
        finally:
            self._dialing -= 1
            self._offer_place()
        if self._is_closed:
            connection.close()
            raise model_closed()
        return connection

    async def _open_connection(self) -> Connection:
        address, tls = self._address, self._tls
        dialed = await self._open_socket()
        connection = Connection(self._loop, self._deadlines, self._on_freed, self._on_lost)
        try:
            await self._loop.create_connection(
                lambda: connection, sock=dialed, ssl=tls, server_hostname=address.host if tls else None
            )
        except BaseException:
            # Its transport owns the socket, and may not have started. Closed here, the descriptor could
            # belong to another connection when it does.
            connection.is_unwanted = True
            raise
        return connection

    async def _open_socket(self) -> socket.socket:
        address, proxy = self._address, self._proxy
        if proxy is None:
            return await dial(address.host, address.port)
        try:
            dialed = await dial(proxy.host, proxy.port)
        except OSError as problem:
            raise of_proxy(None) from problem
        if self._tls is not None:
            try:
                await open_tunnel(dialed, proxy, address)
            except BaseException:
                dialed.close()
                raise
        return dialed

    def _on_freed(self, connection: Connection) -> None:
        if self._is_closed or not self._reuse:
            connection.close()
            return
        waiting = self._next() if self._queue else None
        if waiting is not None:
            waiting.set_result(connection)
            return
        self._free[connection] = None
        if self._sweeping is None:
            self._sweeping = self._loop.call_later(IDLE_SECONDS, self._sweep)

    def _on_lost(self, connection: Connection) -> None:
        self._open.discard(connection)
        self._free.pop(connection, None)
        self._offer_place()
        if not self._open and self._emptied is not None and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep(self) -> None:
        self._sweeping = None
        free, oldest = self._free, self._loop.time() - IDLE_SECONDS
        while free:
            connection = next(iter(free))
            if connection.free_since > oldest:
                self._sweeping = self._loop.call_at(connection.free_since + IDLE_SECONDS, self._sweep)
                break
            del free[connection]
            connection.close()


_FIELDS = (
    "Accept: */*",
    "Accept-Encoding: gzip",
    "User-Agent: turnledger",
)
_NO_LIMITS = PhaseTimeouts(None, None, None)


class GetResult(NamedTuple):
    status: int
    headers: dict[bytes, bytes]
    """With names in lower case."""
    body: bytes
    """Complete, or cut beyond the limit."""


def head_of(
    method: str,
    address: Address,
    below: str,
    api_key: str | None,
    proxy: Proxy | None = None,
    content_type: str = "application/json",
) -> bytes:
    """Return the head of a request, up to its own fields. Raises InvalidInput for an invalid api_key."""
    fields = [f"Host: {address.authority}", f"Content-Type: {content_type}", *_FIELDS]
    target = address.target(below)
    if proxy is not None and not address.is_secure:  # otherwise the proxy only sees a tunnel
        target = f"http://{address.authority}{target}"
        fields += proxy.fields
    return "\r\n".join([f"{method} {target} HTTP/1.1", *fields, ""]).encode() + authorization_of(api_key)


def authorization_of(api_key: str | None) -> bytes:
    """Return the last field of a head. Raises InvalidInput for an invalid api_key."""
    return f"Authorization: Bearer {check_api_key(api_key)}\r\n".encode() if api_key else b""


async def get(
    base_url: str, below: str, api_key: str | None, *, seconds: float, limit: int, proxy: bool | str = True
) -> GetResult:
    """Request something below a URL once, over a new connection. Raises InvalidInput, a ModelError for a
    truncated response, UpstreamFailure for none (its cause is the OSError, if any), TimeoutError."""
    address = address_of(base_url)
    through = proxy_for(address, proxy, os.environ)
    request = head_of("GET", address, below, api_key, through) + b"\r\n"
    pool = Pool(address, tls_of(address), 1, proxy=through)
    try:
        async with asyncio.timeout(seconds):
            connection = await pool.connect(None)
            response = connection.begin_request(request, _NO_LIMITS, room=limit, is_streamed=False)
            await response.wait_for_head()
            return GetResult(response.status, response.headers, await response.body(limit))
    finally:
        await pool.close()
