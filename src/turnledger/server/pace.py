"""The pace: how many turns an owner has begun to ask for within a minute, by all workers of a server.

The last sixty seconds are estimated from two counts: all of this minute, and of the last one the part that
has not slid out yet. Who keeps still for a minute has all of his turns again, and at no time is there a
moment in which everybody may start anew.
"""

from __future__ import annotations

from collections import Counter
from itertools import islice

from turnledger.engine.ports import Clock
from turnledger.server.board import Board

STARTS = "starts"
MINUTE = 60_000
"""Milliseconds, as the clock tells time."""
TIDIED = 2
"""Old counts that each new one takes away: more than come, so that they never gather."""


class Pace:
    """Counts by owner and minute, on the board. A worker takes away what it has counted itself; what it has
    not when it ends is forgotten with it."""

    def __init__(self, board: Board, clock: Clock, most: int, kind: str = STARTS) -> None:
        self._board = board
        self._clock = clock
        self._most = most
        self._kind = kind
        self._counted: dict[int, Counter[str]] = {}

    def wait(self, owner: str, more: int = 1, most: int | None = None) -> float:
        """Seconds until there is room for so many more, of another number at `most`; 0: there is."""
        most = self._most if most is None else most
        minute, passed = divmod(self._clock.now_ms(), MINUTE)
        this = self._board.total(self._kind, _name(owner, minute))
        last = self._board.total(self._kind, _name(owner, minute - 1))
        room = (most - more - this) * MINUTE
        if last * (MINUTE - passed) <= room:
            return 0.0
        if room >= 0:
            return (MINUTE - passed - room // last) / 1000
        # Not before the next minute: then this one slides out.
        slides = MINUTE - (most - more) * MINUTE // this
        return (MINUTE - passed + max(slides, 0)) / 1000

    def count(self, owner: str) -> int:
        """Count one more; return the minute in which it was."""
        minute = self._clock.now_ms() // MINUTE
        self._board.add(self._kind, _name(owner, minute))
        self._counted.setdefault(minute, Counter())[owner] += 1
        self._tidy(minute)
        return minute

    def take_back(self, owner: str, minute: int) -> None:
        """It was not begun after all."""
        self._board.add(self._kind, _name(owner, minute), -1)
        self._counted[minute][owner] -= 1

    def _tidy(self, minute: int) -> None:
        old = next((each for each in self._counted if each not in (minute, minute - 1)), None)
        if old is None:
            return
        counts = self._counted[old]
        for owner in list(islice(counts, TIDIED)):
            self._board.add(self._kind, _name(owner, old), -counts.pop(owner))
        if not counts:
            del self._counted[old]


def _name(owner: str, minute: int) -> str:
    return f"{minute} {owner}"
