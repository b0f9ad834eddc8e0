"""Tokens and share links, as steps."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from turnledger.api.access import NewShare, NewToken, OwnToken, Share, Token
from turnledger.api.chats import Page
from turnledger.client.core.client import ClientCore
from turnledger.client.core.exchange import RepeatedExchange
from turnledger.client.core.steps import JSON_TYPE, Request, Steps
from turnledger.client.core.turn_request import body_of
from turnledger.client.shapes import decoded
from turnledger.model.ids import ConversationId, ShareId, TokenId

_ONCE = "One may have been made, and its secret was lost: look at the list, revoke it, and make another."


class AccessCore:
    """Does not repeat requests that return secrets once they may have reached the server."""

    def __init__(self, client: ClientCore) -> None:
        self._client = client

    def create_token(self, **fields: Any) -> Steps[Token]:
        return decoded(NewToken, (yield from self._made("/api/tokens", fields)))

    def tokens_page(self, cursor: str | None, limit: int, *, owner: str | None) -> Steps[Page[Token]]:
        query = {"owner": owner, "before": cursor, "limit": limit}
        page = yield from self._client.get("/api/tokens", Page[Token], query)
        return Page(page.data, page.data[-1].id if len(page) == limit else None)

    def own_token(self, *, scope: str | None = None) -> Steps[Token | None]:
        own = yield from self._client.get("/api/tokens/self", dict[str, Any], {"scope": scope})
        if own.get("id") is None:
            return None
        return decoded(OwnToken, body_of(own))

    def revoke_token(self, token: str) -> Steps[tuple[Token, ...]]:
        named = token if token == "self" else TokenId(token)  # noqa: S105 - no secret, a word
        request = Request(method="DELETE", path=f"/api/tokens/{named}")
        reply = yield from RepeatedExchange(self._client.trying()).ask(request)
        return decoded(Page[Token], reply.body).data

    def create_share(self, **fields: Any) -> Steps[Share]:
        return decoded(NewShare, (yield from self._made("/api/shares", fields)))

    def shares_page(self, cursor: str | None, limit: int) -> Steps[Page[Share]]:
        page = yield from self._client.get("/api/shares", Page[Share], {"before": cursor, "limit": limit})
        return Page(page.data, page.data[-1].id if len(page) == limit else None)

    def revoke_share(self, share: str) -> Steps[Share]:
        request = Request(method="DELETE", path=f"/api/shares/{ShareId(share)}")
        reply = yield from RepeatedExchange(self._client.trying()).ask(request)
        return decoded(Share, reply.body)

    def _made(self, path: str, fields: Mapping[str, Any]) -> Steps[bytes]:
        values = {name: value for name, value in fields.items() if value is not None}
        if "chat" in values:
            values["chat"] = ConversationId(values["chat"])
        request = Request(method="POST", path=path, headers={"content-type": JSON_TYPE}, body=body_of(values))
        reply = yield from RepeatedExchange(self._client.trying(), is_repeatable=False, once=_ONCE).ask(
            request
        )
        return reply.body
