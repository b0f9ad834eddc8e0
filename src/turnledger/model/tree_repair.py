"""Repair of a turn that was made elsewhere, so that it fits behind another: by the rules of `repair`, only
that the turn before it stays as it is. Siblings may answer what this one does not, so a call that it leaves
unanswered there is closed here, with the words that the ledger has for that."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from turnledger.errors import MalformedItems
from turnledger.model.item import Item
from turnledger.model.pairing import closed, left_open, open_calls
from turnledger.model.repair import Repaired, repair


class Fitted(msgspec.Struct, frozen=True):
    """A turn that is well formed behind the one before it, and what was changed, each in a sentence."""

    input: tuple[Item, ...]
    output: tuple[Item, ...]
    changes: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.input, *self.output)


def fitted(pending: Sequence[Item], input: Sequence[Item], output: Sequence[Item]) -> Fitted:
    """Make a turn fit behind one that left these calls open. What fits is not changed; a turn of which
    nothing can be kept comes back empty."""
    items = (*input, *output)
    if fits(pending, items):
        return Fitted(tuple(input), tuple(output))
    by_id: dict[str | None, list[Item]] = {}
    for item in items:
        by_id.setdefault(item.call_id, []).append(item)
    missing = [call for call in pending if not _is_answered(call, by_id.get(call.call_id, ()))]
    told = closed(missing)
    changes = [f"The call {call.call_id} of the turn before has no result: it is closed." for call in missing]
    items = (*told, *items)
    if not fits(pending, items):
        repaired = repair((*pending, *items))
        changes += _told(repaired, len(pending) + len(told))
        before = {id(call) for call in pending}
        items = tuple(item for item in repaired.items if id(item) not in before)
    if not fits(pending, items):
        return Fitted((), (), (*changes, "It does not fit behind the turn before."))
    asked = {id(item) for item in (*told, *input)}
    count = max((place + 1 for place, item in enumerate(items) if id(item) in asked), default=0)
    return Fitted(items[:count], items[count:], tuple(changes))


def fits(pending: Sequence[Item], items: Sequence[Item]) -> bool:
    """Whether a turn answers all that was open before it, and is well formed itself."""
    try:
        left = open_calls((*pending, *items))
    except MalformedItems:
        return False
    if not left:
        return True
    return set(left_open(items)).issuperset(left)


def _is_answered(call: Item, items: Sequence[Item]) -> bool:
    """Whether one of these, which have its id, is its result, and not another call before that."""
    for item in items:
        if item.is_call:
            return False
        if item.type == f"{call.type}_output":
            return True
    return False


def _told(repaired: Repaired, first: int) -> list[str]:
    return [
        f"Item {change.place - first} was {change.action.value}: {change.why}"
        for change in repaired.changes
        if change.place >= first
    ]
