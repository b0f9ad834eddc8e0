"""POST /api/turns: run a turn in an existing or new chat, edit one, or regenerate one."""

from __future__ import annotations

from turnledger.api.requests import TurnBody
from turnledger.api.turns import AcceptedTurn, TurnAnswer
from turnledger.model.access.token import TokenScope
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    QUOTA_REACHED,
)
from turnledger.server.requests.turn import TURN_HEADER_NAMES
from turnledger.server.routes.branches import REPLAYED
from turnledger.server.routes.completions import ANSWER_HEADERS, HEADERS
from turnledger.server.service import Service
from turnledger.server.turns.api import NATIVE
from turnledger.server.turns.run import TurnEndpoint


def endpoints(service: Service) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path="/api/turns",
            handler=TurnEndpoint(service, NATIVE),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary="Run a turn in an existing or new chat; edit or regenerate a turn.",
            tag="turns",
            headers={
                name: header for name, header in HEADERS.items() if name.lower().encode() in TURN_HEADER_NAMES
            },
            body=TurnBody,
            response_headers={
                **ANSWER_HEADERS,
                **REPLAYED,
                "Location": Parameter("Of a background turn: its state."),
            },
            content={200: {"application/json": TurnAnswer, "text/event-stream": {}}, 202: AcceptedTurn},
            responses={
                200: "The committed turn, or a stream of its events as from `/api/turns/{turn}/events`. It"
                " begins as soon as the turn is queued, and reports a failure as an `error` event.",
                202: "With `background`: the turn is stored; Location names its state.",
                404: "Chat, turn or model not found.",
                409: "The chat is busy or not stored here, or the turn was stopped.",
                410: "The chat was deleted or has expired.",
                422: "The Idempotency-Key was used with another request.",
                502: "The model gave no complete answer. The history is unchanged.",
                503: "The server is shutting down, its store is unavailable, or the outcome of the"
                " commit is unknown.",
                504: "The model timed out. The history is unchanged.",
                **QUOTA_REACHED,
            },
        )
    ]
