"""/api/shares: create, list and revoke share links, and exchange their codes for tokens."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.access import NewShare, Share, Visit
from turnledger.api.chats import Listing
from turnledger.api.json import decoder_of
from turnledger.api.requests import ExchangeBody, ShareBody
from turnledger.api.views import show_new_share, show_share
from turnledger.errors import LinkNotValid
from turnledger.model.access.token import Bounds, TokenScope
from turnledger.model.ids import ShareId
from turnledger.server.access.audit_log import add_audit_fields
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import EXCHANGES, Caller, RateLimit
from turnledger.server.errors import RequestRefused
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import PAGE_SIZE, id_schema
from turnledger.server.requests.body import check_seconds, decode_body, read_body
from turnledger.server.requests.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response

PAGE = 100
BODY_BYTES = 16 * 1024
"""Bytes of a visitor's body, which is a code and a nonce."""
NO_OWNER = Caller("")
VISITS, GUESSES = "visits", "guesses"
"""Counted per minute: successful exchanges, and invalid codes."""


class ShareRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._shares = service.host.shares
        limit = service.settings.limits.exchanges_per_minute
        self._rate = RateLimit(service.counters, service.host.clock, limit, EXCHANGES)
        self._limit = limit

    async def create(self, request: Request) -> Response:
        """Create a link that grants nothing beyond the caller's token."""
        principal: Principal = request.state.principal
        body = await self._service.read_body(request, ShareBody)
        check_seconds("expires_in", body.expires_in)
        check_seconds("visitor_expires_in", body.visitor_expires_in)
        if principal.token_id is None:
            message = "Links need tokens, and none exists yet. Create one: turnledger tokens create"
            raise RequestRefused(403, "sharing_needs_tokens", message)
        share, code = await self._shares.create(
            scope=body.scope,
            chat=body.chat,
            name=body.name,
            max_uses=body.max_uses,
            lifetime=body.expires_in,
            per_minute=body.per_minute,
            models=body.models,
            visitor_lifetime=body.visitor_expires_in,
            parent=principal.token_id,
            **{name: getattr(body, name) for name in Bounds.__struct_fields__},
        )
        add_audit_fields(request.scope, target_share=share.id, target_chat=share.conversation)
        return json_response(show_new_share(share, code), 201)

    async def list_shares(self, request: Request) -> Response:
        """List links, newest first: with `admin` those of all owners, else the caller's own chat links."""
        query, principal = request.query_params, request.state.principal
        shares = await self._shares.list(
            **visible_to(principal),
            before=query.get("before"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return json_response(Listing(tuple(map(partial(show_share, Share), shares))))

    async def revoke(self, request: Request) -> Response:
        """Revoke a link, and the tokens of all its visitors."""
        principal: Principal = request.state.principal
        share = await self._shares.revoke(
            request.path_params["share"], **visible_to(principal), by=principal.token
        )
        return json_response(show_share(Share, share))

    async def exchange(self, request: Request) -> Response:
        """Exchange the code of a link for a token. Invalid codes are counted separately: thousands of guesses
        must not block visitors with a valid code."""
        body = decode_body(await self._public_body(request), decoder_of(ExchangeBody))
        try:
            visit = await self._shares.exchange(body.code, body.nonce, arrives=partial(self._count, VISITS))
        except LinkNotValid:
            self._count(GUESSES)
            raise
        token = visit.token
        add_audit_fields(request.scope, target_share=visit.share.id, minted=token.id, minted_for=token.owner)
        shown = Visit(
            token=visit.text,
            kind=visit.share.kind,
            name=visit.share.name,
            owner=None if token.conversation else token.owner,
            scope=token.chat_scope or None,
            chat=token.conversation,
            models=token.models,
            expires_at=token.expires_at,
        )
        return json_response(shown)

    async def _public_body(self, request: Request) -> bytes:
        """Read the body of a request without a token. While their bodies arrive, such requests count as one
        owner, so that slow ones leave room for callers with a token."""
        wait = self._service.settings.limits.body_wait
        with self._service.quotas.admit_other(NO_OWNER):
            return await read_body(request.scope, request.receive, limit=BODY_BYTES, wait=wait)

    def _count(self, name: str) -> None:
        """Count one. Raises RequestRefused (429) if the limit per minute is reached."""
        wait = math.ceil(self._rate.wait_seconds(name))
        if wait:
            self._service.metrics.refusals("exchanges_per_minute").inc()
            message = f"Limit of {self._limit} links per minute reached (`exchanges_per_minute`)."
            text = f"{message} Try again in {wait} s."
            raise RequestRefused(429, "too_many_exchanges", text, headers=((b"retry-after", b"%d" % wait),))
        self._rate.count(name)


def visible_to(principal: Principal) -> dict[str, Any]:
    if principal.has(TokenScope.ADMIN):
        return {"within": principal.within}
    return {"owner": principal.owner, "within": principal.within, "only_chats": True}


def endpoints(service: Service) -> list[Endpoint]:
    routes = ShareRoutes(service)
    return [
        Endpoint(
            route="POST /api/shares",
            handler=routes.create,
            needs=TokenScope.CHATS_WRITE,
            summary="Create a share link: to a scope (with `admin`), or to a chat, read-only.",
            body=ShareBody,
            content={201: NewShare},
            responses={
                201: "The link; its code is shown only once.",
                404: "Chat not found.",
                409: "The owner has reached the limit of links.",
                410: "The chat was deleted or has expired.",
            },
        ),
        Endpoint(
            route="GET /api/shares",
            handler=routes.list_shares,
            needs=TokenScope.CHATS_WRITE,
            summary="List links, newest first: the owner's chat links; with `admin`, those of all owners.",
            query={
                "before": Parameter("Only links older than the one with this id.", id_schema(ShareId)),
                "limit": Parameter(f"Page size; default {PAGE}.", PAGE_SIZE),
            },
            content={200: Listing[Share]},
            responses={200: "A page of links."},
        ),
        Endpoint(
            route="DELETE /api/shares/{share}",
            handler=routes.revoke,
            needs=TokenScope.CHATS_WRITE,
            summary="Revoke a link, and the tokens of all its visitors.",
            in_path={"share": Parameter("Its id.", id_schema(ShareId))},
            content={200: Share},
            responses={
                200: "The link and the tokens of its visitors are revoked.",
                404: "Link not found.",
            },
        ),
        Endpoint(
            route="POST /api/shares/exchange",
            handler=routes.exchange,
            is_public=True,
            is_fixed_path=True,
            summary="Exchange the code of a link for a token; the same token for each nonce within a minute.",
            body=ExchangeBody,
            content={200: Visit},
            responses={
                200: "The visitor's token.",
                404: "The link is not valid: unknown, used up, expired or revoked; the error is the same.",
            },
        ),
    ]
