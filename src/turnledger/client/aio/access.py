"""Tokens and share links, awaited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from turnledger.api.access import Share, Token
from turnledger.client.aio.pages import AsyncPages
from turnledger.client.aio.wire import AsyncWire
from turnledger.client.core.access import AccessCore


class AsyncTokens:
    """Tokens of the server; requires a token with `admin`."""

    def __init__(self, wire: AsyncWire, core: AccessCore) -> None:
        self._wire = wire
        self._core = core

    async def create(
        self,
        scopes: Sequence[str],
        *,
        owner: str | None = None,
        name: str = "",
        chat_scope: str | None = None,
        chat: str | None = None,
        models: Sequence[str] | None = None,
        expires_in: float | None = None,
        max_tokens: int | None = None,
        n: int | None = None,
        defaults: Mapping[str, str] | None = None,
    ) -> Token:
        """Create a token. Its text, the secret, is in `token`, and sent only once. The request is not
        repeated once it may have reached the server; ServerUnavailable says so. Requests with the token may
        ask for answers of at most `max_tokens` tokens, and for at most `n` of them. `defaults` are the
        policies of its turns, such as `{"on_busy": "reject"}`, unless a request chooses."""
        fields = {name: value for name, value in locals().items() if name != "self"}
        return await self._wire.run(self._core.create_token(**fields))

    def list(self, *, owner: str | None = None, limit: int | None = None) -> AsyncPages[Token]:
        """Return the tokens, the newest first."""
        return AsyncPages(self._wire.run, partial(self._core.tokens_page, owner=owner), limit)

    async def own(self, *, scope: str | None = None) -> Token | None:
        """Return the token of this client, or None if it needs none. Its `keeps` says whether chats are
        stored: those of its scope, or of the named one."""
        return await self._wire.run(self._core.own_token(scope=scope))

    async def revoke(self, token: str) -> tuple[Token, ...]:
        """Revoke a token by its id, with all its descendants; `self`: your own. Repeating changes nothing."""
        return await self._wire.run(self._core.revoke_token(token))


class AsyncShares:
    """Share links for visitors."""

    def __init__(self, wire: AsyncWire, core: AccessCore) -> None:
        self._wire = wire
        self._core = core

    async def create(
        self,
        *,
        scope: str | None = None,
        chat: str | None = None,
        name: str = "",
        max_uses: int | None = None,
        expires_in: float | None = None,
        models: Sequence[str] | None = None,
        per_minute: int | None = None,
        visitor_expires_in: float | None = None,
        max_tokens: int | None = None,
        n: int | None = None,
        turns: int | None = None,
        turns_per_minute: int | None = None,
        bytes: int | None = None,
        chats: int | None = None,
    ) -> Share:
        """Create a link to a scope, where each visitor has their own chats, or to a chat, read-only. Its
        secret is sent only once, and the request is not repeated once it may have reached the server. A
        visitor's request may ask for answers of at most `max_tokens` tokens, and for at most `n` of them. All
        visitors together may have so many `turns` open, start so many `turns_per_minute`, and store so many
        `bytes` and `chats`."""
        fields = {name: value for name, value in locals().items() if name != "self"}
        return await self._wire.run(self._core.create_share(**fields))

    def list(self, *, limit: int | None = None) -> AsyncPages[Share]:
        """Return the links, the newest first."""
        return AsyncPages(self._wire.run, self._core.shares_page, limit)

    async def revoke(self, share: str) -> Share:
        """Revoke a link, and the tokens of all its visitors. Repeating changes nothing."""
        return await self._wire.run(self._core.revoke_share(share))
