"""Lines on their way: a file that is told while it is made, and one that is read while it arrives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import AbstractContextManager

from starlette.types import Receive, Scope, Send

from turnledger.server.errors import ClientGone, Refused
from turnledger.server.wire.client_stream import Outlet, cut_of
from turnledger.server.wire.sse import shown_out

PIECE = 64 * 1024
"""Bytes that are sent at once, if there are as many."""


async def send_file(
    pieces: AsyncIterator[bytes],
    headers: Iterable[tuple[bytes, bytes]],
    scope: Scope,
    receive: Receive,
    send: Send,
    patience: float,
    stay: AbstractContextManager[None],
) -> None:
    """Send a file of any length, as fast as the client takes it. What is wrong before the first piece is
    raised; after that the connection is cut, so that nobody takes a part for the whole. `stay` may cancel
    it, too."""
    outlet = Outlet(send, receive, cut=cut_of(scope))
    try:
        with stay:
            async with outlet.until_gone():
                async for piece in _gathered(pieces):
                    if not outlet.has_begun:
                        outlet.begin(200, headers)
                    await outlet.flow(piece)
                if not outlet.has_begun:
                    outlet.begin(200, headers)
                outlet.end()
    except asyncio.CancelledError as cancelled:
        shown_out(cancelled)
        raise
    finally:
        await outlet.close(patience)


async def _gathered(pieces: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """The same in larger pieces: a message for each line would cost more than the line."""
    waiting: list[bytes] = []
    size = 0
    async for piece in pieces:
        waiting.append(piece)
        size += len(piece)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


async def arriving(receive: Receive, wait: float) -> AsyncIterator[bytes]:
    """The pieces of a body of any length. Raises Refused (408) where nothing comes for `wait` seconds, and
    ClientGone if the client leaves."""
    while True:
        try:
            async with asyncio.timeout(wait):
                message = await receive()
        except TimeoutError:
            told = f"Nothing more of the body arrived within {wait:g} seconds."
            raise Refused(408, "body_too_slow", told) from None
        if message["type"] == "http.disconnect":
            raise ClientGone
        if piece := message.get("body", b""):
            yield piece
        if not message.get("more_body", False):
            return
