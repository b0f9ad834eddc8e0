"""Tokens and share links, as the steps that what is done with them takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnledger.api.access import NewShare, NewToken, OwnToken, Share, Token
from turnledger.api.chats import Page
from turnledger.client.core.client import ClientCore
from turnledger.client.core.exchange import Exchanging
from turnledger.client.core.steps import JSON_TYPE, Doing, Request
from turnledger.client.core.turn_request import body_of
from turnledger.client.shapes import decoded
from turnledger.model.ids import ConversationId, ShareId, TokenId

_ONCE = "One may have been made, and its secret was lost: look at the list, revoke it, and make another."


class AccessCore:
    """What secrets are told of is not repeated once it may have reached the server."""

    def __init__(self, client: ClientCore) -> None:
        self._client = client

    def create_token(
        self,
        scopes: Sequence[str],
        *,
        owner: str | None,
        name: str,
        chat_scope: str | None,
        chat: str | None,
        models: Sequence[str] | None,
        expires_in: float | None,
        max_tokens: int | None,
        n: int | None,
    ) -> Doing[Token]:
        said = {
            "scopes": list(scopes),
            "owner": owner,
            "name": name,
            "chat_scope": chat_scope,
            "chat": None if chat is None else ConversationId(chat),
            "models": models,
            "expires_in": expires_in,
            "max_tokens": max_tokens,
            "n": n,
        }
        told = yield from self._made("/api/tokens", said)
        return decoded(NewToken, told)

    def tokens_page(self, cursor: str | None, limit: int, *, owner: str | None) -> Doing[Page[Token]]:
        query = {"owner": owner, "before": cursor, "limit": limit}
        page = yield from self._client.get("/api/tokens", Page[Token], query)
        return Page(page.data, page.data[-1].id if len(page) == limit else None)

    def own_token(self, *, scope: str | None = None) -> Doing[Token | None]:
        """The token that is asked with; None where none is needed."""
        told = yield from self._client.get("/api/tokens/self", dict[str, Any], {"scope": scope})
        if told.get("id") is None:
            return None
        return decoded(OwnToken, body_of(told))

    def revoke_token(self, token: str) -> Doing[tuple[Token, ...]]:
        """Revoke it and all that were made with it; again, it changes nothing."""
        named = token if token == "self" else TokenId(token)  # noqa: S105 - no secret, a word
        request = Request(method="DELETE", path=f"/api/tokens/{named}")
        reply = yield from Exchanging(self._client.trying()).ask(request)
        return decoded(Page[Token], reply.body).data

    def create_share(
        self,
        *,
        scope: str | None,
        chat: str | None,
        name: str,
        max_uses: int | None,
        expires_in: float | None,
        models: Sequence[str] | None,
        others: Mapping[str, Any],
    ) -> Doing[Share]:
        said = {
            "scope": scope,
            "chat": None if chat is None else ConversationId(chat),
            "name": name,
            "max_uses": max_uses,
            "expires_in": expires_in,
            "models": models,
            **others,
        }
        told = yield from self._made("/api/shares", said)
        return decoded(NewShare, told)

    def shares_page(self, cursor: str | None, limit: int) -> Doing[Page[Share]]:
        page = yield from self._client.get("/api/shares", Page[Share], {"before": cursor, "limit": limit})
        return Page(page.data, page.data[-1].id if len(page) == limit else None)

    def revoke_share(self, share: str) -> Doing[Share]:
        """Revoke it, and the tokens of all who came by it; again, it changes nothing."""
        request = Request(method="DELETE", path=f"/api/shares/{ShareId(share)}")
        reply = yield from Exchanging(self._client.trying()).ask(request)
        return decoded(Share, reply.body)

    def _made(self, path: str, said: Mapping[str, Any]) -> Doing[bytes]:
        values = {name: value for name, value in said.items() if value is not None}
        request = Request(method="POST", path=path, headers={"content-type": JSON_TYPE}, body=body_of(values))
        reply = yield from Exchanging(self._client.trying(), is_repeatable=False, once=_ONCE).ask(request)
        return reply.body
