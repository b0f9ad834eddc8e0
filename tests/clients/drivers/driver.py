"""A driver: does what the steps of a scenario say with one client, and tells what came of it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Tell = Callable[[Any], None]
"""Called with each event as it comes."""


@dataclass(frozen=True)
class Command:
    """One thing to do; see the README."""

    id: int
    do: str
    arguments: dict[str, Any] = field(default_factory=dict)
    on: str = "client"
    named: str | None = None


class Refused(Exception):
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
    async def do(self, command: Command, tell: Tell) -> Any:
        """Carry out a command, and return what it came to. Raises Refused."""

    @abstractmethod
    async def close(self) -> None:
        """Close everything that was made."""
