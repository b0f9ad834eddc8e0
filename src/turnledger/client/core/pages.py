"""Pages, read one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from msgspec.structs import replace

from turnledger.api.chats import Page
from turnledger.client.core.steps import Steps
from turnledger.errors import InvalidInput

Entry = TypeVar("Entry")
PAGE = 50


class Paging(Generic[Entry]):
    def __init__(
        self, look: Callable[[str | None, int], Steps[Page[Entry]]], limit: int | None, cursor: str | None
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidInput("limit must be 1 or more, or None for all.")
        self._look = look
        self._limit = limit
        self._cursor = cursor

    def _first(self) -> Place[Entry]:
        return Place(self._look, self._limit, self._cursor)


class Place(Generic[Entry]):
    def __init__(
        self, look: Callable[[str | None, int], Steps[Page[Entry]]], left: int | None, cursor: str | None
    ) -> None:
        self._look = look
        self._left = left
        self._cursor = cursor
        self._is_over = False

    def next_page(self) -> Steps[Page[Entry] | None]:
        """Return the next page; None after the last."""
        if self._is_over:
            return None
        page = yield from self._look(self._cursor, PAGE if self._left is None else min(PAGE, self._left))
        if self._left is not None:
            if len(page) > self._left:
                page = replace(page, data=page.data[: self._left])
            self._left -= len(page)
        self._cursor = page.next
        self._is_over = page.next is None or self._left == 0
        return page
