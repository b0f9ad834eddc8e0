"""/api/chats/{id}: one chat with its turns, and the attempts outside its history."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.turns import ChatContext, ShownChat
from turnledger.api.views import show_listed_as, show_turn, view
from turnledger.engine.history.context import context_of
from turnledger.errors import BranchNotFound, InvalidInput
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import raws
from turnledger.server.access.auth import Principal
from turnledger.server.access.share_view import show_to_reader
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    PAGE_SIZE,
    id_schema,
)
from turnledger.server.requests.query import MAX_NUMBER, number_of
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import ETAG, etag_of, show_attempt_aside

CHAT_GONE = {404: "Chat not found.", 410: "The chat was deleted or has expired."}
CHAT = {"chat": Parameter("The id of a conversation.", id_schema(ConversationId))}
PAGE = 50
PAGE_BYTES = 1024 * 1024
"""Bytes of turns on one page, and of attempts; at least one is sent, however large."""
CONTEXT_BYTES = 16 * 1024 * 1024
"""Bytes of a context sent at once."""
TURN_NUMBER = {"type": "integer", "minimum": 0, "maximum": MAX_NUMBER}


def endpoints(service: Service) -> list[Endpoint]:

    async def read(request: Request) -> Response:
        query = request.query_params
        before = number_of(query.get("before"), "before", None)
        limit = number_of(query.get("limit"), "limit", PAGE)
        principal: Principal = request.state.principal
        chat = await service.chat_in(request)
        if principal.is_reader and "branch" in query:
            raise BranchNotFound  # readers must not see turns that the owner edited or undid
        page = await chat.read(before=before, limit=limit, most_bytes=PAGE_BYTES, branch=query.get("branch"))
        shown = show_listed_as(
            ShownChat,
            page.chat,
            turns=tuple(map(show_turn, page.turns, page.hidden)),
            before=page.before,
            attempts=tuple(show_attempt_aside(each, principal) for each in page.attempts),
        )
        if principal.is_reader:
            shown = await show_to_reader(chat, shown)
        return json_response(shown, headers={"etag": etag_of(page.chat.conversation)})

    async def context(request: Request) -> Response:
        query = request.query_params
        last, budget = (number_of(query.get(name), name, None) for name in ("last", "budget"))
        chat = await service.chat_in(request)
        selected = context_of(last, budget)
        if last is None and budget is None and (latest := await chat.turns(limit=1)):
            selected = service.models.context(str(latest[0].details.get("model", "")), {}) or selected
        shown = await chat.snapshot(context=selected, after=query.get("after"))
        size = sum(len(item.raw) for item in shown.items)
        if size > CONTEXT_BYTES:
            raise InvalidInput(f"The context has {size} bytes, over {CONTEXT_BYTES}. Give last or budget.")
        return json_response(view(ChatContext, shown, raw_items=raws(shown.items)))

    return [
        Endpoint(
            route="GET /api/chats/{chat}/context",
            handler=context,
            needs=TokenScope.CHATS_READ,
            summary="Show what the model of the last turn would be shown now, and its size in tokens. Runs "
            "and writes nothing.",
            in_path=CHAT,
            query={
                "last": Parameter("Show this many of the last turns.", TURN_NUMBER),
                "budget": Parameter("Show as many of the last turns as fit into these tokens.", TURN_NUMBER),
                "after": Parameter("Show it as after this turn.", id_schema(TurnId)),
            },
            content={200: ChatContext},
            responses={
                200: "The items, and their tokens as estimated.",
                **CHAT_GONE,
                404: "Chat or turn not found.",
            },
        ),
        Endpoint(
            route="GET /api/chats/{chat}",
            handler=read,
            needs=TokenScope.CHATS_READ,
            is_for_readers=True,
            summary="Read a chat: its last turns, and the attempts that are not in the history.",
            in_path=CHAT,
            query={
                "before": Parameter("Only turns before this number.", TURN_NUMBER),
                "limit": Parameter(
                    f"Maximum number of turns and of attempts; default {PAGE}. A page of large turns has"
                    " fewer: continue with its `before` until that is null.",
                    PAGE_SIZE,
                ),
                "branch": Parameter(
                    "Turns of this branch; the chat does not switch to it.", id_schema(BranchId)
                ),
            },
            response_headers={"ETag": ETAG},
            content={200: ShownChat},
            responses={200: "The chat.", **CHAT_GONE},
        ),
    ]
