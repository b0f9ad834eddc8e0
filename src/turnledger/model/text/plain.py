"""Plain text from text that people and models wrote: file names, lines safe to print.

Text from outside can attack terminals, logs, headers and file systems.
"""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote


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
