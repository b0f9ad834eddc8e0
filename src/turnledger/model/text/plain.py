"""The beginning of a text as one line: what lists, titles and previews show of it.

What may be written to a terminal or a log: text from outside is hostile.

Names of files that are made of what people write: harmless on every system, and in every header.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote

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
