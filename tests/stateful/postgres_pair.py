"""PostgreSQL and the memory store side by side, one operation at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.contract.test_postgresql import empty
from tests.stateful.pair import Outcome, Pair
from turnledger.engine.wrapped_store import AnyOperation
from turnledger.stores.memory import MemoryStore
from turnledger.stores.postgresql import PostgresStore


class PostgresPair(Pair):
    """As a pair with SQLite. `url` names the database, which is emptied."""

    url: str

    def __init__(self) -> None:
        self._loop = asyncio.Runner()
        self.memory = MemoryStore()
        self._loop.run(empty(self.url))
        self.other = self._loop.run(PostgresStore.open(f"{self.url}&pool=2"))
        self.seen: dict[str, Any] = {}

    def batch(self, operation: AnyOperation, requests: Sequence[tuple[Any, str | None]]) -> list[Outcome]:
        return [self.transact(operation, request, owner) for request, owner in requests]

    def _run(self, work: Any) -> Any:
        return self._loop.run(work)

    def _rows_written(self) -> object:
        return object()  # unknown: never as before

    def close(self) -> None:
        self._loop.run(self.other.close())
        self._loop.close()
