"""/api/tokens: create, list and revoke tokens; only the creator receives the text, once. /api/usage: what
owners used of models, counted page by page."""

from __future__ import annotations

from base64 import b64decode, b64encode
from functools import partial

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.access import ModelUsage, NewToken, NoToken, OwnToken, Token
from turnledger.api.chats import Listing, Page
from turnledger.api.requests import TokenBody
from turnledger.api.views import show_token, view
from turnledger.engine.turn.validation import scope_in
from turnledger.engine.usage import TURNS
from turnledger.errors import InvalidInput, TokenNotFound
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import TokenId, TurnId
from turnledger.server.access.audit_log import add_audit_fields
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import PAGE_SIZE, SCOPE, id_schema
from turnledger.server.requests.body import check_seconds
from turnledger.server.requests.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response

PAGE = 100
SELF = "self"
USAGE_CURSOR = b"usage"
"""The purpose of the seal on cursors of usage: they name turns of any owner."""


class TokenRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._tokens = service.host.tokens

    async def create(self, request: Request) -> Response:
        """Create a token that grants nothing beyond the caller's."""
        body = await self._service.read_body(request, TokenBody)
        check_seconds("expires_in", body.expires_in)
        principal: Principal = request.state.principal
        token, text = await self._tokens.create(
            owner=body.owner,
            scopes=body.scopes,
            name=body.name,
            chat_scope=body.chat_scope,
            conversation=body.chat,
            models=body.models,
            lifetime=body.expires_in,
            parent=principal.token_id,
            max_tokens=body.max_tokens,
            n=body.n,
            defaults=body.defaults,
        )
        add_audit_fields(request.scope, minted=token.id, minted_for=token.owner)
        return json_response(show_token(NewToken, token, token=text), 201)

    async def list_tokens(self, request: Request) -> Response:
        query, principal = request.query_params, request.state.principal
        found = await self._tokens.list(
            owner=query.get("owner"),
            within=principal.within,
            before=query.get("before"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return json_response(Listing(tuple(map(partial(show_token, Token), found))))

    async def read_own(self, request: Request) -> Response:
        """Return the caller, their scopes, and whether their chats are stored."""
        principal: Principal = request.state.principal
        keeps = self._service.persistence.keeps(
            scope_in(request.query_params.get("scope", ""), principal.within)
        )
        # Readers must not see the owner of the chat: the name may be an address.
        owner = "" if principal.is_reader else principal.owner
        if principal.token is None:
            return json_response(NoToken(scopes=tuple(sorted(principal.scopes)), owner=owner, keeps=keeps))
        return json_response(show_token(OwnToken, principal.token, owner=owner, keeps=keeps))

    async def revoke(self, request: Request) -> Response:
        """Revoke a token and all tokens created with it. Any caller may revoke their own."""
        principal: Principal = request.state.principal
        id = request.path_params["token"]
        own = principal.token_id
        if id in (SELF, own):
            if own is None:
                raise TokenNotFound
            revoked = await self._tokens.revoke(own)
        else:
            principal.check(TokenScope.ADMIN)
            revoked = await self._tokens.revoke(id, within=principal.within, by=own)
        add_audit_fields(request.scope, revoked=[each.id for each in revoked])
        return json_response(Listing(tuple(map(partial(show_token, Token), revoked))))

    async def count_usage(self, request: Request) -> Response:
        principal: Principal = request.state.principal
        seal, cursor = await self._service.cursor_seal.get(), request.query_params.get("cursor")
        after = None if cursor is None else seal.unseal(USAGE_CURSOR, cursor)
        if cursor is not None and after is None:
            raise InvalidInput("Invalid cursor. Pass `next` from the previous page.", param="cursor")
        last = None if after is None else TurnId.trusted(b64decode(after))
        page = await self._service.host.usage(after=last, within=principal.within)
        # A seal has room for the bytes of an id, not for its text.
        next_cursor = (
            None if page.next is None else seal.seal(USAGE_CURSOR, b64encode(page.next.raw).decode())
        )
        return json_response(Page(tuple(view(ModelUsage, each) for each in page.data), next_cursor))


def endpoints(service: Service) -> list[Endpoint]:
    routes = TokenRoutes(service)
    return [
        Endpoint(
            route="POST /api/tokens",
            handler=routes.create,
            needs=TokenScope.ADMIN,
            summary="Create a token. It cannot grant more than the caller's token.",
            body=TokenBody,
            content={201: NewToken},
            responses={
                201: "The token; its text is shown only once.",
                404: "The owner has no such chat.",
                409: "The owner has reached the limit of tokens.",
                410: "The chat was deleted or has expired.",
            },
        ),
        Endpoint(
            route="GET /api/tokens",
            handler=routes.list_tokens,
            needs=TokenScope.ADMIN,
            summary="List tokens, newest first.",
            query={
                "owner": Parameter("Only tokens of this owner."),
                "before": Parameter("Only tokens older than the one with this id.", id_schema(TokenId)),
                "limit": Parameter(f"Page size; default {PAGE}.", PAGE_SIZE),
            },
            content={200: Listing[Token]},
            responses={200: "A page of tokens."},
        ),
        Endpoint(
            route="GET /api/tokens/self",
            handler=routes.read_own,
            is_for_readers=True,
            summary="The caller, its scopes, and whether its chats are stored.",
            query={"scope": Parameter("The scope of those chats. Default: the scope of the token.", SCOPE)},
            content={200: OwnToken | NoToken},
            responses={200: "The caller's token; without one, `id` is null."},
        ),
        Endpoint(
            route="DELETE /api/tokens/{token}",
            handler=routes.revoke,
            is_for_readers=True,
            summary="Revoke a token and all tokens created with it; `self`: the caller's own.",
            in_path={
                "token": Parameter("Its id, or `self`.", {"anyOf": [{"const": SELF}, id_schema(TokenId)]})
            },
            content={200: Listing[Token]},
            responses={200: "The token is revoked for all later requests.", 404: "Token not found."},
        ),
        Endpoint(
            route="GET /api/usage",
            handler=routes.count_usage,
            needs=TokenScope.ADMIN,
            summary="Count turns, tokens and bytes by owner and model, of the next stored turns.",
            query={"cursor": Parameter("The `next` of the previous page.")},
            content={200: Page[ModelUsage]},
            responses={
                200: f"What up to {TURNS:,} turns used. Add up the pages until `next` is null. A token that "
                "is narrowed to a scope counts turns of that scope."
            },
        ),
    ]
