"""Authentication: from the token of a request to its caller and their scopes.

A turn may be admitted from the cache: its begin compares the version of the lookup in its own transaction, so
a token that any process has just revoked begins no turn. All other requests look the token up in the store.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from hashlib import sha256

import msgspec

from turnledger.engine.ports import Clock
from turnledger.errors import TurnledgerError
from turnledger.ledger import OWNER
from turnledger.model.access.token import PREFIX as TOKEN_PREFIX
from turnledger.model.access.token import Token, TokenScope, digest_of, is_token_text
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import TokenId
from turnledger.server.access.guard import RequestHead, is_loopback
from turnledger.server.access.limits import Link
from turnledger.server.config.settings import Settings
from turnledger.server.errors import Refused
from turnledger.server.ops.logs import log
from turnledger.tokens import Tokens

REMEMBERED = 10_000
REMEMBERED_FOR = 10.0
"""Seconds that a lookup is cached. Begin notices a revoked token at once, but the body is read first, and
counts as a turn of the owner meanwhile."""
NOTE_EVERY = 60.0
"""Seconds between writes of the last uses of tokens."""
ALL_BUT_ADMIN = frozenset(TokenScope) - {TokenScope.ADMIN}

PREFIX = TOKEN_PREFIX.encode()

_CHALLENGE = ((b"www-authenticate", b"Bearer"),)


class Principal(msgspec.Struct, frozen=True):
    owner: str
    scopes: frozenset[TokenScope]
    version: int
    """The version of the owner's tokens at the lookup."""
    token: Token | None = None
    """None: a caller without a token, on the server's own machine."""

    @property
    def within(self) -> Within:
        """The part of the owner's chats that the caller sees."""
        return EVERYWHERE if self.token is None else self.token.within

    @property
    def until(self) -> int | None:
        return None if self.token is None else self.token.expires_at

    @property
    def token_id(self) -> TokenId | None:
        return None if self.token is None else self.token.id

    @property
    def is_reader(self) -> bool:
        """Whether the caller is a visitor of one chat."""
        return self.token is not None and self.token.share is not None and self.token.conversation is not None

    @property
    def is_narrowed(self) -> bool:
        return self.token is not None and self.token.is_narrowed

    @property
    def counted_as(self) -> str:
        """The name under which requests are counted: readers do not use up the quota of the chat's owner."""
        return (self.within.label or self.owner) if self.is_reader else self.owner

    @property
    def link(self) -> Link | None:
        """The link of a visitor who has chats of their own."""
        if self.token is None or self.token.share is None or self.is_reader:
            return None
        return Link(str(self.token.share), self.token.bounds)

    def may_ask(self, model: str) -> bool:
        return self.token is None or self.token.may_ask(model)

    def has(self, needed: TokenScope | None) -> bool:
        return needed is None or needed in self.scopes

    def check(self, needed: TokenScope | None) -> None:
        """Raise Refused (403) if the scope is missing."""
        if self.has(needed):
            return
        message = f"This needs a token with the scope {needed}."
        if self.token is None:
            message += f" Make one: turnledger tokens create --scopes {needed}"
        else:
            message += f" The one that was sent has {', '.join(sorted(self.scopes)) or 'none'}."
        raise Refused(403, "insufficient_scope", message)

    def check_chat_scope(self, named: str | None) -> None:
        """Raise Refused (403) if a request names a scope of chats that the caller does not see."""
        if named is not None and self.within.scope not in (None, named):
            message = "This token is restricted to another scope. Omit the scope."
            raise Refused(403, "outside_chat_scope", message)


