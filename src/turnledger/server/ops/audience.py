"""The readers of running turns, and the departure of the last one."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Set

from turnledger.model.ids import TurnId
from turnledger.server.ops.counters import Counters, LocalCounters

READERS = "readers"
POLL_EVERY = 0.2
"""Seconds between checks whether the last reader on another worker has left."""


class Audience:
    """The readers of running turns: of their events, and requests answered by another request's turn. They
    are counted in the shared counters, so that it does not matter which worker serves them."""

    def __init__(self, counters: Counters | None = None, *, poll_every: float = POLL_EVERY) -> None:
        self._counters = counters or LocalCounters()
        self._readers: defaultdict[TurnId, int] = defaultdict(int)
        self._actions: dict[TurnId, Callable[[], object]] = {}
        self._poll_every = poll_every
        self._timer: asyncio.TimerHandle | None = None

    @property
    def turns(self) -> Set[TurnId]:
        return self._readers.keys()

    def join(self, turn: TurnId) -> None:
        self._readers[turn] += 1
        self._counters.add(READERS, turn)

    def leave(self, turn: TurnId) -> None:
        """Stop counting a reader; the last one triggers the action of `when_gone`."""
        self._counters.add(READERS, turn, -1)
        self._readers[turn] -= 1
        if not self._readers[turn]:
            del self._readers[turn]
            self._act_if_gone(turn)

    def when_gone(self, turn: TurnId, act: Callable[[], object]) -> None:
        """Call `act` once the turn has no readers, maybe now."""
        self._actions[turn] = act
        self._act_if_gone(turn)

    def forget(self, turn: TurnId) -> None:
        """Drop the action of a turn that is over."""
        self._actions.pop(turn, None)

    def _act_if_gone(self, turn: TurnId) -> None:
        if turn not in self._actions:
            return
        if not self._counters.total(READERS, turn):
            self._actions.pop(turn)()
        elif turn not in self._readers and self._timer is None:
            # Another worker serves them, and may die silently: so this one polls.
            self._timer = asyncio.get_running_loop().call_later(self._poll_every, self._poll)

    def _poll(self) -> None:
        self._timer = None
        for turn in list(self._actions):
            self._act_if_gone(turn)
