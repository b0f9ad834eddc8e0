"""/api/chats/{id}: delete a chat, restorable for a while or permanently, and restore one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.chats import Deletion, RestoredChat
from turnledger.api.views import show_chat, view
from turnledger.model.access.token import TokenScope
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.requests.query import flag_of
from turnledger.server.routes.chat_history import CHAT
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import without_content


def endpoints(service: Service) -> list[Endpoint]:

    async def delete(request: Request) -> Response:
        purge = flag_of(request.query_params.get("purge"), "purge", default=False)
        principal: Principal = request.state.principal
        deleted = await service.chats(principal).delete(request.path_params["chat"], purge=purge)
        return json_response(view(Deletion, deleted))

    async def restore(request: Request) -> Response:
        principal: Principal = request.state.principal
        chat = await service.chats(principal).restore(request.path_params["chat"])
        former = chat.former_conversation_key
        # Not looked up again: it was restored, even if it was deleted meanwhile.
        restored = show_chat(RestoredChat, chat.as_opened, former_conversation_key=former)
        return json_response(without_content(principal, restored))

    return [
        Endpoint(
            method="DELETE",
            path="/api/chats/{chat}",
            handler=delete,
            needs=TokenScope.CHATS_WRITE,
            summary="Delete a chat, and end its running turn. Idempotent.",
            in_path=CHAT,
            query={
                "purge": Parameter(
                    "`true`: delete permanently, even if already deleted. Default: restorable for a while.",
                    {"type": "string", "enum": ["true", "false"]},
                )
            },
            content={200: Deletion},
            responses={200: "The chat is deleted; until when it can be restored.", 404: "Chat not found."},
        ),
        Endpoint(
            method="POST",
            path="/api/chats/{chat}/restore",
            handler=restore,
            needs=TokenScope.CHATS_WRITE,
            summary="Restore a deleted chat. Has no effect on one that is not deleted.",
            in_path=CHAT,
            content={200: RestoredChat},
            responses={
                200: "The restored chat; without its conversation_key if another chat now has it.",
                404: "Chat not found.",
                410: "The chat was purged or has expired.",
            },
        ),
    ]
