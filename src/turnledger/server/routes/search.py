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
PLACE = b"place"
"""The purpose of the seal on cursors."""


def endpoints(service: Service) -> list[Endpoint]:

    async def search(request: Request) -> Response:
        query = request.query_params
        who: Principal = request.state.principal
        seal, cursor = await service.sealing.seal(), query.get("cursor")
        page = await service.chats(who, scope=query.get("scope")).search(
            query.get("q", ""),
            cursor=None if cursor is None else seal.open(PLACE, cursor) or "",
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        following = None if page.next is None else seal.close(PLACE, page.next)
        hits = tuple(view(Hit, hit, chat=show_chat(ChatInfo, hit.conversation)) for hit in page.hits)
        return json_response(SearchPage(hits, following, page.is_complete))

    return [
        Endpoint(
            method="GET",
            path="/api/search",
            answer=search,
            needs=TokenScope.CHATS_READ,
            summary="Find chats by the words of their titles and messages.",
            tag="chats",
            query={
                "q": Parameter("The text to search for. Any text is valid; without words it finds nothing."),
                "scope": Parameter("Chats of this scope only; empty: of none.", SCOPE),
                "cursor": Parameter("The `next` of the page before."),
                "limit": Parameter(f"So many chats at most; {PAGE} if it is left out.", PAGE_SIZE),
            },
            content={200: SearchPage[Hit]},
            answers={200: "A page of chats, one hit for each: titles first, then the newest message."},
        )
    ]
