"""The events of a turn on the wire, each with its number, so that a reader can go on where it was cut off."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractContextManager, nullcontext

from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from turnledger.errors import TurnledgerError
from turnledger.model import codec
from turnledger.model.event import Event, TurnFinished
from turnledger.server.admission import Principal
from turnledger.server.discreet_model import discreet_failure
from turnledger.server.errors import error_body, shutting_down
from turnledger.server.heartbeats import Heartbeats
from turnledger.server.outlet import Outlet, cut_of
from turnledger.server.staying import reason_of

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
