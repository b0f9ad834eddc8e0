"""The undo log: changes to dictionaries that can be taken back, all of them, in the reverse order."""

from __future__ import annotations

from collections.abc import Callable, MutableMapping
from typing import TypeVar

Name = TypeVar("Name")
Row = TypeVar("Row")


class UndoLog:
    """Changes rows, and remembers what to put back."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []

    @property
    def has_written(self) -> bool:
        return bool(self._undo)

    def undo(self) -> None:
        """Put everything back as it was."""
        while self._undo:
            self._undo.pop()()

    def _put(self, table: MutableMapping[Name, Row], name: Name, row: Row) -> None:
        if name in table:
            before = table[name]
            self._undo.append(lambda: table.__setitem__(name, before))
        else:
            self._undo.append(lambda: table.pop(name))
        table[name] = row

    def _remove(self, table: MutableMapping[Name, Row], name: Name) -> None:
        if name in table:
            before = table.pop(name)
            self._undo.append(lambda: table.__setitem__(name, before))
