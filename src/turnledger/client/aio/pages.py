"""Results that arrive page by page, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from turnledger.api.chats import Page
from turnledger.client.aio import edge
from turnledger.client.core.pages import Entry, PageSource
from turnledger.client.core.steps import Steps


class AsyncPages(PageSource[Entry]):
    """Iterates over the entries. Each iteration reads the pages again, as needed."""

    def __init__(
        self,
        run: edge.Run,
        read_page: Callable[[str | None, int], Steps[Page[Entry]]],
        limit: int | None = None,
        cursor: str | None = None,
    ) -> None:
        super().__init__(read_page, limit, cursor)
        self._run = run

    async def __aiter__(self) -> AsyncIterator[Entry]:
        async for page in self.pages():
            for entry in page:
                yield entry

    async def pages(self) -> AsyncIterator[Page[Entry]]:
        """Iterate page by page."""
        reader = self._reader()
        while (page := await self._run(reader.next_page())) is not None:
            yield page
