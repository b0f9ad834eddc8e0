"""Loads queries.sql: each statement by its name, as it stands there."""

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
    """Split a file of named queries."""
    _, *parts = _NAME.split(text)
    return {
        name: _COMMENT.sub("", query).strip() for name, query in zip(parts[::2], parts[1::2], strict=True)
    }


QUERIES: Mapping[str, str] = named_queries(sql_text("queries.sql"))
