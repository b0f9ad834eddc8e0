"""Results that arrive page by page, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator
from functools import partial
from typing import Generic

from turnledger.api.chats import Page
from turnledger.client.aio import edge
from turnledger.client.core.pages import Entry, PageReader, ReadPage


class AsyncPages(Generic[Entry]):
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

    async def __aiter__(self) -> AsyncIterator[Entry]:
        async for page in self.pages():
            for entry in page:
                yield entry

    async def pages(self) -> AsyncIterator[Page[Entry]]:
        """Iterate page by page."""
        reader = self._reader()
        while (page := await self._run(reader.next_page())) is not None:
            yield page
