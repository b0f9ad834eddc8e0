"""Several drivers as one: clients of different languages on the same chats."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

from tests.clients.drivers.driver import Command, Driver, OnEvent


class MixedDriver(Driver):
    """Gives each new client the next driver."""

    name = "mixed"

    def __init__(self, drivers: Sequence[Driver]) -> None:
        self._next = cycle(drivers)
        self._homes: dict[str, Driver] = {}
        self._commands: dict[int, Driver] = {}

    async def do(self, command: Command, on_event: OnEvent) -> Any:
        if command.do == "client":
            home = next(self._next)
        elif command.do == "cancel":
            home = self._commands[command.arguments["command"]]
        else:
            home = self._homes[command.on]
        self._commands[command.id] = home
        if command.named is not None:
            self._homes[command.named] = home
        return await home.do(command, on_event)

    async def close(self) -> None:
        """Do nothing: the creator of the drivers closes them."""
