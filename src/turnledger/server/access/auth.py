"""Authentication: from the token of a request to its caller and their scopes.

A turn may be admitted from the cache: its begin compares the version of the lookup in its own transaction, so
a token that any process has just revoked begins no turn. All other requests look the token up in the store.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from hashlib import sha256

import msgspec

from turnledger.chats import Chats
from turnledger.engine.ports import Clock
from turnledger.errors import TurnledgerError
from turnledger.hosting import Authorization
from turnledger.ledger import OWNER, Ledger
from turnledger.model.access.token import PREFIX as TOKEN_PREFIX
from turnledger.model.access.token import Token, TokenScope, digest_of, is_token_text
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import TokenId
from turnledger.server.access.guard import RequestHead, is_loopback
from turnledger.server.access.limits import Caller, Link
from turnledger.server.config.settings import Settings
from turnledger.server.errors import RequestRefused
from turnledger.server.ops.logs import log_repeating
from turnledger.tokens import Tokens

CACHE_SIZE = 10_000
CACHE_SECONDS = 10.0
"""Seconds that a lookup is cached. Begin notices a revoked token at once, but the body is read first, and
counts as a turn of the owner meanwhile."""
WRITE_EVERY = 60.0
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
    def expires_at(self) -> int | None:
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
    def caller(self) -> Caller:
        """The identity under which its requests are counted: readers do not use up the quota of the chat's
        owner, and visitors who have chats of their own share that of their link."""
        if self.token is None:
            return Caller(self.owner, is_tokenless=True)
        if self.token.share is None:
            return Caller(self.owner)
        if self.is_reader:
            return Caller(self.within.label or self.owner)
        return Caller(self.owner, link=Link(str(self.token.share), self.token.bounds))

    def may_use(self, model: str) -> bool:
        return self.token is None or self.token.may_use(model)

    def has(self, needed: TokenScope | None) -> bool:
        return needed is None or needed in self.scopes

    def check(self, needed: TokenScope | None) -> None:
        """Raise RequestRefused (403) if the scope is missing."""
        if self.has(needed):
            return
        message = f"This requires a token with the scope {needed}."
        if self.token is None:
            message += f" Create one: turnledger tokens create --scopes {needed}"
        else:
            message += f" This one has {', '.join(sorted(self.scopes)) or 'none'}."
        raise RequestRefused(403, "insufficient_scope", message)

    def check_chat_scope(self, scope: str | None) -> None:
        """Raise RequestRefused (403) if a request names a scope of chats that the caller does not see."""
        if scope is not None and self.within.scope not in (None, scope):
            message = "This token is restricted to another scope. Omit the scope."
            raise RequestRefused(403, "outside_chat_scope", message)


class Authenticator:
    def __init__(
        self,
        ledger: Ledger,
        tokens: Tokens,
        settings: Settings,
        clock: Clock,
        *,
        write_every: float = WRITE_EVERY,
    ) -> None:
        self._ledger = ledger
        self._tokens = tokens
        self._clock = clock
        self._is_insecure = settings.insecure
        self._needs_token = not (settings.insecure or is_loopback(settings.host))
        self._cache: OrderedDict[bytes, tuple[Principal, float]] = OrderedDict()
        self._uses: dict[TokenId, int] = {}
        self._write_every = write_every
        self._timer: asyncio.TimerHandle | None = None
        self.write_task: asyncio.Task[None] | None = None
        """The last write of uses."""

    async def admit(self, head: RequestHead) -> Principal:
        """Look up the caller in the store. Raises RequestRefused: 401 for a token that is missing, unknown,
        expired or revoked; 403 for a request without one that came through a proxy."""
        cache_key = _cache_key(head)
        try:
            principal = await self._look_up(head)
            self._check(principal, head)
        except RequestRefused:
            self._cache.pop(cache_key, None)
            raise
        self._add_to_cache(cache_key, principal)
        return principal

    async def _look_up(self, head: RequestHead) -> Principal:
        text = _token_text(head)
        if text is not None:
            found = await self._tokens.find(digest_of(text))
            if found.token is None:
                raise token_error(None)
            return Principal(found.token.owner, found.token.scopes, found.version, found.token)
        if self._needs_token:
            raise _no_token_error(head)
        found = await self._tokens.find(None)
        if found.any_tokens:
            self._needs_token = True  # permanently: later requests without a token need no lookup
            raise _no_token_error(head)
        return Principal(OWNER, ALL_BUT_ADMIN, found.version)

    def changeable_chats(
        self, principal: Principal, head: RequestHead, needed: TokenScope, scope: str | None = None
    ) -> Chats:
        """Return chats whose changes authorize the caller again if a token was revoked meanwhile."""
        readmit = partial(self._readmit, head, needed)
        authorization = Authorization(principal.version, principal.expires_at, readmit, principal.token_id)
        owner, within = principal.owner, principal.within
        return self._ledger.for_owner(owner, scope=scope, within=within, authorization=authorization)

    async def _readmit(self, head: RequestHead, needed: TokenScope) -> int:
        """Look a caller up again after a token of the same owner was revoked, maybe this one. Return the
        current version. Raises RequestRefused as `admit` does."""
        principal = await self.admit(head)
        principal.check(needed)
        return principal.version

    def find_cached(self, head: RequestHead) -> Principal | None:
        """Return the caller from the cache; None if the lookup is too old. Only for requests that compare the
        version in the store. Raises RequestRefused as `admit` does."""
        cached = self._cache.get(_cache_key(head))
        if cached is None or self._clock.monotonic() - cached[1] > CACHE_SECONDS:
            return None
        self._check(cached[0], head)
        return cached[0]

    async def record_uses(self) -> None:
        """Store when tokens were last used; after an error, the next call tries again."""
        uses, self._uses = self._uses, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            await self._tokens.record_uses(uses)
        except TurnledgerError as problem:
            log_repeating("token_uses_not_noted", code=problem.code)
            self._uses = {**uses, **self._uses}

    def _record_use(self, token: TokenId, now: int) -> None:
        """Collect uses, which a timer writes: never one write per request."""
        self._uses[token] = now
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._write_every, self._start_write)

    def _start_write(self) -> None:
        self.write_task = asyncio.create_task(self.record_uses(), name="turnledger token uses")

    def _check(self, principal: Principal, head: RequestHead) -> None:
        token = principal.token
        if token is None:
            if head.proxied_by is not None and not self._is_insecure:
                raise _proxy_error(head.proxied_by)
            return
        now = self._clock.now_ms()
        if not token.is_valid(now):
            raise token_error(token)
        self._record_use(token.id, now)

    def _add_to_cache(self, cache_key: bytes, principal: Principal) -> None:
        self._cache[cache_key] = principal, self._clock.monotonic()
        self._cache.move_to_end(cache_key)
        if len(self._cache) > CACHE_SIZE:
            self._cache.popitem(last=False)


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
    authorization = head.authorization
    return sha256(authorization).digest() if PREFIX in authorization else b""


def token_error(token: Token | None) -> RequestRefused:
    if token is None:
        return _unauthorized_error("invalid_token", "Unknown token. Create one: turnledger tokens create")
    if token.revoked_at is not None:
        return _unauthorized_error("token_revoked", "This token was revoked. Request a new one.")
    return _unauthorized_error("token_expired", "This token has expired. Request a new one.")


def _no_token_error(head: RequestHead) -> RequestRefused:
    return token_error(None) if head.authorization else missing_token_error()


def missing_token_error() -> RequestRefused:
    return _unauthorized_error(
        "missing_token", "This server requires a token: send `Authorization: Bearer tlt_…`."
    )


def _unauthorized_error(code: str, message: str) -> RequestRefused:
    return RequestRefused(401, code, message, headers=_CHALLENGE)


def _proxy_error(sign: str) -> RequestRefused:
    return RequestRefused(
        403,
        "forwarded_request",
        f"The request came through a proxy ({sign}) without a token. Create and send one: "
        "turnledger tokens create",
    )
