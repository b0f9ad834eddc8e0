"""Whether the server lives, whether it can work, and what it counts."""

from __future__ import annotations

import asyncio

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from turnledger.errors import TurnledgerError
from turnledger.model.token import TokenScope
from turnledger.server.endpoint import Endpoint
from turnledger.server.metrics import CONTENT_TYPE
from turnledger.server.service import Service

PATIENCE = 2.0
"""How long the store may take to answer before it counts as away, in seconds."""


def endpoints(service: Service) -> list[Endpoint]:
    """`/healthz`, `/readyz` and `/metrics`."""

    async def healthz(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def readyz(_: Request) -> Response:
        problem = await reason_not_ready(service)
        if problem is None:
            return JSONResponse({"status": "ready"})
        return JSONResponse({"status": problem}, status_code=503)

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
            while_ending=True,
        ),
        Endpoint(
            method="GET",
            path="/readyz",
            answer=readyz,
            is_public=True,
            summary="Whether turns can be run: the store answers, and the server is not about to end.",
            tag="health",
            answers={200: "It is ready.", 503: "It is not; `status` says why."},
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
            media_type="text/plain",
            while_ending=True,
        ),
    ]


async def reason_not_ready(service: Service) -> str | None:
    """Why no turn should be sent here now, as a code; None if there is no reason."""
    if service.shutting_down.is_set():
        return "shutting_down"
    try:
        async with asyncio.timeout(PATIENCE):
            await service.ledger.conversations(limit=1)
    except TimeoutError:
        return "store_unavailable"
    except TurnledgerError as problem:
        return problem.code
    return None
