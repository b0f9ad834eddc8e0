"""The description of the API for programs, made of the endpoints themselves."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib.metadata import version
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnledger.server.endpoint import Endpoint

PATH = "/openapi.json"
ERROR_SCHEMA = {
    "type": "object",
    "required": ["error"],
    "properties": {
        "error": {
            "type": "object",
            "required": ["message", "type", "param", "code"],
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
ERROR_CONTENT = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}


def with_description(endpoints: Sequence[Endpoint]) -> list[Endpoint]:
    """The endpoints, and the one that describes them all."""

    async def openapi(_: Request) -> Response:
        return JSONResponse(document)

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
    document = describe(everything)
    return everything


def describe(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    """The OpenAPI document of these endpoints."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        paths.setdefault(path_of(endpoint), {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Turnledger",
            "version": version("turnledger"),
            "description": "Conversations in which every turn is a transaction.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR_SCHEMA},
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
    """The path as it is written for people: without how its parameters are matched."""
    return re.sub(r"{(\w+):\w+}", r"{\1}", endpoint.path)


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": endpoint.summary,
        "operationId": re.sub(r"[\W_]+", "_", f"{endpoint.method.lower()}_{path_of(endpoint)}").strip("_"),
        "tags": [endpoint.tag],
        "responses": {str(status): _response(endpoint, status) for status in endpoint.answers},
    }
    if not endpoint.is_public:
        operation["security"] = [{"token": [endpoint.needs] if endpoint.needs else []}, {}]
        for status, meaning in (
            (401, "There is no token, or it is not valid any more."),
            (403, "It may not do this."),
        ):
            operation["responses"].setdefault(str(status), {"description": meaning, "content": ERROR_CONTENT})
    operation["responses"]["default"] = {"description": "An error.", "content": ERROR_CONTENT}
    if parameters := _parameters(endpoint):
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {"application/json": {"schema": endpoint.body}}
        operation["requestBody"] = {"required": endpoint.needs_body, "content": content}
    return operation


def _response(endpoint: Endpoint, status: int) -> dict[str, Any]:
    content: dict[str, Any] = {endpoint.media_type: {}} if status < 400 else ERROR_CONTENT
    return {"description": endpoint.answers[status], "content": content}


def _parameters(endpoint: Endpoint) -> list[dict[str, Any]]:
    text = {"type": "string"}
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": text}
        for name in re.findall(r"{(\w+)}", path_of(endpoint))
    ]
    others = [
        {"name": name, "in": place, "required": False, "description": meaning, "schema": text}
        for place, known in (("query", endpoint.query), ("header", endpoint.headers))
        for name, meaning in known.items()
    ]
    return in_path + others
