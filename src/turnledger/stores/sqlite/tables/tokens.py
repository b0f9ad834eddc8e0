"""The tokens of a SQLite store, and who is let in: tokens.sql, called by the engine's names."""

from __future__ import annotations

from typing import Any

import apsw

from turnledger.model.access.token import Token
from turnledger.model.ids import TokenId
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.queries import named_queries, sql_text
from turnledger.stores.sqlite.tables.records import Row

QUERIES = named_queries(sql_text("tables/tokens.sql"))


class SqliteTokenRows:
    """The part of `Tables` that holds tokens."""

    _cursor: apsw.Cursor

    def _ask(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    async def token(self, owner: str | None, id: TokenId) -> Token | None:
        rows = self._ask("token", id.raw, owner)
        return records.token_of(rows[0]) if rows else None

    async def token_by_digest(self, digest: bytes) -> tuple[Token, int] | None:
        rows = self._ask("token_by_digest", digest)
        return (records.token_of(rows[0][:-1]), rows[0][-1] or 0) if rows else None

    async def tokens(self, owner: str | None, before: TokenId | None, limit: int) -> list[Token]:
        after = records.raw_or_none(before)
        if owner is None:
            rows = self._ask("tokens_of_all", after, limit)
        else:
            rows = self._ask("tokens_of_owner", owner, after, limit)
        return [records.token_of(row) for row in rows]

    async def minted_by(self, parent: TokenId) -> list[Token]:
        return [records.token_of(row) for row in self._ask("minted_by", parent.raw)]

    async def count_tokens(self, owner: str, now: int, limit: int) -> int:
        [(count,)] = self._ask("count_tokens", owner, now, limit)
        return int(count)

    async def add_token(self, token: Token) -> None:
        self._ask("add_token", *records.columns_of_token(token))

    async def revoke_token(self, id: TokenId, at: int) -> None:
        self._ask("revoke_token", id.raw, at)

    async def note_use(self, id: TokenId, at: int) -> None:
        self._ask("note_use", id.raw, at)

    async def purge_tokens(self, ended_before: int, limit: int) -> int:
        return len(self._ask("purge_tokens", ended_before, limit))

    async def secret(self) -> bytes:
        [(bits,)] = self._ask("secret")
        return bytes(bits)

    async def admission(self, owner: str) -> int:
        rows = self._ask("admission", owner)
        return rows[0][0] if rows else 0

    async def raise_admission(self, owner: str) -> None:
        self._ask("raise_admission", owner)
