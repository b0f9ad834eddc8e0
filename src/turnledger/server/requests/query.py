"""Values of query parameters, checked: numbers, flags, and one word of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from turnledger.errors import InvalidInput

HIGHEST = 999_999_999
"""No page, and no number of a turn, needs more digits."""

Otherwise = TypeVar("Otherwise", int, None)
Choice = TypeVar("Choice")


def choice_of(given: str | None, name: str, known: Mapping[str, Choice], otherwise: Choice) -> Choice:
    """What one of the known words stands for; another thing where it was left out. Raises InvalidInput with
    the words there are."""
    if given is None:
        return otherwise
    if given not in known:
        raise InvalidInput(f"{name} is one of {', '.join(known)}.")
    return known[given]


def number_of(given: str | None, name: str, otherwise: Otherwise) -> int | Otherwise:
    """A number; another one where it was left out. Raises InvalidInput for anything else."""
    if given is None:
        return otherwise
    if not given.isascii() or not given.isdigit() or len(given) > len(str(HIGHEST)):
        raise InvalidInput(f"{name} is a number.")
    return int(given)


def yes_or_no(given: str | None, name: str, *, otherwise: bool) -> bool:
    """Whether it says `true`; as it is otherwise where it was left out. Raises InvalidInput for anything but
    `true` and `false`."""
    if given is None:
        return otherwise
    if given not in ("true", "false"):
        raise InvalidInput(f"{name} is true or false.")
    return given == "true"
