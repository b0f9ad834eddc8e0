"""/api/events: a live stream of the changes to an owner's chats."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress

from starlette.requests import Request

from turnledger.api.json import encode
from turnledger.api.views import show_change
from turnledger.engine.feed import ChangeReader
from turnledger.model.access.token import TokenScope
from turnledger.model.change import LiveChange, Position
from turnledger.server.access.auth import Principal
from turnledger.server.access.cursors import Seal
from turnledger.server.errors import shutting_down
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.service import Service
from turnledger.server.wire.sse import Stream, StreamEndpoint

HEARTBEAT = 15.0
"""Seconds. A stream that was silent for this long sends a comment, after twice the time at most."""
POSITION = b"position"
"""The purpose of the seal on event ids."""
UNKNOWN = "?"
"""Stands for an invalid position."""
REMEMBERED, REMEMBERED_BYTES = 64, 4 * 1024 * 1024
"""Batches that are cached as bytes, and their bytes: most readers of one owner receive the same."""
PIECE = 64 * 1024
"""Bytes, or a little more, sent at once: this much is buffered for each reader that does not read."""


def endpoints(service: Service) -> list[Endpoint]:
    return [
        Endpoint(
            method="GET",
            path="/api/events",
            answer=StreamEndpoint(service.streams, LiveUpdates(service).follow),
            needs=TokenScope.CHATS_READ,
            summary="Follow what happens to one's chats and their turns, in whichever worker.",
            tag="chats",
            headers={
                "Last-Event-ID": Parameter(
                    "The id of the last event that was heard: those after it are sent, or a `gap` if they"
                    " are not kept any more."
                )
            },
            is_stream=True,
            content={200: {"text/event-stream": {}}},
            answers={200: "The events, without end, the first of them `start`; or up to one called `error`."},
        )
    ]


class LiveUpdates:
    """The change streams of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: dict[ChangeReader, bool] = {}
        """Whether each stream has sent something since the last heartbeat."""
        self._watching: asyncio.Task[None] | None = None
        self._encoded: dict[int, tuple[Sequence[LiveChange], list[bytes]]] = {}
        self._encoded_bytes = 0

    @asynccontextmanager
    async def follow(self, who: Principal, request: Request) -> AsyncIterator[Stream]:
        service, after = self._service, request.headers.get("last-event-id") or None
        seal = await service.sealing.seal()
        if after is not None:
            after = seal.open(POSITION, after) or UNKNOWN
        with service.chats(who).follow(after=after) as following:
            self._join(following)
            if after is not None:
                following.wake()  # on reconnect, send a comment immediately, even without changes
            try:
                yield Stream(self._pieces(following, seal))
            finally:
                self._leave(following)

    async def _pieces(self, following: ChangeReader, seal: Seal) -> AsyncIterator[bytes]:
        """Yield changes until the server shuts down, which does not wait for streams."""
        while not self._service.shutting_down.is_set():
            batch = await following.next_batch()
            if batch:
                self._open[following] = True
                for piece in self._bytes_of(batch, seal):
                    yield piece
            elif not self._service.shutting_down.is_set():
                # With the id, a client that reconnects after an hour of silence continues here.
                yield b": \nid: %s\n\n" % sealed(seal, following.position).encode()
        raise shutting_down()

    def _bytes_of(self, batch: Sequence[LiveChange], seal: Seal) -> list[bytes]:
        known = self._encoded.get(id(batch))
        if known is None:  # the cache keeps its batches alive, so their ids are unique
            known = batch, pieces_of([change_bytes(change, seal) for change in batch])
            self._encoded[id(batch)] = known
            self._encoded_bytes += sum(map(len, known[1]))
            while len(self._encoded) > REMEMBERED or self._encoded_bytes > REMEMBERED_BYTES:
                _, forgotten = self._encoded.pop(next(iter(self._encoded)))
                self._encoded_bytes -= sum(map(len, forgotten))
        return known[1]

    def _join(self, following: ChangeReader) -> None:
        self._open[following] = True
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="turnledger live updates")

    def _leave(self, following: ChangeReader) -> None:
        del self._open[following]
        if not self._open and self._watching is not None:
            self._watching.cancel()
            self._watching = None
            self._encoded.clear()
            self._encoded_bytes = 0

    async def _watch(self) -> None:
        """Wake silent readers for a heartbeat, and all of them at shutdown. A timer for each would cost more
        than what they are sent."""
        while not self._service.shutting_down.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await self._service.shutting_down.wait()
            for following, has_sent in self._open.items():
                if not has_sent or self._service.shutting_down.is_set():
                    following.wake()
                self._open[following] = False


def pieces_of(events: Sequence[bytes]) -> list[bytes]:
    """Join events into a few pieces that never split one: an error may follow any piece."""
    pieces: list[list[bytes]] = []
    room = 0
    for each in events:
        if len(each) > room:
            pieces.append([])
            room = PIECE
        pieces[-1].append(each)
        room -= len(each)
    return [b"".join(piece) for piece in pieces]


def sealed(seal: Seal, position: Position) -> str:
    """Seal a position, which counts the changes of all owners."""
    return seal.close(POSITION, str(position))


def change_bytes(change: LiveChange, seal: Seal) -> bytes:
    """Encode a change, with its position as the id to resume from."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        sealed(seal, change.position).encode(),
        change.kind.encode(),
        encode(show_change(change)),
    )
