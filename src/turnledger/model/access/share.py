"""A share link: where it leads, for how many visitors and how long; and its secret code.

The code is `tls_`, then as the text of a token. A visitor's token is derived from the code and a nonce that
the page made up: if the page asks again it receives the same token, and the store holds no secret for it.
"""

from __future__ import annotations

import hmac
import re
from enum import StrEnum

import msgspec

from turnledger.model.access.token import PREFIX as TOKEN_PREFIX
from turnledger.model.access.token import (
    SECRET_BITS,
    UNBOUNDED,
    Bounds,
    Token,
    TokenScope,
    is_secret_text,
    secret_text,
)
from turnledger.model.conversation import Within, guest_of
from turnledger.model.ids import ConversationId, RandomBits, ShareId, TokenId
from turnledger.model.turn import Bytes

VISITOR_SCOPES = frozenset({TokenScope.CHATS_READ, TokenScope.CHATS_WRITE, TokenScope.TURNS_RUN})
"""What a visitor of a scope may do, each with their own conversations."""
READS = frozenset({TokenScope.CHATS_READ})
VISIT = 24 * 3600.0
"""Seconds that a visitor may stay by default."""
PER_MINUTE = 60
"""Visitors that may use one link within a minute by default."""


class ShareKind(StrEnum):
    """The target of a link."""

    SCOPE = "scope"  # each visitor is a new owner, with its own conversations in the scope
    CHAT = "chat"  # one conversation, to read


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """A share link without its code. Times are milliseconds since 1970."""

    id: ShareId
    owner: str
    """The creator of the link, who owns the conversation of a chat link."""
    name: str = ""
    chat_scope: str
    """The scope that visitors enter, or that of the conversation."""
    conversation: ConversationId | None = None
    """The only conversation that visitors see; None: the link leads to the scope."""
    models: tuple[str, ...] = ()
    """The only models that visitors may use; empty: all."""
    max_uses: int | None = None
    uses: int = 0
    per_minute: int | None = None
    visitor_lifetime: int | None = None
    """Milliseconds that a visitor may stay, at most until the link expires."""
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    parent: TokenId | None = None
    """The token that created it; None if the operator of the store did."""
    bounds: Bounds = UNBOUNDED
    """How much each visitor may request, and how much all of them together may run and store."""
    bytes: int = 0
    """Stored by all visitors together, as are `chats`; see Usage."""
    chats: int = 0
    digest: Bytes
    """The hash by which the store finds it; its code cannot be derived from it."""

    @property
    def kind(self) -> ShareKind:
        return ShareKind.SCOPE if self.conversation is None else ShareKind.CHAT

    @property
    def within(self) -> Within:
        """Which of the owner's conversations visitors see."""
        return Within(self.chat_scope or None, self.conversation)

    def is_valid(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def is_open(self, now: int) -> bool:
        return self.is_valid(now) and (self.max_uses is None or self.uses < self.max_uses)

    def token_for(self, id: TokenId, digest: Bytes, now: int) -> Token:
        ends = [self.expires_at, None if self.visitor_lifetime is None else now + self.visitor_lifetime]
        is_reader = self.conversation is not None
        return Token(
            id=id,
            owner=self.owner if is_reader else guest_of(self.id, id),
            name=self.name,
            scopes=READS if is_reader else VISITOR_SCOPES,
            chat_scope=self.chat_scope,
            conversation=self.conversation,
            models=self.models,
            created_at=now,
            expires_at=min([each for each in ends if each is not None], default=None),
            parent=self.parent,
            share=self.id,
            bounds=self.bounds,
            digest=digest,
        )


PREFIX = "tls_"
NONCE = re.compile(r"[A-Za-z0-9_-]{22,128}")
"""Made up by a page, of at least 128 random bits, so that no two pages use the same."""


def new_code(random_bits: RandomBits) -> str:
    return secret_text(PREFIX, random_bits(SECRET_BITS))


def is_code(text: str) -> bool:
    """Return whether this can be the code of a link: the checksum catches typing errors and cut-off texts."""
    return is_secret_text(PREFIX, text)


def visitors_token_text(code: str, nonce: str, share: ShareId | None) -> str:
    """Derive the text of the token for a visitor with this nonce; for a link that does not exist, a text
    that matches no token."""
    message = (share.raw if share is not None else bytes(16)) + nonce.encode()
    digest = hmac.digest(code.encode(), message, "sha256")
    return secret_text(TOKEN_PREFIX, int.from_bytes(digest) >> (len(digest) * 8 - SECRET_BITS))
