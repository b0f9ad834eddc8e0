"""/api/chats/{id}: delete a chat, restorable for a while or permanently, and restore one."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.chats import Deleted, RestoredChat
from turnledger.api.views import show_chat, view
from turnledger.model.access.token import TokenScope
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.requests.query import yes_or_no
from turnledger.server.routes.chats import CHAT
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response
from turnledger.server.wire.shapes import without_words


def endpoints(service: Service) -> list[Endpoint]:

    async def delete(request: Request) -> Response:
        purge = yes_or_no(request.query_params.get("purge"), "purge", otherwise=False)
        who: Principal = request.state.principal
        deleted = await service.chats(who).delete(request.path_params["chat"], purge=purge)
        return json_response(view(Deleted, deleted))

    async def restore(request: Request) -> Response:
        who: Principal = request.state.principal
        chat = await service.chats(who).restore(request.path_params["chat"])
        former = chat.former_conversation_key
        # Not looked up again: it was restored, even if it was deleted meanwhile.
        restored = show_chat(RestoredChat, chat.as_opened, former_conversation_key=former)
        return json_response(without_words(who, restored))

    return [
        Endpoint(
            method="DELETE",
            path="/api/chats/{chat}",
            answer=delete,
            needs=TokenScope.CHATS_WRITE,
            summary="Delete a chat; a turn that runs there ends with it. Deleting it again changes nothing.",
            tag="chats",
            in_path=CHAT,
            query={
                "purge": Parameter(
                    "`true`: for good, also if it is deleted already. Else it can be restored for a while.",
                    {"type": "string", "enum": ["true", "false"]},
                )
            },
            content={200: Deleted},
            answers={200: "It is deleted; until when it can be restored.", 404: "There is none."},
        ),
        Endpoint(
            method="POST",
            path="/api/chats/{chat}/restore",
            answer=restore,
            needs=TokenScope.CHATS_WRITE,
            summary="Bring a deleted chat back. Restoring one that is not deleted changes nothing.",
            tag="chats",
            in_path=CHAT,
            content={200: RestoredChat},
            answers={
                200: "The chat as it was; without its conversation_key if that now names another chat.",
                404: "There is none.",
                410: "It is gone for good, or has expired.",
            },
        ),
    ]
