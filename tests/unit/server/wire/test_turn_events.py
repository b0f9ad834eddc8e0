"""The end of a stream of events reaches its client, whatever ends it, and nothing of it stays behind."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

from starlette.types import Message

from turnledger.model.event import Event, TurnStarted
from turnledger.server.errors import Refused
from turnledger.server.wire.sse import send_events

FOR_EVER = 3600.0


class Reader:
    """A client that takes nothing more once it stalls."""

    def __init__(self) -> None:
        self.body = b""
        self.reads = asyncio.Event()
        self.reads.set()
        self._left = asyncio.Event()

    async def send(self, message: Message) -> None:
        await self.reads.wait()
        self.body += message.get("body", b"")

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    def leave(self) -> None:
        self._left.set()
        self.reads.set()


class Door:
    """Shows one reader out as often as it is asked to, while he stays."""

    def __init__(self) -> None:
        self._inside: asyncio.Task[object] | None = None

    @contextmanager
    def stay(self) -> Iterator[None]:
        self._inside = asyncio.current_task()
        try:
            yield
        finally:
            self._inside = None

    def show(self) -> None:
        if self._inside is not None:
            self._inside.cancel(Refused(401, "token_revoked", "This token was revoked."))


async def one_and_no_more() -> AsyncIterator[Event]:
    yield TurnStarted(number=1)
    await asyncio.Event().wait()


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_a_slow_reader_is_shown_out_once_and_told_why() -> None:
    reader, door, others = Reader(), Door(), asyncio.all_tasks()
    sending = asyncio.create_task(
        send_events(one_and_no_more(), {}, reader.receive, reader.send, FOR_EVER, door.stay())
    )
    await settle()
    reader.reads.clear()
    for _ in range(3):  # the end waits for him to read, and somebody looks again
        door.show()
        await settle()
    assert not sending.done()
    reader.reads.set()
    await sending
    assert b"turn.started" in reader.body
    assert b"token_revoked" in reader.body
    await settle()
    assert asyncio.all_tasks() == others


async def test_a_client_that_leaves_before_the_last_has_left_cancels_nobody() -> None:
    reader, others = Reader(), asyncio.all_tasks()
    ends = asyncio.Event()

    async def events() -> AsyncIterator[Event]:
        yield TurnStarted(number=1)
        await ends.wait()

    sending = asyncio.create_task(send_events(events(), {}, reader.receive, reader.send, FOR_EVER))
    await settle()
    reader.reads.clear()
    ends.set()
    await settle()
    assert not sending.done()
    reader.leave()
    await sending
    await settle()
    assert asyncio.all_tasks() == others
