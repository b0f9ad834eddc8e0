"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnledger.model.access.token import TokenScope
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.openapi.schemas import STRING, object_schema
from turnledger.server.ops.metrics import CONTENT_TYPE
from turnledger.server.ops.readiness import SHUTTING_DOWN
from turnledger.server.service import Service


def endpoints(service: Service) -> list[Endpoint]:

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        is_ending = service.shutting_down.is_set()
        problem = SHUTTING_DOWN if is_ending else await service.readiness.problem()
        if problem is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": problem.code, "message": problem.message}, status_code=503)

    async def metrics(_: Request) -> Response:
        return Response(service.metrics.text(), headers={"content-type": CONTENT_TYPE})

    return [
        Endpoint(
            route="GET /healthz",
            handler=healthz,
            is_public=True,
            summary="Whether the process responds.",
            content={200: {"application/json": object_schema({"status": {"const": "ok"}})}},
            serves_while_ending=True,
        ),
        Endpoint(
            route="GET /readyz",
            handler=readyz,
            is_public=True,
            summary="Whether turns can run: the store accepts writes, and the server is not shutting down.",
            responses={200: "Ready.", 503: "Not ready; `status` has the reason."},
            content={
                200: {"application/json": object_schema({"status": {"const": "ready"}})},
                503: {"application/json": object_schema({"status": STRING, "message": STRING})},
            },
            serves_while_ending=True,
        ),
        Endpoint(
            route="GET /metrics",
            handler=metrics,
            needs=TokenScope.ADMIN,
            is_open_without_tokens=True,
            summary="Metrics for Prometheus.",
            content={200: {"text/plain": STRING}},
            serves_while_ending=True,
        ),
    ]
