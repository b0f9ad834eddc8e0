"""Pages, read one after the other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeAlias, TypeVar

from msgspec.structs import replace

from turnledger.api.chats import Page
from turnledger.client.core.steps import Steps
from turnledger.errors import InvalidInput

Entry = TypeVar("Entry")
ReadPage: TypeAlias = Callable[[str | None, int], Steps[Page[Entry]]]
PAGE = 50


class PageReader(Generic[Entry]):
    def __init__(self, read_page: ReadPage[Entry], limit: int | None, cursor: str | None) -> None:
        if limit is not None and limit < 1:
            raise InvalidInput("limit must be 1 or more, or None for all.")
        self._read_page = read_page
        self._remaining = limit
        self._cursor = cursor
        self._is_over = False

    def next_page(self) -> Steps[Page[Entry] | None]:
        """Return the next page; None after the last."""
        if self._is_over:
            return None
        page = yield from self._read_page(
            self._cursor, PAGE if self._remaining is None else min(PAGE, self._remaining)
        )
        if self._remaining is not None:
            if len(page) > self._remaining:
                page = replace(page, data=page.data[: self._remaining])
            self._remaining -= len(page)
        self._cursor = page.next
        self._is_over = page.next is None or self._remaining == 0
        return page
