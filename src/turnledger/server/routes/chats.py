"""/api/chats/{id}: one chat with its turns, and the attempts outside its history."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.turns import ShownChat
from turnledger.api.views import show_listed_as, show_turn
from turnledger.errors import BranchNotFound
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import BranchId, ConversationId
from turnledger.server.access.auth import Principal
from turnledger.server.access.share_view import as_readers_see
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    PAGE_SIZE,
    id_of,
)
from turnledger.server.requests.query import HIGHEST, number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import ETAG, aside_shown, etag_of

CHAT = {"chat": Parameter("The id of a conversation.", id_of(ConversationId))}
PAGE = 50
PAGE_BYTES = 1024 * 1024
"""Bytes of turns on one page, and of attempts; at least one is sent, however large."""
TURN_NUMBER = {"type": "integer", "minimum": 0, "maximum": HIGHEST}


def endpoints(service: Service) -> list[Endpoint]:

    async def one(request: Request) -> Response:
        query = request.query_params
        before = number_of(query.get("before"), "before", None)
        limit = number_of(query.get("limit"), "limit", PAGE)
        who: Principal = request.state.principal
        chat = await service.chats(who).conversation(request.path_params["chat"])
        if who.is_reader and "branch" in query:
            raise BranchNotFound  # readers must not see turns that the owner edited or undid
        turns = await chat.turns(
            before=before, limit=limit, most_bytes=PAGE_BYTES, branch=query.get("branch")
        )
        aside = await chat.attempts(limit=limit, most_bytes=PAGE_BYTES)
        listed = await chat.summary()
        hidden = await chat.hidden(turns)
        shown = show_listed_as(
            ShownChat,
            listed,
            turns=tuple(map(show_turn, turns, hidden)),
            before=turns[0].number if turns and turns[0].number > 1 else None,
            attempts=tuple(aside_shown(each, who) for each in aside),
        )
        if who.is_reader:
            shown = await as_readers_see(chat, shown)
        return json_response(shown, headers={"etag": etag_of(listed.conversation)})

    return [
        Endpoint(
            method="GET",
            path="/api/chats/{chat}",
            answer=one,
            needs=TokenScope.CHATS_READ,
            is_for_readers=True,
            summary="A conversation with its last turns, and its attempts that are not in the history.",
            tag="chats",
            in_path=CHAT,
            query={
                "before": Parameter("Turns before the one of this number.", TURN_NUMBER),
                "limit": Parameter(
                    f"So many turns and attempts at most; {PAGE} if it is left out. Of large ones there are"
                    " fewer on a page: go on with its `before`, until that is null.",
                    PAGE_SIZE,
                ),
                "branch": Parameter("Turns of this branch, which stays as it is.", id_of(BranchId)),
            },
            answer_headers={"ETag": ETAG},
            content={200: ShownChat},
            answers={200: "The conversation.", 404: "There is none.", 410: "It was deleted or has expired."},
        )
    ]
