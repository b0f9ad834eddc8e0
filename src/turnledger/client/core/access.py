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
from turnledger.client.shapes import decode_shape
from turnledger.model.ids import ConversationId, ShareId, TokenId

_HINT = "One may have been created, and its secret lost. List them, revoke it, and create another."


class AccessCore:
    """Does not repeat requests that return secrets once they may have reached the server."""

    def __init__(self, client: ClientCore) -> None:
        self._client = client

    def create_token(self, **fields: Any) -> Steps[Token]:
        return decode_shape(NewToken, (yield from self._post_once("/api/tokens", fields)))

    def tokens_page(self, cursor: str | None, limit: int, *, owner: str | None) -> Steps[Page[Token]]:
        query = {"owner": owner, "before": cursor, "limit": limit}
        page = yield from self._client.get("/api/tokens", Page[Token], query)
        return Page(page.data, page.data[-1].id if len(page) == limit else None)

    def own_token(self, *, scope: str | None = None) -> Steps[Token | None]:
        fields = yield from self._client.get("/api/tokens/self", dict[str, Any], {"scope": scope})
        if fields.get("id") is None:
            return None
        return decode_shape(OwnToken, body_of(fields))

    def revoke_token(self, token: str) -> Steps[tuple[Token, ...]]:
        id = token if token == "self" else TokenId(token)  # noqa: S105 - no secret, a word
        request = Request(method="DELETE", path=f"/api/tokens/{id}")
        reply = yield from RepeatedExchange(self._client.new_retry_count()).run(request)
        return decode_shape(Page[Token], reply.body).data

    def create_share(self, **fields: Any) -> Steps[Share]:
        return decode_shape(NewShare, (yield from self._post_once("/api/shares", fields)))

    def shares_page(self, cursor: str | None, limit: int) -> Steps[Page[Share]]:
        page = yield from self._client.get("/api/shares", Page[Share], {"before": cursor, "limit": limit})
        return Page(page.data, page.data[-1].id if len(page) == limit else None)

    def revoke_share(self, share: str) -> Steps[Share]:
        request = Request(method="DELETE", path=f"/api/shares/{ShareId(share)}")
        reply = yield from RepeatedExchange(self._client.new_retry_count()).run(request)
        return decode_shape(Share, reply.body)

    def _post_once(self, path: str, fields: Mapping[str, Any]) -> Steps[bytes]:
        values = {name: value for name, value in fields.items() if value is not None}
        if "chat" in values:
            values["chat"] = ConversationId(values["chat"])
        request = Request(method="POST", path=path, headers={"content-type": JSON_TYPE}, body=body_of(values))
        reply = yield from RepeatedExchange(
            self._client.new_retry_count(), is_repeatable=False, hint=_HINT
        ).run(request)
        return reply.body
