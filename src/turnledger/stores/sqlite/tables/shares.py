"""The share links of a SQLite store: shares.sql, called by the engine's names."""

from __future__ import annotations

from typing import Any

import apsw
import msgspec

from turnledger.model.access.share import Share
from turnledger.model.ids import ConversationId, ShareId, TokenId
from turnledger.stores.sqlite.decoders import decoder
from turnledger.stores.sqlite.tables.queries import named_queries, sql_text
from turnledger.stores.sqlite.tables.records import Row, bounds_of, columns_of_bounds, id_or_none, raw_or_none

QUERIES = named_queries(sql_text("tables/shares.sql"))


class SqliteShareRows:
    """The part of `Tables` that holds share links."""

    _cursor: apsw.Cursor

    def _ask_shares(self, query: str, *bindings: Any) -> list[Row]:
        return self._cursor.execute(QUERIES[query], bindings).fetchall()

    async def share(self, owner: str | None, id: ShareId) -> Share | None:
        rows = self._ask_shares("share", id.raw, owner)
        return share_of(rows[0]) if rows else None

    async def share_by_digest(self, digest: bytes) -> Share | None:
        rows = self._ask_shares("share_by_digest", digest)
        return share_of(rows[0]) if rows else None

    async def shares(self, owner: str | None, before: ShareId | None, limit: int) -> list[Share]:
        after = raw_or_none(before)
        if owner is None:
            rows = self._ask_shares("shares_of_all", after, limit)
        else:
            rows = self._ask_shares("shares_of_owner", owner, after, limit)
        return [share_of(row) for row in rows]

    async def shares_made_by(self, parent: TokenId) -> list[Share]:
        return [share_of(row) for row in self._ask_shares("shares_made_by", parent.raw)]

    async def count_shares(self, owner: str, now: int, limit: int) -> int:
        [(count,)] = self._ask_shares("count_shares", owner, now, limit)
        return int(count)

    async def add_share(self, share: Share) -> None:
        self._ask_shares("add_share", *columns_of_share(share))

    async def count_use(self, id: ShareId) -> None:
        self._ask_shares("count_use", id.raw)

    async def revoke_share(self, id: ShareId, at: int) -> None:
        self._ask_shares("revoke_share", id.raw, at)

    async def revoke_visitors(self, share: ShareId, at: int) -> list[str]:
        return sorted({owner for (owner,) in self._ask_shares("revoke_visitors", share.raw, at)})

    async def count_visitors(self, share: ShareId, since: int, limit: int) -> int:
        [(count,)] = self._ask_shares("count_visitors", share.raw, since, limit)
        return int(count)

    async def purge_shares(self, ended_before: int, limit: int) -> int:
        return len(self._ask_shares("purge_shares", ended_before, limit))


@decoder
def share_of(row: Row) -> Share:
    id, digest, owner, name, chat_scope, conversation, models, *numbers, parent, bounds, size, chats = row
    max_uses, uses, per_minute, visitor_lifetime, created_at, expires_at, revoked_at = numbers
    return Share(
        id=ShareId.trusted(id),
        owner=owner,
        name=name,
        chat_scope=chat_scope,
        conversation=id_or_none(ConversationId, conversation),
        models=msgspec.json.decode(models, type=tuple[str, ...]) if models else (),
        max_uses=max_uses,
        uses=uses,
        per_minute=per_minute,
        visitor_lifetime=visitor_lifetime,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        parent=id_or_none(TokenId, parent),
        bounds=bounds_of(bounds),
        bytes=size,
        chats=chats,
        digest=digest,
    )


def columns_of_share(share: Share) -> Row:
    return (
        share.id.raw,
        share.digest,
        share.owner,
        share.name,
        share.chat_scope,
        raw_or_none(share.conversation),
        msgspec.json.encode(share.models).decode() if share.models else None,
        share.max_uses,
        share.uses,
        share.per_minute,
        share.visitor_lifetime,
        share.created_at,
        share.expires_at,
        share.revoked_at,
        raw_or_none(share.parent),
        columns_of_bounds(share.bounds),
        share.bytes,
        share.chats,
    )
