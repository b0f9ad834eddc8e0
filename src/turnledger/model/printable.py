"""What may be written to a terminal or a log: text from outside is hostile."""

from __future__ import annotations


def plain(text: str) -> str:
    """The text on one line, with everything that is not printable written out as an escape."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode() for letter in text
    )
