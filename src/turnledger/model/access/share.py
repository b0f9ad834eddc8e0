"""A share link: where it lets visitors in, how many and for how long.

The code in a share link: the secret that a visitor brings, and the token that is made of it.

`tls_`, then as the text of a token. What a visitor gets is derived from the code and from a nonce that the
page has made up: the same page that asks again is told the same, and the store holds no secret for it.
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

SCOPES_OF_VISITORS = frozenset({TokenScope.CHATS_READ, TokenScope.CHATS_WRITE, TokenScope.TURNS_RUN})
"""What a visitor of a scope may do, each with their own conversations."""
READS = frozenset({TokenScope.CHATS_READ})
VISIT = 24 * 3600.0
"""Seconds that a visitor may stay, if nothing else is said."""
PER_MINUTE = 60
"""Visitors that may come by one link within a minute, if nothing else is said."""


class ShareKind(StrEnum):
    """What a link leads to."""

    SCOPE = "scope"  # each visitor is a fresh owner, with its own conversations in the scope
    CHAT = "chat"  # one conversation, to read


class Share(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a link, which is all but its code. Times are milliseconds since 1970."""

    id: ShareId
    owner: str
    """Who made it, and owns the conversation of a chat link."""
    name: str = ""
    """What people call it."""
    chat_scope: str
    """The scope that visitors come to, or that the conversation is of."""
    conversation: ConversationId | None = None
    """The only one that there is for visitors; None: the link leads to the scope."""
    models: tuple[str, ...] = ()
    """The only models that visitors may ask; empty: all."""
    max_uses: int | None = None
    uses: int = 0
    per_minute: int | None = None
    """Visitors that may come within a minute."""
    visitor_lifetime: int | None = None
    """Milliseconds that a visitor may stay; in no case longer than the link is good for."""
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    parent: TokenId | None = None
    """The token that made it; None for one made by whoever runs the store."""
    bounds: Bounds = UNBOUNDED
    """How much its visitors may ask for, and all of them together run and store."""
    bytes: int = 0
    """What its visitors store, all together; see Usage."""
    chats: int = 0
    """Conversations that they keep."""
    digest: Bytes
    """By which its code is found, and from which it cannot be made."""

    @property
    def kind(self) -> ShareKind:
        return ShareKind.SCOPE if self.conversation is None else ShareKind.CHAT

    @property
    def within(self) -> Within:
        """What of their owner's conversations there is for visitors."""
        return Within(self.chat_scope or None, self.conversation)

    def is_valid(self, now: int) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def is_open(self, now: int) -> bool:
        """Whether one more visitor may come."""
        return self.is_valid(now) and (self.max_uses is None or self.uses < self.max_uses)

    def token_for(self, id: TokenId, digest: Bytes, now: int) -> Token:
        """What one more visitor gets."""
        ends = [self.expires_at, None if self.visitor_lifetime is None else now + self.visitor_lifetime]
        is_reader = self.conversation is not None
        return Token(
            id=id,
            owner=self.owner if is_reader else guest_of(self.id, id),
            name=self.name,
            scopes=READS if is_reader else SCOPES_OF_VISITORS,
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
"""What a page makes up: at least 128 random bits, so that nobody else makes up the same."""


def new_code(random_bits: RandomBits) -> str:
    return secret_text(PREFIX, random_bits(SECRET_BITS))


def is_code(text: str) -> bool:
    """Whether this can be the code of a link: anything else was mistyped, cut off, or never was one."""
    return is_secret_text(PREFIX, text)


def visitors_token_text(code: str, nonce: str, share: ShareId | None) -> str:
    """The text of the token that a visitor with this nonce gets; of a link that is not there, one that
    nobody has."""
    message = (share.raw if share is not None else bytes(16)) + nonce.encode()
    digest = hmac.digest(code.encode(), message, "sha256")
    return secret_text(TOKEN_PREFIX, int.from_bytes(digest) >> (len(digest) * 8 - SECRET_BITS))
