"""Flags: whether an item of a committed turn is shown to the model, and to the user. What is not shown to one
of them takes its other half along, so that what is shown is well formed."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import TypeAlias

from msgspec import Struct

from turnledger.model.ids import TurnId
from turnledger.model.item import Item
from turnledger.model.messages.calls import pairs


class Flags(Struct, frozen=True):
    """Whom an item is shown to. Both, unless somebody said otherwise."""

    to_model: bool = True
    to_user: bool = True


SHOWN = Flags()

FlagsOf: TypeAlias = Mapping[TurnId, Mapping[int, Flags]]
"""Turn → place among its items → flags, of those items that are not shown to everybody."""

Hidden: TypeAlias = Mapping[TurnId, Collection[int]]
"""Turn → places among its items that are not shown."""


def hidden_from_model(flags: FlagsOf) -> Hidden:
    return _hidden({turn: [at for at, each in of.items() if not each.to_model] for turn, of in flags.items()})


def hidden_from_user(flags: FlagsOf) -> Hidden:
    return _hidden({turn: [at for at, each in of.items() if not each.to_user] for turn, of in flags.items()})


def _hidden(places: Mapping[TurnId, Collection[int]]) -> Hidden:
    return {turn: found for turn, found in places.items() if found}


def with_their_halves(items: Sequence[Item], hidden: Collection[int]) -> set[int]:
    """The places that cannot be shown when these are hidden: for a call its result and for a result its call,
    and reasoning when nothing of what it led to is shown."""
    gone = set(hidden)
    for call, result in pairs(items):
        if call in gone or result in gone:
            gone.update((call, result))
    for place, led_to in _led_to(items):
        if gone.issuperset(led_to):
            gone.add(place)
    return gone


def gone_in(parts: Sequence[tuple[Item, ...]], hidden: Sequence[Collection[int]]) -> list[set[int]]:
    """The places in each part of a history that cannot be shown when these are hidden: a call may be answered
    in a later part than it stands in."""
    firsts = list(accumulate(map(len, parts), initial=0))
    asked = {first + place for first, places in zip(firsts, hidden, strict=False) for place in places}
    gone = with_their_halves([item for part in parts for item in part], asked)
    return [
        {place for place in range(len(part)) if first + place in gone}
        for first, part in zip(firsts, parts, strict=False)
    ]


def left_of(items: Iterable[Item], gone: Collection[int], first: int = 0) -> tuple[Item, ...]:
    """The items of a stretch whose places are not among these, if that of the first one is `first`."""
    return tuple(item for place, item in enumerate(items, first) if place not in gone)


def without_hidden(
    parts: Sequence[tuple[Item, ...]], hidden: Sequence[Collection[int]]
) -> list[tuple[Item, ...]]:
    """The parts of a history without the places hidden in each, and without the halves of those."""
    return [left_of(part, gone) for part, gone in zip(parts, gone_in(parts, hidden), strict=True)]


def _led_to(items: Sequence[Item]) -> list[tuple[int, range]]:
    """Each reasoning item, and the places of what it led to: the calls behind it, or else the one item."""
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
