"""Emitted text: all that a turn has emitted, in any number of small pieces, and any stretch of it again."""

from __future__ import annotations

from bisect import bisect_right

PIECE = 4096
"""Characters up to which pieces are joined: a piece costs more than its text while it is small."""
LOOSE = 512
"""Deltas that may lie about unjoined."""


_NO_PIECES: list[str] = []
_NO_ENDS: list[int] = []
"""Never filled."""


class EmittedText:
    """Grows at the end. Places are counted in characters from the beginning."""

    __slots__ = ("_ends", "_joined", "_loose", "_pieces", "length")

    def __init__(self) -> None:
        # Most turns say little: the lists are made when there is something to join.
        self._pieces: list[str] = _NO_PIECES
        self._ends: list[int] = _NO_ENDS
        self._loose: list[str] = []
        self._joined = 0
        self.length = 0

    def append(self, text: str) -> None:
        self._loose.append(text)
        self.length += len(text)
        if len(self._loose) > LOOSE:
            self._join()

    def between(self, start: int, stop: int) -> str:
        """The text from one place to another."""
        if stop > self._joined:
            if start == self._joined and stop == self.length:
                return "".join(self._loose)
            self._join()
        first = bisect_right(self._ends, start)
        found: list[str] = []
        for index in range(first, len(self._pieces)):
            piece, begins = self._pieces[index], self._ends[index] - len(self._pieces[index])
            if begins >= stop:
                break
            found.append(piece[max(start - begins, 0) : stop - begins])
        return "".join(found)

    def _join(self) -> None:
        if not self._loose:
            return
        before = ""
        if self._pieces is _NO_PIECES:
            self._pieces, self._ends = [], []
        if self._pieces and len(self._pieces[-1]) < PIECE:
            before = self._pieces.pop()
            self._ends.pop()
        self._pieces.append("".join((before, *self._loose)))
        self._ends.append(self.length)
        self._joined = self.length
        self._loose.clear()
