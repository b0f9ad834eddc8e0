"""Turns as chat clients see them, kept for the histories that were resent last: a client sends all of its
copy each time, and only what is new of ours should have to be looked at anew."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence

from turnledger.engine.history import History
from turnledger.model.ids import BranchId
from turnledger.model.turn import Turn


class ShownTurns:
    """For each branch its turns, which remember how they are shown; bounded by the bytes of their bodies."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[BranchId, tuple[list[Turn], int]] = OrderedDict()

    def of(self, branch: BranchId, history: History) -> Sequence[Turn]:
        """The turns of a history, those that were asked for before as the same objects."""
        turns, size = self._kept.pop(branch, ([], 0))
        self._bytes -= size
        if len(turns) > len(history) or (turns and turns[-1].id != history[len(turns) - 1].id):
            turns, size = [], 0
        for turn in history[len(turns) :]:
            turns.append(turn)
            size += len(turn.body)
        self._kept[branch] = (turns, size)
        self._bytes += size
        while self._bytes > self._max_bytes and len(self._kept) > 1:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= dropped
        # A copy: the list may grow while the caller is still reading.
        return tuple(turns)

    def forget(self, branch: BranchId) -> None:
        """Keep nothing of a branch that was deleted."""
        _, size = self._kept.pop(branch, ([], 0))
        self._bytes -= size
