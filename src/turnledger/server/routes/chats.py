"""/api/chats/{id}: look inside a conversation, its turns, and the attempts that never became any."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from turnledger.engine.reading import SetAside
from turnledger.model.conversation import Conversation
from turnledger.model.token import TokenScope
from turnledger.model.turn import Turn
from turnledger.server.admission import Principal
from turnledger.server.endpoint import Endpoint
from turnledger.server.query import number_of
from turnledger.server.service import Service
from turnledger.server.wire_json import encode

PAGE = 50


def endpoints(service: Service) -> list[Endpoint]:
    """`GET /api/chats/{chat}`."""

    async def one(request: Request) -> Response:
        query = request.query_params
        before = number_of(query.get("before"), "before")
        limit = number_of(query.get("limit"), "limit") or PAGE
        who: Principal = request.state.principal
        chat = await service.ledger.conversation(
            request.path_params["chat"], owner=who.owner, within=who.within
        )
        shown = {
            **about(await chat.info()),
            "turns": [turn_shown(turn) for turn in await chat.turns(before=before, limit=limit)],
            "attempts": [aside_shown(each) for each in await chat.attempts(limit=limit)],
        }
        return Response(encode(shown), media_type="application/json")

    return [
        Endpoint(
            method="GET",
            path="/api/chats/{chat}",
            answer=one,
            needs=TokenScope.CHATS_READ,
            summary="A conversation with its last turns, and its attempts that are not in the history.",
            tag="chats",
            query={
                "before": "Turns before the one of this number.",
                "limit": f"So many turns and attempts at most; {PAGE} if it is left out.",
            },
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
        "metadata": conversation.metadata,
        "revision": conversation.revision,
        "branch": conversation.branch,
        "created_at": conversation.created_at,
        "touched_at": conversation.touched_at,
    }


def turn_shown(turn: Turn) -> dict[str, Any]:
    """A committed turn, its items as they are stored."""
    return {
        "id": turn.id,
        "number": turn.number,
        "kind": turn.kind,
        "parent": turn.parent,
        "created_at": turn.created_at,
        "committed_at": turn.committed_at,
        "input": turn.input,
        "output": turn.output,
        "details": turn.details,
    }


def aside_shown(aside: SetAside) -> dict[str, Any]:
    """An attempt that runs, failed or was discarded."""
    attempt = aside.attempt
    return {
        "id": attempt.id,
        "state": attempt.state,
        "failure": attempt.failure,
        "created_at": attempt.created_at,
        "ended_at": attempt.ended_at,
        "input": attempt.input,
        "steps": aside.journal.items,
        "partial": attempt.partial,
    }
