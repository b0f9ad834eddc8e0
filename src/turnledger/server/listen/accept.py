"""Accepts connections from a socket that workers share, so that each gets an equal number.

Otherwise the first worker to wake takes most connections that come at once, and keeps them, since clients
reuse connections. So a worker with more than its share pauses for a moment.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections.abc import Callable

from turnledger.server.ops.counters import Board
from turnledger.server.ops.logs import log

CONNECTIONS = "connections"
STEP_BACK = 0.005
"""Seconds for which a worker with more than its share leaves a connection to others."""
IN_VAIN, AT_ONCE = 3, 64
"""After this many pauses in a row in which the others accepted none, it accepts this many: they are dead or
busy."""
SHORTAGE_PAUSE = 1.0
"""Seconds to wait when the system has no room for another connection."""

_SHORTAGES = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Acceptor:
    """Accepts connections until it is closed. Implements the part of asyncio's Server that uvicorn uses."""

    def __init__(
        self,
        listening: socket.socket,
        make_protocol: Callable[[], asyncio.Protocol],
        board: Board,
        workers: int,
    ) -> None:
        self._listening = listening
        self._make_protocol = make_protocol
        self._board = board
        self._workers = workers
        self._own = 0
        self._others = 0
        """Connections of the others when this worker paused."""
        self._in_vain = 0
        self._loop = asyncio.get_running_loop()
        self._pause: asyncio.TimerHandle | None = None
        self._joining: set[asyncio.Task[object]] = set()
        self._is_closed = False
        self._is_short = False
        listening.setblocking(False)
        self._loop.add_reader(listening, self._connection_waits)

    def came(self) -> None:
        self._own += 1
        self._board.add(CONNECTIONS, "")

    def went(self) -> None:
        self._own -= 1
        self._board.add(CONNECTIONS, "", -1)

    def close(self) -> None:
        """Accept no more connections. Pending ones are left to the other workers."""
        if not self._is_closed:
            self._is_closed = True
            if self._pause is not None:
                self._pause.cancel()
            self._loop.remove_reader(self._listening)
            if self._workers == 1:
                self._listening.close()

    async def wait_closed(self) -> None:
        """Do nothing; uvicorn calls this."""

    def _connection_waits(self) -> None:
        if self._own * self._workers > self._board.sum(CONNECTIONS):
            self._step_back(STEP_BACK)
        else:
            self._take()

    def _step_back(self, seconds: float) -> None:
        self._others = self._board.sum(CONNECTIONS) - self._own
        self._loop.remove_reader(self._listening)
        self._pause = self._loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._pause = None
        self._loop.add_reader(self._listening, self._connection_waits)
        is_alone = self._board.sum(CONNECTIONS) - self._own <= self._others
        self._in_vain = self._in_vain + 1 if is_alone else 0
        for _ in range(AT_ONCE if self._in_vain >= IN_VAIN else 1):
            if not self._take():
                break

    def _take(self) -> bool:
        try:
            connection, _ = self._listening.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return False  # another worker was faster, or the client has left
        except OSError as problem:
            if problem.errno not in _SHORTAGES:
                raise
            if not self._is_short:  # logged once, not at every attempt
                log.error("connection_not_taken", problem=problem.strerror, connections=self._own)
            self._is_short = True
            if self._pause is None:
                self._step_back(SHORTAGE_PAUSE)
            return False
        self._is_short = False
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        joining = self._loop.create_task(self._loop.connect_accepted_socket(self._make_protocol, connection))
        self._joining.add(joining)
        joining.add_done_callback(self._joining.discard)
        return True
