"""Flags: whether an item of a committed turn is shown to the model, and to the user. A call and its result
are hidden together, so that the rest stays well formed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import NamedTuple, TypeAlias

from msgspec import Struct

from turnledger.model.ids import TurnId
from turnledger.model.item import Item, pair_places


class Flags(Struct, frozen=True):
    """Who sees an item. Both do by default."""

    to_model: bool = True
    to_user: bool = True


SHOWN = Flags()
WHOLE = -1
"""The place of a mark on the turn itself: it was deleted as a response. Its items are shown all the same."""


class HiddenItems(NamedTuple):
    """The places of a turn's items that are hidden, in order, with those hidden along with them."""

    from_user: tuple[int, ...] = ()
    from_model: tuple[int, ...] = ()


NOTHING_HIDDEN = HiddenItems()

FlagsByTurn: TypeAlias = Mapping[TurnId, Mapping[int, Flags]]
"""Turn → place among its items → flags, for items with a flag."""

HiddenPlaces: TypeAlias = Mapping[TurnId, Collection[int]]
"""Turn → places of its hidden items."""


def hidden_from_model(flags: FlagsByTurn) -> HiddenPlaces:
    places = {turn: [at for at, each in of.items() if not each.to_model] for turn, of in flags.items()}
    return {turn: hidden for turn, hidden in places.items() if hidden}


def hidden_from_user(flags: FlagsByTurn) -> HiddenPlaces:
    places = {turn: [at for at, each in of.items() if not each.to_user] for turn, of in flags.items()}
    return {turn: hidden for turn, hidden in places.items() if hidden}


def with_counterparts(items: Sequence[Item], hidden: Collection[int]) -> set[int]:
    """Return these places and those that must be hidden with them: the result of a hidden call, the call of a
    hidden result, and reasoning if nothing that it led to is shown."""
    found = set(hidden)
    for call, result in pair_places(items):
        if call in found or result in found:
            found.update((call, result))
    for place, targets in _reasoning_targets(items):
        if found.issuperset(targets):
            found.add(place)
    return found


def hidden_items(items: Sequence[Item], flags: Mapping[int, Flags]) -> HiddenItems:
    """Return the places that these flags hide among the items of one turn."""
    from_user = with_counterparts(items, [place for place, each in flags.items() if not each.to_user])
    from_model = with_counterparts(items, [place for place, each in flags.items() if not each.to_model])
    return HiddenItems(tuple(sorted(from_user)), tuple(sorted(from_model)))


def hidden_in_parts(parts: Sequence[tuple[Item, ...]], hidden: Sequence[Collection[int]]) -> list[set[int]]:
    """Apply `with_counterparts` across the parts of a history: a result may come in a later part."""
    firsts = list(accumulate(map(len, parts), initial=0))
    named = {first + place for first, places in zip(firsts, hidden, strict=False) for place in places}
    found = with_counterparts([item for part in parts for item in part], named)
    return [
        {place for place in range(len(part)) if first + place in found}
        for first, part in zip(firsts, parts, strict=False)
    ]


def visible_items(items: Iterable[Item], hidden: Collection[int], first: int = 0) -> tuple[Item, ...]:
    """Return the items whose places are not hidden; `first` is the place of the first one."""
    return tuple(item for place, item in enumerate(items, first) if place not in hidden)


def without_hidden(
    parts: Sequence[tuple[Item, ...]], hidden: Sequence[Collection[int]]
) -> list[tuple[Item, ...]]:
    return [
        visible_items(part, places)
        for part, places in zip(parts, hidden_in_parts(parts, hidden), strict=True)
    ]


def _reasoning_targets(items: Sequence[Item]) -> list[tuple[int, range]]:
    """Return each reasoning item with the places of what it led to: the calls after it, or else one item."""
    found: list[tuple[int, range]] = []
    for place, item in enumerate(items):
        if item.is_reasoning:
            first = place + 1
            while first < len(items) and items[first].is_reasoning:
                first += 1
            last = first + 1
            if first < len(items) and items[first].is_call:
                while last < len(items) and items[last].is_call:
                    last += 1
            found.append((place, range(first, min(last, len(items)))))
    return found
