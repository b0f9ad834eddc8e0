"""The board: numbers that all workers of a server see, such as how many turns an owner has running.

Each worker writes what is its own, and anyone reads the sum. Who wants to keep within a limit counts himself
first and looks then (`admit`): of two who come at once at least one sees both, so a limit is never exceeded.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter


class Board(ABC):
    """Counts by kind and name; both are any text. For the event loop's thread only; nothing here waits."""

    @abstractmethod
    def add(self, kind: str, name: str, by: int = 1) -> None:
        """Raise, or lower, this worker's count of a name. Raises ValueError if it would fall below zero."""

    @abstractmethod
    def total(self, kind: str, name: str) -> int:
        """The count of a name, of all workers together."""

    @abstractmethod
    def sum(self, kind: str) -> int:
        """The counts of all names of a kind, of all workers together."""

    def admit(self, kind: str, name: str, most: int) -> bool:
        """Count one more of the name if there are no more than `most` then; return whether it was counted.

        Never admits too many. Of several who come at once for the last place, none may get it.
        """
        self.add(kind, name, 1)
        if self.total(kind, name) <= most:
            return True
        self.add(kind, name, -1)
        return False


class OwnBoard(Board):
    """The board of a server with one worker: plain memory."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._sums: Counter[str] = Counter()

    def add(self, kind: str, name: str, by: int = 1) -> None:
        """See Board."""
        count = self._counts[kind, name] + by
        if count < 0:
            raise ValueError("a count cannot fall below zero")
        self._sums[kind] += by
        if count:
            self._counts[kind, name] = count
        else:
            self._counts.pop((kind, name), None)

    def total(self, kind: str, name: str) -> int:
        """See Board."""
        return self._counts[kind, name]

    def sum(self, kind: str) -> int:
        """See Board."""
        return self._sums[kind]
