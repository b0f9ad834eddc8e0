"""Named queries, and how rows are read and written by them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from turnledger.model.ids import ConversationId
from turnledger.stores.row_codec import Row

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def named_queries(text: str) -> dict[str, str]:
    """Split a file of named queries, each into one line without extra white space: statements are cached by
    their text, and each character costs a nanosecond."""
    _, *parts = _NAME.split(text)
    return {
        name: " ".join(_COMMENT.sub("", query).split())
        for name, query in zip(parts[::2], parts[1::2], strict=True)
    }


class SqlQueries(ABC):
    """Runs named queries inside one transaction."""

    @abstractmethod
    async def _fetch(self, query: str, *arguments: Any) -> Sequence[Row]: ...

    async def _fetch_row(self, query: str, *arguments: Any) -> Row | None:
        rows = await self._fetch(query, *arguments)
        return rows[0] if rows else None

    async def _fetch_number(self, query: str, *arguments: Any) -> int:
        [(number,)] = await self._fetch(query, *arguments)
        return int(number)

    @abstractmethod
    async def _lock(self, owner: str) -> None:
        """Be the only writer of an owner until the transaction ends."""


class SqlOwnedQueries(SqlQueries):
    """Queries about the rows of one owner, which is their first argument."""

    owner: str

    @abstractmethod
    async def _own(self, query: str, *arguments: Any) -> Sequence[Row]: ...

    async def _own_row(self, query: str, *arguments: Any) -> Row | None:
        rows = await self._own(query, *arguments)
        return rows[0] if rows else None

    @abstractmethod
    async def _check_conversation(self, id: ConversationId) -> None:
        """Raise StoreError unless it is a conversation of this owner."""

    @abstractmethod
    async def _change(self, query: str, *arguments: Any) -> None:
        """Write, at the latest before the next query."""
