"""The events of a turn on the wire, each with its number, so that a reader can go on where it was cut off.

Heartbeats: who is told nothing for a while is told that, and so knows a quiet turn from a lost connection.

One timer for all streams of a process, and none while there are none: one of its own would cost a short
stream more than what it tells.

Staying: whoever reads a stream stays for as long as his token is valid, and no longer.

A request is let in at its beginning; a stream may last for hours. While there are any, their tokens are
looked up again every few seconds, all in one look, and the streams of those that have ended are cut short.

A stream that counts as one of its reader's, who may have only so many, for as long as it is sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from msgspec.structs import replace
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from turnledger.engine.ports import Clock
from turnledger.errors import TurnledgerError
from turnledger.model import codec
from turnledger.model.event import Event, TurnFinished
from turnledger.server.access.auth import Principal, missing, why_not
from turnledger.server.errors import error_body, shutting_down
from turnledger.server.models.redacted import discreet_failure
from turnledger.server.ops.logs import log
from turnledger.server.wire.client_stream import Headers, Outlet, cut_of
from turnledger.tokens import Tokens

if TYPE_CHECKING:
    from turnledger.server.service import Service


EVERY = 10.0
"""Seconds; who was told nothing for as long hears a sign of life, within twice of it."""
SIGN = b": \n\n"
"""A comment, which readers of events pass over."""


class Heartbeats:
    """The streams that are kept alive."""

    def __init__(self, every: float = EVERY) -> None:
        self._every = every
        self._open: dict[Outlet, Headers | Callable[[], Headers | None]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def join(self, outlet: Outlet, headers: Headers | Callable[[], Headers | None] = ()) -> None:
        """Keep a stream alive; `headers` are those of one that begins with a sign of life, if nothing else
        comes first. What gives them may give none: then it does not begin yet."""
        self._open[outlet] = headers
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)

    def leave(self, outlet: Outlet) -> None:
        """Do so no more. The timer is left to itself: the next stream will need it."""
        self._open.pop(outlet, None)

    @contextmanager
    def during(self, outlet: Outlet, headers: Headers) -> Iterator[None]:
        """Keep a stream alive while in this block."""
        self.join(outlet, headers)
        try:
            yield
        finally:
            self.leave(outlet)

    def _tick(self) -> None:
        self._timer = None
        self.beat()
        if self._open:
            self._timer = asyncio.get_running_loop().call_later(self._every, self._tick)

    def beat(self) -> None:
        """Tell all who were told nothing since the last beat."""
        for outlet, given in list(self._open.items()):
            headers = given() if callable(given) else given
            if headers is not None:
                outlet.beat(SIGN, headers)


TOKEN_CHECK_EVERY = 2.0
"""Seconds between two looks."""


class Staying:
    """The readers of streams in this process."""

    def __init__(self, tokens: Tokens, clock: Clock, every: float = TOKEN_CHECK_EVERY) -> None:
        self._tokens = tokens
        self._clock = clock
        self._every = every
        self._readers: dict[bytes, set[asyncio.Task[object]]] = {}
        """By the digest of their token; under an empty one, those who came without."""
        self._looking: asyncio.Task[None] | None = None

    @contextmanager
    def stay(self, principal: Principal) -> Iterator[None]:
        """While in this block, the task is cancelled when the token ends, once; `reason_of` tells it why.
        Who came without one stays until there is one."""
        digest, task = principal.token.digest if principal.token else b"", asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        readers = self._readers.setdefault(digest, set())
        readers.add(task)
        if self._looking is None:
            self._looking = asyncio.create_task(self._look_again(), name="turnledger tokens")
        try:
            yield
        finally:
            readers.discard(task)
            if not readers and self._readers.get(digest) is readers:
                del self._readers[digest]
            if not self._readers and self._looking is not None:
                self._looking.cancel()
                self._looking = None

    async def _look_again(self) -> None:
        while True:
            await asyncio.sleep(self._every)
            try:
                await self.look()
            except TurnledgerError as problem:
                log.warning("tokens_not_looked_up", code=problem.code)

    async def look(self) -> None:
        """Look up the tokens of all readers, and show those the door whose token has ended."""
        digests = [digest for digest in self._readers if digest]
        found = await self._tokens.find_all(digests) if digests else {}
        now = self._clock.now_ms()
        for digest in digests:
            token = found.get(digest)
            if token is None or not token.is_valid(now):
                self._show_out(digest, why_not(token))
        if b"" in self._readers and (await self._tokens.find(None)).any_tokens:
            self._show_out(b"", missing())

    def _show_out(self, digest: bytes, reason: TurnledgerError) -> None:
        # Taken out: whoever is slow to leave is not told twice.
        for task in self._readers.pop(digest, ()):
            task.cancel(reason)


def reason_of(cancelled: asyncio.CancelledError) -> TurnledgerError | None:
    """Why a reader was shown the door; None if he was not, and the task was cancelled for another reason."""
    reason = cancelled.args[0] if cancelled.args else None
    return reason if isinstance(reason, TurnledgerError) else None


def shown_out(cancelled: asyncio.CancelledError) -> None:
    """Raise why a reader was shown the door, if he was, in place of the cancellation."""
    reason, task = reason_of(cancelled), asyncio.current_task()
    if reason is not None and task is not None and not task.uncancel():
        raise reason from None


_HEADERS = [(b"content-type", b"text/event-stream; charset=utf-8")]


def event_bytes(event: Event) -> bytes:
    """One event, with its number to go on from and its kind."""
    kind = str(event.__struct_config__.tag).encode()
    return b"id: %d\nevent: %s\ndata: %s\n\n" % (event.number, kind, codec.encode(event))


def error_event(problem: BaseException) -> bytes:
    """What went wrong in a stream of events."""
    return b"event: error\ndata: %s\n\n" % error_body(problem)


async def seen_by(who: Principal, events: AsyncIterator[Event]) -> AsyncIterator[Event]:
    """Yield the events of a turn as this caller may read them."""
    async for event in events:
        if who.is_narrowed and isinstance(event, TurnFinished):
            event = replace(event, failure=discreet_failure(event.failure))
        yield event


async def send_events(
    events: AsyncIterator[Event],
    scope: Scope,
    receive: Receive,
    send: Send,
    patience: float,
    stay: AbstractContextManager[None] | None = None,
    heartbeats: Heartbeats | None = None,
) -> None:
    """Send the events of a turn; see `send_pieces`."""
    pieces = (event_bytes(event) async for event in events)
    await send_pieces(pieces, scope, receive, send, patience, stay, heartbeats)


async def send_pieces(
    pieces: AsyncIterator[bytes],
    scope: Scope,
    receive: Receive,
    send: Send,
    patience: float,
    stay: AbstractContextManager[None] | None = None,
    heartbeats: Heartbeats | None = None,
) -> None:
    """Send events until there are no more, or the client goes. What is wrong before the first one is raised;
    after that it stands in the stream, as the event `error`. A slow client reads slowly: no turn waits.

    `stay` may cancel this while there are events. It cannot while the last of it is on its way: a client that
    was shown the door has as long for that as any other. With `heartbeats` it begins without an event, too,
    once the turn has been quiet for a while."""
    outlet = Outlet(send, receive, cut=cut_of(scope))
    alive = heartbeats.during(outlet, _HEADERS) if heartbeats is not None else nullcontext()
    try:
        with stay or nullcontext(), alive:
            async with outlet.until_gone():
                async for piece in pieces:
                    if not outlet.has_begun:
                        outlet.begin(200, _HEADERS)
                    await outlet.flow(piece)
                if not outlet.has_begun:  # it was withdrawn before it began
                    outlet.begin(200, _HEADERS)
                outlet.end()
    except TurnledgerError as problem:
        if not outlet.has_begun:
            raise
        outlet.end(error_event(problem))
    except asyncio.CancelledError as cancelled:
        reason = reason_of(cancelled)
        if outlet.has_begun:
            outlet.end(error_event(reason or shutting_down()))
        if reason is None:
            raise
        if task := asyncio.current_task():
            task.uncancel()
        if not outlet.has_begun:
            raise reason from None
    finally:
        await outlet.close(patience)


class CountedStream:
    """A plain ASGI application, made for one endpoint: it says in `_tell` what is sent."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        who: Principal = request.state.principal
        place = self._service.quotas.stream(who.owner, is_tokenless=who.token is None, link=who.link)
        try:
            await self._tell(who, request, receive, send)
        finally:
            place.leave()

    async def _tell(self, who: Principal, request: Request, receive: Receive, send: Send) -> None:
        raise NotImplementedError
