"""What may be written to a terminal: stored text is hostile, and control sequences do things there."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text on one line, with everything that is not printable written out as an escape."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
