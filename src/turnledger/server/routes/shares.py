"""/api/shares: links that let visitors in, made, listed, revoked and followed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.engine.turn.validation import LONGEST, TEXT_LENGTH
from turnledger.errors import LinkNotValid
from turnledger.model.access.share import NONCE, Share, ShareKind
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import ConversationId, ShareId, TokenId
from turnledger.server.access.audit_log import note
from turnledger.server.access.auth import Principal
from turnledger.server.access.limits import EXCHANGES, Pace
from turnledger.server.errors import Refused
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
from turnledger.server.requests.body import check_seconds, decode_body, read_body, read_small_body
from turnledger.server.requests.query import number_of
from turnledger.server.routes.page import SHARE_PATH
from turnledger.server.service import Service
from turnledger.server.wire.json import encode
from turnledger.shares import PER_MINUTE, VISIT
from turnledger.tokens import MOST, MOST_MODELS

PAGE = 100
BODY_BYTES = 16 * 1024
"""Bytes of what a visitor may send: a code and a nonce."""
STRANGERS = ""
VISITS, GUESSES = "visits", "guesses"
"""What is counted within a minute: visitors who are let in, and codes that lead nowhere."""
_JSON = "application/json"


class ShareBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a link is to be."""

    scope: str | None = None
    chat: str | None = None
    name: str = ""
    max_uses: int | None = None
    expires_in: float | None = None
    per_minute: int | None = PER_MINUTE
    models: list[str] | None = None
    visitor_expires_in: float | None = VISIT
    max_tokens: int | None = None
    n: int | None = None
    turns: int | None = None
    turns_per_minute: int | None = None
    bytes: int | None = None
    chats: int | None = None


class ExchangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """What a visitor brings."""

    code: str
    nonce: str


BOUNDS = {
    "max_tokens": "Tokens that one answer to a visitor may have.",
    "n": "Answers that one request of a visitor may ask for.",
    "turns": "Turns that all visitors together may have open.",
    "turns_per_minute": "Turns that all visitors together may ask for within a minute.",
    "bytes": "Bytes that all visitors together may store.",
    "chats": "Chats that all visitors together may have.",
}
_COUNT: Schema = {"type": "integer", "minimum": 1, "maximum": MOST}
_SECONDS: Schema = {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST}
ASKED: Schema = {
    **an_object(
        {},
        optional={
            "scope": or_null(
                {
                    **SCOPE,
                    "minLength": 1,
                    "description": "Each visitor is a fresh owner in this scope of chats.",
                }
            ),
            "chat": or_null({**id_of(ConversationId), "description": "Or: visitors read this chat."}),
            "name": {"type": "string", "maxLength": TEXT_LENGTH, "description": "What people call it."},
            "max_uses": or_null({**_COUNT, "description": "Visitors that may come; null: any number."}),
            "expires_in": or_null(
                {**_SECONDS, "description": "Seconds from now; null: until it is revoked."}
            ),
            "per_minute": or_null({**_COUNT, "description": "Visitors that may come within a minute."}),
            "models": or_null(
                {
                    **a_list(NAME),
                    "maxItems": MOST_MODELS,
                    "description": "The only models that visitors may ask; empty: all.",
                }
            ),
            "visitor_expires_in": or_null(
                {**_SECONDS, "description": "Seconds that a visitor may stay, as long as the link is good."}
            ),
            **{name: or_null({**_COUNT, "description": about}) for name, about in BOUNDS.items()},
        },
    ),
    "additionalProperties": False,
}
_SHOWN: Mapping[str, Schema] = {
    "id": id_of(ShareId),
    "kind": one_of(ShareKind),
    "owner": TEXT,
    "name": TEXT,
    "scope": or_null(TEXT),
    "chat": or_null(id_of(ConversationId)),
    "models": a_list(TEXT),
    "max_uses": or_null(NUMBER),
    "uses": NUMBER,
    "per_minute": or_null(NUMBER),
    "visitor_expires_in": or_null({"type": "number"}),
    "created_at": TIME,
    "expires_at": or_null(TIME),
    "revoked_at": or_null(TIME),
    "parent": or_null(id_of(TokenId)),
    **{name: or_null({**NUMBER, "description": about}) for name, about in BOUNDS.items()},
    "stored_bytes": {**NUMBER, "description": "Bytes that all visitors together store."},
    "stored_chats": {**NUMBER, "description": "Chats that all visitors together have."},
}
SHARE: Schema = an_object(_SHOWN)
MADE: Schema = an_object(
    {
        **_SHOWN,
        "code": {**TEXT, "description": "The secret of the link."},
        "path": {**TEXT, "description": "What follows the address of the server in the link."},
    }
)
SHARES: Schema = an_object({"data": a_list(SHARE)})
BROUGHT: Schema = {
    **an_object(
        {
            "code": {**TEXT, "description": "What stands behind the # of the link."},
            "nonce": {
                "type": "string",
                "pattern": f"^{NONCE.pattern}$",
                "description": "Made up by the page, of 128 random bits, and the same if it asks again.",
            },
        }
    ),
    "additionalProperties": False,
}
VISIT_MADE: Schema = an_object(
    {
        "token": {**TEXT, "description": "The text of the visitor's token: the secret."},
        "kind": one_of(ShareKind),
        "name": TEXT,
        "owner": or_null({**TEXT, "description": "Who the visitor is; null where he only reads a chat."}),
        "scope": or_null(TEXT),
        "chat": or_null(id_of(ConversationId)),
        "models": a_list(TEXT),
        "expires_at": or_null(TIME),
    }
)

_asked_decoder = msgspec.json.Decoder(ShareBody)
_exchange_decoder = msgspec.json.Decoder(ExchangeBody)


