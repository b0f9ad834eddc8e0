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
from turnledger.api.views import show_share
from turnledger.errors import LinkNotValid
from turnledger.model.access.token import Bounds, TokenScope
from turnledger.model.ids import ShareId
from turnledger.server.access.audit_log import note
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import EXCHANGES, Pace
from turnledger.server.errors import Refused
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import PAGE_SIZE, id_of
from turnledger.server.requests.body import check_seconds, decode_body, read_body, read_small_body
from turnledger.server.requests.query import number_of
from turnledger.server.routes.page import SHARE_PATH
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response

PAGE = 100
BODY_BYTES = 16 * 1024
"""Bytes of a visitor's body, which is a code and a nonce."""
STRANGERS = ""
VISITS, GUESSES = "visits", "guesses"
"""Counted per minute: successful exchanges, and invalid codes."""


class ShareRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service
        self._shares = service.host.shares
        most = service.settings.limits.exchanges_per_minute
        self._pace = Pace(service.board, service.host.clock, most, EXCHANGES)
        self._most = most

    async def create(self, request: Request) -> Response:
        """Create a link that grants nothing beyond the caller's token."""
        limits, who = self._service.settings.limits, request.state.principal
        body = await read_small_body(request.scope, request.receive, limits)
        asked = decode_body(body, decoder_of(ShareBody))
        check_seconds("expires_in", asked.expires_in)
        check_seconds("visitor_expires_in", asked.visitor_expires_in)
        if who.token_id is None:
            message = "Links need tokens, and none exists yet. Create one: turnledger tokens create"
            raise Refused(403, "sharing_needs_tokens", message)
        share, code = await self._shares.create(
            scope=asked.scope,
            chat=asked.chat,
            name=asked.name,
            max_uses=asked.max_uses,
            lifetime=asked.expires_in,
            per_minute=asked.per_minute,
            models=asked.models,
            visitor_lifetime=asked.visitor_expires_in,
            parent=who.token_id,
            **{name: getattr(asked, name) for name in Bounds.__struct_fields__},
        )
        note(request.scope, target_share=share.id, target_chat=share.conversation)
        return json_response(show_share(NewShare, share, code=code, path=f"{SHARE_PATH}#{code}"), 201)

    async def listing(self, request: Request) -> Response:
        """List links, newest first: with `admin` those of all owners, else the caller's own chat links."""
        query, who = request.query_params, request.state.principal
        found = await self._shares.list(
            **seen_by(who),
            before=query.get("before"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return json_response(Listing(tuple(map(partial(show_share, Share), found))))

    async def revoke(self, request: Request) -> Response:
        """Revoke a link, and the tokens of all its visitors."""
        who: Principal = request.state.principal
        share = await self._shares.revoke(request.path_params["share"], **seen_by(who), by=who.token)
        return json_response(show_share(Share, share))

    async def exchange(self, request: Request) -> Response:
        """Exchange the code of a link for a token. Invalid codes are counted separately: thousands of guesses
        must not block visitors with a valid code."""
        brought = decode_body(await self._stranger_body(request), decoder_of(ExchangeBody))
        try:
            visit = await self._shares.exchange(
                brought.code, brought.nonce, arrives=partial(self._count, VISITS)
            )
        except LinkNotValid:
            self._count(GUESSES)
            raise
        token = visit.token
        note(request.scope, target_share=visit.share.id, minted=token.id, minted_for=token.owner)
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

    async def _stranger_body(self, request: Request) -> bytes:
        """Read the body of a request without a token. While their bodies arrive, such requests count as one
        owner, so that slow ones leave room for callers with a token."""
        place = self._service.quotas.other(STRANGERS, is_tokenless=False)
        wait = self._service.settings.limits.body_wait
        try:
            return await read_body(request.scope, request.receive, limit=BODY_BYTES, wait=wait)
        finally:
            place.leave()

    def _count(self, name: str) -> None:
        """Count one. Raises Refused (429) if the limit per minute is reached."""
        wait = math.ceil(self._pace.wait(name))
        if wait:
            self._service.metrics.refused("exchanges_per_minute")
            message = f"At most {self._most} links a minute are followed here (`exchanges_per_minute`)."
            text = f"{message} Try again in {wait} s."
            raise Refused(429, "too_many_exchanges", text, headers=((b"retry-after", b"%d" % wait),))
        self._pace.count(name)


def seen_by(who: Principal) -> dict[str, Any]:
    if who.has(TokenScope.ADMIN):
        return {"within": who.within}
    return {"owner": who.owner, "within": who.within, "only_chats": True}


def endpoints(service: Service) -> list[Endpoint]:
    routes = ShareRoutes(service)
    return [*_for_hosts(routes), *_for_visitors(routes)]


def _for_hosts(routes: ShareRoutes) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/shares",
            answer=routes.create,
            needs=TokenScope.CHATS_WRITE,
            summary="Make a link that lets visitors in: to a scope (with `admin`), or to a chat, to read.",
            tag="shares",
            body=ShareBody,
            content={201: NewShare},
            answers={
                201: "The link; its code is shown only once.",
                404: "There is no such chat.",
                409: "The owner has as many links as there may be.",
                410: "The chat was deleted or has expired.",
            },
        ),
        Endpoint(
            method="GET",
            path="/api/shares",
            answer=routes.listing,
            needs=TokenScope.CHATS_WRITE,
            summary="List the links, the newest first: one's own to chats; with `admin`, those of everybody.",
            tag="shares",
            query={
                "before": Parameter("Links older than the one with this id.", id_of(ShareId)),
                "limit": Parameter(f"So many at most; {PAGE} if it is left out.", PAGE_SIZE),
            },
            content={200: Listing[Share]},
            answers={200: "A page of them."},
        ),
        Endpoint(
            method="DELETE",
            path="/api/shares/{share}",
            answer=routes.revoke,
            needs=TokenScope.CHATS_WRITE,
            summary="Revoke a link, and the tokens of all its visitors.",
            tag="shares",
            in_path={"share": Parameter("Its id.", id_of(ShareId))},
            content={200: Share},
            answers={
                200: "The link and the tokens of its visitors are revoked.",
                404: "There is none.",
            },
        ),
    ]


def _for_visitors(routes: ShareRoutes) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/shares/exchange",
            answer=routes.exchange,
            is_public=True,
            is_apart=True,
            summary="Follow a link: exchange its code for a token; for a minute, each nonce for the same.",
            tag="shares",
            body=ExchangeBody,
            content={200: Visit},
            answers={
                200: "The visitor's token.",
                404: "The link is not valid: unknown, used up, expired or revoked, which is not told apart.",
            },
        ),
    ]
