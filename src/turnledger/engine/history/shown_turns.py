"""Turns as chat clients see them, kept for the histories that were resent last: a client sends all of its
copy each time, and only what is new of ours should have to be looked at anew."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from turnledger.engine.history.history import History
from turnledger.model.flags import Hidden, gone_in
from turnledger.model.ids import BranchId
from turnledger.model.turn import Turn


class ShownTurns:
    """For each branch its turns, which remember how they are shown; bounded by the bytes of their bodies.

    What is hidden of a turn may change at any time, and depends on its neighbours: so turns are kept as they
    are, and beside them, for each branch, those of which something is hidden.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[BranchId, tuple[list[Turn], int]] = OrderedDict()
        self._hiding: dict[BranchId, dict[int, Turn]] = {}

    def of(self, branch: BranchId, history: History, hidden: Hidden | None = None) -> Sequence[Turn]:
        """The turns of a history as their user sees them, without what is hidden and its halves; those
        that were asked for before as the same objects."""
        turns, size = self._kept.pop(branch, ([], 0))
        self._bytes -= size
        if len(turns) > len(history) or (turns and turns[-1].id.raw != history.raw_id(len(turns) - 1)):
            turns, size = [], 0
        if not turns:
            turns = self._shared(history)
            size = sum(len(turn.body) for turn in turns)
        for turn in history[len(turns) :]:
            turns.append(turn)
            size += len(turn.body)
        self._kept[branch] = (turns, size)
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            forgotten, (_, dropped) = self._kept.popitem(last=False)
            self._hiding.pop(forgotten, None)
            self._bytes -= dropped
        # A copy: the list may grow while the caller is still reading.
        return self._without(branch, turns, hidden) if hidden else tuple(turns)

    def reach(self, branch: BranchId, history: History) -> bool:
        """Go on up to the end of this history; return whether there was anything to do. For a long one, of
        which a part is asked for at a time."""
        if len(self._kept.get(branch, ((), 0))[0]) >= len(history):
            return False
        self.of(branch, history)
        return True

    def follow(self, turn: Turn) -> None:
        """A turn was committed: keep it as it is at hand, if those before it are kept."""
        turns, size = self._kept.get(turn.branch, (None, 0))
        if turns and turns[-1].id == turn.parent:
            turns.append(turn)
            self._kept[turn.branch] = (turns, size + len(turn.body))
            self._bytes += len(turn.body)

    def _without(self, branch: BranchId, turns: Sequence[Turn], hidden: Hidden) -> Sequence[Turn]:
        flagged = [index for index, turn in enumerate(turns) if turn.id in hidden]
        if not flagged:
            return tuple(turns)
        # The other half of what is hidden stands next to it, if not in the same turn.
        first = max(0, flagged[0] - 1)
        near = turns[first : flagged[-1] + 2]
        gone = gone_in([turn.items for turn in near], [hidden.get(turn.id, ()) for turn in near])
        before = self._hiding.get(branch, {})
        hiding: dict[int, Turn] = {}
        for index, places in enumerate(map(frozenset, gone), first):
            if places:
                known = before.get(index)
                is_same = known and known.id == turns[index].id and known.shown.hidden == places
                hiding[index] = known if known and is_same else turns[index].hiding(places)
        self._hiding[branch] = hiding
        return tuple(hiding.get(index, turn) for index, turn in enumerate(turns))

    def _shared(self, history: History) -> list[Turn]:
        """As much as another branch has of this history: an edit leaves all before it as it was."""
        best: list[Turn] = []
        for turns, _ in self._kept.values():
            if not history or not turns or turns[0].id != history[0].id:
                continue
            # Where two lines have one turn in common, they have all before it.
            same, other = 1, min(len(turns), len(history)) + 1
            while other - same > 1:
                middle = (same + other) // 2
                is_same = turns[middle - 1].id == history[middle - 1].id
                same, other = (middle, other) if is_same else (same, middle)
            if same > len(best):
                best = turns[:same]
        return list(best)

    def forget(self, branch: BranchId) -> None:
        """Keep nothing of a branch that was deleted."""
        _, size = self._kept.pop(branch, ([], 0))
        self._hiding.pop(branch, None)
        self._bytes -= size
