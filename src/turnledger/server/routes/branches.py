"""/api/chats/{id}/…: which turns a chat shows: fork, switch, undo, reset; its branches, and siblings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from turnledger.chat import Chat
from turnledger.engine.admission import Readmit
from turnledger.engine.conversations.read import ListedBranch
from turnledger.engine.lifecycle.moves import Sibling
from turnledger.engine.turn.validation import METADATA_PAIRS, TEXT_LENGTH, MoveOptions
from turnledger.errors import ConversationUnavailable
from turnledger.model.access.token import TokenScope
from turnledger.model.attempt import OnBusy
from turnledger.model.catalogue import Listed
from turnledger.model.conversation import Branch
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Answering, Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    FULL,
    NAME,
    NUMBER,
    PAGE_SIZE,
    SCOPE,
    TEXT,
    Schema,
    a_list,
    an_object,
    id_of,
    one_of,
    or_null,
)
from turnledger.server.requests.body import decode_body, read_small_body
from turnledger.server.requests.query import number_of
from turnledger.server.requests.turn import KEY, OF_MAKING, OF_MOVES, named_among, policies_of, text_of
from turnledger.server.routes.chats import PAGE
from turnledger.server.service import Service
from turnledger.server.wire.json import encode
from turnledger.server.wire.shapes import LISTED_CHAT, TURN, listed_shown, turn_shown, without_words

_JSON = "application/json"
CHAT = {"chat": Parameter("The id of a conversation.", id_of(ConversationId))}
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
        "`true`: it was done before, and is told again.", {"type": "string", "enum": ["true"]}
    )
}
UNKEPT = "Chats of this scope are not kept here."
OTHERWISE = "The Idempotency-Key was used with another request."
BRANCH = an_object(
    {
        "id": id_of(BranchId),
        "is_current": {"type": "boolean"},
        "turns": {**NUMBER, "description": "How many its line has."},
        "shared": {**NUMBER, "description": "How many of them it has from the branch it was made from."},
        "base": or_null({**id_of(TurnId), "description": "The turn it was made from."}),
        "head": or_null({**id_of(TurnId), "description": "Its last turn."}),
        "is_running": {"type": "boolean"},
        "preview": {**TEXT, "description": "The beginning of what was last said there."},
    }
)
BRANCHES = an_object({"data": a_list(BRANCH), "next": or_null(id_of(BranchId))})
SIBLING = an_object({"turn": TURN, "branch": id_of(BranchId), "is_current": {"type": "boolean"}})
SIBLINGS = an_object({"data": a_list(SIBLING)})
_METADATA: Schema = {
    "type": "object",
    "additionalProperties": {"type": "string", "maxLength": TEXT_LENGTH},
    "maxProperties": METADATA_PAIRS,
}


def _only(fields: Mapping[str, Schema], *, optional: Mapping[str, Schema] | None = None) -> Schema:
    """An object of these fields and no others: one that is misspelt must not be passed over."""
    return {**an_object(fields, optional=optional), "additionalProperties": False}


FORK: Schema = _only(
    {},
    optional={
        "turn": or_null({**id_of(TurnId), "description": "The last turn that both have."}),
        "title": or_null({"type": "string", "maxLength": TEXT_LENGTH}),
        "metadata": or_null(_METADATA),
        "conversation_key": or_null(NAME),
    },
)
SWITCH: Schema = _only({"branch": id_of(BranchId)})
UNDO: Schema = _only(
    {},
    optional={
        "turn": or_null({**id_of(TurnId), "description": "Only if this is the last turn."}),
        "forget": {"type": "boolean", "description": "Whether it goes with what its tools did."},
    },
)
RESET: Schema = _only(
    {"conversation_key": NAME},
    optional={
        "scope": or_null(SCOPE),
        "replaces": or_null({**id_of(ConversationId), "description": "Only if the key names this one."}),
    },
)


class ForkBody(msgspec.Struct, forbid_unknown_fields=True):
    turn: str | None = None
    title: str | None = None
    metadata: dict[str, str] | None = None
    conversation_key: str | None = None


class SwitchBody(msgspec.Struct, forbid_unknown_fields=True):
    branch: str


class UndoBody(msgspec.Struct, forbid_unknown_fields=True):
    turn: str | None = None
    forget: bool = False


class ResetBody(msgspec.Struct, forbid_unknown_fields=True):
    conversation_key: str
    scope: str | None = None
    replaces: str | None = None


_forks = msgspec.json.Decoder(ForkBody)
_switches = msgspec.json.Decoder(SwitchBody)
_undos = msgspec.json.Decoder(UndoBody)
_resets = msgspec.json.Decoder(ResetBody)
Body = TypeVar("Body", ForkBody, SwitchBody, UndoBody, ResetBody)


class BranchRoutes:
    """The functions behind the paths."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def fork(self, request: Request) -> Response:
        """Make a chat that begins as this one does."""
        asked, who = await self._asked(request, _forks)
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
        told = without_words(who, listed_shown(await made.summary()))
        return Response(encode(told), 201, replayed, media_type=_JSON)

    async def switch(self, request: Request) -> Response:
        """Show another branch."""
        asked, who = await self._asked(request, _switches)
        chat = await self._chat(request, who)
        return await _moved(who, chat, await chat.switch(asked.branch, **self._options(request, who)))

    async def undo(self, request: Request) -> Response:
        """Take back the last turn."""
        asked, who = await self._asked(request, _undos)
        chat = await self._chat(request, who)
        shown = await chat.undo(asked.turn, forget=asked.forget, **self._options(request, who))
        return await _moved(who, chat, shown)

    async def reset(self, request: Request) -> Response:
        """Give a conversation_key to a fresh chat."""
        asked, who = await self._asked(request, _resets)
        named_among(request.scope["headers"], frozenset())
        who.check_chat_scope(asked.scope)
        self._service.keeping.check(asked.scope or who.within.scope or "")
        chat = await self._service.ledger.reset(
            asked.conversation_key,
            owner=who.owner,
            scope=asked.scope or "",
            within=who.within,
            replaces=asked.replaces,
            admitted=who.version,
            readmit=self._readmit(request),
        )
        return _told(without_words(who, listed_shown(await chat.summary())))

    async def branches(self, request: Request) -> Response:
        """List the branches of a chat."""
        query, who = request.query_params, request.state.principal
        limit = number_of(query.get("limit"), "limit", PAGE)
        chat = await self._chat(request, who)
        found = await chat.branches(before=query.get("before"), limit=limit)
        following = found[-1].branch.id if len(found) == limit else None
        return _told({"data": [branch_shown(each) for each in found], "next": following})

    async def siblings(self, request: Request) -> Response:
        """List the turns at the place of a turn."""
        limit = number_of(request.query_params.get("limit"), "limit", PAGE)
        chat = await self._chat(request, request.state.principal)
        turn = request.path_params["turn"]
        found = await chat.siblings(turn, limit=limit)
        # Each by itself: none of them goes on where another ends.
        hidden = [(await chat.hidden([each.turn]))[0] for each in found]
        return _told({"data": [sibling_shown(*each, turn) for each in zip(found, hidden, strict=True)]})

    async def _asked(self, request: Request, decoder: msgspec.json.Decoder[Body]) -> tuple[Body, Principal]:
        """What the body says, and who asks: it may have taken its time, in which his token may have ended."""
        limits = self._service.settings.limits
        body = await read_small_body(request.scope, request.receive, limits)
        asked = decode_body(body if body.strip() else b"{}", decoder)
        return asked, await self._service.admission.admit(request.state.head)

    async def _chat(self, request: Request, who: Principal) -> Chat:
        id = request.path_params["chat"]
        return await self._service.ledger.conversation(id, owner=who.owner, within=who.within)

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


