"""The audience: who else is connected to a turn than the client that asked for it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Set

from turnledger.model.ids import TurnId


class Audience:
    """The readers of running turns in this process: those of their events, and requests that are answered by
    a turn which another one began."""

    def __init__(self) -> None:
        self._readers: defaultdict[TurnId, int] = defaultdict(int)
        self._afterwards: dict[TurnId, Callable[[], object]] = {}

    @property
    def turns(self) -> Set[TurnId]:
        """Those that somebody reads."""
        return self._readers.keys()

    def join(self, turn: TurnId) -> None:
        """Count as connected to the turn, until `leave`."""
        self._readers[turn] += 1

    def leave(self, turn: TurnId) -> None:
        """Count no more; the last one to leave does what was to be done then."""
        self._readers[turn] -= 1
        if not self._readers[turn]:
            del self._readers[turn]
            act = self._afterwards.pop(turn, None)
            if act is not None:
                act()

    def when_gone(self, turn: TurnId, act: Callable[[], object]) -> None:
        """Do something once nobody reads the turn any more, which may be now."""
        if turn in self._readers:
            self._afterwards[turn] = act
        else:
            act()

    def forget(self, turn: TurnId) -> None:
        """The turn is over: it does not matter any more who leaves."""
        self._afterwards.pop(turn, None)
