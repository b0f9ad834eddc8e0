"""Agreement: whether one side holds what the other side tells, some of which it may leave out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeVar

T = TypeVar("T")


def agrees(told: Sequence[T], entries: Iterable[tuple[T, bool]], *, may_begin_late: bool = False) -> bool:
    """Whether the entries tell exactly this; each says whether it may be left out. With `may_begin_late`, any
    number of them may come before."""
    return len(told) in _reached(told, entries, may_begin_late=may_begin_late)[-1]


def begins_with(told: Sequence[T], entries: Iterable[tuple[T, bool]]) -> bool:
    """Whether the entries begin by telling this."""
    return any(len(told) in places for places in _reached(told, entries))


def _reached(
    told: Sequence[T], entries: Iterable[tuple[T, bool]], *, may_begin_late: bool = False
) -> list[set[int]]:
    """How much of it may be told, in all ways of reading, before the first entry and behind each."""
    reached = [{0}]
    for entry, is_optional in entries:
        before = reached[-1]
        after = {place + 1 for place in before if place < len(told) and told[place] == entry}
        if is_optional:
            after |= before
        if may_begin_late:
            after.add(0)
        reached.append(after)
    return reached
