"""POST /api/turns: ask for a turn, in a chat that is named or new; edit one; have one generated again."""

from __future__ import annotations

from turnledger.model.access.token import TokenScope
from turnledger.model.attempt import Began
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.openapi.schemas import (
    FULL,
    NAME,
    SCOPE,
    TEXT,
    Schema,
    a_list,
    an_object,
    id_of,
    one_of,
    or_null,
)
from turnledger.server.requests.turn import OF_TURNS
from turnledger.server.routes.completions import ANSWER_HEADERS, HEADERS
from turnledger.server.service import Service
from turnledger.server.turns.api import NATIVE
from turnledger.server.turns.run import TurnEndpoint
from turnledger.server.wire.shapes import LISTED_CHAT, TURN

_YES_OR_NO = {"type": ["boolean", "null"]}
_SAID: Schema = {"anyOf": [TEXT, a_list({"anyOf": [TEXT, {"type": "object"}]})]}
BODY: Schema = {
    **an_object(
        {"model": TEXT},
        optional={
            "input": {
                **_SAID,
                "description": "What is new: a text, or items of the Responses shape, or chat messages.",
            },
            "chat": or_null({**id_of(ConversationId), "description": "The chat; without any, a new one."}),
            "conversation_key": or_null({**NAME, "description": "Or your own name for it."}),
            "scope": or_null({**SCOPE, "description": "The application that a new chat is for."}),
            "instructions": or_null(
                {**_SAID, "description": "In force from this turn on; an empty text ends those in force."}
            ),
            "primer": or_null(
                {
                    **_SAID,
                    "description": "A history of your own, shown to the model before the stored one, in this"
                    " turn only; it is not kept. Each of its calls has its result.",
                }
            ),
            "replaces": or_null({**id_of(TurnId), "description": "An edit: the turn whose place it takes."}),
            "regenerates": {
                "anyOf": [{"type": "boolean"}, id_of(TurnId), {"type": "null"}],
                "description": "Ask the input of this turn, or of the last one, once more.",
            },
            "stream": _YES_OR_NO,
            "settings": or_null(
                {
                    "type": "object",
                    "description": "What else the model is asked with: `temperature`, `tools`, …",
                }
            ),
        },
    ),
    "additionalProperties": False,
}
TOLD: Schema = an_object(
    {"turn": TURN, "chat": LISTED_CHAT, "branch": id_of(BranchId), "state": one_of(Began)},
)


def endpoints(service: Service) -> list[Endpoint]:
    """`POST /api/turns`."""
    return [
        Endpoint(
            method="POST",
            path="/api/turns",
            answer=TurnEndpoint(service, NATIVE),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary="Run a turn of a chat that is named or new; edit one, or have it generated again.",
            tag="turns",
            headers={name: about for name, about in HEADERS.items() if name.lower().encode() in OF_TURNS},
            body=BODY,
            answer_headers=ANSWER_HEADERS,
            content={200: {"application/json": TOLD, "text/event-stream": {}}},
            answers={
                200: "The turn as committed; or a stream of its events, as `/api/turns/{turn}/events` tells"
                " them. It begins with comments while the turn waits for others; what ends that wait is an"
                " event called `error` then.",
                404: "No such chat, turn or model.",
                409: "The chat is busy, is not kept here, or the turn was stopped.",
                410: "The chat was deleted or has expired.",
                422: "The Idempotency-Key was used with another request.",
                502: "The model gave no whole answer. The history is as it was.",
                503: "The server is about to end, its store cannot be reached, or the outcome of the"
                " commit is unknown.",
                504: "The model took too long. The history is as it was.",
                **FULL,
            },
        )
    ]
