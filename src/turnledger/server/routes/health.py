"""/healthz, /readyz and /metrics."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnledger.model.access.token import TokenScope
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.openapi.schemas import TEXT, an_object
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
            method="GET",
            path="/healthz",
            answer=healthz,
            is_public=True,
            summary="Whether the process answers at all.",
            tag="health",
            content={200: {"application/json": an_object({"status": {"const": "ok"}})}},
            while_ending=True,
        ),
        Endpoint(
            method="GET",
            path="/readyz",
            answer=readyz,
            is_public=True,
            summary="Whether turns can be run: the store takes writes, and the server is not about to end.",
            tag="health",
            answers={200: "It is ready.", 503: "It is not; `status` says why."},
            content={
                200: {"application/json": an_object({"status": {"const": "ready"}})},
                503: {"application/json": an_object({"status": TEXT, "message": TEXT})},
            },
            while_ending=True,
        ),
        Endpoint(
            method="GET",
            path="/metrics",
            answer=metrics,
            needs=TokenScope.ADMIN,
            is_open_at_first=True,
            summary="Counts, for Prometheus.",
            tag="health",
            content={200: {"text/plain": TEXT}},
            while_ending=True,
        ),
    ]
