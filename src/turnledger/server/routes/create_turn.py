"""POST /api/turns: run a turn in an existing or new chat, edit one, or regenerate one."""

from __future__ import annotations

from turnledger.api.requests import TurnBody
from turnledger.api.turns import TurnAnswer
from turnledger.model.access.token import TokenScope
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.openapi.schemas import (
    FULL,
)
from turnledger.server.requests.turn import OF_TURNS
from turnledger.server.routes.completions import ANSWER_HEADERS, HEADERS
from turnledger.server.service import Service
from turnledger.server.turns.api import NATIVE
from turnledger.server.turns.run import TurnEndpoint


def endpoints(service: Service) -> list[Endpoint]:
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
            body=TurnBody,
            answer_headers=ANSWER_HEADERS,
            content={200: {"application/json": TurnAnswer, "text/event-stream": {}}},
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
