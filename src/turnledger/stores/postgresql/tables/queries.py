"""Runs the statements of the `.sql` files by their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from itertools import chain
from typing import TYPE_CHECKING, Any

from turnledger.engine.ports import Sync
from turnledger.stores.postgresql.connections import encoded
from turnledger.stores.row_codec import Row
from turnledger.stores.sql.queries import SqlOwnedQueries, SqlQueries, named_queries

if TYPE_CHECKING:
    from turnledger.stores.postgresql.connections import AnyConnection


def sql_text(name: str) -> str:
    return files("turnledger.stores.postgresql").joinpath(name).read_text("utf-8")


FILES = ("tables", "catalogue", "access", "search", "whole", "inspection", "guarded_statement")
QUERIES: Mapping[str, str] = {
    name: query for file in FILES for name, query in named_queries(sql_text(f"tables/{file}.sql")).items()
}


_TABLE = re.compile(r"(?:INSERT INTO|UPDATE|DELETE FROM) (\w+)")
_PARAMETER = re.compile(r"\$(\d+)")


def highest_parameter(query: str) -> int:
    return max(int(number) for number in _PARAMETER.findall(query))


def shifted(query: str, by: int) -> str:
    """Return a query whose parameters begin after this number."""
    return _PARAMETER.sub(lambda found: f"${int(found[1]) + by}", query)


@lru_cache(maxsize=256)
def _joined(names: tuple[str, ...]) -> str:
    """Return one statement that does what these do. Few combinations occur, so it stays prepared."""
    if len(names) == 1:
        return QUERIES[names[0]]
    parts, before = [], 0
    for place, name in enumerate(names):
        query = QUERIES[name].removesuffix(";")
        parts.append(f"w{place} AS ({shifted(query, before)})")
        before += highest_parameter(query)
    return f"WITH {', '.join(parts)} SELECT 1"


ADDING = ("add_change",)
"""Writes that may be together in one statement."""


CHANGED: Mapping[str, str] = {
    name: found[1] for name, query in QUERIES.items() if (found := _TABLE.search(query)) is not None
}
"""The table that a query changes; the first one, if there are several."""


BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
COMMIT_WAITS: Mapping[Sync, str] = {
    # For the disk, also if the default of the role or the database is `off`; others are kept.
    Sync.DISK: (
        "CASE current_setting('synchronous_commit') WHEN 'off'"
        " THEN set_config('synchronous_commit', 'on', true) END"
    ),
    Sync.PROCESS: "set_config('synchronous_commit', 'off', true)",
}
"""Sets what the commit of this transaction waits for."""


class Transaction:
    """What the tables of one transaction have in common."""

    def __init__(self, connection: AnyConnection, *, writes: bool) -> None:
        self.connection = connection
        self.writes = writes
        self.changes = 0
        """Changes added for the feed."""
        self._locked: set[str] = set()
        self._writes: list[tuple[str, Row]] = []
        """Writes that are yet to be sent."""
        self._changed: set[str] = set()
        """Their tables."""

    def is_unwritten(self, table: str) -> bool:
        """Return whether no write to this table waits."""
        return table not in self._changed

    async def write(self, query: str, *arguments: Any) -> None:
        """Run a statement whose outcome nobody needs: with others, before the next read or the end. They do
        not see each other, so no two of them change one table, unless both only insert."""
        table = CHANGED[query]
        if table in self._changed and query not in ADDING:
            await self.flush()
        self._changed.add(table)
        self._writes.append((query, arguments))

    async def flush(self) -> None:
        """Send the writes that wait, as one statement: each saves a round trip."""
        if not self._writes:
            return
        queries, arguments = zip(*self._writes, strict=True)
        self._writes.clear()
        self._changed.clear()
        await self.connection.execute(_joined(queries), *chain.from_iterable(arguments))

    async def rows(self, query: str, *arguments: Any) -> Sequence[Row]:
        await self.flush()
        found: Sequence[Row] = await self.connection.fetch(QUERIES[query], *arguments)
        return found

    async def begin(self, owner: str | None, sync: Sync) -> None:
        """Begin, and lock the row of the owner, or that of the store: one round trip, unless the owner is
        new. If a write may be lost with the machine, its commit does not wait for the disk."""
        begin = f"{BEGIN}; SELECT {COMMIT_WAITS[sync]}"
        if owner is None:
            await self.connection.execute(f"{begin}; {QUERIES['lock_store']}")
            return
        # In hexadecimal digits: whatever the settings of the server, they end no literal.
        name = f"convert_from(decode('{encoded(owner).hex()}', 'hex'), 'UTF8')"
        lock = QUERIES["lock_owner"].replace("$1", name)
        if await self.connection.execute(f"{begin}; {lock}") == "SELECT 1":
            self._locked.add(owner)
        else:
            await self.lock(owner)

    async def lock(self, owner: str) -> None:
        """Be the only writer of an owner until the transaction ends."""
        if owner in self._locked or not self.writes:
            return
        if not await self.rows("lock_owner", owner):
            await self.rows("add_owner", owner)
            await self.rows("lock_owner", owner)
        self._locked.add(owner)


class StoreQueries(SqlQueries):
    def __init__(self, transaction: Transaction) -> None:
        self._transaction = transaction

    async def _fetch(self, query: str, *arguments: Any) -> Sequence[Row]:
        return await self._transaction.rows(query, *arguments)

    async def _many(self, query: str, arguments: Sequence[Row]) -> None:
        """Run a statement once for each row of arguments, in one round trip."""
        await self._transaction.flush()
        if arguments:
            await self._transaction.connection.executemany(QUERIES[query], arguments)

    async def _lock(self, owner: str) -> None:
        await self._transaction.lock(owner)


class OwnedQueries(SqlOwnedQueries, StoreQueries):
    def __init__(self, transaction: Transaction, owner: str) -> None:
        super().__init__(transaction)
        self.owner = owner

    async def _own(self, query: str, *arguments: Any) -> Sequence[Row]:
        await self._transaction.lock(self.owner)
        return await self._transaction.rows(query, self.owner, *arguments)

    async def _change(self, query: str, *arguments: Any) -> None:
        await self._transaction.lock(self.owner)
        await self._transaction.write(query, self.owner, *arguments)
