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


LONGEST_WHY = 500
"""Characters of a sentence: it may repeat what stands in the file."""
LONGEST_NAME = 80
MOST_OF_A_CHAT = 1_000
"""Reports of one chat that are kept: a small file can be wrong in millions of places."""


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


class Notes:
    """What is reported of one chat, within bounds: of more than that, how many there are."""

    def __init__(self) -> None:
        self._kept: list[ImportReport] = []
        self._last = 0
        self._left_out = 0

    def add(self, line: int, did: Did, why: str, *, chat: str | None, turn: str | None = None) -> None:
        """Note one thing."""
        self._last = line
        if len(self._kept) >= MOST_OF_A_CHAT:
            self._left_out += 1
            return
        named = None if turn is None else str(turn)[:LONGEST_NAME]
        self._kept.append(ImportReport(line=line, did=did, chat=chat, turn=named, why=why[:LONGEST_WHY]))

    def all(self) -> list[ImportReport]:
        """What was noted, in the order of lines."""
        kept = sorted(self._kept, key=lambda report: report.line)
        if self._left_out:
            why = f"{self._left_out} more reports of this chat are left out."
            kept.append(ImportReport(line=self._last, did=Did.DROPPED, chat=kept[-1].chat, why=why))
        return kept
