"""/api/tokens: make, list and revoke tokens. Its text is told once, to whoever has it made."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.engine.turn.validation import LONGEST, TEXT_LENGTH, scope_in
from turnledger.errors import TokenNotFound
from turnledger.model.access.token import Token, TokenScope
from turnledger.model.ids import ConversationId, ShareId, TokenId
from turnledger.server.access.audit_log import note
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    NAME,
    NUMBER,
    PAGE_SIZE,
    SCOPE,
    TEXT,
    TIME,
    Schema,
    a_list,
    an_object,
    id_of,
    one_of,
    or_null,
)
from turnledger.server.requests.body import check_seconds, decode_body, read_small_body
from turnledger.server.requests.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import encode
from turnledger.tokens import MOST, MOST_MODELS

PAGE = 100
SELF = "self"


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a token is to be. What is left out is as the one has it that makes it."""

    scopes: list[TokenScope]
    owner: str | None = None
    name: str = ""
    chat_scope: str | None = None
    chat: str | None = None
    models: list[str] | None = None
    expires_in: float | None = None
    max_tokens: int | None = None
    n: int | None = None


BOUNDS = {
    "max_tokens": "Tokens that one answer may have.",
    "n": "Answers that one request may ask for.",
}
_COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": MOST}
_MAY_DO: Schema = {"type": "array", "items": one_of(TokenScope), "minItems": 1}
ASKED: Schema = {
    **an_object(
        {"scopes": {**_MAY_DO, "description": "What it may do."}},
        optional={
            "owner": or_null({**NAME, "description": "Whose chats it opens."}),
            "name": {"type": "string", "maxLength": TEXT_LENGTH, "description": "What people call it."},
            "chat_scope": or_null(
                {**SCOPE, "description": "The only scope of chats that it sees; empty: all."}
            ),
            "chat": or_null(
                {**id_of(ConversationId), "description": "The only chat that it sees, with chats:read alone."}
            ),
            "models": or_null(
                {
                    **a_list(NAME),
                    "maxItems": MOST_MODELS,
                    "description": "The only models that it may ask; empty: all.",
                }
            ),
            "expires_in": or_null(
                {
                    "type": "number",
                    "exclusiveMinimum": 0,
                    "maximum": LONGEST,
                    "description": "Seconds from now.",
                }
            ),
            **{name: or_null({**_COUNT, "description": about}) for name, about in BOUNDS.items()},
        },
    ),
    "additionalProperties": False,
}
_SHOWN: Mapping[str, Schema] = {
    "id": id_of(TokenId),
    "owner": TEXT,
    "name": TEXT,
    "scopes": _MAY_DO,
    "chat_scope": or_null(TEXT),
    "chat": or_null(id_of(ConversationId)),
    "models": a_list(TEXT),
    "created_at": TIME,
    "expires_at": or_null(TIME),
    "revoked_at": or_null(TIME),
    "used_at": or_null(TIME),
    "parent": or_null(id_of(TokenId)),
    "share": or_null(id_of(ShareId)),
    **{name: or_null({**NUMBER, "description": about}) for name, about in BOUNDS.items()},
}
TOKEN: Schema = an_object(_SHOWN)
MADE: Schema = an_object({**_SHOWN, "token": {**TEXT, "description": "Its text: the secret."}})
TOKENS: Schema = an_object({"data": a_list(TOKEN)})
OWN: Schema = an_object(
    {
        "id": or_null(id_of(TokenId)),
        "owner": TEXT,
        "scopes": _MAY_DO,
        "keeps": {"type": "boolean", "description": "Whether the server keeps chats of his scope."},
    },
    optional={name: schema for name, schema in _SHOWN.items() if name not in ("id", "owner", "scopes")},
)

_decoder = msgspec.json.Decoder(TokenBody)
_JSON = "application/json"


