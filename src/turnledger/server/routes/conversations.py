"""/v1/conversations: chats as conversations, and their items."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.chat import Chat
from turnledger.errors import InvalidId, TurnNotFound
from turnledger.model.access.token import TokenScope
from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId
from turnledger.model.item import Item
from turnledger.model.turn import Turn
from turnledger.server.errors import RequestRefused, about, input_field
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    APPEND_ERRORS,
    KEY_REUSED,
    NUMBER,
    QUOTA_REACHED,
    STRING,
    id_schema,
    nullable,
    object_schema,
)
from turnledger.server.requests.turn import KEY, read_headers, text_of
from turnledger.server.responses.input import input_items
from turnledger.server.responses.items import PlacedItem, find_item, turn_of_item
from turnledger.server.responses.lists import (
    PAGING,
    UNKNOWN_AFTER,
    Paging,
    list_of,
    list_schema_of,
    show_placed,
    shown_items,
)
from turnledger.server.routes.branches import GONE, MOVE_HEADERS, move_options
from turnledger.server.routes.chat_history import PAGE_BYTES
from turnledger.server.routes.completions import HEADERS
from turnledger.server.routes.responses import DELETED, ITEM_OBJECT
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response

NO_ITEM = "There is no such item in this conversation. List its items."
MOST_ITEMS = 20
"""Items of one request, as in the API of OpenAI."""
READ_AT_ONCE = 16
"""Turns, which may be large, where their size is not known before they are read."""
METADATA = {"type": "object", "additionalProperties": STRING, "maxProperties": 16}
ITEMS = {"type": "array", "items": {"type": "object"}, "maxItems": MOST_ITEMS}
CONVERSATION_OBJECT = object_schema(
    {"id": STRING, "object": {"const": "conversation"}, "created_at": NUMBER, "metadata": METADATA}
)
IN_PATH = {"conversation": Parameter("The id of a conversation.", id_schema(ConversationId))}
ITEM_IN_PATH = {**IN_PATH, "item": Parameter("The id of an item.", STRING)}
NOT_FOUND = {404: "Conversation not found.", 410: "The conversation was deleted or has expired."}


class NewConversation(msgspec.Struct, forbid_unknown_fields=True):
    items: msgspec.Raw = msgspec.Raw(b"null")
    metadata: dict[str, str] | None = None


class NewItems(msgspec.Struct, forbid_unknown_fields=True):
    items: msgspec.Raw


class NewMetadata(msgspec.Struct, forbid_unknown_fields=True):
    metadata: dict[str, str] | None


class ConversationRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def _open(self, request: Request) -> Chat:
        chats = self._service.chats(request.state.principal)
        return await chats.conversation(request.path_params["conversation"])

    async def list_all(self, request: Request) -> Response:
        query = request.query_params
        paging = Paging.of(query)
        chats = self._service.chats(request.state.principal)
        cursor = None
        if paging.after is not None:
            with about("after"):
                cursor = await self._service.host.cursor_after(chats, paging.after)
        if paging.is_ascending:
            page = await self._service.host.least_recent(chats, cursor=cursor, limit=paging.limit)
        else:
            page = await chats.list(archived=None, cursor=cursor, limit=paging.limit)
        shown = [_show(entry.conversation) for entry in page.chats]
        return json_response(list_of(shown, has_more=page.next is not None))

    async def create(self, request: Request) -> Response:
        body, principal = await self._service.read_request(
            request, NewConversation, needs_body=False, is_small=False
        )
        items = _items(body.items)
        key = text_of(read_headers(request.scope["headers"]), KEY)
        self._service.persistence.check(principal.within.scope or "")
        if not items:
            chats = self._service.chats(principal)
            chat = await chats.conversation(metadata=body.metadata, idempotency_key=key)
            return json_response(_show(chat.as_opened))
        principal.check(TokenScope.TURNS_RUN)
        chats = self._service.authenticator.changeable_chats(
            principal, request.state.head, TokenScope.TURNS_RUN
        )
        chat = await self._service.host.create_with_items(
            chats, items, metadata=body.metadata, idempotency_key=key
        )
        return json_response(_show(chat.as_opened))

    async def read(self, request: Request) -> Response:
        return json_response(_show((await self._open(request)).as_opened))

    async def update(self, request: Request) -> Response:
        body, principal = await self._service.read_request(request, NewMetadata)
        chat = await self._service.chats(principal).conversation(request.path_params["conversation"])
        return json_response(_show(await chat.update(metadata=body.metadata or {})))

    async def delete(self, request: Request) -> Response:
        chats = self._service.chats(request.state.principal)
        deleted = await chats.delete(request.path_params["conversation"])
        return json_response({"id": str(deleted.id), "object": "conversation.deleted", "deleted": True})

    # Items.

    async def add_items(self, request: Request) -> Response:
        with self._service.quotas.admit_turn(request.state.principal.caller):
            return await self._add_items(request)

    async def _add_items(self, request: Request) -> Response:
        options = move_options(self._service, request)
        body, principal = await self._service.read_request(request, NewItems, is_small=False)
        items = _items(body.items)
        chats = self._service.authenticator.changeable_chats(
            principal, request.state.head, TokenScope.TURNS_RUN
        )
        chat = await chats.conversation(request.path_params["conversation"])
        self._service.persistence.check(chat.scope)
        turn = await chat.append(items, **options)
        shown = [show_placed(turn, placed) for placed in shown_items(turn, ())]
        return json_response(list_of(shown, has_more=False))

    async def list_items(self, request: Request) -> Response:
        chat, paging = await self._open(request), Paging.of(request.query_params)
        shown, has_more = await _page_of_items(chat, paging)
        return json_response(list_of(shown, has_more=has_more))

    async def read_item(self, request: Request) -> Response:
        _, turn, placed = await self._find_item(request)
        return json_response(show_placed(turn, placed))

    async def delete_item(self, request: Request) -> Response:
        """Hide an item, and its pair, from the user and from models."""
        chat, turn, placed = await self._find_item(request)
        await chat.flag(turn.id, placed.place, to_model=False, to_user=False)
        return json_response(_show(chat.as_opened))

    async def _find_item(self, request: Request) -> tuple[Chat, Turn, PlacedItem]:
        chat = await self._open(request)
        turn, placed = await _turn_with(chat, request.path_params["item"])
        [hidden] = await chat.hidden([turn])
        if placed.place in hidden.from_user:
            raise TurnNotFound(NO_ITEM)
        return chat, turn, placed


async def _turn_with(chat: Chat, item: str) -> tuple[Turn, PlacedItem]:
    """Return an item of a chat, hidden or not, with its turn. Raises TurnNotFound."""
    try:
        turn = (await chat.status(turn_of_item(item))).turn
    except (InvalidId, TurnNotFound):
        turn = None
    if turn is None:
        raise TurnNotFound(NO_ITEM)
    return turn, find_item(turn, item)


async def _page_of_items(chat: Chat, paging: Paging) -> tuple[list[dict[str, Any]], bool]:
    """Return a page of the items that the user sees, and whether more follow: fewer than the limit if they
    are large."""
    found: list[dict[str, Any]] = []
    size = 0
    async with aclosing(_items_from(chat, paging)) as items:
        async for turn, placed in items:
            if len(found) == paging.limit or size >= PAGE_BYTES:
                return found, True
            found.append(show_placed(turn, placed))
            size += len(placed.item.raw)
    return found, False


async def _items_from(chat: Chat, paging: Paging) -> AsyncGenerator[tuple[Turn, PlacedItem]]:
    """Yield the items of a chat that the user sees, from the place of a page on. Reads turns around the page
    only, however long the chat is."""
    step = 1 if paging.is_ascending else -1
    number, place = (1, -1) if paging.is_ascending else (None, None)
    if paging.after is not None:
        with about("after"):
            turn, last = await _turn_with(chat, paging.after)
            shown = await chat.turns(before=turn.number + 1, limit=1)
            if [each.id for each in shown] != [turn.id]:
                raise TurnNotFound(UNKNOWN_AFTER)  # it is on another branch than the listed one
        number, place = turn.number, last.place
    while turns := await _turns_from(chat, number, paging):
        hidden = await chat.hidden(turns)
        for turn, each in list(zip(turns, hidden, strict=True))[::step]:
            for placed in shown_items(turn, each.from_user)[::step]:
                if place is None or turn.number != number or (placed.place - place) * step > 0:
                    yield turn, placed
        number, place = (turns[-1].number + 1 if paging.is_ascending else turns[0].number - 1), None
        if not number:
            return


async def _turns_from(chat: Chat, number: int | None, paging: Paging) -> Sequence[Turn]:
    """Return some turns in order: those from this number on, or those up to it."""
    count = paging.limit // 2 + 1  # most turns have a question and an answer
    if not paging.is_ascending:
        before = None if number is None else number + 1
        return await chat.turns(before=before, limit=count, most_bytes=PAGE_BYTES)
    assert number is not None  # noqa: S101 - it begins with 1
    count = min(count, READ_AT_ONCE)
    turns = await chat.turns(before=number + count, limit=count)
    return [turn for turn in turns if turn.number >= number]


def _items(raw: msgspec.Raw) -> list[Item]:
    """Return the items of a request. Raises RequestRefused."""
    items = input_items(raw, MOST_ITEMS, "items")
    for number, item in enumerate(items):
        if isinstance(item, str):
            place = f"items[{number}].type"
            message = f"{place}: a reference adds nothing. Send the item itself."
            raise RequestRefused(400, "unsupported_field", message, param=place)
    return [item for item in items if isinstance(item, Item)]


def _show(conversation: Conversation) -> dict[str, Any]:
    return {
        "id": str(conversation.id),
        "object": "conversation",
        "created_at": conversation.created_at // 1000,
        "metadata": conversation.metadata,
    }


def endpoints(service: Service) -> list[Endpoint]:
    routes = ConversationRoutes(service)
    shown = {200: {"application/json": CONVERSATION_OBJECT}}
    return [
        Endpoint(
            route="GET /v1/conversations",
            handler=routes.list_all,
            needs=TokenScope.CHATS_READ,
            summary="List conversations, most recently used first, or last (`order=asc`).",
            query=PAGING,
            content={200: {"application/json": list_schema_of(CONVERSATION_OBJECT)}},
            responses={200: "A page of conversations.", 404: NOT_FOUND[404]},
        ),
        Endpoint(
            route="POST /v1/conversations",
            handler=routes.create,
            needs=TokenScope.CHATS_WRITE,
            summary="Create a conversation, empty or with items.",
            headers={"Idempotency-Key": HEADERS["Idempotency-Key"]},
            body=object_schema({}, optional={"items": nullable(ITEMS), "metadata": nullable(METADATA)}),
            fields=input_field("items"),
            needs_body=False,
            content=shown,
            responses={
                200: "The new conversation, or the one created with this Idempotency-Key.",
                409: "Chats are not stored here.",
                410: "The conversation created with this Idempotency-Key was deleted.",
                422: KEY_REUSED,
                **QUOTA_REACHED,
            },
        ),
        Endpoint(
            route="GET /v1/conversations/{conversation}/items",
            handler=routes.list_items,
            needs=TokenScope.CHATS_READ,
            summary="List the items of a conversation, in either order.",
            in_path=IN_PATH,
            query=PAGING,
            content={200: {"application/json": list_schema_of(ITEM_OBJECT)}},
            responses={200: "A page of items.", **NOT_FOUND},
        ),
        Endpoint(
            route="POST /v1/conversations/{conversation}/items",
            handler=routes.add_items,
            needs=TokenScope.TURNS_RUN,
            summary="Add items as a turn that no model answers.",
            in_path=IN_PATH,
            headers=MOVE_HEADERS,
            body=object_schema({"items": ITEMS}),
            fields=input_field("items"),
            content={200: {"application/json": list_schema_of(ITEM_OBJECT)}},
            responses={
                200: "The added items.",
                **GONE,
                **APPEND_ERRORS,
            },
        ),
        Endpoint(
            route="GET /v1/conversations/{conversation}/items/{item}",
            handler=routes.read_item,
            needs=TokenScope.CHATS_READ,
            summary="Read an item.",
            in_path=ITEM_IN_PATH,
            content={200: {"application/json": ITEM_OBJECT}},
            responses={200: "The item.", **NOT_FOUND},
        ),
        Endpoint(
            route="DELETE /v1/conversations/{conversation}/items/{item}",
            handler=routes.delete_item,
            needs=TokenScope.CHATS_WRITE,
            summary="Hide an item, and its pair, from users and models.",
            in_path=ITEM_IN_PATH,
            content=shown,
            responses={200: "The conversation.", **NOT_FOUND},
        ),
        Endpoint(
            route="GET /v1/conversations/{conversation}",
            handler=routes.read,
            needs=TokenScope.CHATS_READ,
            summary="Read a conversation.",
            in_path=IN_PATH,
            content=shown,
            responses={200: "The conversation.", **NOT_FOUND},
        ),
        Endpoint(
            route="POST /v1/conversations/{conversation}",
            handler=routes.update,
            needs=TokenScope.CHATS_WRITE,
            summary="Replace the metadata of a conversation.",
            in_path=IN_PATH,
            body=object_schema({"metadata": nullable(METADATA)}),
            content=shown,
            responses={200: "The conversation.", **NOT_FOUND, **QUOTA_REACHED},
        ),
        Endpoint(
            route="DELETE /v1/conversations/{conversation}",
            handler=routes.delete,
            needs=TokenScope.CHATS_WRITE,
            summary="Delete a conversation, and end its running turn. It can be restored for a while.",
            in_path=IN_PATH,
            content={200: {"application/json": DELETED}},
            responses={200: "It is deleted, also if it was before.", 404: NOT_FOUND[404]},
        ),
    ]
