"""Tokens: create, find, list, revoke; each in one transaction.

Every owner has an admission version, which rises when one of its tokens is revoked. Begin compares it with
the version under which the caller was authorized, so a revocation takes effect in every process as soon as it
is written. Callers without a token have an owner, too. The first token raises that owner's version from 0:
from then on every caller needs a token.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.ports import Tables, WholeStore
from turnledger.errors import InvalidInput, TokenEnded, TokenNotFound, TokenTooWide, TooManyTokens
from turnledger.model.access.token import UNBOUNDED, Bounds, Token, TokenScope
from turnledger.model.conversation import Within
from turnledger.model.ids import ConversationId, TokenId


class CreateToken(Struct, frozen=True, kw_only=True):
    """A token to create. None means as wide as the parent, or unlimited without one."""

    id: TokenId
    digest: bytes
    owner: str | None
    name: str
    scopes: frozenset[TokenScope]
    chat_scope: str | None
    conversation: ConversationId | None
    models: tuple[str, ...] | None
    expires_at: int | None
    parent: TokenId | None
    bounds: Bounds = UNBOUNDED
    defaults: Mapping[str, str] | None = None
    tokenless: str
    """The owner of the conversations that callers without a token use while no token exists."""
    limit: int
    now: int
    due: int


async def create(whole: WholeStore, request: CreateToken) -> Token:
    """Create a token. Repeating it returns the same token. A parent must have `admin` and be valid in this
    transaction, and the token grants nothing beyond it.

    Raises TokenEnded, TokenTooWide, TooManyTokens, and InvalidInput for an expiry in the past; then nothing
    has changed.
    """
    made_before = await whole.token(None, request.id)
    if made_before is not None:
        return made_before
    parent = None if request.parent is None else await _parent(whole, request.parent, request.now)
    token = _token(request, parent)
    if token.expires_at is not None and token.expires_at <= request.now:
        raise InvalidInput("The token would have expired already. Use a time in the future.")
    if token.conversation is not None:
        await _check_conversation(whole, token, token.conversation, request.due)
    if await whole.count_tokens(token.owner, request.now, request.limit) >= request.limit:
        raise TooManyTokens
    await require_tokens(whole, request.tokenless)
    await whole.add_token(token)
    return token


async def require_tokens(whole: WholeStore, tokenless: str) -> None:
    """Require a token of every caller from now on: the store has more than one user."""
    if not await whole.of(tokenless).admission():
        await whole.raise_admission(tokenless)


async def valid_parent(whole: WholeStore, id: TokenId, now: int) -> Token:
    parent = await whole.token(None, id)
    if parent is None or not parent.is_valid(now):
        raise TokenEnded
    return parent


async def _parent(whole: WholeStore, id: TokenId, now: int) -> Token:
    parent = await valid_parent(whole, id, now)
    if not parent.allows(TokenScope.ADMIN):
        raise TokenTooWide("Only a token with the scope admin can create tokens. Use another token.")
    return parent


async def _check_conversation(whole: WholeStore, token: Token, id: ConversationId, due: int) -> None:
    """Allow one conversation to be read only: changes made through it would show in others."""
    if token.scopes != {TokenScope.CHATS_READ}:
        raise InvalidInput(
            f"A token for one conversation has the scope {TokenScope.CHATS_READ}, and no other."
        )
    await live_conversation(whole.of(token.owner), id, due, token.within)


def _token(request: CreateToken, parent: Token | None) -> Token:
    owner, expires_at, defaults = request.owner, request.expires_at, request.defaults
    chat_scope, models, bounds = request.chat_scope, request.models, request.bounds
    if parent is not None:
        bounds = bounds.within(parent.bounds)
        owner = parent.owner if owner is None else owner
        chat_scope = parent.chat_scope if chat_scope is None else chat_scope
        models = parent.models if models is None else models
        expires_at = parent.expires_at if expires_at is None else expires_at
        defaults = parent.defaults if defaults is None else defaults
    token = Token(
        id=request.id,
        owner=request.tokenless if owner is None else owner,
        name=request.name,
        scopes=request.scopes,
        chat_scope=chat_scope or "",
        conversation=request.conversation,
        models=models or (),
        created_at=request.now,
        expires_at=expires_at,
        parent=request.parent,
        bounds=bounds,
        defaults=defaults or {},
        digest=request.digest,
    )
    beyond = () if parent is None else token.excess_over(parent)
    if beyond:
        raise TokenTooWide(f"A token cannot grant what it lacks: {'; '.join(beyond)}. Ask for less.")
    return token


class Admission(Struct, frozen=True):
    """A caller's authorization at one moment."""

    token: Token | None
    """The token that the caller sent, in any state: see `is_valid`. None if there is no such token."""
    version: int
    """The admission version of its owner; without a token, that of callers without one. A turn requested with
    Authorization(version) begins only while the version is unchanged."""
    any_tokens: bool
    """Whether a token ever existed: from then on, every caller needs one."""


