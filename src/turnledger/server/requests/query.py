"""Check query parameters: their names, and values that are numbers, flags or choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import parse_qsl

from turnledger.errors import InvalidInput
from turnledger.server.errors import RequestRefused

MAX_NUMBER = 999_999_999
"""Page sizes and turn numbers need no more digits."""

QUOTED_LENGTH = 40

Default = TypeVar("Default", int, None)
Choice = TypeVar("Choice")


def choice_of(value: str | None, name: str, choices: Mapping[str, Choice], default: Choice) -> Choice:
    """Return the value of a known word; `default` if none was given. Raises InvalidInput with the known
    words."""
    if value is None:
        return default
    if value not in choices:
        raise InvalidInput(f"{name} must be one of {', '.join(choices)}.", param=name)
    return choices[value]


def number_of(value: str | None, name: str, default: Default) -> int | Default:
    """Return a number; `default` if none was given. Raises InvalidInput."""
    if value is None:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > len(str(MAX_NUMBER)):
        raise InvalidInput(f"{name} must be a number.", param=name)
    return int(value)


def flag_of(value: str | None, name: str, *, default: bool) -> bool:
    """Parse `true` or `false`; return `default` if nothing was given. Raises InvalidInput."""
    if value is None:
        return default
    if value not in ("true", "false"):
        raise InvalidInput(f"{name} must be true or false.", param=name)
    return value == "true"


def check_names(query: bytes, known: Mapping[str, object]) -> None:
    """Raise RequestRefused (400) for an unknown or repeated parameter."""
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for name in names:
        if name not in known:
            remedy = f"Known: {', '.join(known)}." if known else "This path takes no parameters."
            message = f"Unknown query parameter {name[:QUOTED_LENGTH]!r}. {remedy}"
            raise RequestRefused(400, "unknown_parameter", message, param=name[:QUOTED_LENGTH])
        if names.count(name) > 1:
            raise RequestRefused(400, "repeated_parameter", f"{name} is repeated. Send it once.", param=name)
