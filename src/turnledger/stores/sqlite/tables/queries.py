"""Every statement by its name, and a cursor that runs them. Each .sql file is beside its module."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from typing import Any, TypeAlias

import apsw

Row: TypeAlias = tuple[Any, ...]

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


FILES = ("tables", "catalogue", "access", "search", "overview")
QUERIES: Mapping[str, str] = {
    name: query for file in FILES for name, query in named_queries(sql_text(f"tables/{file}.sql")).items()
}


class NamedQueries:
    """Runs statements on a cursor inside a transaction."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        self._cursor = cursor
        self._execute = cursor.execute

    def _rows(self, query: str, *bindings: Any) -> list[Row]:
        return self._execute(QUERIES[query], bindings).fetchall()

    def _row(self, query: str, *bindings: Any) -> Row | None:
        rows = self._execute(QUERIES[query], bindings).fetchall()
        return rows[0] if rows else None

    def _run(self, query: str, *bindings: Any) -> None:
        self._execute(QUERIES[query], bindings)
