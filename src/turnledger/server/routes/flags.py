"""PATCH /api/chats/{chat}/turns/{turn}: show items of a turn to the model and the user, or hide them."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.requests import FlagsBody
from turnledger.api.turns import TurnFlags
from turnledger.api.views import show_flags
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import TurnId
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import id_schema
from turnledger.server.routes.chat_history import CHAT
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response


def endpoints(service: Service) -> list[Endpoint]:

    async def flag(request: Request) -> Response:
        body, principal = await service.read_request(request, FlagsBody)
        turn, chat = request.path_params["turn"], await service.chat_in(request, principal)
        hidden = await chat.flag(turn, body.items, to_model=body.to_model, to_user=body.to_user)
        return json_response(show_flags(turn, hidden))

    return [
        Endpoint(
            route="PATCH /api/chats/{chat}/turns/{turn}",
            handler=flag,
            needs=TokenScope.CHATS_WRITE,
            summary="Show or hide items of a committed turn. Running turns are not affected.",
            in_path={**CHAT, "turn": Parameter("The id of a committed turn.", id_schema(TurnId))},
            body=FlagsBody,
            content={200: TurnFlags},
            responses={
                200: "The hidden items of the turn.",
                404: "Chat or turn not found.",
                410: "The chat was deleted or has expired.",
            },
        )
    ]
