"""/v1/models: the models on offer."""

from __future__ import annotations

from urllib.parse import unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnledger.server.errors import Refused
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import TEXT, Schema, a_list, an_object
from turnledger.server.service import Service

MODEL: Schema = an_object({"id": TEXT})
LISTING: Schema = an_object({"object": {"const": "list"}, "data": a_list(MODEL)})
UPSTREAM_FAILS = {
    502: "The upstream that is asked for models gave no whole answer.",
    504: "The upstream that is asked for models took too long.",
}


def endpoints(service: Service) -> list[Endpoint]:

    async def listing(request: Request) -> Response:
        known = await service.models.listing(request.state.principal)
        return JSONResponse({"object": "list", "data": known})

    async def one(request: Request) -> Response:
        name = unquote(request.path_params["model"])
        for each in await service.models.listing(request.state.principal):
            if each.get("id") == name:
                return JSONResponse(each)
        raise Refused(404, "model_not_found", "Unknown model. GET /v1/models lists the models.")

    return [
        Endpoint(
            method="GET",
            path="/v1/models",
            answer=listing,
            summary="List the models.",
            tag="models",
            content={200: {"application/json": LISTING}},
            answers={200: "The models that the token may ask.", **UPSTREAM_FAILS},
        ),
        Endpoint(
            method="GET",
            path="/v1/models/{model:path}",
            answer=one,
            summary="One model.",
            tag="models",
            in_path={"model": Parameter("Its name.", {"type": "string", "minLength": 1})},
            content={200: {"application/json": MODEL}},
            answers={200: "The model.", 404: "There is none of this name.", **UPSTREAM_FAILS},
        ),
    ]
