"""Turns to add: run one in an existing or new chat, edit or regenerate one, or append one that no model
answers."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.requests import AppendBody, TurnBody
from turnledger.api.turns import AcceptedTurn, TurnAnswer
from turnledger.api.views import show_turn
from turnledger.model.access.token import TokenScope
from turnledger.model.turn import BeginKind
from turnledger.server.errors import input_field
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    APPEND_ERRORS,
    TURN_ERRORS,
)
from turnledger.server.requests.turn import TURN_HEADER_NAMES
from turnledger.server.routes.branches import (
    GONE,
    MOVE_HEADERS,
    REPLAYED,
    move_options,
    show_moved,
)
from turnledger.server.routes.chat_history import CHAT
from turnledger.server.routes.completions import ANSWER_HEADERS, HEADERS
from turnledger.server.service import Service
from turnledger.server.turns.native import NATIVE
from turnledger.server.turns.run import TurnEndpoint
from turnledger.server.wire.json import json_response


def endpoints(service: Service) -> list[Endpoint]:

    async def append(request: Request) -> Response:
        with service.quotas.admit_turn(request.state.principal.caller):
            options = move_options(service, request)
            body, principal = await service.read_request(request, AppendBody, is_small=False)
            chats = service.authenticator.changeable_chats(
                principal, request.state.head, TokenScope.TURNS_RUN
            )
            chat = await chats.conversation(request.path_params["chat"])
            service.persistence.check(chat.scope)
            turn = await chat.append(
                body.items, details=body.details, interaction=body.interaction, **options
            )
            answer = TurnAnswer(
                turn=show_turn(turn),
                chat=await show_moved(principal, chat, turn.branch, turn.number, ""),
                branch=turn.branch,
                state=BeginKind.CONTINUED,
            )
            return json_response(answer)

    return [
        Endpoint(
            route="POST /api/turns",
            handler=TurnEndpoint(service, NATIVE),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary="Run a turn in an existing or new chat; edit or regenerate a turn.",
            headers={
                name: header for name, header in HEADERS.items() if name.lower().encode() in TURN_HEADER_NAMES
            },
            body=TurnBody,
            fields=input_field("input"),
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
                **TURN_ERRORS,
            },
        ),
        Endpoint(
            route="POST /api/chats/{chat}/items",
            handler=append,
            needs=TokenScope.TURNS_RUN,
            summary="Add a turn that no model answers, such as messages from another system.",
            in_path=CHAT,
            headers=MOVE_HEADERS,
            body=AppendBody,
            fields=input_field("items"),
            content={200: TurnAnswer},
            responses={
                200: "The committed turn.",
                **GONE,
                **APPEND_ERRORS,
            },
        ),
    ]