class ShareRoutes:
    """The functions behind the paths."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._shares = service.ledger.shares
        most = service.settings.limits.exchanges_per_minute
        self._pace = Pace(service.board, service.ledger.clock, most, EXCHANGES)
        self._most = most

    async def create(self, request: Request) -> Response:
        """Make a link that gives nothing beyond the token it is asked with."""
        limits, who = self._service.settings.limits, request.state.principal
        body = await read_small_body(request.scope, request.receive, limits)
        asked = decode_body(body, _asked_decoder)
        check_seconds("expires_in", asked.expires_in)
        check_seconds("visitor_expires_in", asked.visitor_expires_in)
        if who.token_id is None:
            message = (
                "Visitors are let in by tokens, and there is none yet. Make one: turnledger tokens create"
            )
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
            **{name: getattr(asked, name) for name in BOUNDS},
        )
        note(request.scope, target_share=share.id, target_chat=share.conversation)
        shown = {**share_shown(share), "code": code, "path": f"{SHARE_PATH}#{code}"}
        return Response(encode(shown), 201, media_type=_JSON)

    async def listing(self, request: Request) -> Response:
        """List links, the newest first: with `admin` those of everybody, else one's own to chats."""
        query, who = request.query_params, request.state.principal
        found = await self._shares.list(
            **seen_by(who),
            before=query.get("before"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return Response(encode({"data": [share_shown(each) for each in found]}), media_type=_JSON)

    async def revoke(self, request: Request) -> Response:
        """Revoke a link, and the tokens of all who came by it."""
        who: Principal = request.state.principal
        share = await self._shares.revoke(request.path_params["share"], **seen_by(who), by=who.token)
        return Response(encode(share_shown(share)), media_type=_JSON)

    async def exchange(self, request: Request) -> Response:
        """Let a visitor in. Codes that lead nowhere are counted apart: who makes them up by the thousand
        keeps out nobody who was given one."""
        brought = decode_body(await self._brought(request), _exchange_decoder)
        try:
            visit = await self._shares.exchange(
                brought.code, brought.nonce, arrives=partial(self._count, VISITS)
            )
        except LinkNotValid:
            self._count(GUESSES)
            raise
        token = visit.token
        note(request.scope, target_share=visit.share.id, minted=token.id, minted_for=token.owner)
        shown = {
            "token": visit.text,
            "kind": visit.share.kind,
            "name": visit.share.name,
            "owner": None if token.conversation else token.owner,
            "scope": token.chat_scope or None,
            "chat": token.conversation,
            "models": token.models,
            "expires_at": token.expires_at,
        }
        return Response(encode(shown), media_type=_JSON)

    async def _brought(self, request: Request) -> bytes:
        """The body of somebody who shows no token. Strangers count as one owner while theirs are on the way,
        so that slow ones leave room for everybody who has one."""
        place = self._service.quotas.other(STRANGERS, is_tokenless=False)
        wait = self._service.settings.limits.body_wait
        try:
            return await read_body(request.scope, request.receive, limit=BODY_BYTES, wait=wait)
        finally:
            place.leave()

    def _count(self, name: str) -> None:
        """Count one of these. Raises Refused (429) if there were as many within a minute as may be."""
        wait = math.ceil(self._pace.wait(name))
        if wait:
            self._service.metrics.refused("exchanges_per_minute")
            message = f"At most {self._most} links a minute are followed here (`exchanges_per_minute`)."
            told = f"{message} Try again in {wait} s."
            raise Refused(429, "too_many_exchanges", told, headers=((b"retry-after", b"%d" % wait),))
        self._pace.count(name)


def seen_by(who: Principal) -> dict[str, Any]:
    """Which links there are for who asks."""
    if who.has(TokenScope.ADMIN):
        return {"within": who.within}
    return {"owner": who.owner, "within": who.within, "only_chats": True}


def share_shown(share: Share) -> dict[str, Any]:
    """All that is known of a link but the digest of its code."""
    stay = share.visitor_lifetime
    return {
        "id": share.id,
        "kind": share.kind,
        "owner": share.owner,
        "name": share.name,
        "scope": share.chat_scope or None,
        "chat": share.conversation,
        "models": share.models,
        "max_uses": share.max_uses,
        "uses": share.uses,
        "per_minute": share.per_minute,
        "visitor_expires_in": None if stay is None else stay / 1000,
        "created_at": share.created_at,
        "expires_at": share.expires_at,
        "revoked_at": share.revoked_at,
        "parent": share.parent,
        **{name: getattr(share.bounds, name) for name in BOUNDS},
        "stored_bytes": share.bytes,
        "stored_chats": share.chats,
    }


def endpoints(service: Service) -> list[Endpoint]:
    """`/api/shares`."""
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
            body=ASKED,
            content={201: {_JSON: MADE}},
            answers={
                201: "The link; its code is told now, and never again.",
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
            content={200: {_JSON: SHARES}},
            answers={200: "A page of them."},
        ),
        Endpoint(
            method="DELETE",
            path="/api/shares/{share}",
            answer=routes.revoke,
            needs=TokenScope.CHATS_WRITE,
            summary="Revoke a link, and the tokens of all who came by it.",
            tag="shares",
            in_path={"share": Parameter("Its id.", id_of(ShareId))},
            content={200: {_JSON: SHARE}},
            answers={
                200: "It is revoked, and nobody who came by it is let in any more.",
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
            body=BROUGHT,
            content={200: {_JSON: VISIT_MADE}},
            answers={
                200: "The visitor's token.",
                404: "The link is not valid: unknown, used up, expired or revoked, which is not told apart.",
            },
        ),
    ]
