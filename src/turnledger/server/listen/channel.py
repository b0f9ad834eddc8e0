"""Messages between a supervisor and its workers, over a pair of sockets: one line of JSON each.

The pair also detects death: a dead process has no open end, so the other reads an end of file.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from enum import StrEnum
from typing import TypeAlias, TypeVar

import msgspec

from turnledger.server.config.settings import Settings

NOT_STARTED = 2
"""Exit code of a worker that could not start, and has reported why."""
MAX_MESSAGE_BYTES = 64 * 1024 * 1024
"""Bytes of a message, with settings that list many models."""


class Handover(msgspec.Struct, frozen=True, kw_only=True, tag="handover"):
    """The first message to a worker. It inherits the descriptors."""

    settings: Settings
    part: int
    """Its part of the shared counters and the metrics, and its name in the log."""
    listening: int
    counters: int
    metrics_folder: str
    log_format: str


class Order(StrEnum):
    END = "end"
    """The server ends: accept no more requests, and exit when the open ones have ended."""
    LEAVE = "leave"
    """Another worker has taken over: the same, but allow connected clients one more request."""
    HURRY = "hurry"
    """Cancel the open requests."""
    RECOVER = "recover"
    """A worker has died: end the turns that it left running."""


class ReadyReport(msgspec.Struct, frozen=True, tag="ready"):
    """The worker accepts requests."""

    models: list[str]
    is_tokenless: bool = False
    """Whether the store had no token, so that requests from this machine need none."""


class FailureReport(msgspec.Struct, frozen=True, tag="failed"):
    """The worker cannot start: the code and message of the error, or the missing package."""

    code: str
    message: str
    missing: str | None = None


class Heartbeat(msgspec.Struct, frozen=True, tag="alive"):
    """The worker's event loop is running."""


Message: TypeAlias = Handover | Order | ReadyReport | FailureReport | Heartbeat
Received = TypeVar("Received")

handovers = msgspec.json.Decoder(Handover)
orders = msgspec.json.Decoder(Order)
reports: msgspec.json.Decoder[ReadyReport | FailureReport | Heartbeat] = msgspec.json.Decoder(
    ReadyReport | FailureReport | Heartbeat
)


class Channel:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, end: socket.socket) -> Channel:
        return cls(*await asyncio.open_unix_connection(sock=end, limit=MAX_MESSAGE_BYTES))

    def send(self, message: Message) -> None:
        """Send a message without waiting. It is lost if the other end is dead."""
        if not self._writer.is_closing():
            self._writer.write(msgspec.json.encode(message) + b"\n")

    async def receive(self, decoder: msgspec.json.Decoder[Received]) -> Received | None:
        """Return the next message; None if the other end is closed."""
        try:
            line = await self._reader.readline()
        except ConnectionError:
            return None
        return decoder.decode(line) if line.endswith(b"\n") else None

    async def close(self) -> None:
        self._writer.close()
        with suppress(ConnectionError):
            await self._writer.wait_closed()
