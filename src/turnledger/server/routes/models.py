"""/v1/models: the models on offer."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnledger.server.errors import RequestRefused
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import STRING, Schema, list_schema, object_schema
from turnledger.server.service import Service

MODEL: Schema = object_schema({"id": STRING})
LISTING: Schema = object_schema({"object": {"const": "list"}, "data": list_schema(MODEL)})
UPSTREAM_FAILURES = {
    502: "The upstream gave no complete list of models.",
    504: "The upstream timed out.",
}


def endpoints(service: Service) -> list[Endpoint]:

    def listed(request: Request) -> Awaitable[list[dict[str, Any]]]:
        return service.models.list_models(request.state.principal, request.state.head)

    async def list_models(request: Request) -> Response:
        return JSONResponse({"object": "list", "data": await listed(request)})

    async def read_model(request: Request) -> Response:
        name = unquote(request.path_params["model"])
        for each in await listed(request):
            if each.get("id") == name:
                return JSONResponse(each)
        raise RequestRefused(404, "model_not_found", "Unknown model. GET /v1/models lists the models.")

    return [
        Endpoint(
            route="GET /v1/models",
            handler=list_models,
            summary="List the models.",
            content={200: {"application/json": LISTING}},
            responses={200: "The models that the token may use.", **UPSTREAM_FAILURES},
        ),
        Endpoint(
            route="GET /v1/models/{model:path}",
            handler=read_model,
            summary="Read a model.",
            in_path={"model": Parameter("Its name.", {"type": "string", "minLength": 1})},
            content={200: {"application/json": MODEL}},
            responses={200: "The model.", 404: "Model not found.", **UPSTREAM_FAILURES},
        ),
    ]
