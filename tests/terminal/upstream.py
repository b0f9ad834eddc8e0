"""A scripted upstream for programs in other processes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ReceivedRequest, ScriptedUpstream, Step


class ScriptedModelServer:
    """A ScriptedUpstream on a loop in another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: ScriptedUpstream) -> None:
        self._loop = loop
        self._upstream = upstream

    @property
    def url(self) -> str:
        return self._upstream.url

    @property
    def received(self) -> list[ReceivedRequest]:
        return self._upstream.received

    @property
    def requested_models(self) -> list[str]:
        return [each.body["model"] for each in self.received]

    @property
    def last_messages(self) -> list[Any]:
        """Messages of the last request."""
        return list(self.received[-1].body["messages"])

    def add_script(self, *script: Step) -> None:
        """Append a script for the next request without one."""
        self._loop.call_soon_threadsafe(self._upstream.scripts.append, script)

    def forget_scripts(self) -> None:
        self._loop.call_soon_threadsafe(self._upstream.scripts.clear)

    def release(self, gate: Gate) -> None:
        self._loop.call_soon_threadsafe(gate.release)


@contextmanager
def run_scripted_model(*scripts: Sequence[Step]) -> Iterator[ScriptedModelServer]:
    loop = asyncio.new_event_loop()
    running = threading.Thread(target=loop.run_forever, name="scripted upstream")
    running.start()
    upstream = ScriptedUpstream(*scripts, otherwise=["Well."])
    try:
        asyncio.run_coroutine_threadsafe(upstream.__aenter__(), loop).result(10)
        yield ScriptedModelServer(loop, upstream)
    finally:
        asyncio.run_coroutine_threadsafe(upstream.__aexit__(), loop).result(10)
        loop.call_soon_threadsafe(loop.stop)
        running.join()
        loop.close()
