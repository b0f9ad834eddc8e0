"""/v1/responses: turns as responses, made, read, followed, cancelled and deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from turnledger.chat import Chat
from turnledger.errors import InvalidId, InvalidInput, TurnNotFound
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import TurnId
from turnledger.server.access.auth import Principal
from turnledger.server.errors import RequestRefused, about, input_field
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import NUMBER, STRING, TURN_ERRORS, Schema, object_schema
from turnledger.server.requests.body import read_body
from turnledger.server.requests.query import flag_of, number_of
from turnledger.server.requests.turn import RESENT_HEADER_NAMES
from turnledger.server.responses.items import placed_items, response_id, turn_of
from turnledger.server.responses.lists import (
    PAGING,
    UNKNOWN_AFTER,
    Paging,
    list_of,
    list_schema_of,
    show_placed,
)
from turnledger.server.responses.response import STATUSES, ResponseFields
from turnledger.server.routes.completions import ANSWER_HEADERS, HEADERS
from turnledger.server.service import Service
from turnledger.server.turns.responses import (
    RESPONSES,
    committed,
    count_input,
    open_stream,
    read_response,
    response_events,
    stream_error,
)
from turnledger.server.turns.run import TurnEndpoint
from turnledger.server.wire.json import json_response
from turnledger.server.wire.sse import Stream, StreamEndpoint

RESPONSE_OBJECT = object_schema(
    {"id": STRING, "object": {"const": "response"}, "status": STRING, "output": {"type": "array"}}
)
DELETED: Schema = object_schema({"id": STRING, "deleted": {"const": True}})
ITEM_OBJECT: Schema = object_schema({"id": STRING, "type": STRING})
BODY = object_schema(
    {"model": STRING},
    optional={
        "input": {"anyOf": [STRING, {"type": "array", "items": {"type": "object"}}]},
        "conversation": {"anyOf": [STRING, object_schema({"id": STRING}), {"type": "null"}]},
        "previous_response_id": {"type": ["string", "null"]},
        "instructions": {"type": ["string", "null"]},
        "stream": {"type": ["boolean", "null"]},
        "store": {"type": ["boolean", "null"]},
        "background": {"type": ["boolean", "null"]},
    },
)
IN_PATH = {"response": Parameter("The id of a response (`resp_…`), or of its turn (`turn_…`).", STRING)}
GONE = {404: "Response not found.", 410: "Its conversation was deleted or has expired."}


class ResponseRoutes:
    def __init__(self, service: Service) -> None:
        self._service = service

    async def _find(self, request: Request) -> tuple[Chat, TurnId]:
        try:
            turn = turn_of(request.path_params["response"])
        except InvalidId:
            raise TurnNotFound("There is no such response. Ids begin with resp_.") from None
        return await self._service.chats(request.state.principal).of_turn(turn), turn

    async def read(self, request: Request) -> Response:
        if request.query_params.get("starting_after") is not None:
            raise InvalidInput("starting_after needs stream=true.", param="starting_after")
        chat, turn = await self._find(request)
        return json_response(await read_response(chat, turn, request.state.principal))

    @asynccontextmanager
    async def events(self, principal: Principal, request: Request) -> AsyncIterator[Stream]:
        """Follow a response; the caller counts as one of its readers."""
        after = number_of(request.query_params.get("starting_after"), "starting_after", None)
        chat, turn = await self._find(request)
        stream = await open_stream(chat, turn, -1 if after is None else after)
        pieces = response_events(chat, stream, principal)
        self._service.audience.join(turn)
        try:
            yield Stream(pieces, has_heartbeat=True, error=partial(stream_error, stream))
        finally:
            self._service.audience.leave(turn)

    async def cancel(self, request: Request) -> Response:
        chat, turn = await self._find(request)
        await chat.stop(turn)
        principal: Principal = request.state.principal
        response = await read_response(chat, turn, principal)
        if not principal.has(TokenScope.CHATS_READ):  # its text, its instructions and its tools are withheld
            response = ResponseFields(turn, chat.id, {}).show(response["status"])
        return json_response(response)

    async def delete(self, request: Request) -> Response:
        chat, turn = await self._find(request)
        status = await chat.status(turn)
        if status.turn is None:
            raise _not_completed(status.state, "deleted")
        committed(status)
        await self._service.host.delete_response(chat, turn)
        return json_response({"id": response_id(turn), "object": "response", "deleted": True})

    async def input_items(self, request: Request) -> Response:
        chat, turn = await self._find(request)
        paging = Paging.of(request.query_params)
        status = await chat.status(turn)
        if status.turn is None:
            raise _not_completed(status.state, "asked for their input")
        found = committed(status)
        [hidden] = await chat.hidden([found])
        items = [placed for placed in placed_items(found) if placed.place < len(found.input)]
        if not paging.is_ascending:
            items.reverse()
        if paging.after is not None:
            ids = [placed.id for placed in items]
            if paging.after not in ids:
                with about("after"):
                    raise TurnNotFound(UNKNOWN_AFTER)
            items = items[ids.index(paging.after) + 1 :]
        items = [placed for placed in items if placed.place not in hidden.from_user]
        shown = [show_placed(found, placed) for placed in items[: paging.limit]]
        return json_response(list_of(shown, has_more=len(items) > paging.limit))

    async def count(self, request: Request) -> Response:
        limits = self._service.settings.limits
        raw = await read_body(request.scope, request.receive, limit=limits.body_bytes, wait=limits.body_wait)
        principal = await self._service.authenticator.admit(request.state.head)
        tokens = await count_input(self._service, principal, request.scope, raw)
        return json_response({"object": "response.input_tokens", "input_tokens": tokens})

    async def compact(self, request: Request) -> Response:
        message = "compact is not supported here. Long conversations are shortened for their model."
        raise RequestRefused(400, "unsupported_endpoint", message)


def _not_completed(state: str, what: str) -> RequestRefused:
    message = f"The response is {STATUSES[state]}. Only completed ones can be {what}."
    return RequestRefused(409, "response_not_completed", message)


class _Retrieve:
    """Responds with a response, or with its events: the parameter `stream` decides."""

    def __init__(self, service: Service, routes: ResponseRoutes) -> None:
        self._service = service
        self._routes = routes
        self._events = StreamEndpoint(service.streams, routes.events)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        if flag_of(request.query_params.get("stream"), "stream", default=False):
            await self._events(scope, receive, send)
            return
        with self._service.quotas.admit_other(request.state.principal.caller):
            response = await self._routes.read(request)
            await response(scope, receive, send)


def endpoints(service: Service) -> list[Endpoint]:
    routes = ResponseRoutes(service)
    return [
        Endpoint(
            route="POST /v1/responses",
            handler=TurnEndpoint(service, RESPONSES),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary="Answer input as a turn of a conversation, after any response, or of a new one.",
            headers={
                name: header
                for name, header in HEADERS.items()
                if name.lower().encode() not in RESENT_HEADER_NAMES
            },
            body=BODY,
            fields=input_field("input"),
            response_headers=ANSWER_HEADERS,
            content={200: {"application/json": RESPONSE_OBJECT, "text/event-stream": {}}},
            responses={
                200: "The response, or a stream of its events.",
                404: "Conversation or model not found.",
                409: "The conversation is busy, or the turn was stopped; or chats are not stored here.",
                410: "The conversation was deleted or has expired.",
                **TURN_ERRORS,
            },
        ),
        Endpoint(
            route="POST /v1/responses/input_tokens",
            is_fixed_path=True,
            handler=routes.count,
            needs=TokenScope.TURNS_RUN,
            summary="Count the tokens that the model would be shown, by the estimate of the server.",
            body=object_schema({}, optional={"model": {"type": ["string", "null"]}}),
            fields=input_field("input"),
            content={200: {"application/json": object_schema({"input_tokens": NUMBER})}},
            responses={200: "The number of tokens.", 404: "Conversation not found."},
        ),
        Endpoint(
            route="POST /v1/responses/compact",
            is_fixed_path=True,
            handler=routes.compact,
            needs=TokenScope.TURNS_RUN,
            summary="Not supported.",
            responses={400: "Always."},
        ),
        Endpoint(
            route="POST /v1/responses/{response}/cancel",
            handler=routes.cancel,
            needs=TokenScope.TURNS_RUN,
            summary="Stop a running or queued response. Responds when it is final.",
            in_path=IN_PATH,
            content={200: {"application/json": RESPONSE_OBJECT}},
            responses={200: "The response, as it ended.", **GONE},
        ),
        Endpoint(
            route="GET /v1/responses/{response}/input_items",
            handler=routes.input_items,
            needs=TokenScope.CHATS_READ,
            summary="List the input of a completed response.",
            in_path=IN_PATH,
            query=PAGING,
            content={200: {"application/json": list_schema_of(ITEM_OBJECT)}},
            responses={200: "A page of items.", 409: "It is not completed.", **GONE},
        ),
        Endpoint(
            route="GET /v1/responses/{response}",
            handler=_Retrieve(service, routes),
            needs=TokenScope.CHATS_READ,
            summary="Read a response in any state, or follow its events.",
            in_path=IN_PATH,
            query={
                "stream": Parameter("Send its events, also those of a finished one.", {"type": "boolean"}),
                "starting_after": Parameter(
                    "The number of the last event received: later ones are sent.", NUMBER
                ),
                "include_obfuscation": Parameter("Accepted, and ignored.", {"type": "boolean"}),
                "include": PAGING["include"],
                "include[]": PAGING["include[]"],
            },
            is_stream=True,
            content={200: {"application/json": RESPONSE_OBJECT, "text/event-stream": {}}},
            responses={200: "The response, or a stream of its events.", **GONE},
        ),
        Endpoint(
            route="DELETE /v1/responses/{response}",
            handler=routes.delete,
            needs=TokenScope.CHATS_WRITE,
            summary="Delete a completed response. Its turn stays in the history.",
            in_path=IN_PATH,
            content={200: {"application/json": DELETED}},
            responses={200: "It is deleted.", 409: "It is not completed.", **GONE},
        ),
    ]
