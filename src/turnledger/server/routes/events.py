"""/api/events: what happens to an owner's chats, as it happens."""

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
"""Seconds; who was told nothing for as long is told that, within twice of it."""
POSITION = b"position"
"""What ids of events are sealed for."""
UNKNOWN = "?"
"""No position."""
REMEMBERED, REMEMBERED_BYTES = 64, 4 * 1024 * 1024
"""Batches that are remembered as bytes, and how many bytes: of those who follow one owner, most are sent the
same."""
PIECE = 64 * 1024
"""Bytes, or little more, that are sent at once: of many who do not read, each holds so much."""


def endpoints(service: Service) -> list[Endpoint]:
    """`GET /api/events`."""
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
    """The streams of one server."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._open: dict[ChangeReader, bool] = {}
        """Whether each was told something since all were looked at."""
        self._watching: asyncio.Task[None] | None = None
        self._encoded: dict[int, tuple[Sequence[LiveChange], list[bytes]]] = {}
        self._encoded_bytes = 0

    @asynccontextmanager
    async def follow(self, who: Principal, request: Request) -> AsyncIterator[Stream]:
        """Follow the changes of an owner."""
        service, after = self._service, request.headers.get("last-event-id") or None
        seal = await service.sealing.seal()
        if after is not None:
            after = seal.open(POSITION, after) or UNKNOWN
        with service.chats(who).follow(after=after) as following:
            self._join(following)
            if after is not None:
                following.wake()  # who comes back learns at once that he is heard, also where nothing is new
            try:
                yield Stream(self._pieces(following, seal))
            finally:
                self._leave(following)

    async def _pieces(self, following: ChangeReader, seal: Seal) -> AsyncIterator[bytes]:
        """What is sent, piece by piece, until the server ends: it waits for nobody who only listens."""
        while not self._service.shutting_down.is_set():
            batch = await following.next_batch()
            if batch:
                self._open[following] = True
                for piece in self._bytes_of(batch, seal):
                    yield piece
            elif not self._service.shutting_down.is_set():
                # Who is cut off after an hour of silence goes on from here.
                yield b": \nid: %s\n\n" % sealed(seal, following.position).encode()
        raise shutting_down()

    def _bytes_of(self, batch: Sequence[LiveChange], seal: Seal) -> list[bytes]:
        known = self._encoded.get(id(batch))
        if known is None:  # what is remembered is held, so no other has the same id
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
        """Wake those to whom nothing was told for a while, and at last everybody. A timer for each of them
        would cost more than what they are told."""
        while not self._service.shutting_down.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(HEARTBEAT):
                    await self._service.shutting_down.wait()
            for following, is_told in self._open.items():
                if not is_told or self._service.shutting_down.is_set():
                    following.wake()
                self._open[following] = False


def pieces_of(told: Sequence[bytes]) -> list[bytes]:
    """The same in a few pieces, none of which ends within an event: an error may come behind any."""
    pieces: list[list[bytes]] = []
    room = 0
    for each in told:
        if len(each) > room:
            pieces.append([])
            room = PIECE
        pieces[-1].append(each)
        room -= len(each)
    return [b"".join(piece) for piece in pieces]


def sealed(seal: Seal, position: Position) -> str:
    """A position as it is told: it counts what all owners do."""
    return seal.close(POSITION, str(position))


def change_bytes(change: LiveChange, seal: Seal) -> bytes:
    """One change, with its position to go on from and its kind."""
    return b"id: %s\nevent: %s\ndata: %s\n\n" % (
        sealed(seal, change.position).encode(),
        change.kind.encode(),
        encode(show_change(change)),
    )
