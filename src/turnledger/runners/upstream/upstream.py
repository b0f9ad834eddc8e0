"""An upstream: any server with a `/chat/completions` endpoint. Needs httptools, of the extra `server`.

model = Upstream("http://localhost:11434/v1", api_key=os.environ.get("API_KEY"))
turn = await ledger.run(ChatRunner(model, {"model": "llama3.2"}), "Hello")
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from typing import Any

import msgspec
from msgspec.structs import replace

from turnledger.errors import InvalidInput, MalformedAnswer
from turnledger.runners.chat_model import FINISH_REASONS, ModelRequest, completion_of
from turnledger.runners.error_cleaner import ErrorCleaner
from turnledger.runners.http.connection import Connection, PhaseTimeouts
from turnledger.runners.http.dial import address_of, proxy_for
from turnledger.runners.http.pool import Pool, authorization_of, head_of, tls_of
from turnledger.runners.http.response import PIECES_BYTES, Response
from turnledger.runners.upstream import streamed_answer
from turnledger.runners.upstream.failures import (
    NoResponse,
    UpstreamFailure,
    model_closed,
    of_status,
    wrong_encoding,
)
from turnledger.runners.upstream.streamed_answer import (
    RawAnswer,
    StreamedAnswer,
    is_encoded,
    read_error,
    read_whole,
)

_LISTING = PhaseTimeouts(first_byte=None, between=None, total=30.0)
"""For requests that need no model."""


CONNECTIONS = 10_000
"""Default bound of connections to one upstream: enough for all concurrent turns, but a hanging server must
not use up all sockets."""


class Timeouts(msgspec.Struct, frozen=True):
    """How long each phase of an answer may take, in seconds; None: unlimited."""

    connect: float | None = 10.0
    first_byte: float | None = 600.0
    """From the request to the first byte of the body; to its end, if it is not streamed."""
    between_chunks: float | None = 120.0
    """Without a byte, once a stream has begun."""
    total: float | None = None
    """For the whole exchange, for each try."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise InvalidInput(f"{name} is {seconds}; it must be more than 0 seconds, or None for ever.")


class Retries(msgspec.Struct, frozen=True):
    """How often, and how soon, to retry while no byte of an answer has arrived."""

    limit: int = 2
    first_wait: float = 0.25
    """Seconds before the first retry; doubled before each further one."""
    longest_wait: float = 2.0
    """If the upstream asks for a longer wait, the caller gets the error instead."""

    def wait(self, tries: int, failure: UpstreamFailure, chance: float) -> float | None:
        """Return the seconds to wait after this many tries; None: give up. Part of it is random, so that
        turns that failed together do not retry together."""
        if tries > self.limit or not failure.may_retry:
            return None
        if failure.retry_after is not None:
            return failure.retry_after if failure.retry_after <= self.longest_wait else None
        return min(self.longest_wait, self.first_wait * 2.0 ** (tries - 1)) * (0.5 + chance / 2)


