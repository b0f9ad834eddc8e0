"""The OpenAPI document, made from the endpoints.

An operation lists every status it can respond with. An endpoint declares the statuses of its own work; those
of the guard, admission, the limits and the body follow from the kind of endpoint. 500 is not listed: it would
be a bug in the server, or a damaged store.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from turnledger.api.errors import Error
from turnledger.server.openapi.endpoint import Content, Endpoint, Parameter
from turnledger.server.openapi.schemas import NUMBER, STRING, Components, Schema, Shape

INVALID_REQUEST = "Invalid request. Nothing changed; the message has the reason."
UNAUTHORIZED = "The token is missing or no longer valid."
FORBIDDEN = "The token lacks permission; or the request names another host, or comes from a foreign page."
FOREIGN_REQUEST = "The request names another host, or comes from a foreign page."
SLOW_BODY = "The body did not arrive in time."
LARGE_BODY = "The body is too large."
NOT_JSON = "The body is not declared to be JSON."
TOO_MANY = "A limit of the owner or of the server is reached. Try again after `Retry-After` seconds."
UNAVAILABLE = "The server is shutting down, or its store is unavailable. Try again."
NO_STORE = "The store is unavailable. Try again."


def all_responses(endpoint: Endpoint) -> dict[int, str]:
    """Return the meaning of each status that the endpoint can respond with, sorted."""
    responses = {400: INVALID_REQUEST, 403: FOREIGN_REQUEST, 415: NOT_JSON}
    if not endpoint.is_public:
        responses |= {401: UNAUTHORIZED, 403: FORBIDDEN, 503: NO_STORE}
    if not endpoint.serves_while_ending:
        responses |= {429: TOO_MANY, 503: UNAVAILABLE}
    if endpoint.body is not None:
        responses |= {408: SLOW_BODY} if endpoint.is_unbounded else {408: SLOW_BODY, 413: LARGE_BODY}
    return dict(sorted({**responses, **endpoint.responses}.items()))


PATH = "/openapi.json"
VERSION = version("turnledger")
JSON = "application/json"
DESCRIPTION = """Conversations in which every turn is a transaction.

Each operation lists all its statuses. In addition, unknown paths return 404, and unsupported methods 405.
All errors have the same shape; programs should match on `code`."""

_ANY_JSON: Content = {JSON: {}}
_HEADERS = {
    "X-Request-Id": Parameter(
        "The id of the request in the server's log: the one that was sent, or a new one.", STRING
    ),
    "Retry-After": Parameter("Seconds to wait before trying again.", NUMBER),
    "WWW-Authenticate": Parameter("The authentication scheme.", STRING),
}
_STATUS_HEADERS = {401: ("WWW-Authenticate",), 429: ("Retry-After",)}
"""Headers of every response with a status, besides the request id."""


def with_document(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Return the endpoints, and one more that serves the document of all."""

    @cache  # rarely requested, and slower to make than the rest of an application
    def document() -> bytes:
        return msgspec.json.encode(describe(all_endpoints))

    async def openapi(_: Request) -> Response:
        return Response(document(), media_type=JSON)

    document_endpoint = Endpoint(
        route=f"GET {PATH}",
        handler=openapi,
        is_public=True,
        summary="This description.",
        tag="health",
        serves_while_ending=True,
    )
    all_endpoints = [*endpoints, document_endpoint]
    return all_endpoints


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    components = Components([Error, *(shape for endpoint in endpoints for shape in _shapes(endpoint))])
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(path_of(endpoint), {})[endpoint.method.lower()] = _operation(endpoint, components)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnledger",
            "version": VERSION,
            "description": DESCRIPTION,
        },
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "headers": {
                name: {"required": True, **_describe_parameter(header)} for name, header in _HEADERS.items()
            },
            "securitySchemes": {
                "token": {
                    "type": "http",
                    "scheme": "bearer",
                    "description": "See `turnledger tokens create`.",
                }
            },
        },
    }


def path_of(endpoint: Endpoint) -> str:
    """Return the path without the converters of its parameters."""
    return re.sub(r"{(\w+):\w+}", r"{\1}", endpoint.path)


def _content(endpoint: Endpoint, status: int) -> Content:
    content = endpoint.content.get(status, _ANY_JSON if status < 400 else Error)
    return content if isinstance(content, Mapping) else {JSON: content}


def _shapes(endpoint: Endpoint) -> Iterator[Shape]:
    for status in endpoint.content:
        yield from _content(endpoint, status).values()
    if endpoint.body is not None:
        yield endpoint.body


def _operation(endpoint: Endpoint, components: Components) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"[\W_]+", "_", f"{endpoint.method.lower()}_{path_of(endpoint)}").strip("_"),
        "tags": [endpoint.tag],
        "responses": {
            str(status): _response(endpoint, status, meaning, components)
            for status, meaning in all_responses(endpoint).items()
        },
    }
    if not endpoint.is_public:
        operation["security"] = [{"token": [endpoint.needs] if endpoint.needs else []}, {}]
    if parameters := _parameters(endpoint):
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {endpoint.body_type: {"schema": components.schema(endpoint.body)}}
        operation["requestBody"] = {"required": endpoint.needs_body, "content": content}
    return operation


def _response(endpoint: Endpoint, status: int, meaning: str, components: Components) -> dict[str, Any]:
    headers: dict[str, Any] = {
        name: {"$ref": f"#/components/headers/{name}"}
        for name in ("X-Request-Id", *_STATUS_HEADERS.get(status, ()))
    }
    if status < 400:
        headers |= {name: _describe_parameter(header) for name, header in endpoint.response_headers.items()}
    return {
        "description": meaning,
        "headers": headers,
        "content": {
            kind: {"schema": _describe_content(kind, components.schema(shape))} if shape else {}
            for kind, shape in _content(endpoint, status).items()
        },
    }


def _describe_content(kind: str, schema: Schema) -> Schema:
    """Return the schema of a body; of each event if it is a stream, whose data has the given one."""
    if kind != "text/event-stream":
        return schema
    data = {"type": "string", "contentMediaType": JSON, "contentSchema": schema}
    fields = {"id": STRING, "event": STRING, "data": data}
    return {"type": "object", "required": list(fields), "properties": fields}


def _describe_parameter(parameter: Parameter) -> dict[str, Any]:
    return {"description": parameter.meaning, "schema": parameter.schema}


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    by_location = (("path", endpoint.in_path), ("query", endpoint.query), ("header", endpoint.headers))
    return [
        {"name": name, "in": location, "required": location == "path", **_describe_parameter(parameter)}
        for location, parameters in by_location
        for name, parameter in parameters.items()
    ]
