"""The lease of a process, renewed by a thread with an event loop and a connection of its own: whatever the
main event loop is doing, and however busy the pool is."""

from __future__ import annotations

import asyncio
import logging
import threading

from turnledger.model.ids import LeaseId
from turnledger.stores.postgresql import connections
from turnledger.stores.postgresql.connections import DatabaseSettings
from turnledger.stores.postgresql.failures import FAILED, reason
from turnledger.stores.postgresql.tables.queries import QUERIES

logger = logging.getLogger(__name__)


AGAIN = 0.5
"""Seconds until a beat that failed is tried again."""


class LeaseThread:
    def __init__(self, settings: DatabaseSettings, id: LeaseId, every: float) -> None:
        self._settings = settings
        self._id = id
        self._every = every
        self._ready = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._ended: asyncio.Event | None = None
        self._thread = threading.Thread(target=self._run, name="turnledger-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing, and wait for the thread. Blocks at most for one beat."""
        self._ready.wait()
        if self._loop is not None and self._ended is not None:
            self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        asyncio.run(self._renew())

    async def _renew(self) -> None:
        self._loop, self._ended = asyncio.get_running_loop(), asyncio.Event()
        self._ready.set()
        connection, wait = None, self._every
        while not await self._is_over(wait):
            try:
                if connection is None or connection.is_closed():
                    connection = await connections.connect(self._settings)
                await connection.execute(QUERIES["beat"], self._id.raw)
                wait = self._every
            except FAILED as error:
                wait = min(AGAIN, self._every)
                logger.warning("the lease was not renewed, next try soon: %s", reason(error))
        if connection is not None:
            connection.terminate()

    async def _is_over(self, wait: float) -> bool:
        """Wait until the next beat is due; return whether the store was closed."""
        assert self._ended is not None  # noqa: S101 - set before the first call
        try:
            async with asyncio.timeout(wait):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True
