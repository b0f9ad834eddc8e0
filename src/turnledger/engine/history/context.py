"""Context: the items sent to the model, assembled from the stored ones without changing them.

In order: the instructions in force, the primer, as many committed turns as the policy allows, the input, and
the finished steps. Every call in it has its result, and all reasoning the item it led to. Empty answers are
left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import TypeAlias

from msgspec import Struct

from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.flags import HiddenPlaces, without_hidden
from turnledger.model.item import (
    Item,
    open_calls,
    without_answers,
    without_empty_answers,
    without_open_reasoning,
)
from turnledger.model.turn import CONTEXT, CONTEXTS, Turn

Counter: TypeAlias = Callable[[Item], int]

MOST_STEPS = 100
"""Turns that are searched backwards for the question that led to the results in the input."""

BYTES_PER_TOKEN = 4
MEDIA_TOKENS = 1_500
"""Tokens of an image, a file or a sound within an item. Models count its size in pixels or seconds."""
_media_in = re.compile(rb'"(?:image_url|url|file_data|data)":\s?"').finditer


def estimate(item: Item) -> int:
    """Estimate the tokens of an item: a quarter of the bytes of its JSON, rounded up, and MEDIA_TOKENS for
    each image, file or sound in it. Too many for most English text, since names and quotes count; pass your
    own counter where it matters."""
    raw = item.raw
    size = len(raw)
    if size > MEDIA_TOKENS * BYTES_PER_TOKEN:
        for found in _media_in(raw):
            length = raw.find(b'"', found.end()) - found.end()
            size -= max(0, length - MEDIA_TOKENS * BYTES_PER_TOKEN)
    return -(-size // BYTES_PER_TOKEN)


class Context(Struct, frozen=True):
    """How much of the history a turn shows to its model: `Context.all()`, `Context.last(10)` turns, or
    `Context.budget(8_000)` tokens.

    Shows whole turns, the last ones. If a shown turn answers calls of a turn that is not shown, those results
    are left out. Always shown: instructions, primer, the input, the steps, the turn whose calls the input
    answers, and with a budget the question that led to these calls; a budget that these exceed shows nothing
    more.
    """

    turns: int | None = None
    tokens: int | None = None
    """Given both, as many of these turns as fit."""
    count: Counter = estimate

    @classmethod
    def all(cls) -> Context:
        """Show the whole history."""
        return ALL

    @classmethod
    def last(cls, turns: int) -> Context:
        """Show the last `turns` turns, and the one before them if the first of them answers its calls."""
        if turns < 0:
            raise InvalidInput(f"Context.last takes the number of turns to show, 0 or more, not {turns}.")
        return cls(turns=turns)

    @classmethod
    def budget(cls, tokens: int, count: Counter = estimate) -> Context:
        """Show as many of the last turns as fit into `tokens`, together with all that is always shown.
        `count` is called for each item; the default is an estimate."""
        if tokens < 0:
            raise InvalidInput(f"Context.budget takes a number of tokens, 0 or more, not {tokens}.")
        return cls(tokens=tokens, count=count)

    @classmethod
    def parse(cls, text: str) -> Context:
        """Return the context of a text: `all`, `last=20` or `budget=8000`. Raises InvalidInput."""
        found = CONTEXT.fullmatch(text)
        if found is None:
            raise InvalidInput(f"Unknown context {text[:40]!r}. Use {CONTEXTS}.")
        if found[1] is None:
            return ALL
        return cls.last(int(found[2])) if found[1] == "last" else cls.budget(int(found[2]))

    def count_all(self, items: Sequence[Item]) -> int:
        return sum(map(self.count, items))


ALL = Context()


def surely_shows_all(context: Context, turns: int, size: int, around: Callable[[], Sequence[Item]]) -> bool:
    """Return whether a history of so many turns and bytes is shown whole, with the items around it, if that
    is certain without counting its items."""
    if context.turns is not None and context.turns < turns:
        return False
    if context.tokens is None:
        return True
    # The estimate for n bytes is at most (n + 3) / 4, and so at most n / 3: no item has fewer than 9.
    left = context.tokens - size // 3
    return left >= 0 and context.count is estimate and context.count_all(around()) <= left


def context_of(last: int | None, budget: int | None) -> Context:
    """Return the context that a caller asks for, by one number or none. Raises InvalidInput for both."""
    if last is not None and budget is not None:
        raise InvalidInput("Give last or budget, not both.")
    if last is not None:
        return Context.last(last)
    return ALL if budget is None else Context.budget(budget)


def check_primer(items: Sequence[Item]) -> None:
    """Raise MalformedItems unless these can stand before a history, with a result for each call."""
    if open_calls(items):
        raise MalformedItems("The primer must contain a result for each of its calls.")


class ContextParts(Struct, frozen=True):
    instructions: tuple[Item, ...] = ()
    primer: tuple[Item, ...] = ()
    input: tuple[Item, ...] = ()
    steps: tuple[Item, ...] = ()
    hidden: Collection[int] = ()


def assemble(
    history: Sequence[Turn], parts: ContextParts, context: Context, hidden: HiddenPlaces
) -> tuple[Item, ...]:
    """Return the items for the model. `history` is all committed turns, or as many of the last ones as the
    policy can use; `hidden` names the items to leave out."""
    past, current = _parts(history, parts, hidden)
    start = _start(past, parts, current, context)
    shown = tuple(item for items in past[start:] for item in items)
    if start < len(history) and history[start].number > 1:
        shown = without_answers(shown)  # their calls are in a turn that is not shown
    asked = _asked_at(past, current, context)
    question = _question(past[asked]) if asked is not None and asked < start else ()
    assembled = (*parts.instructions, *parts.primer, *question, *shown, *current)
    open_calls(assembled)  # raises if a call and its result were separated
    return assembled


def first_shown(history: Sequence[Turn], parts: ContextParts, context: Context, hidden: HiddenPlaces) -> int:
    """Return the place of the first turn of this history that the policy shows whole; its length if none."""
    past, current = _parts(history, parts, hidden)
    return _start(past, parts, current, context)


def first_needed(history: Sequence[Turn], parts: ContextParts, context: Context, hidden: HiddenPlaces) -> int:
    """Return the place of the first turn of which anything is shown; 0 if that may be before this history."""
    past, current = _parts(history, parts, hidden)
    start = _start(past, parts, current, context)
    if _end_of_steps(past, current) < 0:
        return 0
    asked = _asked_at(past, current, context)
    return start if asked is None else min(asked, start)


def _parts(
    history: Sequence[Turn], parts: ContextParts, hidden: HiddenPlaces
) -> tuple[list[Sequence[Item]], Sequence[Item]]:
    past = [turn.items for turn in history]
    current = (*parts.input, *without_open_reasoning(parts.steps))
    if hidden or parts.hidden:
        places = [*(hidden.get(turn.id, ()) for turn in history), parts.hidden]
        *past, current = without_hidden([*past, current], places)
    return [without_empty_answers(items) for items in past], without_empty_answers(current)


def _start(
    past: Sequence[Sequence[Item]], parts: ContextParts, current: Sequence[Item], context: Context
) -> int:
    oldest = _oldest(past, current, context)
    if context.tokens is None:
        return oldest
    left = context.tokens - context.count_all((*parts.instructions, *parts.primer, *current))
    start = len(past)
    if start and answers_before(current):
        start -= 1
        left -= context.count_all(past[start])
    asked, question = _asked_at(past, current, context), 0
    if asked is not None and asked < start:
        question = context.count_all(_question(past[asked]))
        left -= question
    while start > oldest:
        size = context.count_all(past[start - 1]) - (question if start - 1 == asked else 0)
        if size > left:
            break
        start -= 1
        left -= size
    return start


def _oldest(past: Sequence[Sequence[Item]], current: Sequence[Item], context: Context) -> int:
    if context.turns is None:
        return 0
    oldest = max(0, len(past) - context.turns)
    first = past[oldest] if oldest < len(past) else current
    return oldest - bool(oldest and answers_before(first))


def _asked_at(past: Sequence[Sequence[Item]], current: Sequence[Item], context: Context) -> int | None:
    """Return the place of the turn with the question that led to the results in the input: without it, a
    model forgets what its calls are for, and some refuse messages without any of the user. None if the policy
    excludes it, or the input has a message of the user."""
    place = _end_of_steps(past, current)
    is_shown = _oldest(past, current, context) <= place < len(past)
    return place if is_shown and _question(past[place]) else None


def _end_of_steps(past: Sequence[Sequence[Item]], current: Sequence[Item]) -> int:
    """Return the place before the results that follow each other up to the input; -1 if all turns have some,
    and no message of the user."""
    place, items = len(past), current
    while answers_before(items) and not _question(items) and len(past) - place < MOST_STEPS:
        place -= 1
        if place < 0:
            break
        items = past[place]
    return place


def _question(items: Sequence[Item]) -> Sequence[Item]:
    return [item for item in items if item.is_user_message]


def answers_before(items: Sequence[Item]) -> bool:
    """Return whether these begin with results, which answer calls of the turn before."""
    return bool(items) and items[0].is_result
