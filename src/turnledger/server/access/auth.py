"""Authentication: from the token of a request to its caller, and what the caller may do.

A turn is admitted from memory: its begin compares, in its own transaction, the version under which the token
was looked up, so a token that was just revoked, by any process, begins nothing. All other requests look the
token up in the store.
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
"""Tokens that are kept in memory."""
REMEMBERED_FOR = 10.0
"""Seconds for which they are. Begin notices a revoked token at once; but its body is read first, may take its
time, and counts as a turn of the owner meanwhile."""
NOTE_EVERY = 60.0
"""Seconds after the use of a token until it is stored, with all others since."""
ALL_BUT_ADMIN = frozenset(TokenScope) - {TokenScope.ADMIN}

PREFIX = TOKEN_PREFIX.encode()

_CHALLENGE = ((b"www-authenticate", b"Bearer"),)


class Principal(msgspec.Struct, frozen=True):
    """The caller."""

    owner: str
    scopes: frozenset[TokenScope]
    version: int
    """Of the owner's admission, at the lookup."""
    token: Token | None = None
    """None: a caller without a token, on the machine that the server runs on."""

    @property
    def within(self) -> Within:
        """The part of the owner's chats that the caller may see."""
        return EVERYWHERE if self.token is None else self.token.within

    @property
    def until(self) -> int | None:
        return None if self.token is None else self.token.expires_at

    @property
    def token_id(self) -> TokenId | None:
        return None if self.token is None else self.token.id

    @property
    def is_reader(self) -> bool:
        """Whether the caller came by a link to one chat."""
        return self.token is not None and self.token.share is not None and self.token.conversation is not None

    @property
    def is_narrowed(self) -> bool:
        """Whether the token grants less than its owner has."""
        return self.token is not None and self.token.is_narrowed

    @property
    def counted_as(self) -> str:
        """The name under which requests are counted: readers do not use up the quota of the chat's owner."""
        return (self.within.label or self.owner) if self.is_reader else self.owner

    @property
    def link(self) -> Link | None:
        """The link that a visitor came by, if it gave chats of their own."""
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
        """Raise Refused (403) if a request names a scope of chats that the caller may not see."""
        if named is not None and self.within.scope not in (None, named):
            message = "This token is narrowed to another scope of chats. Name none: its own is meant."
            raise Refused(403, "outside_chat_scope", message)


class Authenticator:
    """Looks up callers, for one server."""

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
        """Look up the caller. Raises Refused: 401 for a token that is missing, unknown, expired or revoked;
        403 for a request without one that came through a proxy."""
        shown = _shown(head)
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
            self._needs_token = True  # for good: requests without a token need no lookup any more
            raise _without_token(head)
        return Principal(OWNER, ALL_BUT_ADMIN, found.version)

    async def readmit(self, head: RequestHead, needed: TokenScope) -> int:
        """Look a caller up again after a token of the same owner was revoked, maybe this one. Return the
        current version. Raises Refused as `admit` does."""
        principal = await self.admit(head)
        principal.check(needed)
        return principal.version

    def recall(self, head: RequestHead) -> Principal | None:
        """Return the caller as last looked up; None if that is too long ago. Only for requests that compare
        the version in the store. Raises Refused as `admit` does."""
        known = self._remembered.get(_shown(head))
        if known is None or self._clock.monotonic() - known[1] > REMEMBERED_FOR:
            return None
        self._check(known[0], head)
        return known[0]

    async def note_uses(self) -> None:
        """Store when tokens were used since the last time; what fails is left to the next time."""
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
        """Collect uses: they are written on a timer, never one per request."""
        self._uses[token] = now
        if self._later is None:
            self._later = asyncio.get_running_loop().call_later(self._note_every, self._begin_to_note)

    def _begin_to_note(self) -> None:
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
    """The token that the request carries.

    Programs made for the OpenAI API always send an api_key, be it "unused": what cannot be a token counts as
    none, which is enough as long as none is asked for.
    """
    kind, _, text = head.authorization.decode("latin-1").partition(" ")
    text = text.strip()
    return text if kind.lower() == "bearer" and is_token_text(text) else None


def _shown(head: RequestHead) -> bytes:
    """The key under which a caller is remembered; the same for all without anything that could be a token."""
    given = head.authorization
    return sha256(given).digest() if PREFIX in given else b""


def why_not(token: Token | None) -> Refused:
    """The error for a token that is not valid."""
    if token is None:
        return _unknown("invalid_token", "This token is not known here. Make one: turnledger tokens create")
    if token.revoked_at is not None:
        return _unknown("token_revoked", "This token was revoked. Ask for a new one.")
    return _unknown("token_expired", "This token has expired. Ask for a new one.")


def _without_token(head: RequestHead) -> Refused:
    return why_not(None) if head.authorization else missing()


def missing() -> Refused:
    """The error for a request without a token, where one is needed."""
    return _unknown("missing_token", "This server asks for a token: send `Authorization: Bearer tlt_…`.")


def _unknown(code: str, message: str) -> Refused:
    return Refused(401, code, message, headers=_CHALLENGE)


def _proxied(sign: str) -> Refused:
    return Refused(
        403,
        "forwarded_request",
        f"The request has no token and seems to come through a proxy ({sign}). Without a token this server "
        "answers only programs on its own machine. Create and send one: turnledger tokens create",
    )
