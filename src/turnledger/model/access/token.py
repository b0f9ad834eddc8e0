"""A token: whom it authorizes, for what, within which bounds, and the text of its secret.

The text is `tlt_`, 33 base62 digits of 192 random bits, and 6 of the CRC-32 of everything before. The prefix
lets scanners find a leaked one; the checksum rejects garbage without a look at the store.
"""

from __future__ import annotations

import hashlib
from enum import StrEnum
from zlib import crc32

import msgspec

from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import ConversationId, RandomBits, ShareId, TokenId

MOST = 2**53
"""What a count can be at most."""
MOST_MODELS = 100
"""Models that one token can be narrowed to."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much the bearer of a token may ask for. None leaves it to the server's own limits."""

    max_tokens: int | None = None
    """Tokens that one answer may have."""
    n: int | None = None
    """Answers that one request may ask for; None is 1 for a narrowed token."""
    turns: int | None = None
    """Turns open at once. This and all below: of all visitors of a link together."""
    turns_per_minute: int | None = None
    bytes: int | None = None
    """Bytes stored."""
    chats: int | None = None
    """Conversations kept."""

    def beyond(self, other: Bounds) -> tuple[str, ...]:
        """Return the names of those that allow more than the other's do."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in self.__struct_fields__}
        return tuple(
            name for name, (own, most) in pairs.items() if most is not None and (own is None or own > most)
        )

    def within(self, other: Bounds) -> Bounds:
        """Return these bounds, with the other's where none is given."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        taken = {name: getattr(other, name) if value is None else value for name, value in given.items()}
        return Bounds(**taken)


UNBOUNDED = Bounds()


class TokenScope(StrEnum):
    """What the bearer of a token may do."""

    CHATS_READ = "chats:read"  # read conversations, their turns and events
    CHATS_WRITE = "chats:write"  # make, name, change and delete conversations
    TURNS_RUN = "turns:run"  # run turns, and stop them
    ADMIN = "admin"  # make, list and revoke tokens


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a token, which is all but its text. Times are milliseconds since 1970."""

    id: TokenId
    owner: str
    """Whose conversations it opens."""
    name: str = ""
    """What people call it."""
    scopes: frozenset[TokenScope]
    chat_scope: str = ""
    """The only scope of conversations that there is for its bearer; empty: all of the owner's."""
    conversation: ConversationId | None = None
    """The only conversation that there is for its bearer, to read; None: all that the others give."""
    models: tuple[str, ...] = ()
    """The only models that its bearer may ask; empty: all."""
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    used_at: int | None = None
    """About when it was last shown."""
    parent: TokenId | None = None
    """The one that made it; None for one made by whoever runs the store."""
    share: ShareId | None = None
    """The link that its bearer came by; None for one that was made otherwise."""
    bounds: Bounds = UNBOUNDED
    """How much its bearer may ask for."""
    digest: bytes
    """By which its text is found, and from which it cannot be made."""

    @property
    def within(self) -> Within:
        """What of the owner's conversations there is for its bearer."""
        if not self.chat_scope and self.conversation is None:
            return EVERYWHERE
        return Within(self.chat_scope or None, self.conversation)

    @property
    def is_narrowed(self) -> bool:
        """Whether it gives less than its owner has: some chats or models, within bounds, or for a visit."""
        is_bounded = self.bounds != UNBOUNDED or self.share is not None
        return is_bounded or bool(self.models) or not self.within.is_everything

    @property
    def effective_bounds(self) -> Bounds:
        """Its bounds as they are applied: a narrowed one may ask for one answer unless it says more."""
        if self.is_narrowed and self.bounds.n is None:
            return msgspec.structs.replace(self.bounds, n=1)
        return self.bounds

    def is_valid(self, now: int) -> bool:
        """Whether it is neither revoked nor expired."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, scope: TokenScope) -> bool:
        return scope in self.scopes

    def may_ask(self, model: str) -> bool:
        """Whether its bearer may ask this model."""
        return not self.models or model in self.models

    def beyond(self, other: Token) -> tuple[str, ...]:
        """What it gives that the other one does not, each in a few words. Its owner may be another: who has
        `admin` makes tokens for the users of an application."""
        found = []
        missing = sorted(self.scopes - other.scopes)
        if missing:
            found.append(f"the scope{'s' if len(missing) > 1 else ''} {', '.join(missing)}")
        if not other.within.covers(self.within):
            found.append("other conversations")
        if other.models and not (self.models and set(self.models) <= set(other.models)):
            found.append("other models")
        if other.expires_at is not None and (self.expires_at is None or self.expires_at > other.expires_at):
            found.append("a later end")
        higher = self.effective_bounds.beyond(other.effective_bounds)
        is_given = self.bounds.n is not None or other.bounds.n is not None
        found += [f"a higher {name}" for name in higher if name != "n" or is_given]
        return tuple(found)


PREFIX = "tlt_"
SECRET_BITS = 192
DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"

_SECRET_DIGITS, _SUM_DIGITS = 33, 6
_KNOWN_DIGITS = frozenset(DIGITS)


def new_token_text(random_bits: RandomBits) -> str:
    return secret_text(PREFIX, random_bits(SECRET_BITS))


def is_token_text(text: str) -> bool:
    """Whether this can be the text of a token: anything else was mistyped, cut off, or never was one."""
    return is_secret_text(PREFIX, text)


def secret_text(prefix: str, secret: int) -> str:
    """How a secret of so many bits is written, under a prefix that says what it is."""
    text = prefix + _base62(secret, _SECRET_DIGITS)
    return text + _checksum(text)


def is_secret_text(prefix: str, text: str) -> bool:
    """Whether this can be a secret under the prefix."""
    return (
        len(text) == len(prefix) + _SECRET_DIGITS + _SUM_DIGITS
        and text.startswith(prefix)
        and _KNOWN_DIGITS.issuperset(text[len(prefix) :])
        and text[-_SUM_DIGITS:] == _checksum(text[:-_SUM_DIGITS])
    )


def digest_of(text: str) -> bytes:
    """What a store knows of a token: enough to find it, and not to show it. A slow hash is for passwords,
    which can be guessed."""
    return hashlib.sha256(text.encode()).digest()


def _checksum(text: str) -> str:
    return _base62(crc32(text.encode()), _SUM_DIGITS)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits))