class FindRequest(Struct, frozen=True):
    digest: bytes | None
    tokenless: str


async def find(whole: WholeStore, request: FindRequest) -> Admission:
    """Look up a token by its digest, or the admission of callers without one."""
    found = None if request.digest is None else await whole.token_by_digest(request.digest)
    if found is not None:
        return Admission(found.token, found.admission, any_tokens=True)
    version = await whole.of(request.tokenless).admission()
    return Admission(None, version, any_tokens=version > 0)


async def find_all(whole: WholeStore, digests: Collection[bytes]) -> dict[bytes, Token]:
    found = [await whole.token_by_digest(digest) for digest in digests]
    return {each.token.digest: each.token for each in found if each is not None}


async def secret_of(whole: WholeStore, _: None) -> bytes:
    return await whole.secret()


async def admission_of(tables: Tables, _: None) -> int:
    return await tables.admission()


class ListTokens(Struct, frozen=True):
    owner: str | None
    within: Within
    """Only tokens that are at least as narrow."""
    before: TokenId | None
    limit: int


async def list_tokens(whole: WholeStore, request: ListTokens) -> list[Token]:
    """Return a page of tokens in any state, of one owner or of all, newest first."""
    before = request.before
    listed: list[Token] = []
    while len(listed) < request.limit:
        found = await whole.tokens(request.owner, before, request.limit)
        listed += [each for each in found if request.within.covers(each.within)]
        if len(found) < request.limit:
            break
        before = found[-1].id
    return listed[: request.limit]


class RevokeToken(Struct, frozen=True):
    id: TokenId
    owner: str | None
    within: Within
    now: int
    by: TokenId | None = None
    """The token that revokes it; None: the operator of the store."""


async def revoke(whole: WholeStore, request: RevokeToken) -> tuple[Token, ...]:
    """Revoke a token and all its descendants, tokens and links, in one transaction; return the tokens, itself
    first. Repeating it changes nothing. Raises TokenNotFound."""
    token = await whole.token(request.owner, request.id)
    if token is None or not request.within.covers(token.within):
        raise TokenNotFound
    if request.by is not None and not await may_revoke(whole, request.by, token.id):
        raise TokenNotFound
    family = [token]
    for each in family:  # grows during iteration
        family += await whole.child_tokens(each.id)
    fresh = [each for each in family if each.revoked_at is None]
    for each in fresh:
        await whole.revoke_token(each.id, request.now)
    # Owners before links, as a visitor's begin locks them.
    for owner in dict.fromkeys(each.owner for each in fresh):
        await whole.raise_admission(owner)
    for each in fresh:
        for share in await whole.child_shares(each.id):
            await whole.revoke_share(share.id, request.now)
    return tuple([replace(each, revoked_at=each.revoked_at or request.now) for each in family])


async def may_revoke(whole: WholeStore, by: TokenId, made: TokenId | None) -> bool:
    """Return whether the token `by` may revoke the token `made` and what that created. A token with a parent
    may revoke itself and its descendants only; one that the operator created may revoke any."""
    revoker = await whole.token(None, by)
    if revoker is None or revoker.parent is None:
        return revoker is not None
    while made is not None and made != by:
        above = await whole.token(None, made)
        made = None if above is None else above.parent
    return made == by


async def record_uses(whole: WholeStore, uses: Mapping[TokenId, int]) -> None:
    """Advance the times of last use; skip tokens that no longer exist."""
    for id, at in uses.items():
        await whole.record_use(id, at)
