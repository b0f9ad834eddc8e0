"""Accepts connections from a socket that workers share, so that each gets an equal number.

Otherwise the first worker to wake takes most connections that come at once, and keeps them, since clients
reuse connections. So a worker with more than its share pauses for a moment.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from turnledger.server.ops.counters import Counters
from turnledger.server.ops.logs import log

CONNECTIONS = "connections"
PAUSE = 0.005
"""Seconds for which a worker with more than its share leaves a connection to others."""
IDLE_PAUSES, ACCEPTED_AT_ONCE = 3, 64
"""After this many pauses in a row in which the others accepted none, it accepts this many: they are dead or
busy."""
SHORTAGE_PAUSE = 1.0
"""Seconds to wait when the system has no room for another connection."""

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Accepts connections until it is closed. Implements the part of asyncio's Server that uvicorn uses."""

    def __init__(
        self,
        listener: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        counters: Counters,
        workers: int,
    ) -> None:
        self._listener = listener
        self._make_protocol = make_protocol
        self._counters = counters
        self._workers = workers
        self._own = 0
        self._others = 0
        """Connections of the others when this worker paused."""
        self._idle_pauses = 0
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._connecting: set[asyncio.Task[object]] = set()
        self._is_closed = False
        self._has_shortage = False
        listener.setblocking(False)
        self._loop.add_reader(listener, self._on_connection)

    def connection_opened(self) -> None:
        self._own += 1
        self._counters.add(CONNECTIONS, "")

    def connection_closed(self) -> None:
        self._own -= 1
        self._counters.add(CONNECTIONS, "", -1)

    def close(self) -> None:
        """Accept no more connections. Pending ones are left to the other workers."""
        if not self._is_closed:
            self._is_closed = True
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._listener)
            if self._workers == 1:
                self._listener.close()

    async def wait_closed(self) -> None:
        """Do nothing; uvicorn calls this."""

    def _on_connection(self) -> None:
        if self._own * self._workers > self._counters.sum(CONNECTIONS):
            self._pause_for(PAUSE)
        else:
            self._accept()

    def _pause_for(self, seconds: float) -> None:
        self._others = self._counters.sum(CONNECTIONS) - self._own
        self._loop.remove_reader(self._listener)
        self._pause = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listener, self._on_connection)
        is_alone = self._counters.sum(CONNECTIONS) - self._own <= self._others
        self._idle_pauses = self._idle_pauses + 1 if is_alone else 0
        for _ in range(ACCEPTED_AT_ONCE if self._idle_pauses >= IDLE_PAUSES else 1):
            if not self._accept():
                break

    def _accept(self) -> bool:
        try:
            connection, _ = self._listener.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False  # another worker was faster, or the client has left
        except OSError as problem:
            if problem.errno not in _SHORTAGES:
                raise
            if not self._has_shortage:  # logged once, not at every attempt
                log.error("connection_not_taken", problem=problem.strerror, connections=self._own)
            self._has_shortage = True
            if self._pause is None:
                self._pause_for(SHORTAGE_PAUSE)
            return False
        self._has_shortage = False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connecting = self._loop.create_task(
            self._loop.connect_accepted_socket(self._make_protocol, connection)
        )
        self._connecting.add(connecting)
        connecting.add_done_callback(self._connecting.discard)
        return True
