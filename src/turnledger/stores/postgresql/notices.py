"""Hints that another process has written.

After a write, a process notifies the others by LISTEN and NOTIFY on a connection of its own: inside the
transaction of the write, NOTIFY would make all commits wait for each other. Many writes share one
notification. A notification can be lost: a slow poll finds what was missed.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable
from contextvars import Context, copy_context
from typing import TYPE_CHECKING

from turnledger.stores.postgresql import connections
from turnledger.stores.postgresql.connections import DatabaseSettings
from turnledger.stores.postgresql.failures import reason
from turnledger.stores.postgresql.migrations import VERSION

if TYPE_CHECKING:
    from turnledger.stores.postgresql.connections import AnyConnection

logger = logging.getLogger(__name__)

CHANNEL = "turnledger"
AT_MOST_EVERY = 0.01
"""Seconds between two notifications of a process."""
POLL_EVERY = 1.0
"""Seconds between polls beside notifications."""
POLL_WITHOUT = 0.05
"""Seconds between polls where there are no notifications."""
NEWEST = "SELECT pg_snapshot_xmax(pg_current_snapshot())::text, coalesce(max(version), 0) FROM store"
"""The version is 0 while the database is being restored."""


class Notices:
    def __init__(self, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._name = os.urandom(8).hex()
        """Of this process in notifications."""
        self._watchers: list[tuple[Callable[[], None], Context]] = []
        self._written = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_sending = settings.pgbouncer
        """Whether a task sends, or none may."""
        self._connection: AnyConnection | None = None
        self._using = asyncio.Lock()
        self.version = VERSION
        """The schema version when it was last seen."""

    def watch(self, changed: Callable[[], None]) -> None:
        self._watchers.append((changed, copy_context()))
        if len(self._watchers) == 1:
            self._tasks.append(asyncio.create_task(self._poll(), name="turnledger-poll"))

    def send(self) -> None:
        """Notify the other processes soon."""
        self._written.set()
        if not self._is_sending:
            self._is_sending = True
            self._tasks.append(asyncio.create_task(self._send(), name="turnledger-notify"))

    async def _send(self) -> None:
        while True:
            await self._written.wait()
            self._written.clear()
            try:
                async with self._using, asyncio.timeout(self._settings.wait):
                    connection = await self._connected()
                    await connection.execute("SELECT pg_notify($1, $2)", CHANNEL, self._name)
            except Exception as error:  # also of a machine without a free thread to look up the host
                self._disconnect()
                logger.debug("no notification: %s", reason(error))
            await asyncio.sleep(AT_MOST_EVERY)

    async def _poll(self) -> None:
        """Call the watchers when the newest transaction is another one than at the last look."""
        seen = None
        while True:
            try:
                async with self._using, asyncio.timeout(self._settings.wait):
                    connection = await self._connected()
                    newest, self.version = await connection.fetchrow(NEWEST)
                if seen not in (None, newest):
                    self._call()
                seen = newest
            except Exception as error:  # as above
                self._disconnect()
                logger.debug("no poll: %s", reason(error))
            await asyncio.sleep(POLL_WITHOUT if self._settings.pgbouncer else POLL_EVERY)

    async def _connected(self) -> AnyConnection:
        """Return the connection for notices; listen again on a new one, whose start may follow changes."""
        if self._connection is None or self._connection.is_closed():
            self._connection = await connections.connect(self._settings)
            if not self._settings.pgbouncer:
                await self._connection.add_listener(CHANNEL, self._hear)
            self._call()
        return self._connection

    def _disconnect(self) -> None:
        """Drop a connection that failed: the peer may be gone without a word."""
        if self._connection is not None:
            self._connection.terminate()
        self._connection = None

    def _hear(self, _connection: object, _pid: int, _channel: str, sender: object) -> None:
        if sender != self._name:
            self._call()

    def _call(self) -> None:
        for changed, context in self._watchers:
            asyncio.get_running_loop().call_soon(changed, context=context)

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._disconnect()
