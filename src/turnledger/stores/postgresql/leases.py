"""The lease of a process, renewed by a thread with an event loop and a connection of its own: whatever the
main event loop is doing, and however busy the pool is."""

from __future__ import annotations

import asyncio
import logging
import threading
from typing import TYPE_CHECKING

from turnledger.model.ids import LeaseId
from turnledger.stores.postgresql import connections
from turnledger.stores.postgresql.connections import DatabaseSettings
from turnledger.stores.postgresql.failures import reason
from turnledger.stores.postgresql.tables.queries import QUERIES

if TYPE_CHECKING:
    from turnledger.stores.postgresql.connections import AnyConnection

logger = logging.getLogger(__name__)


AGAIN = 0.5
"""Seconds until a beat that failed is tried again."""


class LeaseThread:
    def __init__(self, settings: DatabaseSettings, id: LeaseId, every: float) -> None:
        self._settings = settings
        self._id = id
        self._every = every
        # Made here, so that a process without free files learns of it.
        self._loop = asyncio.new_event_loop()
        self._ended = asyncio.Event()
        self._connection: AnyConnection | None = None
        self._thread = threading.Thread(target=self._run, name="turnledger-lease", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop renewing, and wait for the thread. Blocks at most for one beat."""
        self._loop.call_soon_threadsafe(self._ended.set)
        self._thread.join()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._renew())

    async def _renew(self) -> None:
        wait = self._every
        has_failed = False
        while not await self._is_over(wait):
            try:
                # A dead peer must not cost more than one beat: the lease lasts only a few.
                async with asyncio.timeout(self._every):
                    await self._beat()
                wait = self._every
                if has_failed:
                    logger.info("the lease is renewed again")
                has_failed = False
            except Exception as error:  # also of a machine without a free thread to look up the host
                self._disconnect()
                wait = min(AGAIN, self._every)
                if not has_failed:
                    logger.warning("the lease is not renewed, and tried again: %s", reason(error))
                has_failed = True
        self._disconnect()

    async def _beat(self) -> None:
        if self._connection is None or self._connection.is_closed():
            self._connection = await connections.connect(self._settings)
        await self._connection.execute(QUERIES["beat"], self._id.raw)

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None

    async def _is_over(self, wait: float) -> bool:
        """Wait until the next beat is due; return whether the store was closed."""
        try:
            async with asyncio.timeout(wait):
                await self._ended.wait()
        except TimeoutError:
            return False
        return True
