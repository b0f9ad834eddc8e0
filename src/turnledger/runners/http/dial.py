"""Dialing: from the name of a host to a connected socket.

A host may have addresses that nobody answers at, often those of IPv6. The next one is tried when one has not
answered for a moment, and the first to answer is taken.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from itertools import chain, zip_longest
from typing import Any, TypeAlias

HEAD_START = 0.25
"""Seconds that an address is ahead of the next one."""

_Address: TypeAlias = "tuple[int, int, int, str, Any]"


async def dial(host: str, port: int, *, head_start: float = HEAD_START) -> socket.socket:
    """Connect; whoever calls owns the socket. Raises OSError, that of the first address, if none answers."""
    loop = asyncio.get_running_loop()
    found = in_turns(await resolved(host, port))
    if len(found) == 1:
        return await _connect(loop, found[0])
    return await _race(loop, found, head_start)


async def resolved(host: str, port: int) -> Sequence[_Address]:
    """The addresses of a host, at least one, the best first. Raises OSError."""
    return await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)


def in_turns(addresses: Sequence[_Address]) -> list[_Address]:
    """The addresses in their order, but those of both kinds by turns."""
    first = [each for each in addresses if each[0] == addresses[0][0]]
    others = [each for each in addresses if each[0] != addresses[0][0]]
    return [each for each in chain.from_iterable(zip_longest(first, others)) if each is not None]


async def _race(
    loop: asyncio.AbstractEventLoop, addresses: Sequence[_Address], head_start: float
) -> socket.socket:
    tries: list[asyncio.Task[socket.socket]] = []
    left = list(addresses)
    try:
        while left or not all(each.done() for each in tries):
            if left:
                tries.append(loop.create_task(_connect(loop, left.pop(0))))
            running = [each for each in tries if not each.done()]
            await asyncio.wait(
                running, timeout=head_start if left else None, return_when=asyncio.FIRST_COMPLETED
            )
            for each in tries:
                if each.done() and each.exception() is None:
                    tries.remove(each)
                    return each.result()
        raise tries[0].exception() or OSError("There is no address.")
    finally:
        for each in tries:
            each.add_done_callback(_close)
            each.cancel()


def _close(lost: asyncio.Task[socket.socket]) -> None:
    if not lost.cancelled() and lost.exception() is None:
        lost.result().close()


async def _connect(loop: asyncio.AbstractEventLoop, address: _Address) -> socket.socket:
    family, kind, protocol, _, place = address
    connecting = socket.socket(family, kind, protocol)
    try:
        connecting.setblocking(False)
        connecting.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A model may think for minutes: what stands in between must not forget the connection meanwhile.
        connecting.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        await loop.sock_connect(connecting, place)
    except BaseException:
        connecting.close()
        raise
    return connecting
