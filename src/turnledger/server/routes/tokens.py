"""/api/tokens: make, list and revoke tokens. Its text is told once, to whoever has it made."""

from __future__ import annotations

from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.errors import TokenNotFound
from turnledger.model.token import Token, TokenScope
from turnledger.server.admission import Principal
from turnledger.server.body import decode_body, read_body
from turnledger.server.endpoint import Endpoint
from turnledger.server.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire_json import encode

PAGE = 100
SELF = "self"


class TokenBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a token is to be. What is left out is as the one has it that makes it."""

    scopes: list[TokenScope]
    owner: str | None = None
    name: str = ""
    chat_scope: str | None = None
    models: list[str] | None = None
    expires_in: float | None = None


TOKEN_SCHEMA = {
    "type": "object",
    "required": ["scopes"],
    "properties": {
        "owner": {"type": "string", "description": "Whose chats it opens."},
        "scopes": {"type": "array", "items": {"enum": list(TokenScope)}, "description": "What it may do."},
        "name": {"type": "string", "description": "What people call it."},
        "chat_scope": {"type": "string", "description": "The only scope of chats that it sees; empty: all."},
        "models": {
            "type": "array",
            "items": {"type": "string"},
            "description": "The only models that it may ask; empty: all.",
        },
        "expires_in": {"type": ["number", "null"], "description": "Seconds from now."},
    },
    "additionalProperties": False,
}

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
        body = await read_body(request.scope, request.receive, limit=limits.body_bytes, wait=limits.body_wait)
        asked = decode_body(body, _decoder)
        who: Principal = request.state.principal
        token, text = await self._tokens.create(
            owner=asked.owner,
            scopes=asked.scopes,
            name=asked.name,
            chat_scope=asked.chat_scope,
            models=asked.models,
            lifetime=asked.expires_in,
            parent=who.token_id,
        )
        return Response(encode({**token_shown(token), "token": text}), 201, media_type=_JSON)

    async def listing(self, request: Request) -> Response:
        """List tokens, the newest first."""
        query, who = request.query_params, request.state.principal
        found = await self._tokens.list(
            owner=query.get("owner"),
            within=who.within,
            before=query.get("before"),
            limit=number_of(query.get("limit"), "limit") or PAGE,
        )
        return Response(encode({"data": [token_shown(each) for each in found]}), media_type=_JSON)

    async def own(self, request: Request) -> Response:
        """Tell who asks, and what he may do."""
        who: Principal = request.state.principal
        known = token_shown(who.token) if who.token else {"id": None, "scopes": sorted(who.scopes)}
        return Response(encode({**known, "owner": who.owner}), media_type=_JSON)

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
            revoked = await self._tokens.revoke(given, within=who.within)
        return Response(encode({"data": [token_shown(each) for each in revoked]}), media_type=_JSON)


def token_shown(token: Token) -> dict[str, Any]:
    """All that is known of a token but its digest."""
    return {
        "id": token.id,
        "owner": token.owner,
        "name": token.name,
        "scopes": sorted(token.scopes),
        "chat_scope": token.chat_scope or None,
        "models": token.models,
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": token.revoked_at,
        "used_at": token.used_at,
        "parent": token.parent,
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
            body=TOKEN_SCHEMA,
            answers={201: "The token; its text is told now, and never again."},
        ),
        Endpoint(
            method="GET",
            path="/api/tokens",
            answer=routes.listing,
            needs=TokenScope.ADMIN,
            summary="List the tokens, the newest first.",
            tag="tokens",
            query={
                "owner": "Of this owner only.",
                "before": "Tokens older than the one with this id.",
                "limit": f"So many at most; {PAGE} if it is left out.",
            },
        ),
        Endpoint(
            method="GET",
            path="/api/tokens/self",
            answer=routes.own,
            summary="Who asks, and what he may do.",
            tag="tokens",
        ),
        Endpoint(
            method="DELETE",
            path="/api/tokens/{token}",
            answer=routes.revoke,
            summary="Revoke a token and all that were made with it; `self`: the one it is asked with.",
            tag="tokens",
            answers={200: "It is revoked, for every request from now on.", 404: "There is no such token."},
        ),
    ]