def branch_shown(line: ListedBranch) -> dict[str, Any]:
    """A branch, as it is listed."""
    branch = line.branch
    return {
        "id": branch.id,
        "is_current": line.is_current,
        "turns": branch.length,
        "shared": branch.start,
        "base": line.base,
        "head": branch.head,
        "is_running": branch.running is not None,
        "preview": branch.preview,
    }


def sibling_shown(sibling: Sibling, hidden: Sequence[int], asked_for: str) -> dict[str, Any]:
    """A turn at the place of another, and the branch that shows it."""
    turn = sibling.turn
    return {"turn": turn_shown(turn, hidden), "branch": sibling.branch, "is_current": turn.id == asked_for}


async def _moved(who: Principal, chat: Chat, shown: Branch) -> Response:
    """The chat as it is now, or as this left it: it was done, also if somebody has deleted it since."""
    try:
        listed = await chat.summary()
    except ConversationUnavailable:
        moved = replace(chat.as_opened, branch=shown.id)
        listed = Listed(moved, shown.length, shown.preview, is_running=False)
    return _told(without_words(who, listed_shown(listed)))


def _told(answer: Any) -> Response:
    return Response(encode(answer), media_type=_JSON)


def endpoints(service: Service) -> list[Endpoint]:
    """`/api/chats/{chat}/fork`, `switch`, `undo`, `branches`, `turns/{turn}/siblings`; `/api/chats/reset`."""
    routes = BranchRoutes(service)
    return [*_looks(routes), *_moves(routes)]


def _moves(routes: BranchRoutes) -> list[Endpoint]:
    return [
        _move("switch", routes.switch, SWITCH, "Show another branch of the chat, and go on there."),
        _move("undo", routes.undo, UNDO, "Take back the last turn: show a branch without it.", FULL),
        Endpoint(
            method="POST",
            path="/api/chats/{chat}/fork",
            answer=routes.fork,
            needs=TokenScope.CHATS_WRITE,
            summary="Make a chat that begins as this one does, up to a turn or to its end.",
            tag="branches",
            in_path=CHAT,
            headers={"Idempotency-Key": ONCE},
            body=FORK,
            needs_body=False,
            answer_headers=REPLAYED,
            content={201: {_JSON: LISTED_CHAT}},
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
            body=RESET,
            content={200: {_JSON: LISTED_CHAT}},
            answers={
                200: "The chat that the conversation_key names from now on.",
                404: "There is no such chat to replace.",
                409: UNKEPT,
                **FULL,
            },
        ),
    ]


def _move(
    name: str, answer: Answering, body: Schema, summary: str, more: Mapping[int, str] = NOTHING_MORE
) -> Endpoint:
    """What shows other turns of the same chat."""
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
        needs_body=bool(body["required"]),
        content={200: {_JSON: LISTED_CHAT}},
        answers={
            200: "The chat as it is now.",
            **GONE,
            409: "A turn runs there, or another one is the last by now.",
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
            content={200: {_JSON: BRANCHES}},
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
            content={200: {_JSON: SIBLINGS}},
            answers={200: "Each with a branch that shows it, the first made first.", **GONE},
        ),
    ]
