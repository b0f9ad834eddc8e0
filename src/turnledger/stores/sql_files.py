"""Files of named queries."""

from __future__ import annotations

import re

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def named_queries(text: str) -> dict[str, str]:
    """Split a file of named queries, each into one line without extra white space: statements are cached by
    their text, and each character costs a nanosecond."""
    _, *parts = _NAME.split(text)
    return {
        name: " ".join(_COMMENT.sub("", query).split())
        for name, query in zip(parts[::2], parts[1::2], strict=True)
    }
