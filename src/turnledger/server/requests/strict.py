"""What a request says that nobody here would listen to: refused by name, rather than passed over.

A filter that is misspelt would list everything, and a promise in a header would look as if it was kept.

What stands behind the question mark of a path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar
from urllib.parse import parse_qsl

from starlette.types import Scope

from turnledger.errors import InvalidInput
from turnledger.server.errors import Refused
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.requests.headers import KEEP, not_for_this

NATIVE = "/api/"
"""What is spoken below it is ours; elsewhere others have their say, and what they add is left alone."""
CONDITION = b"if-match"
_SHOWN = 40


def check_understood(endpoint: Endpoint, scope: Scope) -> None:
    """Raise Refused (400) for a parameter of the query that the endpoint does not know, or that is there
    twice; InvalidInput or Refused for a header that asks for what it does not do."""
    if not endpoint.path.startswith(NATIVE):
        return
    if scope["query_string"]:
        _check_query(endpoint, scope["query_string"])
    if endpoint.method != "GET":
        _check_headers(endpoint, scope)


def _check_query(endpoint: Endpoint, query: bytes) -> None:
    names = [name for name, _ in parse_qsl(query.decode("latin-1"), keep_blank_values=True)]
    for name in names:
        if name not in endpoint.query:
            known = ", ".join(endpoint.query)
            remedy = f"Known: {known}." if known else "This path takes none."
            message = f"There is no parameter {name[:_SHOWN]!r} in the query. {remedy}"
            raise Refused(400, "unknown_parameter", message, param=name[:_SHOWN])
        if names.count(name) > 1:
            raise Refused(
                400, "repeated_parameter", f"{name}: given more than once. Send it once.", param=name
            )


def _check_headers(endpoint: Endpoint, scope: Scope) -> None:
    """Others mean nothing where no turn is run, and clients send them with everything."""
    asked = {name: value for name, value in scope["headers"] if name in (CONDITION, KEEP)}
    if not asked:
        return
    if asked.get(CONDITION, b"*").strip() != b"*" and CONDITION.title().decode() not in endpoint.headers:
        message = "If-Match is for changes of what is said of a chat, with PATCH. Leave it out here."
        raise Refused(400, "invalid_if_match", message, param="If-Match")
    if KEEP in asked:
        raise not_for_this({KEEP})


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
