"""/api/chats: list and create chats, and change title, metadata, tags, pin and archive."""

from __future__ import annotations

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.chats import ChatList, Conflict, ListedChat
from turnledger.api.requests import ChatChangesBody, NewChatBody
from turnledger.api.views import show_listed
from turnledger.chat import Chat
from turnledger.errors import ConversationUnavailable, InvalidInput, RevisionConflict
from turnledger.model.access.token import TokenScope
from turnledger.model.catalogue import Listed, Page
from turnledger.model.conversation import TAG_LENGTH, Conversation
from turnledger.server.access.auth import Principal
from turnledger.server.errors import Refused, error_details
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import FULL, NAME, PAGE_SIZE, SCOPE, Schema
from turnledger.server.requests.query import choice_of, number_of
from turnledger.server.requests.turn import KEY, OF_MAKING, named_among, text_of
from turnledger.server.routes.branches import ONCE, OTHERWISE, REPLAYED
from turnledger.server.routes.chats import CHAT, PAGE
from turnledger.server.routes.events import POSITION
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import ETAG, etag_of, without_words

_YES_OR_NO: Mapping[str, bool] = {"true": True, "false": False}
_OR_ANY: Mapping[str, bool | None] = {**_YES_OR_NO, "any": None}
_REVISION = re.compile(r'(?:W/)?"([0-9]{1,18})"')
_TAG: Schema = {"type": "string", "minLength": 1, "maxLength": TAG_LENGTH}


class CatalogueRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def listing(self, request: Request) -> Response:
        """List chats, most recently used first; or the one with a conversation_key."""
        query = request.query_params
        who: Principal = request.state.principal
        if "conversation_key" in query:
            return await self._page_response(await self._named(query, who))
        page = await self._service.chats(who, scope=query.get("scope")).list(
            tag=query.get("tag"),
            archived=choice_of(query.get("archived"), "archived", _OR_ANY, False),
            pinned=choice_of(query.get("pinned"), "pinned", _OR_ANY, None),
            deleted=choice_of(query.get("deleted"), "deleted", _YES_OR_NO, False),
            cursor=query.get("cursor"),
            limit=number_of(query.get("limit"), "limit", PAGE),
        )
        return await self._page_response(page)

    async def _named(self, query: Mapping[str, str], who: Principal) -> Page:
        if others := query.keys() - {"conversation_key", "scope", "limit"}:
            listed = ", ".join(sorted(others))
            raise InvalidInput(f"{listed}: a conversation_key already names one chat. Omit it.")
        number_of(query.get("limit"), "limit", PAGE)
        return await self._service.chats(who, scope=query.get("scope", "")).named(query["conversation_key"])

    async def _page_response(self, page: Page) -> Response:
        as_of = (await self._service.sealing.seal()).close(POSITION, page.as_of)
        return json_response(ChatList(tuple(map(show_listed, page.chats)), page.next, as_of))

    async def make(self, request: Request) -> Response:
        """Create a chat, or find the one with the conversation_key."""
        asked, who = await self._service.asked(request, NewChatBody)
        key = text_of(named_among(request.scope["headers"], OF_MAKING), KEY)
        who.check_chat_scope(asked.scope)
        self._service.keeping.check(asked.scope or who.within.scope or "")
        chat = await self._service.chats(who, scope=asked.scope or "").conversation(
            conversation_key=asked.conversation_key,
            title=asked.title,
            metadata=asked.metadata,
            tags=asked.tags or (),
            idempotency_key=key,
        )
        response = _chat_response(who, await chat.summary(), 201 if chat.is_new else 200)
        if asked.conversation_key is None and not chat.is_new:
            response.headers["idempotency-replayed"] = "true"
        return response

    async def change(self, request: Request) -> Response:
        """Change title, metadata, tags, pin or archive; with If-Match only at that revision."""
        revision = revision_of(request.headers.get("if-match"))
        asked, who = await self._service.asked(request, ChatChangesBody)
        id = request.path_params["chat"]
        chat = await self._service.chats(who).conversation(id)
        before = await chat.summary()
        try:
            changed = await chat.update(**asked.changes(), revision=revision)
        except RevisionConflict as problem:
            return await _conflict(who, chat, problem)
        return _chat_response(who, await _as_changed(chat, changed, before))


def revision_of(if_match: str | None) -> int | None:
    """Return the revision of an If-Match; None for any. Raises Refused (400)."""
    if if_match is None or if_match.strip() == "*":
        return None
    found = _REVISION.fullmatch(if_match.strip())
    if found is None:
        message = (
            'If-Match must be the ETag of the chat, its quoted revision: "3". Omit it to skip the check.'
        )
        raise Refused(400, "invalid_if_match", message, param="If-Match")
    return int(found[1])


