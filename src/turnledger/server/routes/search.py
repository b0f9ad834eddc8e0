"""/api/search: find chats by the words of their titles and messages."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnledger.engine.conversations.search import Hit
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import BranchId, TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    NUMBER,
    PAGE_SIZE,
    SCOPE,
    TEXT,
    Schema,
    a_list,
    an_object,
    id_of,
    or_null,
)
from turnledger.server.requests.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import encode
from turnledger.server.wire.shapes import CHAT_INFO, about

PAGE = 20
PLACE = b"place"
"""What cursors are sealed for."""
MARK: Schema = {**a_list(NUMBER), "minItems": 2, "maxItems": 2}
HIT: Schema = an_object(
    {
        "chat": CHAT_INFO,
        "turn": or_null({**id_of(TurnId), "description": "Where it was found; null: in the title."}),
        "branch": {**id_of(BranchId), "description": "The branch that shows it."},
        "snippet": {**TEXT, "description": "A part of the text, on one line."},
        "marks": {
            **a_list(MARK),
            "description": "What was sought in it: first character, and the one behind the last.",
        },
    }
)
HITS: Schema = an_object(
    {
        "data": a_list(HIT),
        "next": or_null({**TEXT, "description": "The cursor of the next page; null behind the last."}),
        "complete": {
            "type": "boolean",
            "description": "Whether all that was committed before can be found.",
        },
    }
)


def endpoints(service: Service) -> list[Endpoint]:
    """`GET /api/search`."""

    async def search(request: Request) -> Response:
        query = request.query_params
        who: Principal = request.state.principal
        seal, cursor = await service.sealing.seal(), query.get("cursor")
        page = await service.ledger.search(
            query.get("q", ""),
            owner=who.owner,
            scope=query.get("scope"),
            within=who.within,
            cursor=None if cursor is None else seal.open(PLACE, cursor) or "",
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        shown = {
            "data": [hit_shown(hit) for hit in page.hits],
            "next": None if page.next is None else seal.close(PLACE, page.next),
            "complete": page.is_complete,
        }
        return Response(encode(shown), media_type="application/json")

    return [
        Endpoint(
            method="GET",
            path="/api/search",
            answer=search,
            needs=TokenScope.CHATS_READ,
            summary="Find chats by the words of their titles and messages.",
            tag="chats",
            query={
                "q": Parameter(
                    "What to look for. Whatever is typed is a search; without words, for nothing."
                ),
                "scope": Parameter("Chats of this scope only; empty: of none.", SCOPE),
                "cursor": Parameter("The `next` of the page before."),
                "limit": Parameter(f"So many chats at most; {PAGE} if it is left out.", PAGE_SIZE),
            },
            content={200: {"application/json": HITS}},
            answers={200: "A page of chats, one hit for each: titles first, then the newest message."},
        )
    ]


def hit_shown(hit: Hit) -> dict[str, Any]:
    """A chat that was found, and where."""
    return {
        "chat": about(hit.conversation),
        "turn": hit.turn,
        "branch": hit.branch,
        "snippet": hit.snippet,
        "marks": hit.marks,
    }
