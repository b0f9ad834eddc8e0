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
from turnledger.server.access.share_view import changes_for_reader
from turnledger.server.errors import shutdown_error
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.service import Service
from turnledger.server.wire.events import HEARTBEAT_EVERY
from turnledger.server.wire.sse import Stream, StreamEndpoint

POSITION = b"position"
"""The purpose of the seal on event ids."""
INVALID_POSITION = "?"
"""Stands for an invalid position."""
CACHED_BATCHES, CACHED_BYTES = 64, 4 * 1024 * 1024
"""Batches that are cached as bytes, and their bytes: most readers of one owner receive the same."""
PIECE_BYTES = 64 * 1024
"""Bytes, or a little more, sent at once: this much is buffered for each reader that does not read."""


def endpoints(service: Service) -> list[Endpoint]:
    return [
        Endpoint(
            route="GET /api/events",
            handler=StreamEndpoint(service.streams, LiveUpdates(service).follow),
            needs=TokenScope.CHATS_READ,
            summary="Follow changes to the owner's chats and their turns; as a visitor, to the shared chat.",
            headers={
                "Last-Event-ID": Parameter(
                    "The id of the last event received: later events are sent, or a `gap` if they are no"
                    " longer stored."
                )
            },
            is_stream=True,
            is_for_readers=True,
            content={200: {"text/event-stream": {}}},
            responses={200: "Events without end, beginning with `start`; an `error` event ends the stream."},
        )
    ]


class LiveUpdates:
    """The change streams of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: dict[ChangeReader, bool] = {}
        """Whether each stream has sent something since the last heartbeat."""
        self._heartbeat_task: asyncio.Task[None] | None = None
        self._encoded: dict[int, tuple[Sequence[LiveChange], list[bytes]]] = {}
        self._encoded_bytes = 0

    @asynccontextmanager
    async def follow(self, principal: Principal, request: Request) -> AsyncIterator[Stream]:
        service, after = self._service, request.headers.get("last-event-id") or None
        seal = await service.cursor_seal.get()
        if after is not None:
            after = seal.unseal(POSITION, after) or INVALID_POSITION
        with service.host.follow(service.chats(principal), after=after) as reader:
            self._add(reader)
            if after is not None:
                reader.wake()  # on reconnect, send a comment immediately, even without changes
            try:
                yield Stream(self._encode_changes(reader, seal, is_visitor=principal.is_reader))
            finally:
                self._remove(reader)

    async def _encode_changes(
        self, reader: ChangeReader, seal: Seal, *, is_visitor: bool
    ) -> AsyncIterator[bytes]:
        """Yield changes until the server shuts down, which does not wait for streams."""
        while not self._service.shutting_down.is_set():
            batch = await reader.next_batch()
            if batch:
                encode_batch = self._encode_for_visitor if is_visitor else self._encode_batch
                for piece in encode_batch(batch, seal):
                    self._open[reader] = True
                    yield piece
            elif not self._service.shutting_down.is_set():
                # With the id, a client that reconnects after an hour of silence continues here.
                yield b": \nid: %s\n\n" % seal_position(seal, reader.position).encode()
        raise shutdown_error()

    def _encode_for_visitor(self, batch: Sequence[LiveChange], seal: Seal) -> list[bytes]:
        return join_events([encode_change(change, seal) for change in changes_for_reader(batch)])

    def _encode_batch(self, batch: Sequence[LiveChange], seal: Seal) -> list[bytes]:
        cached = self._encoded.get(id(batch))
        if cached is None:  # the cache keeps its batches alive, so their ids are unique
            cached = batch, join_events([encode_change(change, seal) for change in batch])
            self._encoded[id(batch)] = cached
            self._encoded_bytes += sum(map(len, cached[1]))
            while len(self._encoded) > CACHED_BATCHES or self._encoded_bytes > CACHED_BYTES:
                _, dropped = self._encoded.pop(next(iter(self._encoded)))
                self._encoded_bytes -= sum(map(len, dropped))
        return cached[1]

    def _add(self, reader: ChangeReader) -> None:
        self._open[reader] = True
        if self._heartbeat_task is None:
            self._heartbeat_task = asyncio.create_task(
                self._send_heartbeats(), name="turnledger live updates"
            )

    def _remove(self, reader: ChangeReader) -> None:
        del self._open[reader]
        if not self._open and self._heartbeat_task is not None:
            self._heartbeat_task.cancel()
            self._heartbeat_task = None
            self._encoded.clear()
            self._encoded_bytes = 0

    async def _send_heartbeats(self) -> None:
        """Wake silent readers for a heartbeat, and all of them at shutdown. A timer for each would cost more
        than what they are sent."""
        while not self._service.shutting_down.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT_EVERY):
                    await self._service.shutting_down.wait()
            for reader, has_sent in self._open.items():
                if not has_sent or self._service.shutting_down.is_set():
                    reader.wake()
                self._open[reader] = False


def join_events(events: Sequence[bytes]) -> list[bytes]:
    """Join events into a few pieces that never split one: an error may follow any piece."""
    pieces: list[list[bytes]] = []
    room = 0
    for each in events:
        if len(each) > room:
            pieces.append([])
            room = PIECE_BYTES
        pieces[-1].append(each)
        room -= len(each)
    return [b"".join(piece) for piece in pieces]


def seal_position(seal: Seal, position: Position) -> str:
    """Seal a position, which counts the changes of all owners."""
    return seal.seal(POSITION, str(position))


def encode_change(change: LiveChange, seal: Seal) -> bytes:
    """Encode a change, with its position as the id to resume from."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        seal_position(seal, change.position).encode(),
        change.kind.encode(),
        encode(show_change(change)),
    )
