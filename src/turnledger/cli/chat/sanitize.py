"""Text from models and other people, made safe for a terminal: printed, never obeyed."""

from __future__ import annotations

import re
import unicodedata

from turnledger.model.text.plain import plain

_UNSEEN = re.compile("[\u00ad\u200b-\u200d\u2060\ufeff]")
"""Invisible, and makes widths uncertain."""
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")
TAB = "    "


def harmless(text: str) -> str:
    """The text, line by line, with everything unprintable written out as an escape: whatever moves the
    cursor, sets colours or changes the direction of reading."""
    if text.isprintable():
        return text
    text = text.replace("\r\n", "\n").replace("\t", TAB)
    return "\n".join(map(_line, text.split("\n")))


def on_one_line(text: str) -> str:
    """The same, joined to one line."""
    return harmless(" ".join(text.split()))


def uncontrolled(text: str) -> str:
    """The text for a program at the other end of a pipe: unchanged except for terminal controls, in case a
    terminal reads it after all."""
    return _CONTROL.sub(lambda found: plain(found[0]), text.replace("\r\n", "\n"))


def _line(line: str) -> str:
    if line.isprintable():
        return line
    return plain("".join(map(_spaced, _UNSEEN.sub("", line))))


def _spaced(letter: str) -> str:
    return " " if unicodedata.category(letter) == "Zs" else letter
