"""Tokens and share links, and the admission versions of their owners."""

from __future__ import annotations

from turnledger.engine.tables.access import FoundToken
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.ids import ShareId, TokenId
from turnledger.stores.row_codec import columns_of_share, columns_of_token, raw_or_none, share_of, token_of
from turnledger.stores.sql.queries import SqlQueries


class SqlAccessRows(SqlQueries):
    async def token(self, owner: str | None, id: TokenId) -> Token | None:
        row = await self._fetch_row("token", id.raw, owner)
        return None if row is None else token_of(row)

    async def token_by_digest(self, digest: bytes) -> FoundToken | None:
        row = await self._fetch_row("token_by_digest", digest)
        return None if row is None else FoundToken(token_of(row), row[-1] or 0)

    async def tokens(self, owner: str | None, before: TokenId | None, limit: int) -> list[Token]:
        after = raw_or_none(before)
        if owner is None:
            rows = await self._fetch("tokens_of_all", after, limit)
        else:
            rows = await self._fetch("tokens_of_owner", owner, after, limit)
        return [token_of(row) for row in rows]

    async def child_tokens(self, parent: TokenId) -> list[Token]:
        return [token_of(row) for row in await self._fetch("child_tokens", parent.raw)]

    async def count_tokens(self, owner: str, now: int, limit: int) -> int:
        return await self._fetch_number("count_tokens", owner, now, limit)

    async def add_token(self, token: Token) -> None:
        await self._fetch("add_token", *columns_of_token(token))

    async def revoke_token(self, id: TokenId, at: int) -> None:
        await self._fetch("revoke_token", id.raw, at)

    async def record_use(self, id: TokenId, at: int) -> None:
        await self._fetch("record_use", id.raw, at)

    async def purge_tokens(self, ended_before: int, limit: int) -> int:
        return len(await self._fetch("purge_tokens", ended_before, limit))

    async def raise_admission(self, owner: str) -> None:
        await self._lock(owner)
        await self._fetch("raise_admission", owner)

    async def share(self, owner: str | None, id: ShareId) -> Share | None:
        row = await self._fetch_row("share", id.raw, owner)
        return None if row is None else share_of(row)

    async def share_by_digest(self, digest: bytes) -> Share | None:
        row = await self._fetch_row("share_by_digest", digest)
        return None if row is None else share_of(row)

    async def shares(self, owner: str | None, before: ShareId | None, limit: int) -> list[Share]:
        after = raw_or_none(before)
        if owner is None:
            rows = await self._fetch("shares_of_all", after, limit)
        else:
            rows = await self._fetch("shares_of_owner", owner, after, limit)
        return [share_of(row) for row in rows]

    async def child_shares(self, parent: TokenId) -> list[Share]:
        return [share_of(row) for row in await self._fetch("child_shares", parent.raw)]

    async def count_shares(self, owner: str, now: int, limit: int) -> int:
        return await self._fetch_number("count_shares", owner, now, limit)

    async def add_share(self, share: Share) -> None:
        await self._fetch("add_share", *columns_of_share(share))

    async def count_use(self, id: ShareId) -> None:
        await self._fetch("count_use", id.raw)

    async def revoke_share(self, id: ShareId, at: int) -> None:
        await self._fetch("revoke_share", id.raw, at)

    async def revoke_visitors(self, share: ShareId, at: int) -> list[str]:
        return sorted({owner for (owner,) in await self._fetch("revoke_visitors", share.raw, at)})

    async def count_visitors(self, share: ShareId, since: int, limit: int) -> int:
        return await self._fetch_number("count_visitors", share.raw, since, limit)

    async def purge_shares(self, ended_before: int, limit: int) -> int:
        return len(await self._fetch("purge_shares", ended_before, limit))
