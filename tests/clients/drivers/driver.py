"""A driver runs the commands of a scenario with one client and reports results and events."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

OnEvent = Callable[[Any], None]
"""Receives each event on arrival."""


@dataclass(frozen=True)
class Command:
    """See the README."""

    id: int
    do: str
    arguments: dict[str, Any] = field(default_factory=dict)
    on: str = "client"
    named: str | None = None


class ClientError(Exception):
    def __init__(self, error: dict[str, Any], events: list[Any] | None = None) -> None:
        super().__init__(f"{error.get('code')} ({error.get('status')}): {error.get('message')}")
        self.error = error
        self.events = events

    @property
    def code(self) -> str:
        return str(self.error.get("code"))


class Driver(ABC):
    """Clients of one kind. Commands run concurrently."""

    name: str
    is_embedded = False

    @abstractmethod
    async def do(self, command: Command, on_event: OnEvent) -> Any:
        """Run a command and return its result. Raises ClientError."""

    @abstractmethod
    async def close(self) -> None:
        """Close all clients."""


class RemoteDriver(Driver):
    """A driver in another process or page, with the protocol of the README."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[Any], OnEvent]] = {}

    @abstractmethod
    async def _send(self, line: bytes) -> None: ...

    async def do(self, command: Command, on_event: OnEvent) -> Any:
        message = {"id": command.id, "do": command.do, "on": command.on, "with": command.arguments}
        if command.named is not None:
            message["as"] = command.named
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[command.id] = reply, on_event
        try:
            await self._send(msgspec.json.encode(message))
            return await reply
        finally:
            del self._waiting[command.id]

    def _receive(self, line: bytes | str) -> None:
        message = msgspec.json.decode(line)
        reply, on_event = self._waiting.get(message["id"], (None, None))
        if reply is None or on_event is None or reply.done():
            return
        if "event" in message:
            on_event(message["event"])
        elif "error" in message:
            reply.set_exception(ClientError(message["error"], message.get("events")))
        else:
            reply.set_result(message.get("ok"))

    def _lost(self) -> None:
        """Fail all commands: the driver has ended."""
        for reply, _ in self._waiting.values():
            if not reply.done():
                reply.set_exception(ClientError({"code": "driver_broke", "message": "the driver has ended"}))
