"""/api/jobs: the background turns that wait or run."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.turns import JobPage
from turnledger.api.views import show_job
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import ConversationId, TurnId
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import PAGE_SIZE, id_schema
from turnledger.server.requests.query import number_of
from turnledger.server.routes.chat_history import PAGE
from turnledger.server.service import Service
from turnledger.server.wire.json import json_response


def endpoints(service: Service) -> list[Endpoint]:

    async def list_jobs(request: Request) -> Response:
        query = request.query_params
        limit = number_of(query.get("limit"), "limit", PAGE)
        chats = service.chats(request.state.principal)
        found = await chats.jobs(conversation=query.get("chat"), after=query.get("after"), limit=limit)
        next_id = found[-1].id if len(found) == limit else None
        return json_response(JobPage(tuple(map(show_job, found)), next_id))

    return [
        Endpoint(
            route="GET /api/jobs",
            handler=list_jobs,
            needs=TokenScope.CHATS_READ,
            summary="List the background turns that wait or run, oldest first.",
            query={
                "chat": Parameter("Only those of this chat.", id_schema(ConversationId)),
                "after": Parameter("`next` of the previous page.", id_schema(TurnId)),
                "limit": Parameter(f"Page size; default {PAGE}.", PAGE_SIZE),
            },
            content={200: JobPage},
            responses={200: "A page of background turns; those that have ended are not among them."},
        )
    ]
