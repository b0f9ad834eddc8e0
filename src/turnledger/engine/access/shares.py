"""Share links: made, exchanged for a visitor's token, listed, revoked; each in one transaction.

The token of a visitor is derived from the code of the link and a nonce of the page, see model.access.share.
So the transaction that counts a visitor and makes the token can be repeated: a page that asks again within a
minute gets the same one, and whoever finds the link later learns nothing of it.
"""

from __future__ import annotations

from msgspec import Struct

from turnledger.engine.access.tokens import may_revoke
from turnledger.engine.conversations.resolve import check_live, live_conversation
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationUnavailable,
    InvalidInput,
    LinkNotValid,
    ShareNotFound,
    TokenEnded,
    TokenTooWide,
    TooManyShares,
    TooManyVisitors,
)
from turnledger.model.access.share import Share, visitors_token_text
from turnledger.model.access.token import UNBOUNDED, Bounds, Token, TokenScope, digest_of
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import ConversationId, ShareId, TokenId

AGAIN_MS = 60_000
"""For so long a page may ask again, and is told the same."""
MINUTE_MS = 60_000


class CreateShare(Struct, frozen=True, kw_only=True):
    """A link to be made, to a scope or to a conversation. What is None is as wide as it may be."""

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
    """Whose conversations are opened without a token, as long as there is none."""
    limit: int
    now: int
    due: int


async def create(tables: Tables, request: CreateShare) -> Share:
    """Make a link. One that a token makes gives nothing that the token does not give, which must be valid in
    this very transaction: to a scope, it needs `admin`; to a conversation, `chats:write` of its owner.
    Repeating it returns the same.

    Raises TokenEnded or TokenTooWide because of the parent, ConversationNotFound, ConversationDeleted or
    ConversationExpired, TooManyShares, and InvalidInput for a time that is over; then nothing has changed.
    """
    made_before = await tables.share(None, request.id)
    if made_before is not None:
        return made_before
    parent = None if request.parent is None else await _parent(tables, request)
    share = await _share(tables, request, parent)
    if share.expires_at is not None and share.expires_at <= request.now:
        raise InvalidInput("The link would have expired already. Give it a time to come.")
    if parent is not None:
        _check_not_beyond(share, parent, request.now)
    if await tables.count_shares(share.owner, request.now, request.limit) >= request.limit:
        raise TooManyShares
    # Who lets visitors in tells people apart: from now on, nobody comes without a token.
    if not await tables.admission(request.tokenless):
        await tables.raise_admission(request.tokenless)
    await tables.add_share(share)
    return share


async def _parent(tables: Tables, request: CreateShare) -> Token:
    parent = None if request.parent is None else await tables.token(None, request.parent)
    if parent is None or not parent.is_valid(request.now):
        raise TokenEnded
    if parent.share is not None:
        raise TokenTooWide("Who came by a link makes none. Ask whoever gave it to you.")
    needed = TokenScope.ADMIN if request.conversation is None else TokenScope.CHATS_WRITE
    if not parent.allows(needed):
        raise TokenTooWide(f"Only a token with the scope {needed} can make this link. Use one that has it.")
    return parent


async def _share(tables: Tables, request: CreateShare, parent: Token | None) -> Share:
    owner, chat_scope = request.owner, request.chat_scope
    models, expires_at = request.models, request.expires_at
    within, bounds = EVERYWHERE, request.bounds
    if parent is not None:
        bounds = bounds.within(parent.bounds)
        owner, within = parent.owner, parent.within
        models = parent.models if models is None else models
        expires_at = parent.expires_at if expires_at is None else expires_at
    if request.conversation is not None:
        found = await tables.conversation(owner, request.conversation)
        found = await check_live(
            tables, found if found is not None and within.sees(found) else None, request.due
        )
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
    # What a visitor who never leaves would get.
    most = share.token_for(parent.id, b"", now)
    beyond = most.beyond(parent)
    if beyond:
        told = "; ".join(beyond)
        raise TokenTooWide(f"A link cannot give what its maker has not, which is here: {told}. Ask for less.")


class ExchangeRequest(Struct, frozen=True, kw_only=True):
    """A visitor who comes with the code of a link. It holds secrets, and is kept nowhere."""

    code: str
    nonce: str
    token: TokenId
    """The id of the token, if it is made now."""
    limit: int
    """How many may be there by one link."""
    now: int
    due: int


