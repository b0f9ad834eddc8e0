"""/api/chats: list, create, change, delete and restore chats."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.chats import ChatList, Conflict, Deletion, ListedChat, RestoredChat
from turnledger.api.requests import ChatChangesBody, NewChatBody
from turnledger.api.views import show_chat, show_listed, view
from turnledger.chat import Chat
from turnledger.errors import ConversationUnavailable, InvalidInput, RevisionConflict
from turnledger.model.access.token import TokenScope
from turnledger.model.catalogue import ChatEntry, Page
from turnledger.model.conversation import TAG_LENGTH, Conversation
from turnledger.model.reset_policy import policy_of
from turnledger.server.access.auth import Principal
from turnledger.server.errors import RequestRefused, error_details
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import KEY_REUSED, NAME, PAGE_SIZE, QUOTA_REACHED, SCOPE, Schema
from turnledger.server.requests.query import choice_of, flag_of, number_of
from turnledger.server.requests.turn import CREATE_HEADER_NAMES, KEY, read_supported_headers, text_of
from turnledger.server.routes.branches import IDEMPOTENCY_KEY, REPLAYED
from turnledger.server.routes.chat_history import CHAT, CHAT_GONE, PAGE
from turnledger.server.routes.events import POSITION
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import ETAG, etag_of, without_content

_FLAGS: Mapping[str, bool] = {"true": True, "false": False}
_FLAGS_OR_ANY: Mapping[str, bool | None] = {**_FLAGS, "any": None}
_REVISION = re.compile(r'(?:W/)?"([0-9]{1,18})"')
_TAG: Schema = {"type": "string", "minLength": 1, "maxLength": TAG_LENGTH}


class ChatRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def list_chats(self, request: Request) -> Response:
        """List chats, most recently used first; or the one with a conversation_key."""
        query = request.query_params
        principal: Principal = request.state.principal
        if "conversation_key" in query:
            return await self._page_response(await self._find_by_key(query, principal))
        page = await self._service.chats(principal, scope=query.get("scope")).list(
            tag=query.get("tag"),
            archived=choice_of(query.get("archived"), "archived", _FLAGS_OR_ANY, False),
            pinned=choice_of(query.get("pinned"), "pinned", _FLAGS_OR_ANY, None),
            deleted=choice_of(query.get("deleted"), "deleted", _FLAGS, False),
            cursor=query.get("cursor"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return await self._page_response(page)

    async def _find_by_key(self, query: Mapping[str, str], principal: Principal) -> Page:
        if unsupported := query.keys() - {"conversation_key", "scope", "limit"}:
            names = ", ".join(sorted(unsupported))
            raise InvalidInput(f"{names}: a conversation_key already names one chat. Omit it.")
        number_of(query.get("limit"), "limit", PAGE)
        return await self._service.chats(principal, scope=query.get("scope", "")).named(
            query["conversation_key"]
        )

    async def _page_response(self, page: Page) -> Response:
        as_of = (await self._service.cursor_seal.get()).seal(POSITION, page.as_of)
        return json_response(ChatList(tuple(map(show_listed, page.chats)), page.next, as_of))

    async def create(self, request: Request) -> Response:
        """Create a chat, or find the one with the conversation_key."""
        body, principal = await self._service.read_request(request, NewChatBody, needs_body=False)
        key = text_of(read_supported_headers(request.scope["headers"], CREATE_HEADER_NAMES), KEY)
        principal.check_chat_scope(body.scope)
        self._service.persistence.check(body.scope or principal.within.scope or "")
        chat = await self._service.chats(principal, scope=body.scope or "").conversation(
            conversation_key=body.conversation_key,
            title=body.title,
            metadata=body.metadata,
            tags=body.tags or (),
            internal=body.internal,
            expires_after=body.expires_after,
            reset=policy_of(body.reset),
            idempotency_key=key,
        )
        response = _chat_response(principal, await chat.summary(), 201 if chat.is_new else 200)
        if body.conversation_key is None and not chat.is_new:
            response.headers["idempotency-replayed"] = "true"
        return response

    async def update(self, request: Request) -> Response:
        """Change title, metadata, tags, pin or archive; with If-Match only at that revision."""
        revision = revision_of(request.headers.get("if-match"))
        body, principal = await self._service.read_request(request, ChatChangesBody)
        chat = await self._service.chat_in(request, principal)
        before = await chat.summary()
        try:
            updated = await chat.update(**body.changes(), revision=revision)
        except RevisionConflict as problem:
            return await _respond_conflict(principal, chat, problem)
        return _chat_response(principal, await _show_updated(chat, updated, before))

    async def delete(self, request: Request) -> Response:
        purge = flag_of(request.query_params.get("purge"), "purge", default=False)
        chats = self._service.chats(request.state.principal)
        return json_response(view(Deletion, await chats.delete(request.path_params["chat"], purge=purge)))

    async def restore(self, request: Request) -> Response:
        principal: Principal = request.state.principal
        chat = await self._service.chats(principal).restore(request.path_params["chat"])
        former = chat.former_conversation_key
        # Not looked up again: it was restored, even if it was deleted meanwhile.
        restored = show_chat(RestoredChat, chat.as_opened, former_conversation_key=former)
        return json_response(without_content(principal, restored))


def revision_of(if_match: str | None) -> int | None:
    """Return the revision of an If-Match; None for any. Raises RequestRefused (400)."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _REVISION.fullmatch(if_match.strip())
    if found is None:
        message = (
            'If-Match must be the ETag of the chat, its quoted revision: "3". Omit it to skip the check.'
        )
        raise RequestRefused(400, "invalid_if_match", message, param="If-Match")
    return int(found[1])


