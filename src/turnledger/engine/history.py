"""History as a turn sees it: an immutable view of the turns up to its head, shared and never copied."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import overload

from turnledger.engine.ports import Tables
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn


class History(Sequence[Turn]):
    """The first `length` turns of a branch. Views of one branch share one list that only ever grows."""

    __slots__ = ("_length", "_turns")

    def __init__(self, turns: list[Turn], length: int | None = None) -> None:
        self._turns = turns
        self._length = len(turns) if length is None else length

    @overload
    def __getitem__(self, at: int) -> Turn: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, at: int | slice) -> Turn | tuple[Turn, ...]:
        if isinstance(at, slice):
            return tuple(self._turns[index] for index in range(*at.indices(self._length)))
        if not -self._length <= at < self._length:
            raise IndexError(at)
        return self._turns[at if at >= 0 else self._length + at]

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Turn]:
        for index in range(self._length):
            yield self._turns[index]

    def followed_by(self, turns: Sequence[Turn]) -> History:
        """This history and these turns behind it, at a cost that does not depend on its length."""
        if len(self._turns) == self._length:
            self._turns.extend(turns)
            return History(self._turns)
        return History([*self._turns[: self._length], *turns])


@dataclass(frozen=True)
class TurnsRequest:
    branch: BranchId
    after: int
    through: int
    limit: int


async def read_turns(tables: Tables, request: TurnsRequest) -> list[Turn]:
    """The last `limit` turns numbered after < number <= through, in order."""
    return await tables.turns(request.branch, request.after, request.through, request.limit)


class HistoryCache:
    """The histories used last, bounded by the bytes of their turns.

    A branch only ever grows, so a cached history is a prefix of the true one, or all of it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: OrderedDict[BranchId, tuple[History, int]] = OrderedDict()

    def prefix(self, branch: BranchId, head: TurnId | None, length: int) -> History:
        """What is cached of the first `length` turns of a branch; maybe nothing."""
        if length == 0 or branch not in self._kept:
            return History([])
        self._kept.move_to_end(branch)
        history = self._kept[branch][0]
        if len(history) > length:
            return History(history._turns, length)
        if len(history) == length and history[-1].id != head:
            return History([])
        return history

    def keep(self, branch: BranchId, history: History) -> None:
        """Remember a history; forget those used longest ago while there are too many bytes."""
        before, size = self._kept.pop(branch, (History([]), 0))
        self._bytes -= size
        known = before._length
        if known > history._length:
            known, size = 0, 0
        for index in range(known, history._length):
            size += len(history._turns[index].body)
        self._bytes += size
        self._kept[branch] = (history, size)
        while self._bytes > self._max_bytes and self._kept:
            _, (_, dropped) = self._kept.popitem(last=False)
            self._bytes -= dropped

    def forget(self, branch: BranchId) -> None:
        self._bytes -= self._kept.pop(branch, (None, 0))[1]
