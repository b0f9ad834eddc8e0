"""History as a turn sees it: an immutable view of the turns up to its head, shared and never copied.

A cached turn is one string of bytes; it becomes a `Turn` when somebody looks at it, and is forgotten as one
afterwards. Decoded turns take several times the memory of what they say.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from struct import Struct
from typing import overload

from turnledger.engine.history import line
from turnledger.engine.ports import Tables
from turnledger.model.conversation import Branch, Origin
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn, TurnKind

_HEADER = Struct(">16s16sqqB")
"""Of a packed turn: id, branch, times and kind; its number and its parent are told by its place."""
_KINDS = tuple(TurnKind)
_NUMBER_OF = {kind: number for number, kind in enumerate(_KINDS)}

DEEPEST = 32
"""Nodes between a history and its first turn. One more, and they are copied into one."""


class _Node:
    """Turns in a row that several histories share: those of one branch, mostly. Only ever grows."""

    __slots__ = ("before", "bytes", "depth", "packed", "start")

    def __init__(self, before: _Node | None, start: int) -> None:
        self.before = before
        """What the turns before `start` are in."""
        self.start = start
        self.depth: int = before.depth + 1 if before else 0
        self.packed: list[bytes] = []
        self.bytes = 0

    def add(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            header = _HEADER.pack(
                turn.id.raw, turn.branch.raw, turn.created_at, turn.committed_at, _NUMBER_OF[turn.kind]
            )
            self.packed.append(header + turn.body)
            self.bytes += len(turn.body)


class History(Sequence[Turn]):
    """The first `length` turns of a line. Views of one branch share one list that only ever grows."""

    __slots__ = ("_length", "_node")

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._node = _Node(None, 0)
        self._node.add(turns)
        self._length = len(self._node.packed)

    @classmethod
    def _view(cls, node: _Node, length: int) -> History:
        while node.before is not None and length <= node.start:
            node = node.before
        view = cls.__new__(cls)
        view._node, view._length = node, length
        return view

    @overload
    def __getitem__(self, at: int) -> Turn: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, at: int | slice) -> Turn | tuple[Turn, ...]:
        if isinstance(at, slice):
            return tuple(self[index] for index in range(*at.indices(self._length)))
        if not -self._length <= at < self._length:
            raise IndexError(at)
        index = at if at >= 0 else self._length + at
        parent = TurnId.trusted(self._packed(index - 1)[:16]) if index else None
        return _unpacked(self._packed(index), index + 1, parent)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Turn]:
        parent: TurnId | None = None
        for number, packed in enumerate(self._all_packed(), 1):
            turn = _unpacked(packed, number, parent)
            parent = turn.id
            yield turn

    @property
    def head(self) -> TurnId | None:
        """The id of the last turn."""
        return TurnId.trusted(self._packed(self._length - 1)[:16]) if self._length else None

    def ends_with(self, turn: TurnId | None) -> bool:
        """Whether this is its last turn."""
        return turn is not None and self.raw_id(self._length - 1) == turn.raw

    def raw_id(self, index: int) -> bytes:
        """The bytes of a turn's id, without unpacking the turn."""
        return self._packed(index)[:16]

    @property
    def size(self) -> int:
        """What it keeps in memory, and at least as much as it shows."""
        total, node = 0, self._node
        while True:
            total += node.bytes
            if node.before is None:
                return total
            node = node.before

    def _packed(self, index: int) -> bytes:
        node = self._node
        while index < node.start and node.before is not None:
            node = node.before
        return node.packed[index - node.start]

    def _all_packed(self) -> Iterator[bytes]:
        """The packed turns in order."""
        nodes, end = [], self._length
        at: _Node | None = self._node
        while at is not None:
            nodes.append((at, end - at.start))
            end = at.start
            at = at.before
        for node, count in reversed(nodes):
            for index in range(count):
                yield node.packed[index]

    def first(self, length: int) -> History:
        """Its first so many turns."""
        return self if length == self._length else History._view(self._node, length)

    def followed_by(self, turns: Sequence[Turn]) -> History:
        """This history and these turns behind it, at a cost that does not depend on its length."""
        node = self._node
        if node.start + len(node.packed) != self._length:
            # Somebody else has gone on from here another way.
            node = self._fresh_node()
        node.add(turns)
        return History._view(node, self._length + len(turns))

    def _fresh_node(self) -> _Node:
        if self._node.depth < DEEPEST:
            return _Node(self._node, self._length)
        node = _Node(None, 0)
        node.packed = list(self._all_packed())
        node.bytes = sum(map(len, node.packed))
        return node


def _unpacked(packed: bytes, number: int, parent: TurnId | None) -> Turn:
    id, branch, created_at, committed_at, kind = _HEADER.unpack_from(packed)
    return Turn(
        TurnId.trusted(id),
        BranchId.trusted(branch),
        number,
        parent,
        _KINDS[kind],
        created_at,
        committed_at,
        packed[_HEADER.size :],
    )


@dataclass(frozen=True)
class TurnsRequest:
    branch: Branch
    after: int
    through: int


async def read_turns(tables: Tables, request: TurnsRequest) -> list[Turn]:
    """The turns of a line numbered after < number <= through, in order."""
    through = request.through
    return await line.turns_of(tables, request.branch, request.after, through, through - request.after)


async def read_origin(tables: Tables, branch: BranchId) -> Origin | None:
    """How a branch was made, if it was made from another."""
    return await tables.origin(branch)
