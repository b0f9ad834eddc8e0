"""An upstream: any server with a `/chat/completions` endpoint. Needs aiohttp, of the extra `server`.

model = Upstream("http://localhost:11434/v1", api_key=os.environ.get("API_KEY"))
turn = await ledger.run(ChatRunner(model, {"model": "llama3.2"}), "Hello")
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import aiohttp
import msgspec
from yarl import URL

from turnledger.errors import InvalidInput, MalformedAnswer, ModelUnavailable
from turnledger.runners.chat_model import Asked, completion_of
from turnledger.runners.streamed_answer import StreamedAnswer
from turnledger.runners.upstream_body import has_marked_end, read_error, read_whole
from turnledger.runners.upstream_failures import BrokenOff, of_connection, of_status

_LISTING = aiohttp.ClientTimeout(total=30.0)
"""For what needs no model to think."""


class Timeouts(msgspec.Struct, frozen=True):
    """How long each phase of an answer may take, in seconds; None is for ever."""

    connect: float | None = 10.0
    """To have a connection."""
    first_byte: float | None = 600.0
    """From the request to the first byte of the answer's body; all of it, where it is not streamed."""
    between_chunks: float | None = 120.0
    """Without a byte, once a stream has begun."""
    total: float | None = None
    """For all of it, each time it is asked."""

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            seconds = getattr(self, name)
            if seconds is not None and not seconds > 0:
                raise InvalidInput(f"{name} is {seconds}; it must be more than 0 seconds, or None for ever.")


class Retries(msgspec.Struct, frozen=True):
    """How often, and how soon, to ask again where no byte of an answer has come."""

    limit: int = 2
    first_wait: float = 0.25
    """Seconds before the first retry; twice as many before each further one."""
    longest_wait: float = 2.0
    """An upstream that asks for more than this is not asked again: its caller is told instead."""

    def wait(self, tries: int, broken_off: BrokenOff, chance: float) -> float | None:
        """How long to wait after so many tries; None to give up. Part of it is left to chance, so that turns
        that failed together do not come back together."""
        if tries > self.limit or not broken_off.may_retry:
            return None
        if broken_off.retry_after is not None:
            return broken_off.retry_after if broken_off.retry_after <= self.longest_wait else None
        return min(self.longest_wait, self.first_wait * 2.0 ** (tries - 1)) * (0.5 + chance / 2)


class Upstream:
    """A chat model behind HTTP. Connections are pooled, as many as are asked for; redirects are not followed;
    of what callers send, only the request's fields go upstream, and the api_key is the one given here.

    It belongs to the loop that it is first asked in. Raises InvalidInput for a URL that cannot be one.
    """

    def __init__(
        self,
        base_url: str,
        api_key: str | None = None,
        *,
        timeouts: Timeouts = Timeouts(),  # noqa: B008 - it is frozen
        retries: Retries = Retries(),  # noqa: B008
        lingers: float = 0.25,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        base = _checked(base_url)
        self._completions = base.joinpath("chat", "completions").with_query(base.query)
        self._models = base.joinpath("models").with_query(base.query)
        self._headers = {
            "Content-Type": "application/json",
            "Accept-Encoding": "identity",  # compression would hold small pieces back
            "User-Agent": "turnledger",
        }
        if api_key:
            self._headers["Authorization"] = f"Bearer {api_key}"
        self._between = timeouts.between_chunks
        self._limits = aiohttp.ClientTimeout(
            total=timeouts.total, connect=timeouts.connect, sock_read=timeouts.first_byte
        )
        self._retries = retries
        self._lingers = lingers
        self._sleep = sleep
        self._chance = chance
        self._session: aiohttp.ClientSession | None = None
        self._is_closed = False

    async def complete(self, asked: Asked) -> bytes:
        """Ask for a whole answer, and return it as it came; see ChatModel."""
        response = await self._ask("POST", self._completions, asked.body(stream=False))
        body = await read_whole(response)
        if not has_marked_end(response):
            completion_of(body)  # nothing else tells whether all of it has come
        return body

    def stream(self, asked: Asked) -> StreamedAnswer:
        """Ask for a streamed answer; see ChatModel."""
        ask = partial(self._ask, "POST", self._completions, asked.body(stream=True))
        return StreamedAnswer(ask, self._between, self._lingers)

    async def models(self) -> list[dict[str, Any]]:
        """List the upstream's models; see ChatModel."""
        body = await read_whole(await self._ask("GET", self._models))
        try:
            return msgspec.json.decode(body, type=_Models).data
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as problem:
            raise MalformedAnswer(f"The upstream's list of models cannot be read: {problem}.") from None

    async def close(self) -> None:
        """Close all connections; answers that are still read break off."""
        self._is_closed = True
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def _ask(self, method: str, url: URL, body: bytes | None = None) -> aiohttp.ClientResponse:
        """Return an answer of status 200, of which nothing was read. Raises a ModelError."""
        tries = 0
        while True:
            try:
                return await self._try(method, url, body)
            except BrokenOff as broken_off:
                tries += 1
                wait = self._retries.wait(tries, broken_off, self._chance())
                if wait is None:
                    raise broken_off.error from broken_off.__cause__
            await self._sleep(wait)

    async def _try(self, method: str, url: URL, body: bytes | None) -> aiohttp.ClientResponse:
        try:
            response = await self._connected().request(
                method, url, data=body, allow_redirects=False, timeout=self._limits if body else _LISTING
            )
        except (aiohttp.ClientError, TimeoutError) as problem:
            raise of_connection(problem) from problem
        if response.status == 200:
            return response
        raise of_status(response.status, response.headers, await read_error(response))

    def _connected(self) -> aiohttp.ClientSession:
        if self._session is None:
            if self._is_closed:
                raise BrokenOff(ModelUnavailable("The model was closed."))
            self._session = aiohttp.ClientSession(
                connector=aiohttp.TCPConnector(
                    limit=0
                ),  # the ledger's lanes and the server's limits bound it
                cookie_jar=aiohttp.DummyCookieJar(),
                headers=self._headers,
            )
        return self._session


class _Models(msgspec.Struct):
    data: list[dict[str, Any]]


def _checked(base_url: str) -> URL:
    try:
        url = URL(base_url)
    except ValueError:
        url = URL()
    if url.scheme not in ("http", "https") or not url.host:
        raise InvalidInput(f"{base_url!r} is no URL of a model. Give one like 'http://localhost:11434/v1'.")
    if url.user is not None or url.password is not None:
        raise InvalidInput("The URL of a model must hold no password. Give an api_key instead.")
    return url
