"""Check the values of query parameters: numbers, flags, and choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from turnledger.errors import InvalidInput

HIGHEST = 999_999_999
"""Page sizes and turn numbers need no more digits."""

Otherwise = TypeVar("Otherwise", int, None)
Choice = TypeVar("Choice")


def choice_of(given: str | None, name: str, known: Mapping[str, Choice], otherwise: Choice) -> Choice:
    """Return the value of a known word; `otherwise` if none was given. Raises InvalidInput with the known
    words."""
    if given is None:
        return otherwise
    if given not in known:
        raise InvalidInput(f"{name} is one of {', '.join(known)}.")
    return known[given]


def number_of(given: str | None, name: str, otherwise: Otherwise) -> int | Otherwise:
    """Return a number; `otherwise` if none was given. Raises InvalidInput."""
    if given is None:
        return otherwise
    if not given.isascii() or not given.isdigit() or len(given) > len(str(HIGHEST)):
        raise InvalidInput(f"{name} is a number.")
    return int(given)


def yes_or_no(given: str | None, name: str, *, otherwise: bool) -> bool:
    """Parse `true` or `false`; return `otherwise` if nothing was given. Raises InvalidInput."""
    if given is None:
        return otherwise
    if given not in ("true", "false"):
        raise InvalidInput(f"{name} is true or false.")
    return given == "true"
