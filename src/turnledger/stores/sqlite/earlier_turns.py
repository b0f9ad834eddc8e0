"""What migrations ask of turns that were committed before lists showed anything of them: functions that their
SQL calls."""

from __future__ import annotations

from collections.abc import Callable, Collection

import apsw

from turnledger.errors import StoreError
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.text.plain import first_words, preview_of
from turnledger.model.turn import Turn, TurnKind


def add_functions(connection: apsw.Connection) -> None:
    """Let the SQL of this connection call `turn_preview` and `turn_title`, each with the body of a turn and
    the places in it that are hidden, as a list with commas or NULL."""
    functions: dict[str, Callable[..., str | None]] = {"turn_preview": turn_preview, "turn_title": turn_title}
    for name, function in functions.items():
        connection.create_scalar_function(name, function, 2, deterministic=True)


def turn_preview(body: bytes, hidden: str | None) -> str:
    """How the last text of a turn begins that is shown; empty if there is none, or if it cannot be read."""
    try:
        return preview_of(_turn(body), _places(hidden))
    except StoreError:
        return ""  # whoever reads the turn is told, and so is who checks the store


def turn_title(body: bytes, hidden: str | None) -> str | None:
    """The first words of a turn; NULL if it has none, or if it cannot be read."""
    try:
        return first_words(_turn(body).input, _places(hidden))
    except StoreError:
        return None


def _turn(body: bytes) -> Turn:
    nobody = bytes(16)
    return Turn(TurnId.trusted(nobody), BranchId.trusted(nobody), 1, None, TurnKind.COMPLETED, 0, 0, body)


def _places(hidden: str | None) -> Collection[int]:
    return {int(place) for place in hidden.split(",")} if hidden else ()
