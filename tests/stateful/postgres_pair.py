"""PostgreSQL and the memory store side by side, one operation at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from tests.contract.test_postgresql import empty
from tests.stateful.pair import CAUGHT, Outcome, Pair, differences, outcome_of
from tests.stateful.visible_state import everything
from tests.unit.engine.stage import drive
from turnledger.engine.wrapped_store import AnyOperation, WrappedStore, Write
from turnledger.stores.memory import MemoryStore
from turnledger.stores.postgresql import PostgresStore


class PostgresPair(Pair):
    """As a pair with SQLite. `url` names the database, which is emptied."""

    url: str

    def __init__(self) -> None:
        self._loop = asyncio.Runner()
        self.memory = MemoryStore()
        self._loop.run(empty(self.url))
        self._store = self._loop.run(PostgresStore.open(f"{self.url}&pool=2"))
        self.seen: dict[str, Any] = {}

    def transact(self, operation: AnyOperation, request: Any, owner: str | None) -> Outcome:
        expected = self._write(operation, request, owner)
        assert self._run(WrappedStore(self._store).write(Write(operation, request, owner))) == expected
        self._look(changed=expected.error is None, wrote=True)
        return expected

    def batch(self, operation: AnyOperation, requests: Sequence[tuple[Any, str | None]]) -> list[Outcome]:
        return [self.transact(operation, request, owner) for request, owner in requests]

    def read(self, operation: AnyOperation, request: Any, owner: str | None) -> Outcome:
        memory = outcome_of(WrappedStore(self.memory).look(operation, request, owner))
        assert self._run(WrappedStore(self._store).look(operation, request, owner)) == memory
        return memory

    def _run(self, work: Any) -> Outcome:
        try:
            return Outcome(self._loop.run(work))
        except CAUGHT as problem:
            return Outcome(error=type(problem))

    def _look(self, *, changed: bool, wrote: bool) -> None:
        seen = drive(self.memory.inspect(everything, None))
        shown = self._loop.run(self._store.inspect(everything, None))
        assert differences(seen, shown) == {}
        if not changed:
            assert differences(self.seen, seen) == {}, "what was refused has changed something"
        self.seen = seen

    def close(self) -> None:
        self._loop.run(self._store.close())
        self._loop.close()
