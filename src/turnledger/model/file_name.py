"""Names of files that are made of what people write: harmless on every system, and in every header."""

from __future__ import annotations

import re
import unicodedata
from urllib.parse import quote

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
