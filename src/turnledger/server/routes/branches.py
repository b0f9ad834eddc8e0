"""/api/chats/{id}/…: fork, switch, undo, reset; branches and siblings."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from msgspec import Struct
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.chats import ListedChat, Listing
from turnledger.api.requests import ForkBody, ResetBody, SwitchBody, UndoBody
from turnledger.api.turns import Branch, BranchPage, Sibling
from turnledger.api.views import show_listed, show_turn
from turnledger.chat import Chat
from turnledger.engine.admission import Readmit
from turnledger.engine.conversations.read import ListedBranch
from turnledger.engine.turn.validation import MoveOptions
from turnledger.errors import ConversationUnavailable
from turnledger.model.access.token import TokenScope
from turnledger.model.catalogue import Listed
from turnledger.model.conversation import Branch as ShownBranch
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.turn import OnBusy
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Answering, Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    FULL,
    PAGE_SIZE,
    id_of,
    one_of,
)
from turnledger.server.requests.query import number_of
from turnledger.server.requests.turn import KEY, OF_MAKING, OF_MOVES, named_among, policies_of, text_of
from turnledger.server.routes.chats import CHAT, PAGE
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import without_words

GONE = {404: "There is no such chat, turn or branch.", 410: "The chat was deleted or has expired."}
NOTHING_MORE: Mapping[int, str] = {}
ONCE = Parameter(
    "Names the request, so that it happens once however often it is sent.", {"type": "string", "minLength": 1}
)
MOVE_HEADERS = {
    "X-Turn-On-Busy": Parameter(
        "While a turn runs: `queue`, `reject`, `interrupt` or `rollback`.", one_of(OnBusy)
    ),
    "Idempotency-Key": ONCE,
}
REPLAYED = {
    "Idempotency-Replayed": Parameter(
        "`true`: it was done before, and is replayed.", {"type": "string", "enum": ["true"]}
    )
}
UNKEPT = "Chats of this scope are not kept here."
OTHERWISE = "The Idempotency-Key was used with another request."


class BranchRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def fork(self, request: Request) -> Response:
        """Create a chat that shares the first turns of this one."""
        asked, who = await self._service.asked(request, ForkBody)
        key = text_of(named_among(request.scope["headers"], OF_MAKING), KEY)
        chat = await self._chat(request, who)
        self._service.keeping.check(chat.scope)
        made = await chat.fork(
            asked.turn,
            title=asked.title,
            metadata=asked.metadata,
            conversation_key=asked.conversation_key,
            idempotency_key=key,
            admitted=who.version,
            readmit=self._readmit(request),
        )
        replayed = {} if made.is_new else {"idempotency-replayed": "true"}
        shown = without_words(who, show_listed(await made.summary()))
        return json_response(shown, 201, replayed)

    async def switch(self, request: Request) -> Response:
        asked, who = await self._service.asked(request, SwitchBody)
        chat = await self._chat(request, who)
        return await _moved(who, chat, await chat.switch(asked.branch, **self._options(request, who)))

    async def undo(self, request: Request) -> Response:
        asked, who = await self._service.asked(request, UndoBody)
        chat = await self._chat(request, who)
        shown = await chat.undo(asked.turn, forget=asked.forget, **self._options(request, who))
        return await _moved(who, chat, shown)

    async def reset(self, request: Request) -> Response:
        asked, who = await self._service.asked(request, ResetBody)
        named_among(request.scope["headers"], frozenset())
        who.check_chat_scope(asked.scope)
        self._service.keeping.check(asked.scope or who.within.scope or "")
        chat = await self._service.chats(who, scope=asked.scope or "").reset(
            asked.conversation_key,
            replaces=asked.replaces,
            admitted=who.version,
            readmit=self._readmit(request),
        )
        return json_response(without_words(who, show_listed(await chat.summary())))

    async def branches(self, request: Request) -> Response:
        query, who = request.query_params, request.state.principal
        limit = number_of(query.get("limit"), "limit", PAGE)
        chat = await self._chat(request, who)
        found = await chat.branches(before=query.get("before"), limit=limit)
        following = found[-1].branch.id if len(found) == limit else None
        return json_response(BranchPage(tuple(map(_branch_shown, found)), following))

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

    async def _chat(self, request: Request, who: Principal) -> Chat:
        id = request.path_params["chat"]
        return await self._service.chats(who).conversation(id)

    def _readmit(self, request: Request) -> Readmit:
        return partial(self._service.admission.readmit, request.state.head, TokenScope.CHATS_WRITE)

    def _options(self, request: Request, who: Principal) -> MoveOptions:
        named = named_among(request.scope["headers"], OF_MOVES)
        return {
            "on_busy": policies_of(named).on_busy or OnBusy.QUEUE,
            "idempotency_key": text_of(named, KEY),
            "admitted": who.version,
            "admitted_until": who.until,
            "readmit": self._readmit(request),
        }


def _branch_shown(line: ListedBranch) -> Branch:
    branch = line.branch
    return Branch(
        id=branch.id,
        is_current=line.is_current,
        turns=branch.length,
        shared=branch.start,
        base=line.base,
        head=branch.head,
        is_running=branch.running is not None,
        preview=branch.preview,
    )


async def _moved(who: Principal, chat: Chat, shown: ShownBranch) -> Response:
    """Respond with the chat now, or after this change: it was made, even if the chat was deleted
    meanwhile."""
    try:
        listed = await chat.summary()
    except ConversationUnavailable:
        moved = replace(chat.as_opened, branch=shown.id)
        listed = Listed(moved, shown.length, shown.preview, is_running=False)
    return json_response(without_words(who, show_listed(listed)))


def endpoints(service: Service) -> list[Endpoint]:
    routes = BranchRoutes(service)
    return [*_looks(routes), *_moves(routes)]


def _moves(routes: BranchRoutes) -> list[Endpoint]:
    return [
        _move("switch", routes.switch, SwitchBody, "Show another branch of the chat, and go on there."),
        _move("undo", routes.undo, UndoBody, "Take back the last turn: show a branch without it.", FULL),
        Endpoint(
            method="POST",
            path="/api/chats/{chat}/fork",
            answer=routes.fork,
            needs=TokenScope.CHATS_WRITE,
            summary="Make a chat that begins as this one does, up to a turn or to its end.",
            tag="branches",
            in_path=CHAT,
            headers={"Idempotency-Key": ONCE},
            body=ForkBody,
            needs_body=False,
            answer_headers=REPLAYED,
            content={201: ListedChat},
            answers={201: "The chat that was made.", **GONE, 409: UNKEPT, 422: OTHERWISE, **FULL},
        ),
        Endpoint(
            method="POST",
            path="/api/chats/reset",
            is_apart=True,
            answer=routes.reset,
            needs=TokenScope.CHATS_WRITE,
            summary="Give a conversation_key to a fresh chat. The old one stays, under its id.",
            tag="branches",
            body=ResetBody,
            content={200: ListedChat},
            answers={
                200: "The chat that the conversation_key names from now on.",
                404: "There is no such chat to replace.",
                409: UNKEPT,
                **FULL,
            },
        ),
    ]


def _move(
    name: str, answer: Answering, body: type[Struct], summary: str, more: Mapping[int, str] = NOTHING_MORE
) -> Endpoint:
    return Endpoint(
        method="POST",
        path=f"/api/chats/{{chat}}/{name}",
        answer=answer,
        needs=TokenScope.CHATS_WRITE,
        summary=summary,
        tag="branches",
        in_path=CHAT,
        headers=MOVE_HEADERS,
        body=body,
        needs_body=body is SwitchBody,
        content={200: ListedChat},
        answers={
            200: "The chat as it is now.",
            **GONE,
            409: "A turn is running there, or the last turn has changed.",
            422: OTHERWISE,
            **more,
        },
    )


def _looks(routes: BranchRoutes) -> list[Endpoint]:
    many = Parameter(f"So many at most; {PAGE} if it is left out.", PAGE_SIZE)
    return [
        Endpoint(
            method="GET",
            path="/api/chats/{chat}/branches",
            answer=routes.branches,
            needs=TokenScope.CHATS_READ,
            summary="List the branches of a chat, the last made first.",
            tag="branches",
            in_path=CHAT,
            query={
                "before": Parameter("Branches made before the one with this id.", id_of(BranchId)),
                "limit": many,
            },
            content={200: BranchPage},
            answers={200: "A page of them.", **GONE},
        ),
        Endpoint(
            method="GET",
            path="/api/chats/{chat}/turns/{turn}/siblings",
            answer=routes.siblings,
            needs=TokenScope.CHATS_READ,
            summary="List the turns at the place of one that the chat shows, itself included.",
            tag="branches",
            in_path={**CHAT, "turn": Parameter("The id of a turn that the chat shows.", id_of(TurnId))},
            query={"limit": many},
            content={200: Listing[Sibling]},
            answers={200: "Each with a branch that shows it, the first made first.", **GONE},
        ),
    ]
