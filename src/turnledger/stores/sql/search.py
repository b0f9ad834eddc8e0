"""The texts of a search index, before each store splits them into terms."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from turnledger.errors import StoreCorrupt, StoreTooNew
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import Turn, TurnKind, visible_texts

MARK_LENGTH = 12
"""Hexadecimal digits of the mark of an owner or a scope."""
BYTES_AT_ONCE = 250_000
"""Bytes of turns indexed per step, during which other writers wait."""
MOST_MADE = 1_000
"""Branches made from a turn that are searched for a live one."""


def places_by_turn(hidden: Iterable[tuple[bytes, int]]) -> dict[bytes, set[int]]:
    """Group the places of hidden items by their turn."""
    found: dict[bytes, set[int]] = {}
    for id, place in hidden:
        found.setdefault(id, set()).add(place)
    return found


def texts_of(id: bytes, body: bytes, hidden: Collection[int]) -> list[str]:
    """Return the texts of a turn that its user sees; none if it is damaged, which reading it, or a check,
    reports."""
    turn = Turn(TurnId.trusted(id), BranchId.trusted(id), 0, None, TurnKind.COMPLETED, 0, 0, body)
    try:
        return visible_texts(turn, hidden)
    except (StoreCorrupt, StoreTooNew):
        return []
