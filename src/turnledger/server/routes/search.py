"""/api/search: find chats by the words of their titles and messages."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.chats import ChatInfo, Hit, SearchPage
from turnledger.api.views import show_chat, view
from turnledger.model.access.token import TokenScope
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    PAGE_SIZE,
    SCOPE,
)
from turnledger.server.requests.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response

PAGE = 20
CURSOR = b"place"
"""The purpose of the seal on cursors."""


def endpoints(service: Service) -> list[Endpoint]:

    async def search(request: Request) -> Response:
        query = request.query_params
        principal: Principal = request.state.principal
        seal, cursor = await service.cursor_seal.get(), query.get("cursor")
        page = await service.chats(principal, scope=query.get("scope")).search(
            query.get("q", ""),
            cursor=None if cursor is None else seal.unseal(CURSOR, cursor) or "",
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        next_cursor = None if page.next is None else seal.seal(CURSOR, page.next)
        hits = tuple(view(Hit, hit, chat=show_chat(ChatInfo, hit.conversation)) for hit in page.hits)
        return json_response(SearchPage(hits, next_cursor, page.is_complete))

    return [
        Endpoint(
            route="GET /api/search",
            handler=search,
            needs=TokenScope.CHATS_READ,
            summary="Find chats by the words of their titles and messages.",
            query={
                "q": Parameter("The text to search for. Any text is valid; without words it finds nothing."),
                "scope": Parameter("Only chats of this scope; empty: chats without a scope.", SCOPE),
                "cursor": Parameter("The `next` of the previous page."),
                "limit": Parameter(f"Page size; default {PAGE}.", PAGE_SIZE),
            },
            content={200: SearchPage[Hit]},
            responses={
                200: "A page of chats with one hit each: in the title, or else in the newest message."
            },
        )
    ]
