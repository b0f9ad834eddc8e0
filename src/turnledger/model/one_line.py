"""The beginning of a text as one line: what lists, titles and previews show of it."""

from __future__ import annotations

import unicodedata

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
