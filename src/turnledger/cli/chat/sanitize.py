"""Text from models and other people, made harmless for a terminal: what it says is shown, what it commands is
written out."""

from __future__ import annotations

import re
import unicodedata

from turnledger.model.text.plain import plain

_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Shows nothing, and would only make widths uncertain."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TAB = "    "


def harmless(text: str) -> str:
    """The text with its lines as they are, of which nothing but what can be printed is left: all else, such
    as what moves the cursor, sets colours or turns the direction of reading, is written out as an escape."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\t", TAB)
    return "\n".join(map(_line, text.split("\n")))


def on_one_line(text: str) -> str:
    """The same for names and the like, which have one line."""
    return harmless(" ".join(text.split()))


def uncontrolled(text: str) -> str:
    """The text for a program at the other end of a pipe: as it is, but for what would control a terminal if
    one is at the end after all."""
    return _CONTROL.sub(lambda found: plain(found[0]), text.replace("\r\n", "\n"))


def _line(line: str) -> str:
    if line.isprintable():
        return line
    return plain("".join(map(_spaced, _UNSEEN.sub("", line))))


def _spaced(letter: str) -> str:
    return " " if unicodedata.category(letter) == "Zs" else letter
