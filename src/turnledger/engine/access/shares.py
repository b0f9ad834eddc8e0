"""Share links: create, exchange for a visitor's token, list, revoke; each in one transaction.

A visitor's token is derived from the code of the link and a nonce of the page, see model.access.share. So the
exchange can be repeated: a page that retries within a minute gets the same token, and the link alone does not
reveal it.
"""

from __future__ import annotations

from msgspec import Struct

from turnledger.engine.access.tokens import may_revoke, require_tokens, valid_parent
from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.ports import WholeStore
from turnledger.errors import (
    ConversationUnavailable,
    InvalidInput,
    LinkNotValid,
    ShareNotFound,
    TokenTooWide,
    TooManyShares,
    TooManyVisitors,
)
from turnledger.model.access.share import Share, visitors_token_text
from turnledger.model.access.token import UNBOUNDED, Bounds, Token, TokenScope, digest_of
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import ConversationId, ShareId, TokenId

REPEAT_MS = 60_000
"""How long a page may repeat an exchange and receive the same token."""
MINUTE_MS = 60_000


class CreateShare(Struct, frozen=True, kw_only=True):
    """A link to create, to a scope or to one conversation. None means no limit beyond that of the parent."""

    id: ShareId
    digest: bytes
    owner: str
    name: str
    chat_scope: str
    conversation: ConversationId | None
    models: tuple[str, ...] | None
    max_uses: int | None
    per_minute: int | None
    visitor_lifetime: int | None
    expires_at: int | None
    parent: TokenId | None
    bounds: Bounds = UNBOUNDED
    tokenless: str
    """The owner of the conversations that callers without a token use while no token exists."""
    limit: int
    now: int
    due: int


async def create(whole: WholeStore, request: CreateShare) -> Share:
    """Create a link. Repeating it returns the same link.

    The parent token must be valid in this transaction, and the link grants nothing beyond it. A link to a
    scope needs `admin`, a link to a conversation `chats:write` of its owner.

    Raises TokenEnded, TokenTooWide, ConversationNotFound, ConversationDeleted, ConversationExpired,
    TooManyShares, and InvalidInput for an expiry in the past; then nothing has changed.
    """
    made_before = await whole.share(None, request.id)
    if made_before is not None:
        return made_before
    parent = None if request.parent is None else await _parent(whole, request, request.parent)
    share = await _share(whole, request, parent)
    if share.expires_at is not None and share.expires_at <= request.now:
        raise InvalidInput("The link would have expired already. Use a time in the future.")
    if parent is not None:
        _check_not_beyond(share, parent, request.now)
    if await whole.count_shares(share.owner, request.now, request.limit) >= request.limit:
        raise TooManyShares
    await require_tokens(whole, request.tokenless)
    await whole.add_share(share)
    return share


async def _parent(whole: WholeStore, request: CreateShare, id: TokenId) -> Token:
    parent = await valid_parent(whole, id, request.now)
    if parent.share is not None:
        raise TokenTooWide("Visitors cannot create links. Use another token.")
    needed = TokenScope.ADMIN if request.conversation is None else TokenScope.CHATS_WRITE
    if not parent.allows(needed):
        raise TokenTooWide(f"Only a token with the scope {needed} can create this link. Use another token.")
    return parent


async def _share(whole: WholeStore, request: CreateShare, parent: Token | None) -> Share:
    owner, chat_scope = request.owner, request.chat_scope
    models, expires_at = request.models, request.expires_at
    within, bounds = EVERYWHERE, request.bounds
    if parent is not None:
        bounds = bounds.within(parent.bounds)
        owner, within = parent.owner, parent.within
        models = parent.models if models is None else models
        expires_at = parent.expires_at if expires_at is None else expires_at
    if request.conversation is not None:
        found = await live_conversation(whole.of(owner), request.conversation, request.due, within)
        chat_scope = found.scope
    return Share(
        id=request.id,
        owner=owner,
        name=request.name,
        chat_scope=chat_scope,
        conversation=request.conversation,
        models=models or (),
        max_uses=request.max_uses,
        per_minute=request.per_minute,
        visitor_lifetime=request.visitor_lifetime,
        created_at=request.now,
        expires_at=expires_at,
        parent=request.parent,
        bounds=bounds,
        digest=request.digest,
    )


def _check_not_beyond(share: Share, parent: Token, now: int) -> None:
    # Compare at the widest: a token without a visitor's lifetime.
    most = share.token_for(parent.id, b"", now)
    beyond = most.excess_over(parent)
    if beyond:
        more = "; ".join(beyond)
        raise TokenTooWide(f"A link cannot grant what its token lacks: {more}. Ask for less.")


