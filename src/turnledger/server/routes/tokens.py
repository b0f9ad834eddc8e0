"""/api/tokens: create, list and revoke tokens. Only the creator receives the text, once."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.access import NewToken, NoToken, OwnToken, Token
from turnledger.api.chats import Listing
from turnledger.api.json import decoder_of
from turnledger.api.requests import TokenBody
from turnledger.api.views import show_token
from turnledger.engine.turn.validation import scope_in
from turnledger.errors import TokenNotFound
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import TokenId
from turnledger.server.access.audit_log import note
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import PAGE_SIZE, SCOPE, id_of
from turnledger.server.requests.body import check_seconds, decode_body, read_small_body
from turnledger.server.requests.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response

PAGE = 100
SELF = "self"


class TokenRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._tokens = service.host.tokens

    async def create(self, request: Request) -> Response:
        """Create a token that grants nothing beyond the caller's."""
        limits = self._service.settings.limits
        body = await read_small_body(request.scope, request.receive, limits)
        asked = decode_body(body, decoder_of(TokenBody))
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
        return json_response(show_token(NewToken, token, token=text), 201)

    async def listing(self, request: Request) -> Response:
        query, who = request.query_params, request.state.principal
        found = await self._tokens.list(
            owner=query.get("owner"),
            within=who.within,
            before=query.get("before"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return json_response(Listing(tuple(map(partial(show_token, Token), found))))

    async def own(self, request: Request) -> Response:
        """Return the caller, their scopes, and whether their chats are stored."""
        who: Principal = request.state.principal
        keeps = self._service.keeping.keeps(scope_in(request.query_params.get("scope", ""), who.within))
        # Readers must not see the owner of the chat: the name may be an address.
        owner = "" if who.is_reader else who.owner
        if who.token is None:
            return json_response(NoToken(scopes=tuple(sorted(who.scopes)), owner=owner, keeps=keeps))
        return json_response(show_token(OwnToken, who.token, owner=owner, keeps=keeps))

    async def revoke(self, request: Request) -> Response:
        """Revoke a token and all tokens created with it. Any caller may revoke their own."""
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
        return json_response(Listing(tuple(map(partial(show_token, Token), revoked))))


def endpoints(service: Service) -> list[Endpoint]:
    routes = TokenRoutes(service)
    return [
        Endpoint(
            method="POST",
            path="/api/tokens",
            answer=routes.create,
            needs=TokenScope.ADMIN,
            summary="Make a token. It gives nothing that the one it is asked with does not give.",
            tag="tokens",
            body=TokenBody,
            content={201: NewToken},
            answers={
                201: "The token; its text is shown only once.",
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
            content={200: Listing[Token]},
            answers={200: "A page of them."},
        ),
        Endpoint(
            method="GET",
            path="/api/tokens/self",
            answer=routes.own,
            is_for_readers=True,
            summary="The caller, its scopes, and whether its chats are stored.",
            tag="tokens",
            query={"scope": Parameter("Whether those of this scope are. Default: its own scope.", SCOPE)},
            content={200: OwnToken | NoToken},
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
            content={200: Listing[Token]},
            answers={200: "It is revoked, for every request from now on.", 404: "There is no such token."},
        ),
    ]
