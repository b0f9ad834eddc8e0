"""The connections of one process, and who may use how many. Own classes, because those of asyncpg and asyncio
take as much time as the operation of a turn."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Any

from turnledger.stores.postgresql.connections import Connector, DatabaseSettings, QuietConnection
from turnledger.stores.postgresql.failures import FAILED

UNUSED = 300.0
"""Seconds after which connections are closed that were not needed meanwhile."""


class ConnectionPool:
    """Opens connections when they are needed, up to a limit, and lends them one user at a time."""

    def __init__(self, settings: DatabaseSettings) -> None:
        self._settings = settings
        self._connector = Connector(settings)
        self._loop = asyncio.get_running_loop()
        self._idle: list[QuietConnection] = []
        """The one used last at the end."""
        self._spare = 0
        """How many were idle all the time since the last look."""
        self._open = 0
        """Connections, and those being opened."""
        self._waiting: deque[asyncio.Future[QuietConnection | None]] = deque()
        """Those who wait for a connection, or (None) for the right to open one."""
        self._look = self._loop.call_later(UNUSED, self._close_spare)

    async def acquire(self) -> QuietConnection:
        """Return a connection, for `release`. Raises TimeoutError, or the error of opening one."""
        while self._idle:
            connection = self._idle.pop()
            if connection.is_usable:
                self._spare = min(self._spare, len(self._idle))
                return connection
            self._open -= 1
        if self._open < self._settings.pool:
            self._open += 1
            return await self._connect()
        return await self._wait() or await self._connect()

    async def _wait(self) -> QuietConnection | None:
        turn: asyncio.Future[QuietConnection | None] = self._loop.create_future()
        self._waiting.append(turn)
        # Not `asyncio.timeout`: a cancellation does not reach a write.
        timer = self._loop.call_later(self._settings.wait, _time_out, turn, self._settings.wait)
        try:
            return await turn
        except BaseException:
            if _has_result(turn):
                self._hand_on(turn.result())
            raise
        finally:
            timer.cancel()

    async def _connect(self) -> QuietConnection:
        # In a task of its own: the driver bounds its time by a cancellation.
        opening = self._loop.create_task(self._connector.connect())
        try:
            return await opening
        except BaseException:
            if _has_result(opening):
                opening.result().terminate()
            self._hand_on(None)
            raise

    def release(self, connection: QuietConnection) -> None:
        """Take back a connection, or what is left of it."""
        if connection.is_usable:
            self._hand_on(connection)
        else:
            connection.terminate()
            self._hand_on(None)

    def _hand_on(self, connection: QuietConnection | None) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(connection)
                return
        if connection is None:
            self._open -= 1
        else:
            self._idle.append(connection)

    def _close_spare(self) -> None:
        unused, self._idle = self._idle[: self._spare], self._idle[self._spare :]
        for connection in unused:
            connection.terminate()
        self._open -= len(unused)
        self._spare = len(self._idle)
        self._look = self._loop.call_later(UNUSED, self._close_spare)

    async def close(self) -> None:
        """Close the connections. All are back, and nobody asks for another."""
        self._look.cancel()
        await self._connector.close()
        # Side by side: a host that is silent takes the time of one.
        await asyncio.gather(*(self._close(each) for each in self._idle))

    async def _close(self, connection: QuietConnection) -> None:
        try:
            await connection.close(timeout=self._settings.wait)
        except FAILED:
            connection.terminate()


class OwnerGate:
    """Bounds how many writes of each owner run at once; the others wait in order. Those of all owners (None)
    run one at a time: their transactions do so anyway."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._running: dict[str | None, int] = {}
        self._waiting: dict[str | None, deque[asyncio.Future[None]]] = {}

    async def enter(self, owner: str | None) -> None:
        running = self._running.get(owner, 0)
        if running < (1 if owner is None else self._most):
            self._running[owner] = running + 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(owner, deque()).append(turn)
        try:
            await turn
        except BaseException:
            if _has_result(turn):
                self.leave(owner)
            raise

    def leave(self, owner: str | None) -> None:
        """Let the next one in, who takes over the place."""
        waiting = self._waiting.get(owner)
        while waiting:
            turn = waiting.popleft()
            if not waiting:
                del self._waiting[owner]
            if not turn.done():
                turn.set_result(None)
                return
        self._running[owner] -= 1
        if not self._running[owner]:
            del self._running[owner]


def _time_out(turn: asyncio.Future[QuietConnection | None], wait: float) -> None:
    if not turn.done():
        turn.set_exception(TimeoutError(f"no connection within {wait:g} seconds"))


def _has_result(outcome: asyncio.Future[Any]) -> bool:
    return outcome.done() and not outcome.cancelled() and outcome.exception() is None
