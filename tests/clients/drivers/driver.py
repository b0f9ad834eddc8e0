"""A driver: does what the steps of a scenario say with one client, and tells what came of it."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec

OnEvent = Callable[[Any], None]
"""Called with each event as it comes."""


@dataclass(frozen=True)
class Command:
    """One thing to do; see the README."""

    id: int
    do: str
    arguments: dict[str, Any] = field(default_factory=dict)
    on: str = "client"
    named: str | None = None


class ClientError(Exception):
    """The client raised an error."""

    def __init__(self, error: dict[str, Any], events: list[Any] | None = None) -> None:
        super().__init__(f"{error.get('code')} ({error.get('status')}): {error.get('message')}")
        self.error = error
        self.events = events

    @property
    def code(self) -> str:
        return str(self.error.get("code"))


class Driver(ABC):
    """One client, or many of its kind. Commands run at the same time."""

    name: str
    is_embedded = False

    @abstractmethod
    async def do(self, command: Command, on_event: OnEvent) -> Any:
        """Carry out a command, and return what it came to. Raises Refused."""

    @abstractmethod
    async def close(self) -> None:
        """Close everything that was made."""


class RemoteDriver(Driver):
    """A driver that is elsewhere, and speaks the protocol of the README."""

    def __init__(self) -> None:
        self._waiting: dict[int, tuple[asyncio.Future[Any], OnEvent]] = {}

    @abstractmethod
    async def _send(self, line: bytes) -> None:
        """Have it carry out a command."""

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
        """Take a line that it said."""
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
        """It will say nothing more."""
        for reply, _ in self._waiting.values():
            if not reply.done():
                reply.set_exception(ClientError({"code": "driver_broke", "message": "the driver has ended"}))
