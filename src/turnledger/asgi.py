"""Turns as streamed responses of Starlette and FastAPI applications. Needs Starlette.

async with await Ledger.open("sqlite:///chats.db") as ledger, TurnStreams() as streams:    # in the lifespan
    ...
return streams.start(ledger.turn("Hello", attach=True), runner)                            # in an endpoint

A turn that was started goes on when its client leaves; `follow` streams it again, from any event on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, Self, TypeAlias

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Send

from turnledger.chat import Chat
from turnledger.engine.events.reader import EventReader
from turnledger.engine.ports import Runner
from turnledger.engine.turn.block import TurnBlock
from turnledger.errors import InvalidInput, TurnAttached, TurnledgerError, TurnReplayed
from turnledger.model.event import Event, TurnFinished, TurnStarted
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import without_internals
from turnledger.server.errors import error_body, kind_of
from turnledger.server.wire.events import COMMENT, HEARTBEAT_EVERY, error_event, event_bytes

__all__ = ["TurnResponse", "TurnStreams", "error_response"]

log = logging.getLogger("turnledger")

Place: TypeAlias = tuple[TurnId, ConversationId]
Find: TypeAlias = Callable[[], Awaitable[tuple[EventReader, Place, asyncio.Task[None] | None]]]
"""Returns what reads the turn, and the task that runs it, if that is here."""


async def error_response(request: Request, problem: Exception) -> Response:
    """Respond to an error as the server does: `exception_handlers={TurnledgerError: error_response}`."""
    kind = kind_of(problem)
    headers = {name.decode(): value.decode() for name, value in kind.headers}
    return Response(error_body(problem), kind.status, headers, media_type="application/json")


class TurnResponse(StreamingResponse):
    """The events of a turn, as server-sent events that end with `turn.finished`.

    The headers `X-Turn-Id` and `X-Conversation-Id` name the turn. An error before its first output is raised,
    so that the response has an error status; a later one is in the last event. Comments are sent while the
    turn is silent.
    """

    media_type = "text/event-stream"

    def __init__(self, find: Find, on_left: Callable[[], object] = lambda: None) -> None:
        super().__init__(self._pieces(), headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"})
        self._find = find
        self._on_left = on_left

    async def stream_response(self, send: Send) -> None:
        pieces = aiter(self.body_iterator)
        first = await anext(pieces, b"")

        async def all_pieces() -> AsyncIterator[Any]:
            yield first
            async for piece in pieces:
                yield piece

        self.body_iterator = all_pieces()
        await super().stream_response(send)

    async def _pieces(self) -> AsyncIterator[bytes]:
        held, has_begun, is_finished = b"", False, False
        try:
            reader, (turn, conversation), task = await self._find()
            self.headers["X-Turn-Id"], self.headers["X-Conversation-Id"] = turn, conversation
            async for batch in _batches(reader):
                piece = b"".join(event_bytes(_shown(event)) for event in batch) or COMMENT
                if batch and not has_begun:
                    if isinstance(batch[-1], TurnStarted):
                        held = piece  # the next event decides about the status
                        continue
                    if task is not None and _failed_at_once(batch):
                        await task
                has_begun, is_finished = True, bool(batch) and isinstance(batch[-1], TurnFinished)
                yield held + piece
                held = b""
            if not is_finished and task is not None:
                await task  # it left the queue
        except TurnledgerError as problem:
            if not has_begun:
                raise
            yield error_event(problem)
        finally:
            if not is_finished:
                self._on_left()


def _shown(event: Event) -> Event:
    """Return the event as the client receives it: the text of a bug in the runner is for the log."""
    if isinstance(event, TurnFinished) and event.failure is not None:
        return replace(event, failure=without_internals(event.failure))
    return event


def _failed_at_once(batch: Sequence[Event]) -> bool:
    *before, last = batch
    is_failure = isinstance(last, TurnFinished) and last.failure is not None
    return is_failure and all(isinstance(event, TurnStarted) for event in before)


async def _batches(reader: EventReader) -> AsyncIterator[Sequence[Event]]:
    """Yield the events as they arrive, and nothing whenever there are none for a while."""
    step: asyncio.Task[Sequence[Event]] | None = None
    with reader:
        try:
            while True:
                step = step or asyncio.create_task(reader.next_batch(), name="turnledger events")
                await asyncio.wait((step,), timeout=HEARTBEAT_EVERY)
                if not step.done():
                    yield ()
                    continue
                batch, step = step.result(), None
                if not batch:
                    return
                yield batch
        finally:
            if step is not None:
                step.cancel()


class TurnStreams:
    """The turns that responses have started. Leaving it waits for them, up to `grace` seconds."""

    def __init__(self, *, grace: float = 20.0) -> None:
        self._grace = grace
        self._running: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._running:
            await asyncio.wait(self._running, timeout=self._grace)

    def start(self, block: TurnBlock, runner: Runner) -> TurnResponse:
        """Return a response that runs a turn and streams its events.

        The turn begins with the response, and goes on when the client leaves; with `gives_way=True` until
        another request wants its lane and nobody reads it. If another attempt answers, under the same
        idempotency_key, its events are streamed instead: with `attach=True` while it runs.
        """

        async def begin() -> tuple[EventReader, Place, asyncio.Task[None]]:
            found: asyncio.Future[Place] = asyncio.get_running_loop().create_future()
            block.when_queued(lambda conversation: _resolve(found, (block.id, conversation)))
            task = asyncio.create_task(self._run(block, runner, found), name="turnledger turn")
            self._running.add(task)
            task.add_done_callback(self._on_end)
            await asyncio.wait((found, task), return_when=asyncio.FIRST_COMPLETED)
            if not found.done():
                await task
            place = turn, conversation = found.result()
            owner = block._request.begin.target.owner
            return EventReader(block._process, owner, conversation, turn, 0), place, task

        return TurnResponse(begin, block.note_unread)

    async def _run(self, block: TurnBlock, runner: Runner, found: asyncio.Future[Place]) -> None:
        try:
            async with block as turn:
                _resolve(found, (turn.id, turn.conversation.id))
                await runner(turn)
        except TurnReplayed as replay:
            if found.done():
                raise  # it concerns another turn, which the runner requested
            found.set_result((replay.turn.id, replay.conversation))
        except TurnAttached as other:
            if found.done():
                raise
            found.set_result((other.turn, other.conversation))

    def _on_end(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        problem = None if task.cancelled() else task.exception()
        if problem is not None and not isinstance(problem, TurnledgerError):
            log.warning("the runner of a turn failed", exc_info=problem)

    def follow(self, chat: Chat, turn: str, *, after: int = 0) -> TurnResponse:
        """Return a response that streams the events of a turn of this chat numbered above `after`, which is
        the last id that the client has received; see Chat.events. Raises InvalidInput."""
        if after < 0:
            raise InvalidInput("after must be the number of an event, or 0 for all.")
        place = TurnId(turn), chat.id

        async def find() -> tuple[EventReader, Place, None]:
            return EventReader(chat._process, chat.owner, chat.id, place[0], after), place, None

        return TurnResponse(find)


def _resolve(found: asyncio.Future[Place], place: Place) -> None:
    if not found.done():
        found.set_result(place)
