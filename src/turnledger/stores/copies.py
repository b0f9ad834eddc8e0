"""How the tables of a store become records, and records its tables: declared by each SQL store, column by
column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import msgspec

from turnledger.engine.tables.records import TABLES, CopyProgress, StoreRecord
from turnledger.errors import InvalidInput, StoreCorrupt

UNFINISHED = 1 << 30
"""Added to the schema version of an incomplete copy: older versions of Turnledger refuse it, too."""
NO_EXPRESSIONS: Mapping[str, str] = MappingProxyType({})
NEVER_NULL = ("owner", "branch")
"""Columns that are NULL only if the row they lead to is missing."""


class CopiedTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table, and how its rows become records."""

    name: str
    key: tuple[str, ...]
    """Its unique key, in the order in which it is read: columns, or calls of functions. It needs an index."""
    rows: str = ""
    """What to select from, if that is more than the table."""
    read: Mapping[str, str] = NO_EXPRESSIONS
    """The columns of the record that are not a column of the table, as expressions."""
    large: tuple[str, ...] = ()
    """Columns that may be large."""

    @property
    def columns(self) -> tuple[str, ...]:
        return TABLES[self.name]

    @property
    def selection(self) -> str:
        return ", ".join(self.read.get(column, f"{self.name}.{column}") for column in self.columns)

    @property
    def source(self) -> str:
        return f"FROM {self.rows or self.name}"

    @property
    def order(self) -> str:
        return ", ".join(each if "(" in each else f"{self.name}.{each}" for each in self.key)


def check_record(table: CopiedTable, record: StoreRecord) -> None:
    """Raise StoreCorrupt for a row that belongs to nothing."""
    for place in _NEVER_NULL_IN[table.name]:
        if record[place] is None:
            raise StoreCorrupt(
                f"A row of `{table.name}` belongs to nothing. Run `turnledger check` on the store."
            )


_NEVER_NULL_IN = {
    name: [place for place, column in enumerate(columns) if column in NEVER_NULL]
    for name, columns in TABLES.items()
}


def size_of(record: Sequence[Any]) -> int:
    return sum(len(value) for value in record if isinstance(value, (str, bytes)))


def packed(progress: CopyProgress) -> bytes:
    return msgspec.json.encode(progress)


def unpacked(raw: bytes) -> CopyProgress:
    return msgspec.json.decode(raw, type=CopyProgress)


def check_copy_version(version: int, known: int, place: str) -> None:
    """Raise InvalidInput for a copy that another version of Turnledger has begun."""
    if version >= UNFINISHED and version - UNFINISHED != known:
        raise InvalidInput(
            f"{place} is an unfinished copy by another version of Turnledger. Drop it, and copy again."
        )
