"""What comes page by page, as one row of entries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Any, Generic, TypeVar

from turnledger.client.core.steps import Doing
from turnledger.client.shapes import Page
from turnledger.errors import InvalidInput

Entry = TypeVar("Entry")
PAGE = 50
"""Entries that are asked for at a time."""


class _Paging(Generic[Entry]):
    def __init__(
        self, look: Callable[[str | None, int], Doing[Page[Entry]]], limit: int | None, cursor: str | None
    ) -> None:
        if limit is not None and limit < 1:
            raise InvalidInput("limit is how many there shall be at most: 1 or more, or None for all.")
        self._look = look
        self._limit = limit
        self._cursor = cursor

    def _first(self) -> _Place[Entry]:
        return _Place(self._look, self._limit, self._cursor)


class _Place(Generic[Entry]):
    """Where somebody is who reads page by page."""

    def __init__(
        self, look: Callable[[str | None, int], Doing[Page[Entry]]], left: int | None, cursor: str | None
    ) -> None:
        self._look = look
        self._left = left
        self._cursor = cursor
        self._is_over = False

    def next_page(self) -> Doing[Page[Entry] | None]:
        """The next page; None behind the last."""
        if self._is_over:
            return None
        page = yield from self._look(self._cursor, PAGE if self._left is None else min(PAGE, self._left))
        if self._left is not None:
            if len(page) > self._left:
                page = Page(page.data[: self._left], page.next, page.as_of, page.complete)
            self._left -= len(page)
        self._cursor = page.next
        self._is_over = page.next is None or self._left == 0
        return page


class Pages(_Paging[Entry]):
    """Iterate to get the entries one by one: pages are read as they are needed, anew each time."""

    def __init__(
        self,
        run: Callable[[Doing[Any]], Any],
        look: Callable[[str | None, int], Doing[Page[Entry]]],
        limit: int | None = None,
        cursor: str | None = None,
    ) -> None:
        super().__init__(look, limit, cursor)
        self._run = run

    def __iter__(self) -> Iterator[Entry]:
        for page in self.pages():
            yield from page

    def pages(self) -> Iterator[Page[Entry]]:
        """The same, page by page."""
        place = self._first()
        while (page := self._run(place.next_page())) is not None:
            yield page


class AsyncPages(_Paging[Entry]):
    """Iterate to get the entries one by one: pages are read as they are needed, anew each time."""

    def __init__(
        self,
        run: Callable[[Doing[Any]], Awaitable[Any]],
        look: Callable[[str | None, int], Doing[Page[Entry]]],
        limit: int | None = None,
        cursor: str | None = None,
    ) -> None:
        super().__init__(look, limit, cursor)
        self._run = run

    async def __aiter__(self) -> AsyncIterator[Entry]:
        async for page in self.pages():
            for entry in page:
                yield entry

    async def pages(self) -> AsyncIterator[Page[Entry]]:
        """The same, page by page."""
        place = self._first()
        while (page := await self._run(place.next_page())) is not None:
            yield page
