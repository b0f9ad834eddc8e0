"""Instructions: what the model is told before the history, in force for a turn and those after it until
replaced. They are recorded with the turn that brought them, and are no part of its items."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct

from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.item import Item, ItemLike, message
from turnledger.model.turn import Turn

_ROLES = ("system", "developer")


class Instructions(Struct, frozen=True):
    """What a turn brings along. No items: from here on there are none."""

    items: tuple[Item, ...]
    is_lasting: bool = True
    """Whether they stay in force for later turns; if not, those before them are in force again."""


def instructions_of(
    lasting: ItemLike | Iterable[ItemLike] | None, once: ItemLike | Iterable[ItemLike] | None = None
) -> Instructions | None:
    """Make instructions from what a caller gives: a text is a system message, an empty one none at all.

    Raises MalformedItems for anything but system and developer messages, InvalidInput if both are given.
    """
    if lasting is None and once is None:
        return None
    if lasting is not None and once is not None:
        raise InvalidInput("Give instructions or instructions_once, not both.")
    given = once if lasting is None else lasting
    assert given is not None  # noqa: S101 - for the type checker
    return Instructions(_items(given), is_lasting=lasting is not None)


def _items(given: ItemLike | Iterable[ItemLike]) -> tuple[Item, ...]:
    if isinstance(given, str):
        return (message("system", given),) if given.strip() else ()
    likes: Iterable[ItemLike] = (given,) if isinstance(given, Mapping | Item) else given
    items = tuple(message("system", like) if isinstance(like, str) else Item.of(like) for like in likes)
    if not all(map(is_instruction, items)):
        raise MalformedItems("Instructions are a text, or messages whose role is system or developer.")
    return items


def is_instruction(item: Item) -> bool:
    return item.type == "message" and item.role in _ROLES


def given_to(turn: Turn) -> Instructions | None:
    """The instructions that a turn was given, as they could be given again to one in its place."""
    if turn.instructions is None:
        return None
    is_lasting = turn.instructed == (turn.number if turn.instructions else 0)
    return Instructions(turn.instructions, is_lasting)


def instructed_after(given: Instructions | None, before: int, number: int) -> int:
    """The number of the turn whose instructions are in force behind turn `number`, which was given these
    where those of turn `before` were in force; 0 for none."""
    if given is None or not given.is_lasting:
        return before
    return number if given.items else 0
