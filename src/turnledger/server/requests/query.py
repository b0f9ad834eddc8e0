"""Check the values of query parameters: numbers, flags, and choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from turnledger.errors import InvalidInput

MAX_NUMBER = 999_999_999
"""Page sizes and turn numbers need no more digits."""

Default = TypeVar("Default", int, None)
Choice = TypeVar("Choice")


def choice_of(value: str | None, name: str, choices: Mapping[str, Choice], default: Choice) -> Choice:
    """Return the value of a known word; `default` if none was given. Raises InvalidInput with the known
    words."""
    if value is None:
        return default
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}.")
    return choices[value]


def number_of(value: str | None, name: str, default: Default) -> int | Default:
    """Return a number; `default` if none was given. Raises InvalidInput."""
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > len(str(MAX_NUMBER)):
        raise InvalidInput(f"{name} must be a number.")
    return int(value)


def flag_of(value: str | None, name: str, *, default: bool) -> bool:
    """Parse `true` or `false`; return `default` if nothing was given. Raises InvalidInput."""
    if value is None:
        return default
    if value not in ("true", "false"):
        raise InvalidInput(f"{name} must be true or false.")
    return value == "true"
