"""The tokens and share links of a memory store."""

from __future__ import annotations

from msgspec.structs import replace

from turnledger.engine.tables.access import FoundToken
from turnledger.errors import StoreError
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.ids import ShareId, TokenId
from turnledger.stores.memory.database import MemoryRows


class MemoryAccessRows(MemoryRows):
    async def share(self, owner: str | None, id: ShareId) -> Share | None:
        found = self._db.shares.get(id)
        return found if found is not None and owner in (None, found.owner) else None

    async def share_by_digest(self, digest: bytes) -> Share | None:
        return next((each for each in self._db.shares.values() if each.digest == digest), None)

    async def shares(self, owner: str | None, before: ShareId | None, limit: int) -> list[Share]:
        ids = sorted((id for id in self._db.shares if before is None or id < before), reverse=True)
        listed = [self._db.shares[id] for id in ids if owner in (None, self._db.shares[id].owner)]
        return listed[:limit]

    async def child_shares(self, parent: TokenId) -> list[Share]:
        made = [each for each in self._db.shares.values() if each.parent == parent]
        return sorted(made, key=lambda each: each.id)

    async def count_shares(self, owner: str, now: int, limit: int) -> int:
        valid = [each for each in self._db.shares.values() if each.owner == owner and each.is_valid(now)]
        return min(len(valid), limit)

    async def add_share(self, share: Share) -> None:
        if share.id in self._db.shares or await self.share_by_digest(share.digest) is not None:
            raise StoreError(f"Link {share.id}, or its code, already exists.")
        self._put(self._db.shares, share.id, share)

    async def count_use(self, id: ShareId) -> None:
        found = self._db.shares.get(id)
        if found is not None:
            self._put(self._db.shares, id, replace(found, uses=found.uses + 1))

    async def revoke_share(self, id: ShareId, at: int) -> None:
        found = self._db.shares.get(id)
        if found is not None and found.revoked_at is None:
            self._put(self._db.shares, id, replace(found, revoked_at=at))

    async def revoke_visitors(self, share: ShareId, at: int) -> list[str]:
        tokens = [each for each in self._db.tokens.values() if each.share == share]
        fresh = [each for each in tokens if each.revoked_at is None]
        for each in fresh:
            self._put(self._db.tokens, each.id, replace(each, revoked_at=at))
        return sorted({each.owner for each in fresh})

    async def count_visitors(self, share: ShareId, since: int, limit: int) -> int:
        visitors = [
            each for each in self._db.tokens.values() if each.share == share and each.created_at > since
        ]
        return min(len(visitors), limit)

    async def purge_shares(self, ended_before: int, limit: int) -> int:
        old = [each for each in self._db.shares.values() if _has_ended_before(each, ended_before)][:limit]
        for each in old:
            self._remove(self._db.shares, each.id)
        return len(old)

    async def token(self, owner: str | None, id: TokenId) -> Token | None:
        found = self._db.tokens.get(id)
        return found if found is not None and owner in (None, found.owner) else None

    async def token_by_digest(self, digest: bytes) -> FoundToken | None:
        id = self._db.by_digest.get(digest)
        if id is None:
            return None
        token = self._db.tokens[id]
        return FoundToken(token, self._db.admissions.get(token.owner, 0))

    async def tokens(self, owner: str | None, before: TokenId | None, limit: int) -> list[Token]:
        ids = sorted((id for id in self._db.tokens if before is None or id < before), reverse=True)
        listed = [self._db.tokens[id] for id in ids if owner in (None, self._db.tokens[id].owner)]
        return listed[:limit]

    async def child_tokens(self, parent: TokenId) -> list[Token]:
        made = [each for each in self._db.tokens.values() if each.parent == parent]
        return sorted(made, key=lambda each: each.id)

    async def count_tokens(self, owner: str, now: int, limit: int) -> int:
        own = [each for each in self._db.tokens.values() if each.owner == owner and each.share is None]
        valid = [each for each in own if each.is_valid(now)]
        return min(len(valid), limit)

    async def add_token(self, token: Token) -> None:
        if token.id in self._db.tokens or token.digest in self._db.by_digest:
            raise StoreError(f"Token {token.id}, or its digest, already exists.")
        self._put(self._db.tokens, token.id, token)
        self._put(self._db.by_digest, token.digest, token.id)

    async def revoke_token(self, id: TokenId, at: int) -> None:
        found = self._db.tokens.get(id)
        if found is not None and found.revoked_at is None:
            self._put(self._db.tokens, id, replace(found, revoked_at=at))

    async def record_use(self, id: TokenId, at: int) -> None:
        found = self._db.tokens.get(id)
        if found is not None and (found.used_at is None or found.used_at < at):
            self._put(self._db.tokens, id, replace(found, used_at=at))

    async def purge_tokens(self, ended_before: int, limit: int) -> int:
        old = [each for each in self._db.tokens.values() if _has_ended_before(each, ended_before)][:limit]
        for token in old:
            self._remove(self._db.by_digest, token.digest)
            self._remove(self._db.tokens, token.id)
        return len(old)

    async def raise_admission(self, owner: str) -> None:
        self._put(self._db.admissions, owner, self._db.admissions.get(owner, 0) + 1)


def _has_ended_before(access: Share | Token, time: int) -> bool:
    return any(at is not None and at < time for at in (access.revoked_at, access.expires_at))
