"""Compare a sequence with entries of which some are optional."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def agrees(expected: Sequence[T], entries: Iterable[tuple[T, bool]], *, may_begin_late: bool = False) -> bool:
    """Return whether the entries can be read as exactly this; each has a flag whether it is optional. With
    `may_begin_late`, any entries may precede."""
    return len(expected) in _reached(expected, entries, may_begin_late=may_begin_late)[-1]


def begins_with(expected: Sequence[T], entries: Iterable[tuple[T, bool]]) -> bool:
    """Return whether the entries can begin with this."""
    return any(len(expected) in places for places in _reached(expected, entries))


def _reached(
    expected: Sequence[T], entries: Iterable[tuple[T, bool]], *, may_begin_late: bool = False
) -> list[set[int]]:
    """Return the possible numbers of matched elements before the first entry and after each."""
    reached = [{0}]
    for entry, is_optional in entries:
        before = reached[-1]
        after = {place + 1 for place in before if place < len(expected) and expected[place] == entry}
        if is_optional:
            after |= before
        if may_begin_late:
            after.add(0)
        reached.append(after)
    return reached
