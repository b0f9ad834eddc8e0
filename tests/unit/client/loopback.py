"""A real socket that answers each request with given pieces, and may keep the connection open."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

from tests.unit.client.script import CHAT, TURN

HEAD = (
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n"
    f"x-turn-id: {TURN}\r\nx-conversation-id: {CHAT}\r\n\r\n"
).encode()


class Loopback:
    """Answers on any number of connections, one thread each. After the pieces the stream ends, or with
    `holds` stays open."""

    def __init__(self, pieces: Sequence[bytes], *, holds: bool = False) -> None:
        self._chunks = [b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces]
        self._holds = holds
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._released = threading.Event()
        self._threads: list[threading.Thread] = []
        self.connections = 0
        self.left = threading.Event()
        """Whether a client has closed its connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._listening.getsockname()[1]}"

    def accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._listening.accept()
                self.connections += 1
                thread = threading.Thread(target=self._answer, args=(connection,), daemon=True)
                self._threads.append(thread)
                thread.start()

    def close(self) -> None:
        self._released.set()
        # Closing alone would not wake `accept`.
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _answer(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):
            while _request_read(connection):
                connection.sendall(HEAD + b"".join(self._chunks))
                if self._holds:
                    connection.recv(1)  # until the client leaves
                    break
                connection.sendall(b"0\r\n\r\n")
        self.left.set()


def _request_read(connection: socket.socket) -> bool:
    head = b""
    while b"\r\n\r\n" not in head:
        received = connection.recv(65536)
        if not received:
            return False
        head += received
    head, _, body = head.partition(b"\r\n\r\n")
    lengths = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
    missing = int(lengths[0].split(b":")[1]) - len(body) if lengths else 0
    while missing > 0:
        received = connection.recv(missing)
        if not received:
            return False  # the client left between head and body
        missing -= len(received)
    return True


@contextmanager
def loopback(*pieces: bytes, holds: bool = False) -> Iterator[Loopback]:
    """A server, for the time of the block."""
    server = Loopback(pieces, holds=holds)
    thread = threading.Thread(target=server.accept, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.close()
        thread.join(30)
