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
from turnledger.server.openapi.schemas import NUMBER, TEXT, Components, Shape

NOT_VALID = "The request is not valid. Nothing changed; the message says what is wrong."
NOT_LET_IN = "There is no token, or it is not valid any more."
NOT_ALLOWED = "This token may not do this; or the request names another host, or comes from a foreign page."
FOREIGN = "The request names another host, or comes from a foreign page."
SLOW_BODY = "The body did not arrive in time."
LARGE_BODY = "The body is larger than the server takes."
NOT_JSON = "The body is not declared to be JSON."
TOO_MANY = "More is open than may be, of this owner or of all. Try again after `Retry-After` seconds."
NOT_NOW = "The server is about to end, or its store cannot be reached. Try again."
NO_STORE = "The store cannot be reached. Try again."


def all_answers(endpoint: Endpoint) -> dict[int, str]:
    """Return the meaning of each status that the endpoint can respond with, sorted."""
    answers = {400: NOT_VALID, 415: NOT_JSON, **_of_access(endpoint), **_of_limits(endpoint)}
    if endpoint.body is not None:
        answers |= {408: SLOW_BODY} if endpoint.is_unbounded else {408: SLOW_BODY, 413: LARGE_BODY}
    return dict(sorted({**answers, **endpoint.answers}.items()))


def _of_access(endpoint: Endpoint) -> dict[int, str]:
    if endpoint.is_public:
        return {403: FOREIGN}
    return {401: NOT_LET_IN, 403: NOT_ALLOWED, 503: NO_STORE}


def _of_limits(endpoint: Endpoint) -> dict[int, str]:
    return {} if endpoint.while_ending else {429: TOO_MANY, 503: NOT_NOW}


PATH = "/openapi.json"
VERSION = version("turnledger")
JSON = "application/json"
ABOUT = """Conversations in which every turn is a transaction.

Each operation lists every status that it answers with. Besides, whatever has no path here is 404, and a path
that does not take a method is 405. Errors have one shape, and their `code` is the word to match on."""

_ANY: Content = {JSON: {}}
_HEADERS = {
    "X-Request-Id": Parameter("Names the request in the server's log; as it was sent, or made up.", TEXT),
    "Retry-After": Parameter("Seconds after which it is worth another try.", NUMBER),
    "WWW-Authenticate": Parameter("How to show a token.", TEXT),
}
_OF_STATUS = {401: ("WWW-Authenticate",), 429: ("Retry-After",)}
"""Headers of every response with a status, besides the request id."""


def with_description(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """Return the endpoints, and one more that serves the document of all."""

    @cache  # rarely requested, and slower to make than the rest of an application
    def document() -> bytes:
        return msgspec.json.encode(describe(everything))

    async def openapi(_: Request) -> Response:
        return Response(document(), media_type=JSON)

    described = Endpoint(
        method="GET",
        path=PATH,
        answer=openapi,
        is_public=True,
        summary="This description.",
        tag="health",
        while_ending=True,
    )
    everything = [*endpoints, described]
    return everything


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
            "description": ABOUT,
        },
        "paths": paths,
        "components": {
            "schemas": components.schemas,
            "headers": {name: {"required": True, **_described(header)} for name, header in _HEADERS.items()},
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
    content = endpoint.content.get(status, _ANY if status < 400 else Error)
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
            for status, meaning in all_answers(endpoint).items()
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
        for name in ("X-Request-Id", *_OF_STATUS.get(status, ()))
    }
    if status < 400:
        headers |= {name: _described(header) for name, header in endpoint.answer_headers.items()}
    return {
        "description": meaning,
        "headers": headers,
        "content": {
            kind: {"schema": components.schema(shape)} if shape else {}
            for kind, shape in _content(endpoint, status).items()
        },
    }


def _described(parameter: Parameter) -> dict[str, Any]:
    return {"description": parameter.meaning, "schema": parameter.schema}


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    named = (("path", endpoint.in_path), ("query", endpoint.query), ("header", endpoint.headers))
    return [
        {"name": name, "in": place, "required": place == "path", **_described(parameter)}
        for place, known in named
        for name, parameter in known.items()
    ]
