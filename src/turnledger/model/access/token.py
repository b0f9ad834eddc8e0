"""A token: whom it authorizes, for what, within which bounds, and the text of its secret.

The text is `tlt_`, 33 base62 digits of 192 random bits, and 6 of the CRC-32 of everything before. The prefix
lets scanners find a leaked token; the checksum rejects garbage without reading the store.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from enum import StrEnum
from zlib import crc32

import msgspec

from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import ConversationId, RandomBits, ShareId, TokenId

MOST = 2**53
"""The largest count that is accepted."""
MOST_MODELS = 100
"""Models that one token can list."""


class Bounds(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How much the bearer of a token may request. None: only the server's own limits apply."""

    max_tokens: int | None = None
    """Tokens of one answer."""
    n: int | None = None
    """Answers of one request; None means 1 for a narrowed token."""
    turns: int | None = None
    """Turns open at once. This and the following count all visitors of a link together."""
    turns_per_minute: int | None = None
    bytes: int | None = None
    chats: int | None = None

    def excess_over(self, other: Bounds) -> tuple[str, ...]:
        """Return the names of the bounds that allow more than the other's."""
        pairs = {name: (getattr(self, name), getattr(other, name)) for name in self.__struct_fields__}
        return tuple(
            name for name, (own, most) in pairs.items() if most is not None and (own is None or own > most)
        )

    def within(self, other: Bounds) -> Bounds:
        """Return these bounds, filled up with the other's where None."""
        given = {name: getattr(self, name) for name in self.__struct_fields__}
        taken = {name: getattr(other, name) if value is None else value for name, value in given.items()}
        return Bounds(**taken)


UNBOUNDED = Bounds()


class TokenScope(StrEnum):
    """What the bearer of a token may do."""

    CHATS_READ = "chats:read"  # read conversations, their turns and events
    CHATS_WRITE = "chats:write"  # create, rename, change and delete conversations
    TURNS_RUN = "turns:run"  # run and stop turns
    ADMIN = "admin"  # create, list and revoke tokens


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token without its text. Times are milliseconds since 1970."""

    id: TokenId
    owner: str
    """The owner of the conversations that it opens."""
    name: str = ""
    scopes: frozenset[TokenScope]
    chat_scope: str = ""
    """The only scope of conversations its bearer sees; empty: all of the owner's."""
    conversation: ConversationId | None = None
    """The only conversation its bearer sees, to read; None: no such restriction."""
    models: tuple[str, ...] = ()
    """The only models its bearer may use; empty: all."""
    created_at: int
    expires_at: int | None = None
    revoked_at: int | None = None
    used_at: int | None = None
    """Approximate."""
    parent: TokenId | None = None
    """The token that created it; None if the operator of the store did."""
    share: ShareId | None = None
    """The link through which its bearer came, if any."""
    bounds: Bounds = UNBOUNDED
    defaults: Mapping[str, str] = {}
    """The policies of its turns, by name, unless a request chooses."""
    digest: bytes
    """The hash by which the store finds it; its text cannot be derived from it."""

    @property
    def within(self) -> Within:
        """Which of the owner's conversations its bearer sees."""
        if not self.chat_scope and self.conversation is None:
            return EVERYWHERE
        return Within(self.chat_scope or None, self.conversation)

    @property
    def is_narrowed(self) -> bool:
        """Whether it grants less than its owner has: some chats or models, bounds, or a visit."""
        return bool(self.models) or self.is_narrowed_beyond_models

    @property
    def is_narrowed_beyond_models(self) -> bool:
        """Whether it grants only some chats, has bounds, or belongs to a visitor."""
        is_bounded = self.bounds != UNBOUNDED or self.share is not None
        return is_bounded or not self.within.is_unrestricted

    @property
    def effective_bounds(self) -> Bounds:
        """Its bounds as applied: a narrowed token without `n` may request one answer."""
        if self.is_narrowed and self.bounds.n is None:
            return msgspec.structs.replace(self.bounds, n=1)
        return self.bounds

    def is_valid(self, now: int) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    def allows(self, scope: TokenScope) -> bool:
        return scope in self.scopes

    def may_use(self, model: str) -> bool:
        return not self.models or model in self.models

    def excess_over(self, other: Token) -> tuple[str, ...]:
        """Return, in a few words each, what it grants beyond the other. The owners may differ: a token with
        `admin` creates tokens for the users of an application."""
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
        higher = self.effective_bounds.excess_over(other.effective_bounds)
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
    """Return whether this can be the text of a token; the checksum catches typing errors."""
    return is_secret_text(PREFIX, text)


def secret_text(prefix: str, secret: int) -> str:
    """Write a secret under a prefix, with its checksum."""
    text = prefix + _base62(secret, _SECRET_DIGITS)
    return text + _checksum(text)


def is_secret_text(prefix: str, text: str) -> bool:
    return (
        len(text) == len(prefix) + _SECRET_DIGITS + _SUM_DIGITS
        and text.startswith(prefix)
        and _KNOWN_DIGITS.issuperset(text[len(prefix) :])
        and text[-_SUM_DIGITS:] == _checksum(text[:-_SUM_DIGITS])
    )


def digest_of(text: str) -> bytes:
    """Hash the text of a token for the store. A slow hash is for passwords, which can be guessed."""
    return hashlib.sha256(text.encode()).digest()


def _checksum(text: str) -> str:
    return _base62(crc32(text.encode()), _SUM_DIGITS)


def _base62(number: int, length: int) -> str:
    digits = []
    for _ in range(length):
        number, digit = divmod(number, 62)
        digits.append(DIGITS[digit])
    return "".join(reversed(digits))
