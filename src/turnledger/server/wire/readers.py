"""The audience: who else is connected to a turn than the client that asked for it."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Set

from turnledger.model.ids import TurnId
from turnledger.server.ops.counters import Board, OwnBoard

READERS = "readers"
LOOK_EVERY = 0.2
"""Seconds between looks at whether the last reader elsewhere has left."""


class Audience:
    """The readers of running turns: those of their events, and requests that are answered by a turn which
    another one began. Each is counted on the board, so that one counts whichever worker it reads from."""

    def __init__(self, board: Board | None = None, *, look_every: float = LOOK_EVERY) -> None:
        self._board = board or OwnBoard()
        self._readers: defaultdict[TurnId, int] = defaultdict(int)
        self._afterwards: dict[TurnId, Callable[[], object]] = {}
        self._look_every = look_every
        self._timer: asyncio.TimerHandle | None = None

    @property
    def turns(self) -> Set[TurnId]:
        """Those that somebody reads here."""
        return self._readers.keys()

    def join(self, turn: TurnId) -> None:
        """Count as connected to the turn, until `leave`."""
        self._readers[turn] += 1
        self._board.add(READERS, turn)

    def leave(self, turn: TurnId) -> None:
        """Count no more; the last one to leave does what was to be done then."""
        self._board.add(READERS, turn, -1)
        self._readers[turn] -= 1
        if not self._readers[turn]:
            del self._readers[turn]
            self._act_if_gone(turn)

    def when_gone(self, turn: TurnId, act: Callable[[], object]) -> None:
        """Do something once nobody reads the turn any more, which may be now."""
        self._afterwards[turn] = act
        self._act_if_gone(turn)

    def forget(self, turn: TurnId) -> None:
        """The turn is over: it does not matter any more who leaves."""
        self._afterwards.pop(turn, None)

    def _act_if_gone(self, turn: TurnId) -> None:
        if turn not in self._afterwards:
            return
        if not self._board.total(READERS, turn):
            self._afterwards.pop(turn)()
        elif turn not in self._readers and self._timer is None:
            # They read from another worker, which may die without a word: so this one looks.
            self._timer = asyncio.get_running_loop().call_later(self._look_every, self._look)

    def _look(self) -> None:
        self._timer = None
        for turn in list(self._afterwards):
            self._act_if_gone(turn)