class Authenticator:
    def __init__(
        self, tokens: Tokens, settings: Settings, clock: Clock, *, note_every: float = NOTE_EVERY
    ) -> None:
        self._tokens = tokens
        self._clock = clock
        self._is_insecure = settings.insecure
        self._needs_token = not (settings.insecure or is_loopback(settings.host))
        self._remembered: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._uses: dict[TokenId, int] = {}
        self._note_every = note_every
        self._later: asyncio.TimerHandle | None = None
        self.noting: asyncio.Task[None] | None = None
        """The last write of uses."""

    async def admit(self, head: RequestHead) -> Principal:
        """Look up the caller in the store. Raises Refused: 401 for a token that is missing, unknown, expired
        or revoked; 403 for a request without one that came through a proxy."""
        shown = _cache_key(head)
        try:
            principal = await self._look_up(head)
            self._check(principal, head)
        except Refused:
            self._remembered.pop(shown, None)
            raise
        self._remember(shown, principal)
        return principal

    async def _look_up(self, head: RequestHead) -> Principal:
        text = _token_text(head)
        if text is not None:
            found = await self._tokens.find(digest_of(text))
            if found.token is None:
                raise why_not(None)
            return Principal(found.token.owner, found.token.scopes, found.version, found.token)
        if self._needs_token:
            raise _without_token(head)
        found = await self._tokens.find(None)
        if found.any_tokens:
            self._needs_token = True  # permanently: later requests without a token need no lookup
            raise _without_token(head)
        return Principal(OWNER, ALL_BUT_ADMIN, found.version)

    async def readmit(self, head: RequestHead, needed: TokenScope) -> int:
        """Look a caller up again after a token of the same owner was revoked, maybe this one. Return the
        current version. Raises Refused as `admit` does."""
        principal = await self.admit(head)
        principal.check(needed)
        return principal.version

    def recall(self, head: RequestHead) -> Principal | None:
        """Return the caller from the cache; None if the lookup is too old. Only for requests that compare the
        version in the store. Raises Refused as `admit` does."""
        known = self._remembered.get(_cache_key(head))
        if known is None or self._clock.monotonic() - known[1] > REMEMBERED_FOR:
            return None
        self._check(known[0], head)
        return known[0]

    async def note_uses(self) -> None:
        """Store when tokens were last used; after an error, the next call tries again."""
        uses, self._uses = self._uses, {}
        if self._later is not None:
            self._later.cancel()
            self._later = None
        try:
            await self._tokens.note_uses(uses)
        except TurnledgerError as problem:
            log.warning("token_uses_not_noted", code=problem.code)
            self._uses = {**uses, **self._uses}

    def _note(self, token: TokenId, now: int) -> None:
        """Collect uses, which a timer writes: never one write per request."""
        self._uses[token] = now
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(self._note_every, self._start_noting)

    def _start_noting(self) -> None:
        self.noting = asyncio.create_task(self.note_uses(), name="turnledger token uses")

    def _check(self, principal: Principal, head: RequestHead) -> None:
        token = principal.token
        if token is None:
            if head.proxied_by is not None and not self._is_insecure:
                raise _proxied(head.proxied_by)
            return
        now = self._clock.now_ms()
        if not token.is_valid(now):
            raise why_not(token)
        self._note(token.id, now)

    def _remember(self, shown: bytes, principal: Principal) -> None:
        self._remembered[shown] = principal, self._clock.monotonic()
        self._remembered.move_to_end(shown)
        if len(self._remembered) > REMEMBERED:
            self._remembered.popitem(last=False)


def _token_text(head: RequestHead) -> str | None:
    """Return the token of a request.

    Programs for the OpenAI API always send an api_key, even "unused": a value that cannot be a token counts
    as none, which suffices while no token is required.
    """
    kind, _, text = head.authorization.decode("latin-1").partition(" ")
    text = text.strip()
    return text if kind.lower() == "bearer" and is_token_text(text) else None


def _cache_key(head: RequestHead) -> bytes:
    """Return the cache key of a caller; the same for all without a possible token."""
    given = head.authorization
    return sha256(given).digest() if PREFIX in given else b""


def why_not(token: Token | None) -> Refused:
    if token is None:
        return _unauthorized(
            "invalid_token", "This token is not known here. Make one: turnledger tokens create"
        )
    if token.revoked_at is not None:
        return _unauthorized("token_revoked", "This token was revoked. Ask for a new one.")
    return _unauthorized("token_expired", "This token has expired. Ask for a new one.")


def _without_token(head: RequestHead) -> Refused:
    return why_not(None) if head.authorization else missing()


def missing() -> Refused:
    return _unauthorized("missing_token", "This server asks for a token: send `Authorization: Bearer tlt_…`.")


def _unauthorized(code: str, message: str) -> Refused:
    return Refused(401, code, message, headers=_CHALLENGE)


def _proxied(sign: str) -> Refused:
    return Refused(
        403,
        "forwarded_request",
        f"The request came through a proxy ({sign}) without a token. Create and send one: "
        "turnledger tokens create",
    )
