"""Plain text made from what people and models write: titles, previews, file names, and lines safe to print.

Text from outside is hostile to terminals, logs, headers and file systems.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from typing import TYPE_CHECKING
from urllib.parse import quote

if TYPE_CHECKING:
    from turnledger.model.item import Item
    from turnledger.model.turn import Turn

_DIRECTIONS = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
"""They turn the reading direction of what stands beside them, in a list of other people's lines."""
_SPARE = 8
"""So many characters are looked at for each that is shown: white space and controls go."""


def one_line(text: str, length: int) -> str:
    """The first so many characters, white space collapsed, without control characters. What it costs does
    not depend on how long the text is, unless it begins with white space."""
    if text[:1].isspace():
        text = text.lstrip()
    line = text[:length]
    if not line.isprintable() or "  " in line:
        # A little more than is shown is nearly always enough, and each commit makes such a line.
        line = " ".join(text[: length + length // 2].split())
        if len(line) < length or not line.isprintable():
            line = " ".join(text[: length * _SPARE].split())
    if not line.isprintable():
        line = " ".join("".join([letter for letter in line if _is_shown(letter)]).split())
    return line[:length].rstrip()


def _is_shown(letter: str) -> bool:
    # Joiners are kept: without them, scripts and pictures fall apart.
    return letter not in _DIRECTIONS and unicodedata.category(letter) not in ("Cc", "Cs", "Co", "Cn")


def plain(text: str) -> str:
    """The text on one line, with everything that is not printable written out as an escape."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )


LONGEST = 60
_KEPT = re.compile(r"[^\w\- ]+")
_RESERVED = re.compile(r"(con|prn|aux|nul|com\d|lpt\d)", re.IGNORECASE)


def file_name(title: str | None, otherwise: str, ending: str) -> str:
    """A name made of the letters, digits, spaces and dashes of a title; of `otherwise` where none is left."""
    text = unicodedata.normalize("NFC", title or "")
    text = " ".join(_KEPT.sub(" ", text.replace("_", " ")).split())[:LONGEST].strip(" -")
    if not text or _RESERVED.fullmatch(text):
        text = otherwise
    return f"{text}.{ending}"


def content_disposition(name: str) -> str:
    """The header that has a browser save a file under this name."""
    ascii_name = unicodedata.normalize("NFKD", name).encode("ascii", "ignore").decode()
    stem = ascii_name.rpartition(".")[0].strip()
    if not stem:
        ascii_name = "chat" + name[name.rfind(".") :]
    return f"attachment; filename=\"{ascii_name}\"; filename*=UTF-8''{quote(name, safe='')}"


TITLE_LENGTH = 60
SHORTEST = 20
"""A title is cut between words, unless that would leave less than this."""
CUT = "…"


def title_of(text: str) -> str | None:
    """The first words of a text as a title of one line; None if it has none."""
    line = one_line(text, TITLE_LENGTH + 1)
    if len(line) <= TITLE_LENGTH:
        return line or None
    words = line[: TITLE_LENGTH - len(CUT) + 1]
    end = words.rfind(" ")
    return words[: end if end >= SHORTEST else TITLE_LENGTH - len(CUT)].rstrip() + CUT


def first_words(input: Iterable[Item], hidden: Collection[int] = ()) -> str | None:
    """The title that the input of a turn gives: the first words of its first text by a person, without the
    items at the hidden places."""
    for place, item in enumerate(input):
        if item.is_user_message and place not in hidden and (title := title_of(item.text)):
            return title
    return None


PREVIEW_LENGTH = 160
_SEEN = ("assistant", "user")


def preview_of(turn: Turn, hidden: Collection[int] = ()) -> str:
    """The beginning of the last text in a turn that a person sees, without the items at the hidden places;
    empty if it shows none: a turn may be all calls and results."""
    items = turn.items
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if item.role in _SEEN and place not in hidden and (line := one_line(item.text, PREVIEW_LENGTH)):
            return line
    return ""


_SPOKEN = ("user", "assistant")


def seen_texts(turn: Turn, hidden: Collection[int]) -> list[str]:
    """The texts of the messages of user and assistant, in order, without the items at the places that are
    hidden from the user. Tools, reasoning and instructions have no part in them."""
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.type == "message" and item.role in _SPOKEN and place not in hidden and item.text
    ]
