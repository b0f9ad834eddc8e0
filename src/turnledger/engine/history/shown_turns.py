"""The turns of one branch as chat clients see them, kept because a client sends its whole copy each time."""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.engine.history.history import History
from turnledger.model.flags import Hidden, gone_in
from turnledger.model.turn import Turn


class ShownTurns:
    """Turns that remember how they are shown.

    What is hidden of a turn may change at any time, and depends on its neighbours: so turns are kept as they
    are, and beside them those of which something is hidden.
    """

    __slots__ = ("_hiding", "_turns", "bytes")

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self._turns = list(turns)
        self._hiding: dict[int, Turn] = {}
        self.bytes = sum(len(turn.body) for turn in turns)
        """Those of their bodies."""

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def first(self) -> bytes | None:
        """The id of the first turn."""
        return self._turns[0].id.raw if self._turns else None

    def begins(self, history: History) -> bool:
        """Whether a history begins with these turns."""
        turns = self._turns
        return len(turns) <= len(history) and (
            not turns or turns[-1].id.raw == history.raw_id(len(turns) - 1)
        )

    def go_on(self, history: History) -> None:
        """Add what is missing of a history that begins with these turns."""
        for turn in history[len(self._turns) :]:
            self._add(turn)

    def follow(self, turn: Turn) -> bool:
        """Add the turn if it comes directly behind these; return whether it does."""
        follows = bool(self._turns) and self._turns[-1].id == turn.parent
        if follows:
            self._add(turn)
        return follows

    def _add(self, turn: Turn) -> None:
        self._turns.append(turn)
        self.bytes += len(turn.body)

    def common(self, history: History) -> ShownTurns:
        """Those that a history with the same first turn begins with, too."""
        # Where two lines have one turn in common, they have all before it.
        same, other = 1, min(len(self._turns), len(history)) + 1
        while other - same > 1:
            middle = (same + other) // 2
            is_same = self._turns[middle - 1].id.raw == history.raw_id(middle - 1)
            same, other = (middle, other) if is_same else (same, middle)
        return ShownTurns(self._turns[:same])

    def without(self, hidden: Hidden | None) -> Sequence[Turn]:
        """The turns without what is hidden and its halves. A copy: they may grow while the caller reads."""
        turns = self._turns
        flagged = [index for index, turn in enumerate(turns) if turn.id in hidden] if hidden else []
        if not hidden or not flagged:
            return tuple(turns)
        # The other half of what is hidden stands next to it, if not in the same turn.
        first = max(0, flagged[0] - 1)
        near = turns[first : flagged[-1] + 2]
        gone = gone_in([turn.items for turn in near], [hidden.get(turn.id, ()) for turn in near])
        before, self._hiding = self._hiding, {}
        for index, places in enumerate(map(frozenset, gone), first):
            if places:
                known = before.get(index)
                is_same = known and known.id == turns[index].id and known.shown.hidden == places
                self._hiding[index] = known if known and is_same else turns[index].hiding(places)
        return tuple(self._hiding.get(index, turn) for index, turn in enumerate(turns))