async def _as_changed(chat: Chat, changed: Conversation, before: Listed) -> Listed:
    """Return the chat after this change: it was made, even if the chat changed again or was deleted."""
    listed = before
    with suppress(ConversationUnavailable):
        listed = await chat.summary()
    conversation = msgspec.structs.replace(
        changed, touched_at=listed.conversation.touched_at, branch=listed.conversation.branch
    )
    return msgspec.structs.replace(listed, conversation=conversation)


async def _conflict(who: Principal, chat: Chat, problem: RevisionConflict) -> Response:
    """Respond with the current chat after a conflict, which saves the client a request."""
    listed = await chat.summary()
    chat_now = without_words(who, show_listed(listed))
    conflict = Conflict(error=error_details(problem), chat=chat_now)
    return json_response(conflict, 412, {"etag": etag_of(listed.conversation)})


def _chat_response(who: Principal, listed: Listed, status: int = 200) -> Response:
    headers = {"etag": etag_of(listed.conversation)}
    return json_response(without_words(who, show_listed(listed)), status, headers)


def endpoints(service: Service) -> list[Endpoint]:
    routes = CatalogueRoutes(service)
    return [_listing(routes), _making(routes), _changing(routes)]


def _listing(routes: CatalogueRoutes) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/api/chats",
        answer=routes.listing,
        needs=TokenScope.CHATS_READ,
        summary="List chats, the last used first.",
        tag="chats",
        query={
            "conversation_key": Parameter(
                "The one that has this name of your own in the scope, also before its first turn is"
                " committed, or archived; or none. Nothing but `scope` goes with it.",
                NAME,
            ),
            "scope": Parameter("Of this application only; empty: of none.", SCOPE),
            "tag": Parameter("With this tag only.", _TAG),
            "archived": Parameter("Archived ones, the others, or both; `false` by default.", _word(_OR_ANY)),
            "pinned": Parameter("Pinned ones, the others, or both; `any` by default.", _word(_OR_ANY)),
            "deleted": Parameter("Those that can be restored, in place of the others.", _word(_YES_OR_NO)),
            "cursor": Parameter("`next` of the page before: the chats behind it."),
            "limit": Parameter(f"So many at most; {PAGE} if it is left out.", PAGE_SIZE),
        },
        content={200: ChatList},
        answers={200: "A page of them.", 410: "The chat that has the conversation_key has expired."},
    )


def _making(routes: CatalogueRoutes) -> Endpoint:
    return Endpoint(
        method="POST",
        path="/api/chats",
        answer=routes.make,
        needs=TokenScope.CHATS_WRITE,
        summary="Make a chat before its first turn; or find the one that has the conversation_key.",
        tag="chats",
        headers={"Idempotency-Key": ONCE},
        body=NewChatBody,
        needs_body=False,
        answer_headers={"ETag": ETAG, **REPLAYED},
        content={200: ListedChat, 201: ListedChat},
        answers={
            200: "The chat that has the conversation_key already, or was made under the Idempotency-Key; as"
            " it is.",
            201: "The chat that was made.",
            409: "Chats of this scope are not kept here.",
            410: "The chat that has the conversation_key has expired; or the one that was made under the"
            " Idempotency-Key was deleted since.",
            422: OTHERWISE,
            **FULL,
        },
    )


def _changing(routes: CatalogueRoutes) -> Endpoint:
    return Endpoint(
        method="PATCH",
        path="/api/chats/{chat}",
        answer=routes.change,
        needs=TokenScope.CHATS_WRITE,
        summary="Rename, tag, pin or archive a chat, in one step. Disturbs no turn that runs.",
        tag="chats",
        in_path=CHAT,
        headers={
            "If-Match": Parameter(
                "The ETag that was read: only if nobody has changed the chat since.",
                {"type": "string", "pattern": r'^("[0-9]{1,18}"|\*)$'},
            )
        },
        body=ChatChangesBody,
        answer_headers={"ETag": ETAG},
        content={200: ListedChat, 412: Conflict},
        answers={
            200: "The chat as it is now.",
            404: "There is none.",
            410: "It was deleted or has expired.",
            412: "Somebody has changed it since: the answer has the chat as it is, and its ETag.",
            **FULL,
        },
    )


def _word(known: Mapping[str, Any]) -> Schema:
    return {"type": "string", "enum": list(known)}
