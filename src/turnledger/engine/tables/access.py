"""Tokens and share links. They decide which owner a caller is, and so concern the whole store. An owner of
None stands for all owners: only the operator of the store may use it."""

from __future__ import annotations

from typing import Protocol

from msgspec import Struct

from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.ids import ShareId, TokenId


class FoundToken(Struct, frozen=True):
    """What authorizes a request, in one lookup."""

    token: Token
    admission: int
    """The admission version of its owner."""


class AccessRows(Protocol):
    async def token(self, owner: str | None, id: TokenId) -> Token | None: ...
    async def token_by_digest(self, digest: bytes) -> FoundToken | None: ...
    async def tokens(self, owner: str | None, before: TokenId | None, limit: int) -> list[Token]:
        """In any state, newest first, after `before` in that order."""

    async def child_tokens(self, parent: TokenId) -> list[Token]:
        """Those that this one created, in any state, oldest first."""

    async def count_tokens(self, owner: str, now: int, limit: int) -> int:
        """How many are neither revoked nor expired, without visitors of links; counted up to the limit."""

    async def add_token(self, token: Token) -> None: ...
    async def revoke_token(self, id: TokenId, at: int) -> None:
        """Mark as revoked, unless it is."""

    async def record_use(self, id: TokenId, at: int) -> None:
        """Advance the time of the last use, never set it back."""

    async def purge_tokens(self, ended_before: int, limit: int) -> int:
        """Remove tokens revoked or expired before that time; return how many."""

    async def raise_admission(self, owner: str) -> None:
        """Make every caller of this owner authorize again."""

    # Share links.
    async def share(self, owner: str | None, id: ShareId) -> Share | None: ...
    async def share_by_digest(self, digest: bytes) -> Share | None: ...
    async def shares(self, owner: str | None, before: ShareId | None, limit: int) -> list[Share]:
        """In any state, newest first, after `before` in that order."""

    async def child_shares(self, parent: TokenId) -> list[Share]:
        """Those that a token created, in any state, oldest first."""

    async def count_shares(self, owner: str, now: int, limit: int) -> int:
        """How many of the owner are neither revoked nor expired; counted up to the limit."""

    async def add_share(self, share: Share) -> None: ...
    async def count_use(self, id: ShareId) -> None: ...

    async def revoke_share(self, id: ShareId, at: int) -> None:
        """Mark as revoked, unless it is."""

    async def revoke_visitors(self, share: ShareId, at: int) -> list[str]:
        """Revoke all tokens obtained by a link; return the owners of those not revoked before, in order."""

    async def count_visitors(self, share: ShareId, since: int, limit: int) -> int:
        """How many tokens were obtained by a link after that time; counted up to the limit."""

    async def purge_shares(self, ended_before: int, limit: int) -> int: ...
