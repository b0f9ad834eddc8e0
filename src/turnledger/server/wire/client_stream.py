"""The stream to one client, which never makes a turn wait.

Bytes leave at once while the client keeps up. When it does not, a task waits for it, and later bytes are
buffered up to a bound: a client that falls further behind is disconnected. The turn goes on, and its client
can read the rest from the turn's events. `EagerCoroutine` runs a coroutine without a task up to its first
wait: mostly there is room, and a task or a timer for each write would cost more than everything else.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable
from contextlib import asynccontextmanager
from typing import Any, Generic, TypeAlias, TypeVar, cast

from starlette.types import Message, Receive, Scope, Send

from turnledger.engine.lane.shield import listen

Result = TypeVar("Result")


class EagerCoroutine(Generic[Result]):
    """Runs a coroutine up to its first wait; raises its errors. Then `is_done` is true if it has ended with
    `result`. If not: await it, set a callback, or close it."""

    __slots__ = ("_callback", "_coroutine", "_future", "is_done", "result")
    result: Result

    def __init__(self, coroutine: Awaitable[Result]) -> None:
        # ASGI servers send and receive by coroutine functions; its types allow any awaitable.
        self._coroutine = cast("Coroutine[Any, Any, Result]", coroutine)
        self._future: asyncio.Future[Any] | None = None
        self._callback: Callable[[Result], object] | None = None
        self.is_done = False
        self._step()

    def _step(self) -> None:
        try:
            self._future = self._coroutine.send(None)
        except StopIteration as stop:
            self.is_done, self.result = True, stop.value

    def __await__(self) -> Generator[Any, Any, Result]:
        while not self.is_done:
            try:
                yield self._future
            except BaseException as problem:
                try:
                    self._future = self._coroutine.throw(problem)
                except StopIteration as stop:
                    self.is_done, self.result = True, stop.value
            else:
                self._step()
        return self.result

    def set_callback(self, callback: Callable[[Result], object]) -> None:
        """Continue without a task whenever the awaited future is done, and call `callback` with the result.
        Only for coroutines that wait for futures, and are closed, not cancelled. Errors go to the exception
        handler of the loop."""
        self._callback = callback
        self._listen()

    def _listen(self) -> None:
        if self.is_done:
            if self._callback is not None:
                self._callback(self.result)
        elif self._future is None:  # it only yields to the loop
            asyncio.get_running_loop().call_soon(self._wake)
        else:
            listen(self._future, self._wake)

    def _wake(self, _: object = None) -> None:
        if self._callback is not None:
            self._step()
            self._listen()

    def close(self) -> None:
        self._callback = None
        if self._future is not None:
            self._future.remove_done_callback(self._wake)
            self._future = None
        self._coroutine.close()


Headers: TypeAlias = Iterable[tuple[bytes, bytes]]

BACKLOG = 1024 * 1024
"""Bytes that may wait for a slow client."""
CUT = "turnledger.cut"
"""The ASGI extension by which our server closes a connection: `{"cut": function}`."""


def cut_of(scope: Scope) -> Callable[[], object]:
    """Return the function that closes the connection of a request at once. It does nothing on other servers:
    they close the connection of an incomplete response when its task ends."""
    cut: Callable[[], object] = scope.get("extensions", {}).get(CUT, {}).get("cut", _do_nothing)
    return cut


def _do_nothing() -> None:
    return


class ClientStream:
    """One response. `begin` once, `write` any number of times, `end` once; none of them waits."""

    def __init__(
        self,
        send: Send,
        receive: Receive,
        *,
        cut: Callable[[], object] = _do_nothing,
        backlog: int = BACKLOG,
    ) -> None:
        self._send = send
        self._cut = cut
        self._receive = receive
        self._backlog_limit = backlog
        self._backlog: deque[Message] = deque()
        self._backlog_bytes = 0
        self._sending: asyncio.Task[None] | None = None
        self._receiving: EagerCoroutine[Message] | None = None
        self._on_broken: Callable[[], object] | None = None
        self._is_ended = False
        self._is_idle = False
        self.has_begun = False
        self.is_broken = False
        """Whether the client left or was disconnected before it had everything."""
        self.may_have_arrived = False
        """Whether the last bytes were handed over. From then on, a client that leaves may have them."""

    def watch(self, on_broken: Callable[[], object]) -> None:
        """Call `on_broken` once when the client leaves or is disconnected. The request body must have been
        read."""
        self._on_broken = on_broken
        self._listen()

    def _listen(self) -> None:
        self._receiving = EagerCoroutine(self._receive())
        self._receiving.set_callback(self._on_message)

    def _on_message(self, message: Message) -> None:
        if message["type"] != "http.disconnect":
            self._listen()
        # The server also reports this when the response is complete, but not while bytes are left to send.
        elif not self._is_ended or self._sending is not None:
            self.is_broken = True
            self._report_broken()

    def _report_broken(self) -> None:
        on_broken, self._on_broken = self._on_broken, None
        if on_broken is not None:
            on_broken()

    @asynccontextmanager
    async def cancel_on_disconnect(self) -> AsyncIterator[None]:
        """Cancel the block when the client leaves, without raising."""
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - for the type checker
        self.watch(task.cancel)
        try:
            yield
            if self.is_broken:
                await asyncio.sleep(0)  # the pending cancellation must be raised here
        except asyncio.CancelledError:
            if not self.is_broken or task.uncancel():
                raise
        finally:
            self._on_broken = None  # the end of the response is being sent, and cannot be cancelled

    def begin(self, status: int, headers: Headers) -> None:
        self.has_begun = True
        self._enqueue({"type": "http.response.start", "status": status, "headers": list(headers)}, 0)

    def write(self, body: bytes) -> None:
        self._is_idle = False
        self._enqueue({"type": "http.response.body", "body": body, "more_body": True}, len(body))

    def send_heartbeat(self, comment: bytes, headers: Headers) -> None:
        """Send a sign of life if nothing was written since the last call, and no earlier bytes wait for the
        client."""
        if self._is_idle and not self._is_ended and self._sending is None:
            if not self.has_begun:
                self.begin(200, headers)
            self.write(comment)
        self._is_idle = True

    async def write_at_pace(self, body: bytes) -> None:
        """Send a piece of the body, and wait until the client has room for the next."""
        self.write(body)
        await self.wait_for_room()

    async def wait_for_room(self) -> None:
        if self._sending is not None:
            await asyncio.wait((self._sending,))

    def end(self, body: bytes = b"") -> None:
        self._is_ended = not self.is_broken
        self._enqueue({"type": "http.response.body", "body": body, "more_body": False}, len(body))

    def _enqueue(self, message: Message, size: int) -> None:
        if self.is_broken:
            return
        if self._sending is None:
            self._mark_last_bytes()
            try:
                sent = EagerCoroutine(self._send(message))
            except OSError:
                self.is_broken = True
                return
            if not sent.is_done:
                self._sending = asyncio.create_task(self._catch_up(sent), name="turnledger client stream")
        elif self._backlog_bytes + size > self._backlog_limit:
            self.cut()
            self._report_broken()
        else:
            self._backlog.append(message)
            self._backlog_bytes += size
            self._mark_last_bytes()

    def _mark_last_bytes(self) -> None:
        if self._is_ended and not self.is_broken and not any(each.get("body") for each in self._backlog):
            self.may_have_arrived = True

    def cut(self) -> None:
        """Close the connection at once: the client sees that the response is incomplete."""
        self.is_broken = True
        self._backlog.clear()
        if self._sending is not None:
            self._sending.cancel()
        self._cut()

    async def _catch_up(self, sent: EagerCoroutine[None]) -> None:
        try:
            await sent
            while self._backlog:
                message = self._backlog.popleft()
                self._backlog_bytes -= len(message.get("body", b""))
                self._mark_last_bytes()
                await self._send(message)
        except OSError:
            self.is_broken = True
        finally:
            self._sending = None

    async def close(self, patience: float) -> bool:
        """Wait up to `patience` seconds until everything has been sent; return whether it has."""
        sending = self._sending
        if sending is not None:
            await asyncio.wait((sending,), timeout=patience)
            if not sending.done():
                self.cut()
        if self._receiving is not None:
            self._receiving.close()
        # The callback refers to the turn, which refers to this stream: break the cycle.
        self._on_broken = None
        return self._is_ended and not self.is_broken
