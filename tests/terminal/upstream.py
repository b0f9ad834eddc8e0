"""A model that says what a test has written down, to be asked by programs in other processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ReceivedRequest, ScriptedUpstream, Step


class Scripted:
    """A scripted upstream on a loop of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: ScriptedUpstream) -> None:
        self._loop = loop
        self._upstream = upstream

    @property
    def url(self) -> str:
        return self._upstream.url

    @property
    def received(self) -> list[ReceivedRequest]:
        """The requests that it got."""
        return self._upstream.received

    @property
    def asked_models(self) -> list[str]:
        """By which names it was asked."""
        return [each.body["model"] for each in self.received]

    @property
    def last_messages(self) -> list[Any]:
        """What it was told when it was last asked."""
        return list(self.received[-1].body["messages"])

    def says(self, *script: Step) -> None:
        """Have it say this the next time that it is asked for which nothing else is written."""
        self._loop.call_soon_threadsafe(self._upstream.scripts.append, script)

    def forget_scripts(self) -> None:
        self._loop.call_soon_threadsafe(self._upstream.scripts.clear)

    def release(self, gate: Gate) -> None:
        """Let it go on that waits there."""
        self._loop.call_soon_threadsafe(gate.release)


@contextmanager
def scripted(*scripts: Sequence[Step]) -> Iterator[Scripted]:
    """Have a scripted upstream for a while."""
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever, name="scripted upstream")
    running.start()
    upstream = ScriptedUpstream(*scripts, otherwise=["Well."])
    try:
        asyncio.run_coroutine_threadsafe(upstream.__aenter__(), loop).result(10)
        yield Scripted(loop, upstream)
    finally:
        asyncio.run_coroutine_threadsafe(upstream.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        loop.close()
