"""Chats, turns and attempts as the API sends them, and their schemas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnledger.engine.conversations.read import SetAside
from turnledger.model.access.token import TokenScope
from turnledger.model.catalogue import Listed
from turnledger.model.conversation import Conversation, NamedBy
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Turn, TurnKind
from turnledger.server.access.auth import Principal
from turnledger.server.models.redacted import discreet_failure
from turnledger.server.openapi.endpoint import Parameter
from turnledger.server.openapi.schemas import (
    FAILURE,
    ITEMS,
    NUMBER,
    STATE,
    TEXT,
    TIME,
    a_list,
    an_object,
    id_of,
    one_of,
    or_null,
)

ETAG = Parameter("Its revision, for `If-Match`.", {"type": "string", "pattern": '^"[0-9]+"$'})
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
