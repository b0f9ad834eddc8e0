"""/api/chats/{id}: look inside a conversation, its turns, and the attempts that never became any."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnledger.engine.reading import SetAside
from turnledger.errors import BranchNotFound
from turnledger.model.conversation import Conversation, NamedBy
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.listing import Listed
from turnledger.model.token import TokenScope
from turnledger.model.turn import Turn, TurnKind
from turnledger.server.admission import Principal
from turnledger.server.discreet_model import discreet_failure
from turnledger.server.endpoint import Endpoint, Parameter
from turnledger.server.query import HIGHEST, number_of
from turnledger.server.reading_along import as_readers_see
from turnledger.server.schemas import (
    FAILURE,
    ITEMS,
    NUMBER,
    PAGE_SIZE,
    STATE,
    TEXT,
    TIME,
    a_list,
    an_object,
    id_of,
    one_of,
    or_null,
)
from turnledger.server.service import Service
from turnledger.server.wire_json import encode

PAGE = 50
PAGE_BYTES = 1024 * 1024
"""Of turns on one page, and of attempts; one comes in any case, however large."""
ETAG = Parameter("Its revision, for `If-Match`.", {"type": "string", "pattern": '^"[0-9]+"$'})
TURN_NUMBER = {"type": "integer", "minimum": 0, "maximum": HIGHEST}
TURN = an_object(
    {
        "id": id_of(TurnId),
        "number": {"type": "integer", "minimum": 1},
        "kind": one_of(TurnKind),
        "parent": or_null(id_of(TurnId)),
        "created_at": TIME,
        "committed_at": TIME,
        "input": ITEMS,
        "output": ITEMS,
        "hidden": {
            **a_list({"type": "integer", "minimum": 0}),
            "description": "The places of items that are not for the user's eyes, counted from 0 through"
            " `input` and then `output`.",
        },
        "details": {"type": "object"},
    }
)
ATTEMPT = an_object(
    {
        "id": id_of(TurnId),
        "state": STATE,
        "failure": or_null(FAILURE),
        "created_at": TIME,
        "ended_at": or_null(TIME),
        "input": ITEMS,
        "steps": ITEMS,
        "partial": TEXT,
    }
)
_INFO = {
    "id": id_of(ConversationId),
    "conversation_key": or_null(TEXT),
    "scope": or_null(TEXT),
    "title": or_null(TEXT),
    "named_by": or_null({**one_of(NamedBy), "description": "Who gave it its title."}),
    "metadata": {"type": "object", "additionalProperties": TEXT},
    "tags": a_list(TEXT),
    "pinned": {"type": "boolean"},
    "archived": {"type": "boolean"},
    "revision": {**NUMBER, "description": "Of title, metadata, tags, pinned and archived."},
    "branch": id_of(BranchId),
    "created_at": TIME,
    "touched_at": TIME,
    "purge_at": or_null({**TIME, "description": "When one that is deleted goes for good."}),
}
CHAT_INFO = an_object(_INFO)
_LISTED = {
    **_INFO,
    "turn_count": {**NUMBER, "description": "Of the branch that it shows."},
    "preview": {**TEXT, "description": "How its last text begins."},
    "is_running": {"type": "boolean"},
}
LISTED_CHAT = an_object(_LISTED)
CHAT = an_object(
    {
        **_LISTED,
        "turns": a_list(TURN),
        "before": or_null(
            {"type": "integer", "minimum": 2, "description": "Where the page before this one ends."}
        ),
        "attempts": a_list(ATTEMPT),
    }
)


def endpoints(service: Service) -> list[Endpoint]:
    """`GET /api/chats/{chat}`."""

    async def one(request: Request) -> Response:
        query = request.query_params
        before = number_of(query.get("before"), "before", None)
        limit = number_of(query.get("limit"), "limit", PAGE)
        who: Principal = request.state.principal
        chat = await service.ledger.conversation(
            request.path_params["chat"], owner=who.owner, within=who.within
        )
        if who.is_reader and "branch" in query:
            raise BranchNotFound  # what its owner has edited or taken back is not for them
        turns = await chat.turns(
            before=before, limit=limit, most_bytes=PAGE_BYTES, branch=query.get("branch")
        )
        aside = await chat.attempts(limit=limit, most_bytes=PAGE_BYTES)
        listed = await chat.summary()
        hidden = await chat.hidden(turns)
        shown = {
            **listed_shown(listed),
            "turns": [turn_shown(*each) for each in zip(turns, hidden, strict=True)],
            "before": turns[0].number if turns and turns[0].number > 1 else None,
            "attempts": [aside_shown(each, who) for each in aside],
        }
        if who.is_reader:
            shown = await as_readers_see(chat, shown)
        headers = {"etag": etag_of(listed.conversation)}
        return Response(encode(shown), headers=headers, media_type="application/json")

    return [
        Endpoint(
            method="GET",
            path="/api/chats/{chat}",
            answer=one,
            needs=TokenScope.CHATS_READ,
            is_for_readers=True,
            summary="A conversation with its last turns, and its attempts that are not in the history.",
            tag="chats",
            in_path={"chat": Parameter("The id of a conversation.", id_of(ConversationId))},
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
            content={200: {"application/json": CHAT}},
            answers={200: "The conversation.", 404: "There is none.", 410: "It was deleted or has expired."},
        )
    ]


def about(conversation: Conversation) -> dict[str, Any]:
    """What is known of a conversation besides its history."""
    return {
        "id": conversation.id,
        "conversation_key": conversation.conversation_key,
        "scope": conversation.scope or None,
        "title": conversation.title,
        "named_by": conversation.named_by,
        "metadata": conversation.metadata,
        "tags": conversation.tags,
        "pinned": conversation.pinned,
        "archived": conversation.archived,
        "revision": conversation.revision,
        "branch": conversation.branch,
        "created_at": conversation.created_at,
        "touched_at": conversation.touched_at,
        "purge_at": conversation.purge_at,
    }


def listed_shown(listed: Listed) -> dict[str, Any]:
    """A conversation as a list shows it."""
    return {
        **about(listed.conversation),
        "turn_count": listed.turns,
        "preview": listed.preview,
        "is_running": listed.is_running,
    }


def without_words(who: Principal, shown: dict[str, Any]) -> dict[str, Any]:
    """The same, for who may change chats: without what was said there, unless he may read that, too. A name
    that a person gave is none of it."""
    if who.has(TokenScope.CHATS_READ):
        return shown
    title = shown["title"] if shown["named_by"] == NamedBy.PERSON else None
    return {**shown, "title": title, **({"preview": ""} if "preview" in shown else {})}


def etag_of(conversation: Conversation) -> str:
    """What an If-Match names. It tells one version of what people say of a chat from another: turns do not
    change it, nor do titles that nobody gave."""
    return f'"{conversation.revision}"'


def turn_shown(turn: Turn, hidden: Sequence[int] = ()) -> dict[str, Any]:
    """A committed turn, its items as they are stored, and which of them its user does not see."""
    return {
        "id": turn.id,
        "number": turn.number,
        "kind": turn.kind,
        "parent": turn.parent,
        "created_at": turn.created_at,
        "committed_at": turn.committed_at,
        "input": turn.input,
        "output": turn.output,
        "hidden": hidden,
        "details": turn.details,
    }


def aside_shown(aside: SetAside, who: Principal) -> dict[str, Any]:
    """An attempt that runs, failed or was discarded."""
    attempt = aside.attempt
    failure = discreet_failure(attempt.failure) if who.is_narrowed else attempt.failure
    return {
        "id": attempt.id,
        "state": attempt.state,
        "failure": failure,
        "created_at": attempt.created_at,
        "ended_at": attempt.ended_at,
        "input": attempt.input,
        "steps": aside.journal.items,
        "partial": attempt.partial,
    }
