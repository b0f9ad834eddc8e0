"""Flags: whether an item of a committed turn is shown to the model, and to the user. A call and its result
are hidden together, so that the rest stays well formed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from msgspec import Struct

from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.messages.calls import pair_places


class Flags(Struct, frozen=True):
    """Who sees an item. Both do by default."""

    to_model: bool = True
    to_user: bool = True


SHOWN = Flags()

FlagsOf: TypeAlias = Mapping[TurnId, Mapping[int, Flags]]
"""Turn → place among its items → flags, for items with a flag."""

Hidden: TypeAlias = Mapping[TurnId, Collection[int]]
"""Turn → places of its hidden items."""


def hidden_from_model(flags: FlagsOf) -> Hidden:
    return _hidden({turn: [at for at, each in of.items() if not each.to_model] for turn, of in flags.items()})


def hidden_from_user(flags: FlagsOf) -> Hidden:
    return _hidden({turn: [at for at, each in of.items() if not each.to_user] for turn, of in flags.items()})


def _hidden(places: Mapping[TurnId, Collection[int]]) -> Hidden:
    return {turn: found for turn, found in places.items() if found}


def with_their_halves(items: Sequence[Item], hidden: Collection[int]) -> set[int]:
    """Return these places and those that must be hidden with them: the result of a hidden call, the call of a
    hidden result, and reasoning if nothing that it led to is shown."""
    gone = set(hidden)
    for call, result in pair_places(items):
        if call in gone or result in gone:
            gone.update((call, result))
    for place, led_to in _led_to(items):
        if gone.issuperset(led_to):
            gone.add(place)
    return gone


def gone_in(parts: Sequence[tuple[Item, ...]], hidden: Sequence[Collection[int]]) -> list[set[int]]:
    """Apply `with_their_halves` across the parts of a history: a result may come in a later part."""
    firsts = list(accumulate(map(len, parts), initial=0))
    asked = {first + place for first, places in zip(firsts, hidden, strict=False) for place in places}
    gone = with_their_halves([item for part in parts for item in part], asked)
    return [
        {place for place in range(len(part)) if first + place in gone}
        for first, part in zip(firsts, parts, strict=False)
    ]


def left_of(items: Iterable[Item], gone: Collection[int], first: int = 0) -> tuple[Item, ...]:
    """Return the items whose places are not gone; `first` is the place of the first one."""
    return tuple(item for place, item in enumerate(items, first) if place not in gone)


def without_hidden(
    parts: Sequence[tuple[Item, ...]], hidden: Sequence[Collection[int]]
) -> list[tuple[Item, ...]]:
    return [left_of(part, gone) for part, gone in zip(parts, gone_in(parts, hidden), strict=True)]


def _led_to(items: Sequence[Item]) -> list[tuple[int, range]]:
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