class TokenRoutes:
    """The functions behind the paths."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._tokens = service.ledger.tokens

    async def create(self, request: Request) -> Response:
        """Make a token that gives nothing beyond the one it is asked with."""
        limits = self._service.settings.limits
        body = await read_small_body(request.scope, request.receive, limits)
        asked = decode_body(body, _decoder)
        check_seconds("expires_in", asked.expires_in)
        who: Principal = request.state.principal
        token, text = await self._tokens.create(
            owner=asked.owner,
            scopes=asked.scopes,
            name=asked.name,
            chat_scope=asked.chat_scope,
            conversation=asked.chat,
            models=asked.models,
            lifetime=asked.expires_in,
            parent=who.token_id,
            max_tokens=asked.max_tokens,
            n=asked.n,
        )
        note(request.scope, minted=token.id, minted_for=token.owner)
        return Response(encode({**token_shown(token), "token": text}), 201, media_type=_JSON)

    async def listing(self, request: Request) -> Response:
        """List tokens, the newest first."""
        query, who = request.query_params, request.state.principal
        found = await self._tokens.list(
            owner=query.get("owner"),
            within=who.within,
            before=query.get("before"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return Response(encode({"data": [token_shown(each) for each in found]}), media_type=_JSON)

    async def own(self, request: Request) -> Response:
        """Tell who asks, what he may do, and whether what he says is kept."""
        who: Principal = request.state.principal
        keeps = self._service.keeping.keeps(scope_in(request.query_params.get("scope", ""), who.within))
        known = token_shown(who.token) if who.token else {"id": None, "scopes": sorted(who.scopes)}
        # Whose chat somebody reads by a link is not told him: it may be an address.
        owner = "" if who.is_reader else who.owner
        return Response(encode({**known, "owner": owner, "keeps": keeps}), media_type=_JSON)

    async def revoke(self, request: Request) -> Response:
        """Revoke a token, and all that were made with it. Anybody may give up his own."""
        who: Principal = request.state.principal
        given = request.path_params["token"]
        own = who.token_id
        if given in (SELF, own):
            if own is None:
                raise TokenNotFound
            revoked = await self._tokens.revoke(own)
        else:
            who.check(TokenScope.ADMIN)
            revoked = await self._tokens.revoke(given, within=who.within, by=own)
        note(request.scope, revoked=[each.id for each in revoked])
        return Response(encode({"data": [token_shown(each) for each in revoked]}), media_type=_JSON)


def token_shown(token: Token) -> dict[str, Any]:
    """All that is known of a token but its digest."""
    return {
        "id": token.id,
        "owner": token.owner,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "chat_scope": token.chat_scope or None,
        "chat": token.conversation,
        "models": token.models,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "used_at": token.used_at,
        "parent": token.parent,
        "share": token.share,
        **{name: getattr(token.bounds, name) for name in BOUNDS},
    }


def endpoints(service: Service) -> list[Endpoint]:
    """`/api/tokens`."""
    routes = TokenRoutes(service)
    return [
        Endpoint(
            method="POST",
            path="/api/tokens",
            answer=routes.create,
            needs=TokenScope.ADMIN,
            summary="Make a token. It gives nothing that the one it is asked with does not give.",
            tag="tokens",
            body=ASKED,
            content={201: {_JSON: MADE}},
            answers={
                201: "The token; its text is told now, and never again.",
                404: "The owner has no such chat.",
                409: "The owner has as many tokens as there may be.",
                410: "The chat was deleted or has expired.",
            },
        ),
        Endpoint(
            method="GET",
            path="/api/tokens",
            answer=routes.listing,
            needs=TokenScope.ADMIN,
            summary="List the tokens, the newest first.",
            tag="tokens",
            query={
                "owner": Parameter("Of this owner only."),
                "before": Parameter("Tokens older than the one with this id.", id_of(TokenId)),
                "limit": Parameter(f"So many at most; {PAGE} if it is left out.", PAGE_SIZE),
            },
            content={200: {_JSON: TOKENS}},
            answers={200: "A page of them."},
        ),
        Endpoint(
            method="GET",
            path="/api/tokens/self",
            answer=routes.own,
            is_for_readers=True,
            summary="Who asks, what he may do, and whether his chats are kept.",
            tag="tokens",
            query={"scope": Parameter("Whether those of this scope are; of his token's by default.", SCOPE)},
            content={200: {_JSON: OWN}},
            answers={200: "The token that it is asked with; without one, `id` is null."},
        ),
        Endpoint(
            method="DELETE",
            path="/api/tokens/{token}",
            answer=routes.revoke,
            is_for_readers=True,
            summary="Revoke a token and all that were made with it; `self`: the one it is asked with.",
            tag="tokens",
            in_path={"token": Parameter("Its id, or `self`.", {"anyOf": [{"const": SELF}, id_of(TokenId)]})},
            content={200: {_JSON: TOKENS}},
            answers={200: "It is revoked, for every request from now on.", 404: "There is no such token."},
        ),
    ]
