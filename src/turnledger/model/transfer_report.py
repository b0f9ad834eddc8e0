"""What an import did with a line, in a word that programs match on and a sentence for people."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Did(StrEnum):
    """What was done."""

    IMPORTED = "imported"  # the chat is there, with all that is not reported otherwise
    UNCHANGED = "unchanged"  # the chat was there already, and is the same
    CONFLICT = "conflict"  # the chat was there already, and is another; it is left as it is
    REFUSED = "refused"  # nothing was taken of this chat, or of this line
    DROPPED = "dropped"  # a part was left out
    REPAIRED = "repaired"  # a part was changed, so that models accept the history
    RENAMED = "renamed"  # it has another id here


ENDS = frozenset({Did.IMPORTED, Did.UNCHANGED, Did.CONFLICT, Did.REFUSED})
"""What becomes of a chat: one of these for each."""


class ImportReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What was done with one line, counted from 1. Each chat has one report that tells its end, on the line
    that it begins with; what was not taken as it stands has one of its own."""

    line: int
    did: Did
    chat: str | None = None
    """The id that the chat has here, or the one that it has in the file where it is not here."""
    turn: str | None = None
    """The id of the turn, in the file."""
    turns: int | None = None
    """How many turns of the chat are here."""
    why: str = ""
