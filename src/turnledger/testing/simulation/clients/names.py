"""Names of conversations, and how often each conversation_key was freed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from turnledger.chat import Chat
from turnledger.ledger import Ledger


class Names:
    """The conversation_keys of a schedule, and the ids of forks without one."""

    def __init__(
        self,
        keys: tuple[str, ...],
        keys_of_forks: tuple[str, ...] = (),
        *,
        details: Mapping[str, Any] | None = None,
        may_lapse: bool = False,
    ) -> None:
        self.details = details or {}
        """Options of new conversations."""
        self.may_lapse = may_lapse
        """Whether they may expire or be reset by time."""
        self.keys = (*keys, *keys_of_forks)
        self.keys_of_forks = keys_of_forks
        self.forks: list[str] = []
        self.deleted: list[tuple[str, str]] = []
        """Name and id of each conversation that a client tried to delete."""
        self.freed: Counter[str] = Counter()
        """Finished deletions and resets, by conversation_key."""
        self.being_freed: Counter[str] = Counter()
        """Deletions and resets that run or have an unknown outcome."""

    @property
    def all(self) -> tuple[str, ...]:
        return (*self.keys, *self.forks)

    def generation(self, name: str) -> int | None:
        """Return how often the key was freed; None while that is uncertain."""
        return None if self.may_lapse or self.being_freed[name] else self.freed[name]

    @contextmanager
    def freeing(self, name: str) -> Iterator[None]:
        """Note that the block frees this name; after an error, that is uncertain."""
        self.being_freed[name] += 1
        yield
        self.freed[name] += 1
        self.being_freed[name] -= 1

    async def open(self, ledger: Ledger, name: str, *, create: bool = True) -> Chat:
        if name in self.forks:
            return await ledger.conversation(name)
        return await ledger.conversation(conversation_key=name, create=create, **self.details)
