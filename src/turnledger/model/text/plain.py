"""Plain text from text that people and models wrote: titles, previews, file names, lines safe to print.

Text from outside can attack terminals, logs, headers and file systems.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:  # the command line prints lines, and starts faster without items
    from turnledger.model.item import Item
    from turnledger.model.turn import Turn

_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They change the reading direction of the text around them, also of other users' lines in a list."""
_SPARE = 8
"""Characters examined for each one shown, since white space and controls are removed."""


def one_line(text: str, length: int) -> str:
    """Return the first characters with white space collapsed and control characters removed. The cost does
    not depend on the length of the text, unless it begins with white space."""
    if text[:1].isspace():
        text = text.lstrip()
    line = text[:length]
    if not line.isprintable() or "  " in line:
        # A little more is nearly always enough, and every commit makes such a line.
        line = " ".join(text[: length + length // 2].split())
        if len(line) < length or not line.isprintable():
            line = " ".join(text[: length * _SPARE].split())
    if not line.isprintable():
        line = " ".join("".join([letter for letter in line if _is_visible(letter)]).split())
    return line[:length].rstrip()


def _is_visible(letter: str) -> bool:
    # Joiners stay: scripts and emoji need them.
    return letter not in _DIRECTIONS and unicodedata.category(letter) not in ("Cc", "Cs", "Co", "Cn")


def plain(text: str) -> str:
    """Return the text on one line, unprintable characters as escapes."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


LONGEST = 60
_DROPPED = re.compile(r"[^\w\- ]+")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)


def file_name(title: str | None, default: str, ending: str) -> str:
    """Make a file name of the letters, digits, spaces and dashes of a title, or else of `default`."""
    text = unicodedata.normalize("NFC", title or "")
    text = " ".join(_DROPPED.sub(" ", text.replace("_", " ")).split())[:LONGEST].strip(" -")
    if not text or _RESERVED.fullmatch(text):
        text = default
    return f"{text}.{ending}"


def content_disposition(name: str) -> str:
    """Return the header that makes a browser save a file under this name."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    stem = ascii_name.rpartition(".")[0].strip()
    if not stem:
        ascii_name = "chat" + name[name.rfind(".") :]
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"


TITLE_LENGTH = 60
SHORTEST = 20
"""Cut a title between words unless that leaves fewer characters than this."""
CUT = "…"


def title_of(text: str) -> str | None:
    """Return the first words of a text as a one-line title; None if there are none."""
    line = one_line(text, TITLE_LENGTH + 1)
    if len(line) <= TITLE_LENGTH:
        return line or None
    words = line[: TITLE_LENGTH - len(CUT) + 1]
    end = words.rfind(" ")
    return words[: end if end >= SHORTEST else TITLE_LENGTH - len(CUT)].rstrip() + CUT


def first_words(input: Iterable[Item], hidden: Collection[int] = ()) -> str | None:
    """Return the title for the input of a turn: the first words of its first visible user message."""
    for place, item in enumerate(input):
        if item.is_user_message and place not in hidden and (title := title_of(item.text)):
            return title
    return None


PREVIEW_LENGTH = 160
_PREVIEW_ROLES = ("assistant", "user")


def preview_of(turn: Turn, hidden: Collection[int] = ()) -> str:
    """Return the beginning of the last visible text in a turn; empty for a turn of only calls and results."""
    items = turn.items
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if (
            item.role in _PREVIEW_ROLES
            and place not in hidden
            and (line := one_line(item.text, PREVIEW_LENGTH))
        ):
            return line
    return ""


_SEARCHED_ROLES = ("user", "assistant")


def visible_texts(turn: Turn, hidden: Collection[int]) -> list[str]:
    """Return the visible texts of user and assistant, in order; not tools, reasoning or instructions."""
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.type == "message" and item.role in _SEARCHED_ROLES and place not in hidden and item.text
    ]