class ExchangeRequest(Struct, frozen=True, kw_only=True):
    """A visitor presents the code of a link. Holds secrets; never stored."""

    code: str
    nonce: str
    token: TokenId
    limit: int
    """The most visitors at one time."""
    now: int
    due: int


class ExchangeResult(Struct, frozen=True):
    share: Share
    token: Token
    is_repeated: bool
    """Whether the token existed before this request."""


async def check_exchange(whole: WholeStore, request: ExchangeRequest) -> ExchangeResult:
    """Decide what a visitor gets; write nothing. An invalid code needs the same lookups as
    a valid one. Raises LinkNotValid or TooManyVisitors."""
    share = await whole.share_by_digest(digest_of(request.code))
    text = visitors_token_text(request.code, request.nonce, None if share is None else share.id)
    digest = digest_of(text)
    known = await whole.token_by_digest(digest)
    if share is None or not await _is_usable(whole, share, request):
        raise LinkNotValid
    if known is not None:
        token = known.token
        if not token.is_valid(request.now) or request.now - token.created_at > REPEAT_MS:
            raise LinkNotValid
        return ExchangeResult(share, token, True)
    if not share.is_open(request.now):
        raise LinkNotValid
    await _check_pace(whole, share, request)
    return ExchangeResult(share, share.token_for(request.token, digest, request.now), False)


async def _is_usable(whole: WholeStore, share: Share, request: ExchangeRequest) -> bool:
    """Return whether the link, its parent token and its conversation are all still valid."""
    if not share.is_valid(request.now):
        return False
    if share.parent is not None:
        parent = await whole.token(None, share.parent)
        if parent is None or not parent.is_valid(request.now):
            return False
    if share.conversation is None:
        return True
    try:
        await live_conversation(whole.of(share.owner), share.conversation, request.due)
    except ConversationUnavailable:
        return False
    return True


async def _check_pace(whole: WholeStore, share: Share, request: ExchangeRequest) -> None:
    most = share.per_minute
    if most is not None and await whole.count_visitors(share.id, request.now - MINUTE_MS, most) >= most:
        raise TooManyVisitors
    stay = share.visitor_lifetime
    since = -1 if stay is None else request.now - stay
    if await whole.count_visitors(share.id, since, request.limit) >= request.limit:
        raise TooManyVisitors


async def exchange(whole: WholeStore, request: ExchangeRequest) -> ExchangeResult:
    """Count the visitor and create a token, or return the token of a recent exchange. Raises LinkNotValid or
    TooManyVisitors; then nothing has changed."""
    arrival = await check_exchange(whole, request)
    if not arrival.is_repeated:
        await whole.count_use(arrival.share.id)
        await whole.add_token(arrival.token)
    return arrival


class ShareView(Struct, frozen=True):
    owner: str | None = None
    """None: all owners."""
    within: Within = EVERYWHERE
    only_chats: bool = False
    """Whether links to a scope are left out."""

    def sees(self, share: Share) -> bool:
        return self.within.covers(share.within) and not (self.only_chats and share.conversation is None)


class ListShares(Struct, frozen=True):
    view: ShareView
    before: ShareId | None
    limit: int


async def list_shares(whole: WholeStore, request: ListShares) -> list[Share]:
    """Return a page of links in any state, newest first."""
    before, seen = request.before, request.view
    listed: list[Share] = []
    while len(listed) < request.limit:
        found = await whole.shares(seen.owner, before, request.limit)
        listed += [each for each in found if seen.sees(each)]
        if len(found) < request.limit:
            break
        before = found[-1].id
    return listed[: request.limit]


class RevokeShare(Struct, frozen=True):
    id: ShareId
    view: ShareView
    now: int
    by: Token | None = None
    """The token that revokes it; None: the operator of the store."""


async def _may_revoke(whole: WholeStore, by: Token | None, share: Share) -> bool:
    """Return whether a token may revoke a link: any link to a chat of its owner; else as for tokens."""
    if by is None or (share.conversation is not None and share.owner == by.owner):
        return True
    return await may_revoke(whole, by.id, share.parent)


async def revoke(whole: WholeStore, request: RevokeShare) -> Share:
    """Revoke a link and all tokens obtained by it. Repeating it changes nothing. Raises ShareNotFound."""
    share = await whole.share(request.view.owner, request.id)
    if share is None or not request.view.sees(share) or not await _may_revoke(whole, request.by, share):
        raise ShareNotFound
    # Owners before links, as a visitor's begin locks them.
    for owner in await whole.revoke_visitors(share.id, request.now):
        await whole.raise_admission(owner)
    await whole.revoke_share(share.id, request.now)
    revoked = await whole.share(None, share.id)
    return share if revoked is None else revoked