async def _show_updated(chat: Chat, updated: Conversation, before: ChatEntry) -> ChatEntry:
    """Return the chat after this change: it was made, even if the chat changed again or was deleted."""
    listed = before
    with suppress(ConversationUnavailable):
        listed = await chat.summary()
    conversation = msgspec.structs.replace(
        updated, touched_at=listed.conversation.touched_at, branch=listed.conversation.branch
    )
    return msgspec.structs.replace(listed, conversation=conversation)


async def _respond_conflict(principal: Principal, chat: Chat, problem: RevisionConflict) -> Response:
    """Respond with the current chat after a conflict, which saves the client a request."""
    listed = await chat.summary()
    current = without_content(principal, show_listed(listed))
    conflict = Conflict(error=error_details(problem), chat=current)
    return json_response(conflict, 412, {"etag": etag_of(listed.conversation)})


def _chat_response(principal: Principal, listed: ChatEntry, status: int = 200) -> Response:
    headers = {"etag": etag_of(listed.conversation)}
    return json_response(without_content(principal, show_listed(listed)), status, headers)


def endpoints(service: Service) -> list[Endpoint]:
    routes = ChatRoutes(service)
    return [
        Endpoint(
            route="GET /api/chats",
            handler=routes.list_chats,
            needs=TokenScope.CHATS_READ,
            summary="List chats, most recently used first.",
            query={
                "conversation_key": Parameter(
                    "Only the chat with this conversation_key in the scope, even if it is archived or has no"
                    " committed turn. Cannot be combined with filters other than `scope`.",
                    NAME,
                ),
                "scope": Parameter("Only chats of this scope; empty: chats without a scope.", SCOPE),
                "tag": Parameter("Only chats with this tag.", _TAG),
                "archived": Parameter(
                    "Archived chats, the others, or both; default `false`.", _choice_schema(_FLAGS_OR_ANY)
                ),
                "pinned": Parameter(
                    "Pinned chats, the others, or both; default `any`.", _choice_schema(_FLAGS_OR_ANY)
                ),
                "deleted": Parameter(
                    "`true`: deleted chats that can be restored, instead of the others.",
                    _choice_schema(_FLAGS),
                ),
                "cursor": Parameter("The `next` of the previous page."),
                "limit": Parameter(f"Page size; default {PAGE}.", PAGE_SIZE),
            },
            content={200: ChatList},
            responses={200: "A page of chats.", 410: "The chat with this conversation_key has expired."},
        ),
        Endpoint(
            route="POST /api/chats",
            handler=routes.create,
            needs=TokenScope.CHATS_WRITE,
            summary="Create a chat without turns, or find the one with the conversation_key.",
            headers={"Idempotency-Key": IDEMPOTENCY_KEY},
            body=NewChatBody,
            needs_body=False,
            response_headers={"ETag": ETAG, **REPLAYED},
            content={200: ListedChat, 201: ListedChat},
            responses={
                200: "The existing chat with this conversation_key or Idempotency-Key.",
                201: "The new chat.",
                409: "Chats of this scope are not stored here.",
                410: "The chat with this conversation_key has expired, or the one created with this"
                " Idempotency-Key was deleted.",
                422: KEY_REUSED,
                **QUOTA_REACHED,
            },
        ),
        Endpoint(
            route="PATCH /api/chats/{chat}",
            handler=routes.update,
            needs=TokenScope.CHATS_WRITE,
            summary="Rename, tag, pin or archive a chat, atomically. Running turns are not affected.",
            in_path=CHAT,
            headers={
                "If-Match": Parameter(
                    "The ETag of the chat: update only if it has not changed since.",
                    {"type": "string", "pattern": r'^("[0-9]{1,18}"|\*)$'},
                )
            },
            body=ChatChangesBody,
            response_headers={"ETag": ETAG},
            content={200: ListedChat, 412: Conflict},
            responses={
                200: "The updated chat.",
                **CHAT_GONE,
                412: "The chat has changed since: the response has the current chat and its ETag.",
                **QUOTA_REACHED,
            },
        ),
        Endpoint(
            route="DELETE /api/chats/{chat}",
            handler=routes.delete,
            needs=TokenScope.CHATS_WRITE,
            summary="Delete a chat, and end its running turn. Idempotent.",
            in_path=CHAT,
            query={
                "purge": Parameter(
                    "`true`: delete permanently, even if already deleted. Default: restorable for a while.",
                    _choice_schema(_FLAGS),
                )
            },
            content={200: Deletion},
            responses={200: "The chat is deleted; until when it can be restored.", 404: "Chat not found."},
        ),
        Endpoint(
            route="POST /api/chats/{chat}/restore",
            handler=routes.restore,
            needs=TokenScope.CHATS_WRITE,
            summary="Restore a deleted chat. Has no effect on one that is not deleted.",
            in_path=CHAT,
            content={200: RestoredChat},
            responses={
                200: "The restored chat; without its conversation_key if another chat now has it.",
                404: "Chat not found.",
                410: "The chat was purged or has expired.",
            },
        ),
    ]


def _choice_schema(choices: Mapping[str, Any]) -> Schema:
    return {"type": "string", "enum": list(choices)}
