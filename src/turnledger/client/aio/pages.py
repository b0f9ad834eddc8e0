"""Results that arrive page by page, awaited."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

from turnledger.api.chats import Page
from turnledger.client.aio import edge
from turnledger.client.core.pages import Entry, Paging
from turnledger.client.core.steps import Steps


class AsyncPages(Paging[Entry]):
    """Iterates over the entries. Each iteration reads the pages again, as needed."""

    def __init__(
        self,
        run: edge.Run,
        look: Callable[[str | None, int], Steps[Page[Entry]]],
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
        """Iterate page by page."""
        place = self._first()
        while (page := await self._run(place.next_page())) is not None:
            yield page
