"""/api/usage: turns, tokens and bytes by owner and model, counted page by page."""

from __future__ import annotations

from base64 import b64decode, b64encode

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.access import ModelUsage
from turnledger.api.chats import Page
from turnledger.api.views import view
from turnledger.engine.usage import TURNS
from turnledger.errors import InvalidInput
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response

CURSOR = b"usage"
"""The purpose of the seal on cursors: they name turns of any owner."""


def endpoints(service: Service) -> list[Endpoint]:

    async def count(request: Request) -> Response:
        principal: Principal = request.state.principal
        seal, cursor = await service.cursor_seal.get(), request.query_params.get("cursor")
        after = None if cursor is None else seal.unseal(CURSOR, cursor)
        if cursor is not None and after is None:
            raise InvalidInput("Invalid cursor. Pass `next` from the previous page.")
        last = None if after is None else TurnId.trusted(b64decode(after))
        page = await service.host.usage(after=last, within=principal.within)
        # A seal has room for the bytes of an id, not for its text.
        next_cursor = None if page.next is None else seal.seal(CURSOR, b64encode(page.next.raw).decode())
        return json_response(Page(tuple(view(ModelUsage, each) for each in page.data), next_cursor))

    return [
        Endpoint(
            method="GET",
            path="/api/usage",
            handler=count,
            needs=TokenScope.ADMIN,
            summary="Count turns, tokens and bytes by owner and model, of the next stored turns.",
            tag="tokens",
            query={"cursor": Parameter("The `next` of the previous page.")},
            content={200: Page[ModelUsage]},
            responses={
                200: f"What up to {TURNS:,} turns used. Add up the pages until `next` is null. A token that "
                "is narrowed to a scope counts turns of that scope."
            },
        )
    ]
