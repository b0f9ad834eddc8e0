"""Loads queries.sql: each statement by its name."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def sql_text(name: str) -> str:
    """The text of one of this package's .sql files."""
    return files("turnledger.stores.sqlite").joinpath(name).read_text("utf-8")


def named_queries(text: str) -> dict[str, str]:
    """Split a file of named queries. Each becomes one line, without the space that makes it readable:
    statements are looked up by their text, which takes a nanosecond for each character."""
    _, *parts = _NAME.split(text)
    return {
        name: " ".join(_COMMENT.sub("", query).split())
        for name, query in zip(parts[::2], parts[1::2], strict=True)
    }


QUERIES: Mapping[str, str] = named_queries(sql_text("tables/queries.sql"))
