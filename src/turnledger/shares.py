"""Share links, for a server and its operator."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from turnledger.engine.access.shares import (
    CreateShare,
    ExchangeRequest,
    ListShares,
    RevokeShare,
    ShareView,
    check_exchange,
    create,
    exchange,
    list_shares,
    revoke,
)
from turnledger.engine.process import Process
from turnledger.engine.turn.validation import check_limit, check_scope
from turnledger.errors import InvalidInput, LinkNotValid
from turnledger.model.access.share import (
    NONCE,
    PER_MINUTE,
    VISIT,
    Share,
    is_code,
    new_code,
    visitors_token_text,
)
from turnledger.model.access.token import Token, digest_of
from turnledger.model.conversation import EVERYWHERE, Within
from turnledger.model.ids import ConversationId, RandomBits, ShareId, TokenId
from turnledger.tokens import bounds_of, check_count, check_models, check_names, end_of


class Visit(NamedTuple):
    """The token of a visitor, with the link that was exchanged for it."""

    token: Token
    text: str
    """The secret that authenticates the visitor."""
    share: Share


class Shares:
    """The share links of a ledger's store."""

    def __init__(self, process: Process, secret_bits: RandomBits, tokenless: str) -> None:
        self._process = process
        self._secret_bits = secret_bits
        self._tokenless = tokenless

    def __repr__(self) -> str:
        return f"<Shares of {type(self._process.store).__name__}>"

    async def create(
        self,
        *,
        scope: str | None = None,
        chat: str | None = None,
        owner: str | None = None,
        name: str = "",
        max_uses: int | None = None,
        lifetime: float | None = None,
        per_minute: int | None = PER_MINUTE,
        models: Iterable[str] | None = None,
        visitor_lifetime: float | None = VISIT,
        parent: str | None = None,
        max_tokens: int | None = None,
        n: int | None = None,
        turns: int | None = None,
        turns_per_minute: int | None = None,
        bytes: int | None = None,
        chats: int | None = None,
    ) -> tuple[Share, str]:
        """Create a link, and return it with its code: the secret for the fragment of a URL. The code is not
        stored and returned only here.

        A link to a `scope` makes each visitor a fresh owner there, who may use `models` and sees only their
        own chats. A link to a `chat`, the id of a conversation of the owner, lets visitors read it and
        nothing else. It admits `max_uses` visitors, for `lifetime` seconds, `per_minute` at most. Each visit
        lasts `visitor_lifetime` seconds, but not longer than the link. `parent` is the id of the token that
        creates it, which bounds it and determines its owner; without one, the operator of the store creates
        it. Once there is a link, as with the first token, callers without a token are refused.

        A visitor's request may ask for answers of at most `max_tokens` tokens, and for at most `n` of them.
        All visitors together may have so many `turns` open, start so many `turns_per_minute`, and store so
        many `bytes` and `chats`; a bound that is not given is that of one owner.

        Raises InvalidInput; TokenEnded or TokenTooWide, because of the parent; ConversationNotFound,
        ConversationDeleted or ConversationExpired; TooManyShares.
        """
        process, now = self._process, self._process.clock.now_ms()
        if (scope is None) == (chat is None):
            raise InvalidInput("A link needs a scope or a chat, not both.")
        if scope is not None and not check_scope("scope", scope):
            raise InvalidInput("A link to a scope needs its name.")
        check_names(owner, name)
        code = new_code(self._secret_bits)
        stay = end_of(None, visitor_lifetime, now, "visitor_lifetime")
        request = CreateShare(
            id=process.ids.new(ShareId),
            digest=digest_of(code),
            owner=self._tokenless if owner is None else owner,
            name=name,
            chat_scope=scope or "",
            conversation=None if chat is None else ConversationId(chat),
            models=None if models is None else check_models(models),
            max_uses=check_count("max_uses", max_uses),
            per_minute=check_count("per_minute", per_minute),
            visitor_lifetime=None if stay is None else stay - now,
            expires_at=end_of(None, lifetime, now, "lifetime"),
            parent=None if parent is None else TokenId(parent),
            bounds=bounds_of(
                max_tokens=max_tokens,
                n=n,
                turns=turns,
                turns_per_minute=turns_per_minute,
                bytes=bytes,
                chats=chats,
            ),
            tokenless=self._tokenless,
            limit=process.limits.shares,
            now=now,
            due=process.clock.due_ms(),
        )
        return await process.persist_whole(create, request), code

    async def exchange(self, code: str, nonce: str, *, arrives: Callable[[], None] | None = None) -> Visit:
        """Exchange the code of a link for a visitor's token. `nonce` holds at least 128 random bits, made by
        the page.

        The same nonce returns the same for a minute, and counts once. `arrives` is called before a new
        visitor is admitted, and may raise to refuse. Raises LinkNotValid, whatever the reason;
        TooManyVisitors; InvalidInput for an invalid nonce.
        """
        if not NONCE.fullmatch(nonce):
            raise InvalidInput("nonce must be 22 to 128 letters, digits, - or _, made of 128 random bits.")
        if not is_code(code):
            raise LinkNotValid
        process = self._process
        request = ExchangeRequest(
            code=code,
            nonce=nonce,
            token=process.ids.new(TokenId),
            limit=process.limits.visitors,
            now=process.clock.now_ms(),
            due=process.clock.due_ms(),
        )
        # Refusals need only a read: guessed codes do not hold up writers.
        arrival = await process.store.read_whole(check_exchange, request)
        if not arrival.is_repeated:
            if arrives is not None:
                arrives()
            arrival = await process.persist_whole(exchange, request)
        return Visit(arrival.token, visitors_token_text(code, nonce, arrival.share.id), arrival.share)

    async def list(
        self,
        *,
        owner: str | None = None,
        within: Within = EVERYWHERE,
        only_chats: bool = False,
        before: str | None = None,
        limit: int = 50,
    ) -> Sequence[Share]:
        """Return a page of links in any state, the newest first: those of one owner, or of all, that lead to
        nothing outside `within`. `before` is the last id of the previous page."""
        cursor = None if before is None else ShareId(before)
        request = ListShares(ShareView(owner, within, only_chats), cursor, check_limit(limit))
        return await self._process.store.read_whole(list_shares, request)

    async def revoke(
        self,
        id: str,
        *,
        owner: str | None = None,
        within: Within = EVERYWHERE,
        only_chats: bool = False,
        by: Token | None = None,
    ) -> Share:
        """Revoke a link and all tokens that were exchanged for it; see Tokens.revoke. Revoking it again
        changes nothing.

        Raises ShareNotFound, also for links that the `owner` or the caller's `within` does not see. `by` is
        the calling token: one made by another token revokes links to chats of its owner, and those that it or
        a descendant made.
        """
        seen = ShareView(owner, within, only_chats)
        request = RevokeShare(ShareId(id), seen, self._process.clock.now_ms(), by)
        return await self._process.persist_whole(revoke, request)
