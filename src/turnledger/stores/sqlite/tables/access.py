"""The tokens and share links of a SQLite store, and the admission versions of their owners."""

from __future__ import annotations

import msgspec

from turnledger.engine.tables.access import FoundToken
from turnledger.errors import StoreCorrupt
from turnledger.model.access.share import Share
from turnledger.model.access.token import UNBOUNDED, Bounds, Token, TokenScope
from turnledger.model.ids import ConversationId, ShareId, TokenId
from turnledger.stores.sqlite.failures import decoder
from turnledger.stores.sqlite.tables.records import NamedQueries, Row, id_or_none, raw_or_none


class SqliteAccessRows(NamedQueries):
    async def token(self, owner: str | None, id: TokenId) -> Token | None:
        rows = self._rows("token", id.raw, owner)
        return token_of(rows[0]) if rows else None

    async def token_by_digest(self, digest: bytes) -> FoundToken | None:
        rows = self._rows("token_by_digest", digest)
        return FoundToken(token_of(rows[0][:-1]), rows[0][-1] or 0) if rows else None

    async def tokens(self, owner: str | None, before: TokenId | None, limit: int) -> list[Token]:
        after = raw_or_none(before)
        if owner is None:
            rows = self._rows("tokens_of_all", after, limit)
        else:
            rows = self._rows("tokens_of_owner", owner, after, limit)
        return [token_of(row) for row in rows]

    async def child_tokens(self, parent: TokenId) -> list[Token]:
        return [token_of(row) for row in self._rows("child_tokens", parent.raw)]

    async def count_tokens(self, owner: str, now: int, limit: int) -> int:
        [(count,)] = self._rows("count_tokens", owner, now, limit)
        return int(count)

    async def add_token(self, token: Token) -> None:
        self._run("add_token", *columns_of_token(token))

    async def revoke_token(self, id: TokenId, at: int) -> None:
        self._run("revoke_token", id.raw, at)

    async def record_use(self, id: TokenId, at: int) -> None:
        self._run("record_use", id.raw, at)

    async def purge_tokens(self, ended_before: int, limit: int) -> int:
        return len(self._rows("purge_tokens", ended_before, limit))

    async def raise_admission(self, owner: str) -> None:
        self._run("raise_admission", owner)

    async def share(self, owner: str | None, id: ShareId) -> Share | None:
        rows = self._rows("share", id.raw, owner)
        return share_of(rows[0]) if rows else None

    async def share_by_digest(self, digest: bytes) -> Share | None:
        rows = self._rows("share_by_digest", digest)
        return share_of(rows[0]) if rows else None

    async def shares(self, owner: str | None, before: ShareId | None, limit: int) -> list[Share]:
        after = raw_or_none(before)
        if owner is None:
            rows = self._rows("shares_of_all", after, limit)
        else:
            rows = self._rows("shares_of_owner", owner, after, limit)
        return [share_of(row) for row in rows]

    async def child_shares(self, parent: TokenId) -> list[Share]:
        return [share_of(row) for row in self._rows("child_shares", parent.raw)]

    async def count_shares(self, owner: str, now: int, limit: int) -> int:
        [(count,)] = self._rows("count_shares", owner, now, limit)
        return int(count)

    async def add_share(self, share: Share) -> None:
        self._run("add_share", *columns_of_share(share))

    async def count_use(self, id: ShareId) -> None:
        self._run("count_use", id.raw)

    async def revoke_share(self, id: ShareId, at: int) -> None:
        self._run("revoke_share", id.raw, at)

    async def revoke_visitors(self, share: ShareId, at: int) -> list[str]:
        return sorted({owner for (owner,) in self._rows("revoke_visitors", share.raw, at)})

    async def count_visitors(self, share: ShareId, since: int, limit: int) -> int:
        [(count,)] = self._rows("count_visitors", share.raw, since, limit)
        return int(count)

    async def purge_shares(self, ended_before: int, limit: int) -> int:
        return len(self._rows("purge_shares", ended_before, limit))


@decoder
def bounds_of(text: str | None) -> Bounds:
    return msgspec.json.decode(text, type=Bounds) if text else UNBOUNDED


def columns_of_bounds(bounds: Bounds) -> str | None:
    return None if bounds == UNBOUNDED else msgspec.json.encode(bounds).decode()


@decoder
def token_of(row: Row) -> Token:
    id, digest, owner, name, scopes, chat_scope, models, created_at, *ends, used_at, parent = row[:12]
    expires_at, revoked_at = ends
    try:
        known = frozenset([TokenScope(word) for word in scopes.split()])
    except ValueError:
        raise StoreCorrupt("The scopes of a stored token cannot be read.") from None
    return Token(
        id=TokenId.trusted(id),
        owner=owner,
        name=name,
        scopes=known,
        chat_scope=chat_scope,
        models=msgspec.json.decode(models, type=tuple[str, ...]) if models else (),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        used_at=used_at,
        parent=id_or_none(TokenId, parent),
        conversation=id_or_none(ConversationId, row[12]),
        share=id_or_none(ShareId, row[13]),
        bounds=bounds_of(row[14]),
        defaults=msgspec.json.decode(row[15], type=dict[str, str]) if row[15] else {},
        digest=digest,
    )


def columns_of_token(token: Token) -> Row:
    return (
        token.id.raw,
        token.digest,
        token.owner,
        token.name,
        " ".join(sorted(token.scopes)),
        token.chat_scope,
        msgspec.json.encode(token.models).decode() if token.models else None,
        token.created_at,
        token.expires_at,
        token.revoked_at,
        token.used_at,
        raw_or_none(token.parent),
        raw_or_none(token.conversation),
        raw_or_none(token.share),
        columns_of_bounds(token.bounds),
        msgspec.json.encode(token.defaults).decode() if token.defaults else None,
    )


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