class Arrival(Struct, frozen=True):
    """What a visitor is given."""

    share: Share
    token: Token
    is_again: bool
    """Whether the visitor had it already."""


async def look(tables: Tables, request: ExchangeRequest) -> Arrival:
    """Decide what a visitor gets, and write nothing. A code that is unknown, used up, expired or revoked is
    looked at as any other is. Raises LinkNotValid or TooManyVisitors."""
    share = await tables.share_by_digest(digest_of(request.code))
    text = visitors_token_text(request.code, request.nonce, None if share is None else share.id)
    digest = digest_of(text)
    known = await tables.token_by_digest(digest)
    if share is None or not await _is_good(tables, share, request):
        raise LinkNotValid
    if known is not None:
        token = known[0]
        if not token.is_valid(request.now) or request.now - token.created_at > AGAIN_MS:
            raise LinkNotValid
        return Arrival(share, token, True)
    if not share.is_open(request.now):
        raise LinkNotValid
    await _check_pace(tables, share, request)
    return Arrival(share, share.token_for(request.token, digest, request.now), False)


async def _is_good(tables: Tables, share: Share, request: ExchangeRequest) -> bool:
    """Whether it leads somewhere still, and who made it may still do so."""
    if not share.is_valid(request.now):
        return False
    if share.parent is not None:
        parent = await tables.token(None, share.parent)
        if parent is None or not parent.is_valid(request.now):
            return False
    if share.conversation is None:
        return True
    try:
        await live_conversation(tables, share.owner, share.conversation, request.due)
    except ConversationUnavailable:
        return False
    return True


async def _check_pace(tables: Tables, share: Share, request: ExchangeRequest) -> None:
    most = share.per_minute
    if most is not None and await tables.count_visitors(share.id, request.now - MINUTE_MS, most) >= most:
        raise TooManyVisitors
    stay = share.visitor_lifetime
    since = -1 if stay is None else request.now - stay
    if await tables.count_visitors(share.id, since, request.limit) >= request.limit:
        raise TooManyVisitors


async def exchange(tables: Tables, request: ExchangeRequest) -> Arrival:
    """Count the visitor and make a token, or return the one of a moment ago. Raises LinkNotValid
    or TooManyVisitors; then nothing has changed."""
    arrival = await look(tables, request)
    if not arrival.is_again:
        await tables.count_use(arrival.share.id)
        await tables.add_token(arrival.token)
    return arrival


class SharesSeen(Struct, frozen=True):
    """Which links there are for who asks."""

    owner: str | None = None
    """Those of one owner; None: of all."""
    within: Within = EVERYWHERE
    only_chats: bool = False
    """Not those that lead to a scope."""

    def sees(self, share: Share) -> bool:
        return self.within.covers(share.within) and not (self.only_chats and share.conversation is None)


class ListShares(Struct, frozen=True):
    seen: SharesSeen
    before: ShareId | None
    limit: int


async def list_shares(tables: Tables, request: ListShares) -> list[Share]:
    """A page of links in whatever state, the last made first."""
    before, seen = request.before, request.seen
    listed: list[Share] = []
    while len(listed) < request.limit:
        found = await tables.shares(seen.owner, before, request.limit)
        listed += [each for each in found if seen.sees(each)]
        if len(found) < request.limit:
            break
        before = found[-1].id
    return listed[: request.limit]


class RevokeShare(Struct, frozen=True):
    id: ShareId
    seen: SharesSeen
    now: int
    by: Token | None = None
    """The token that revokes it; None: whoever runs the store does."""


async def _may_revoke(tables: Tables, by: Token | None, share: Share) -> bool:
    """Whether a token may end a link: any token those to chats of its owner; else as for tokens."""
    if by is None or (share.conversation is not None and share.owner == by.owner):
        return True
    return await may_revoke(tables, by.id, share.parent)


async def revoke(tables: Tables, request: RevokeShare) -> Share:
    """End a link, and in the same step all tokens that were got by it. What is revoked already stays as it
    is, so it can be repeated. Raises ShareNotFound."""
    share = await tables.share(request.seen.owner, request.id)
    if share is None or not request.seen.sees(share) or not await _may_revoke(tables, request.by, share):
        raise ShareNotFound
    await tables.revoke_share(share.id, request.now)
    for owner in await tables.revoke_visitors(share.id, request.now):
        await tables.raise_admission(owner)
    revoked = await tables.share(None, share.id)
    return share if revoked is None else revoked