class Upstream:
    """A chat model behind HTTP. Connections are pooled, up to a bound; redirects are not followed; only the
    request's fields are sent, with the api_key given here.

    `finish_reasons` are further ones of a complete answer. Without `reuse`, each request has a new
    connection: then an upstream that sends unrequested responses cannot have one taken for the answer to
    another request. `proxy` is the URL of an HTTP proxy; False: none; True: the one of the environment
    (HTTPS_PROXY, HTTP_PROXY, NO_PROXY).

    It belongs to the loop of its first request. Raises InvalidInput for an invalid URL.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - it is frozen
        retries: Retries = Retries(),  # noqa: B008
        connections: int = CONNECTIONS,
        reuse: bool = True,
        proxy: bool | str = True,
        finish_reasons: Collection[str] = (),
        lingers: float = 0.25,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        address = address_of(base_url)
        proxy_used = proxy_for(address, proxy, os.environ)
        self._head: Callable[..., bytes] = partial(head_of, address=address, api_key=None, proxy=proxy_used)
        self._secrets: tuple[str, ...] = (address.query,)
        self._completions = self._head("POST", below="/chat/completions")
        self._use_api_key(api_key)
        self._connect = timeouts.connect
        self._limits = PhaseTimeouts(timeouts.first_byte, timeouts.between_chunks, timeouts.total)
        self._retries = retries
        self._connections = _Connections(
            partial(Pool, address, tls_of(address), connections, reuse=reuse, proxy=proxy_used)
        )
        self.finish_reasons = FINISH_REASONS.union(finish_reasons)
        self._lingers = lingers
        self._sleep = sleep
        self._chance = chance

    def for_client(self, *, retries: bool = True, api_key: str | None = None) -> Upstream:
        """Return this model for a client: without `retries`, if it has its own, and with its own api_key.
        Connections are shared. Raises InvalidInput for an invalid api_key, without the key in its message."""
        view = Upstream.__new__(Upstream)
        view.__dict__ = self.__dict__.copy()
        if not retries:
            view._retries = replace(self._retries, limit=0)
        if api_key is not None:
            view._use_api_key(api_key)
        return view

    def _use_api_key(self, api_key: str | None) -> None:
        """Use an api_key in place of the former one."""
        self._authorization = authorization_of(api_key)
        self._secrets = (*self._secrets, api_key or "")
        self._cleaner = ErrorCleaner(self._secrets)

    async def complete(self, request: ModelRequest) -> bytes:
        """Return a complete answer as it was sent; see ChatModel."""
        response = await self._send_request(
            self._post_request(request, stream=False), self._limits, is_streamed=False
        )
        body = await read_whole(response)
        if not response.has_marked_end:
            completion_of(body)  # nothing else shows whether it is complete
        return self._cleaner.clean_payloads([body])[0]

    def stream(self, request: ModelRequest) -> StreamedAnswer:
        """Stream an answer; see ChatModel."""
        open_answer = partial(
            self._send_request, self._post_request(request, stream=True), self._limits, is_streamed=True
        )
        return StreamedAnswer(open_answer, self._lingers, self._cleaner)

    def pass_on(self, path: str, body: bytes, content_type: str) -> RawAnswer:
        """Send a request to another path below the URL; its response is yielded as it comes."""
        head = self._head("POST", below=path, content_type=content_type)
        request = self._with_body(head, body)
        open_answer = partial(self._send_request, request, self._limits, is_streamed=True)
        return RawAnswer(open_answer, self._cleaner.filter())

    async def models(self) -> list[dict[str, Any]]:
        """List the upstream's models; see ChatModel."""
        request = b"%b%b\r\n" % (self._head("GET", below="/models"), self._authorization)
        body = await read_whole(await self._send_request(request, _LISTING, is_streamed=False))
        try:
            return msgspec.json.decode(body, type=_Models).data
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise MalformedAnswer(
                f"The upstream's list of models cannot be read: {problem}. Check its URL."
            ) from None

    async def close(self) -> None:
        """Close all connections; unfinished answers break off."""
        await self._connections.close()

    def _post_request(self, request: ModelRequest, *, stream: bool) -> bytes:
        return self._with_body(self._completions, request.body(stream=stream))

    def _with_body(self, head: bytes, body: bytes) -> bytes:
        return b"%b%bContent-Length: %d\r\n\r\n%b" % (head, self._authorization, len(body), body)

    async def _send_request(self, request: bytes, limits: PhaseTimeouts, *, is_streamed: bool) -> Response:
        """Return an unread answer of status 200. Raises a ModelError."""
        tries = 0
        while True:
            try:
                return await self._try(request, limits, is_streamed=is_streamed)
            except UpstreamFailure as broken_off:
                tries += 1
                wait = self._retries.wait(tries, broken_off, self._chance())
                if wait is None:
                    if tries > 1:  # the retries of a client would multiply these
                        broken_off.error.should_retry = False
                    raise broken_off.error from broken_off.__cause__
            await self._sleep(wait)

    async def _try(self, request: bytes, limits: PhaseTimeouts, *, is_streamed: bool) -> Response:
        pool = self._connections.pool()
        connection = pool.take()
        if connection is not None and connection.may_be_stale:
            try:
                return await self._exchange(connection, request, limits, is_streamed=is_streamed)
            except NoResponse:
                connection = None  # the server closed it as idle while we wrote: a new one may work
        if connection is None:
            connection = await pool.connect(self._connect)
        return await self._exchange(connection, request, limits, is_streamed=is_streamed)

    async def _exchange(
        self, connection: Connection, request: bytes, limits: PhaseTimeouts, *, is_streamed: bool
    ) -> Response:
        room = PIECES_BYTES if is_streamed else streamed_answer.ANSWER_BYTES
        response = connection.begin_request(request, limits, room=room, is_streamed=is_streamed)
        try:
            await connection.send(request)
            await response.wait_for_head()
            if response.status != 200:
                error = await read_error(response, self._cleaner)
                raise of_status(response.status, response.headers, error)
            if is_encoded(response):
                raise wrong_encoding()
        except BaseException:
            response.release()
            raise
        return response


class _Connections:
    """The pool of an upstream, opened in the loop of its first request. Views of the upstream share it."""

    __slots__ = ("_is_closed", "_open", "_pool")

    def __init__(self, open: Callable[[], Pool]) -> None:
        self._open = open
        self._pool: Pool | None = None
        self._is_closed = False

    def pool(self) -> Pool:
        if self._pool is None:
            if self._is_closed:
                raise model_closed()
            self._pool = self._open()
        return self._pool

    async def close(self) -> None:
        self._is_closed = True
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


class _Models(msgspec.Struct):
    data: list[dict[str, Any]]
