"""Makes text from models and other people safe for a terminal: printed, never interpreted."""

from __future__ import annotations

import re
import unicodedata

from turnledger.model.text.plain import plain

_INVISIBLE = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Invisible, of uncertain width."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TAB = "    "


def sanitize(text: str) -> str:
    """Escape everything unprintable, line by line: whatever moves the cursor, sets colours or changes the
    direction of reading."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\t", TAB)
    return "\n".join(map(_sanitize_visible, text.split("\n")))


def sanitize_line(text: str) -> str:
    """Do the same, joined to one line."""
    return sanitize(" ".join(text.split()))


def escape_controls(text: str) -> str:
    """Escape terminal controls only, for a program at the other end of a pipe, in case its output reaches a
    terminal."""
    return _CONTROL.sub(lambda found: plain(found[0]), text.replace("\r\n", "\n"))


def _sanitize_visible(line: str) -> str:
    if line.isprintable():
        return line
    return plain("".join(map(_as_space, _INVISIBLE.sub("", line))))


def _as_space(char: str) -> str:
    return " " if unicodedata.category(char) == "Zs" else char
