"""/api/chats/{id}/…: fork, switch, undo, reset; branches and siblings."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.chats import ListedChat, Listing
from turnledger.api.requests import ForkBody, ResetBody, SwitchBody, UndoBody
from turnledger.api.turns import Branch, BranchPage, Sibling
from turnledger.api.views import show_listed, show_turn
from turnledger.chat import Chat
from turnledger.chats import Chats
from turnledger.engine.conversations.read import ListedBranch
from turnledger.engine.turn.validation import MoveOptions
from turnledger.errors import ConversationUnavailable
from turnledger.model.access.token import TokenScope
from turnledger.model.catalogue import ChatEntry
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import OnBusy
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Handler, Parameter
from turnledger.server.openapi.schemas import (
    KEY_REUSED,
    PAGE_SIZE,
    QUOTA_REACHED,
    enum_schema,
    id_schema,
)
from turnledger.server.requests.query import number_of
from turnledger.server.requests.turn import (
    CREATE_HEADER_NAMES,
    KEY,
    MOVE_HEADER_NAMES,
    policies_of,
    read_supported_headers,
    text_of,
)
from turnledger.server.routes.chat_history import CHAT, PAGE
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import without_content

GONE = {404: "Chat, turn or branch not found.", 410: "The chat was deleted or has expired."}
NO_STATUSES: Mapping[int, str] = {}
IDEMPOTENCY_KEY = Parameter(
    "Identifies the request: repeats return the same result, and run nothing again.",
    {"type": "string", "minLength": 1},
)
MOVE_HEADERS = {
    "X-Turn-On-Busy": Parameter(
        "While a turn runs: `queue`, `reject`, `interrupt` or `rollback`.", enum_schema(OnBusy)
    ),
    "Idempotency-Key": IDEMPOTENCY_KEY,
}
REPLAYED = {
    "Idempotency-Replayed": Parameter(
        "`true`: this is the result of an earlier request with the same key.",
        {"type": "string", "enum": ["true"]},
    )
}
UNKEPT = "Chats of this scope are not stored here."


class BranchRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def fork(self, request: Request) -> Response:
        """Create a chat that shares the first turns of this one."""
        body, principal = await self._service.read_request(request, ForkBody, needs_body=False)
        key = text_of(read_supported_headers(request.scope["headers"], CREATE_HEADER_NAMES), KEY)
        chat = await self._chat(request, principal)
        self._service.persistence.check(chat.scope)
        forked = await chat.fork(
            body.turn,
            title=body.title,
            metadata=body.metadata,
            conversation_key=body.conversation_key,
            internal=body.internal,
            expires_after=body.expires_after,
            idempotency_key=key,
        )
        replayed = {} if forked.is_new else {"idempotency-replayed": "true"}
        shown = without_content(principal, show_listed(await forked.summary()))
        return json_response(shown, 201, replayed)

    async def switch(self, request: Request) -> Response:
        body, principal = await self._service.read_request(request, SwitchBody)
        chat = await self._chat(request, principal)
        branch = await chat.switch(body.branch, **move_options(self._service, request))
        return json_response(await show_moved(principal, chat, branch.id, branch.length, branch.preview))

    async def undo(self, request: Request) -> Response:
        body, principal = await self._service.read_request(request, UndoBody, needs_body=False)
        chat = await self._chat(request, principal)
        branch = await chat.undo(body.turn, forget=body.forget, **move_options(self._service, request))
        return json_response(await show_moved(principal, chat, branch.id, branch.length, branch.preview))

    async def reset(self, request: Request) -> Response:
        body, principal = await self._service.read_request(request, ResetBody)
        read_supported_headers(request.scope["headers"], frozenset())
        principal.check_chat_scope(body.scope)
        self._service.persistence.check(body.scope or principal.within.scope or "")
        chats = self._chats(request, principal, scope=body.scope or "")
        chat = await chats.reset(body.conversation_key, replaces=body.replaces)
        return json_response(without_content(principal, show_listed(await chat.summary())))

    async def branches(self, request: Request) -> Response:
        query, principal = request.query_params, request.state.principal
        limit = number_of(query.get("limit"), "limit", PAGE)
        chat = await self._chat(request, principal)
        found = await chat.branches(before=query.get("before"), limit=limit)
        next_id = found[-1].branch.id if len(found) == limit else None
        return json_response(BranchPage(tuple(map(_show_branch, found)), next_id))

    async def siblings(self, request: Request) -> Response:
        """List the alternatives to a turn."""
        limit = number_of(request.query_params.get("limit"), "limit", PAGE)
        chat = await self._chat(request, request.state.principal)
        turn = request.path_params["turn"]
        found = await chat.siblings(turn, limit=limit)
        shown = []
        for each in found:
            # One by one: they are alternatives, not consecutive turns.
            [hidden] = await chat.hidden([each.turn])
            is_current = each.turn.id == turn
            shown.append(
                Sibling(turn=show_turn(each.turn, hidden), branch=each.branch, is_current=is_current)
            )
        return json_response(Listing(tuple(shown)))

    async def _chat(self, request: Request, principal: Principal) -> Chat:
        id = request.path_params["chat"]
        return await self._chats(request, principal).conversation(id)

    def _chats(self, request: Request, principal: Principal, scope: str | None = None) -> Chats:
        authenticator, head = self._service.authenticator, request.state.head
        return authenticator.changeable_chats(principal, head, TokenScope.CHATS_WRITE, scope)


def move_options(service: Service, request: Request) -> MoveOptions:
    headers = read_supported_headers(request.scope["headers"], MOVE_HEADER_NAMES)
    policies = service.policy_defaults.complete(policies_of(headers), request.state.principal)
    return {
        "on_busy": policies.on_busy or OnBusy.QUEUE,
        "idempotency_key": text_of(headers, KEY),
    }


def _show_branch(listed: ListedBranch) -> Branch:
    branch = listed.branch
    return Branch(
        id=branch.id,
        is_current=listed.is_current,
        turns=branch.length,
        shared=branch.start,
        base=listed.base,
        head=branch.head,
        is_running=branch.running is not None,
        is_side=branch.is_side,
        preview=branch.preview,
    )


async def show_moved(
    principal: Principal, chat: Chat, branch: BranchId, turns: int, preview: str
) -> ListedChat:
    """Show the chat now, or after this change: it was made, even if the chat was deleted meanwhile."""
    try:
        listed = await chat.summary()
    except ConversationUnavailable:
        listed = ChatEntry(replace(chat.as_opened, branch=branch), turns, preview, is_running=False)
    return without_content(principal, show_listed(listed))


def endpoints(service: Service) -> list[Endpoint]:
    routes = BranchRoutes(service)
    page_size = Parameter(f"Page size; default {PAGE}.", PAGE_SIZE)
    return [
        Endpoint(
            route="GET /api/chats/{chat}/branches",
            handler=routes.branches,
            needs=TokenScope.CHATS_READ,
            summary="List the branches of a chat, newest first.",
            in_path=CHAT,
            query={
                "before": Parameter(
                    "Only branches created before the one with this id.", id_schema(BranchId)
                ),
                "limit": page_size,
            },
            content={200: BranchPage},
            responses={200: "A page of branches.", **GONE},
        ),
        Endpoint(
            route="GET /api/chats/{chat}/turns/{turn}/siblings",
            handler=routes.siblings,
            needs=TokenScope.CHATS_READ,
            summary="List the alternatives to a turn of the current branch, including itself.",
            in_path={**CHAT, "turn": Parameter("The id of a turn of the current branch.", id_schema(TurnId))},
            query={"limit": page_size},
            content={200: Listing[Sibling]},
            responses={200: "Each turn with a branch that contains it, oldest first.", **GONE},
        ),
        _move_endpoint("switch", routes.switch, SwitchBody, "Switch the chat to another branch."),
        _move_endpoint(
            "undo", routes.undo, UndoBody, "Undo the last turn: switch to a branch without it.", QUOTA_REACHED
        ),
        Endpoint(
            route="POST /api/chats/{chat}/fork",
            handler=routes.fork,
            needs=TokenScope.CHATS_WRITE,
            summary="Create a chat with the history of this one, up to a turn or to its end.",
            in_path=CHAT,
            headers={"Idempotency-Key": IDEMPOTENCY_KEY},
            body=ForkBody,
            needs_body=False,
            response_headers=REPLAYED,
            content={201: ListedChat},
            responses={201: "The new chat.", **GONE, 409: UNKEPT, 422: KEY_REUSED, **QUOTA_REACHED},
        ),
        Endpoint(
            route="POST /api/chats/reset",
            is_fixed_path=True,
            handler=routes.reset,
            needs=TokenScope.CHATS_WRITE,
            summary="Assign a conversation_key to a new chat. The old chat stays available by its id.",
            body=ResetBody,
            content={200: ListedChat},
            responses={
                200: "The chat that now has the conversation_key.",
                404: "The chat to replace does not exist.",
                409: UNKEPT,
                **QUOTA_REACHED,
            },
        ),
    ]


def _move_endpoint(
    name: str, handler: Handler, body: type[Struct], summary: str, statuses: Mapping[int, str] = NO_STATUSES
) -> Endpoint:
    return Endpoint(
        route=f"POST /api/chats/{{chat}}/{name}",
        handler=handler,
        needs=TokenScope.CHATS_WRITE,
        summary=summary,
        in_path=CHAT,
        headers=MOVE_HEADERS,
        body=body,
        needs_body=body is SwitchBody,
        content={200: ListedChat},
        responses={
            200: "The updated chat.",
            **GONE,
            409: "A turn is running there, or the last turn has changed.",
            422: KEY_REUSED,
            **statuses,
        },
    )
