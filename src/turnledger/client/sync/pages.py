# Generated from client/aio by `make twins`. Edit that.
"""Results that arrive page by page, blocking."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Generic

from turnledger.api.chats import Page
from turnledger.client.core.pages import Entry, PageReader, ReadPage
from turnledger.client.sync import edge


class Pages(Generic[Entry]):
    """Iterates over the entries. Each iteration reads the pages again, as needed."""

    def __init__(
        self,
        run: edge.Run,
        read_page: ReadPage[Entry],
        limit: int | None = None,
        cursor: str | None = None,
    ) -> None:
        self._run = run
        self._reader = partial(PageReader[Entry], read_page, limit, cursor)
        self._reader()  # raises InvalidInput

    def __iter__(self) -> Iterator[Entry]:
        for page in self.pages():
            yield from page

    def pages(self) -> Iterator[Page[Entry]]:
        """Iterate page by page."""
        reader = self._reader()
        while (page := self._run(reader.next_page())) is not None:
            yield page
