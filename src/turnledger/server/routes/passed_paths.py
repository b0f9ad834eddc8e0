"""Paths of an upstream that the operator has switched on: their description."""

from __future__ import annotations

from turnledger.model.access.token import TokenScope
from turnledger.server.access.guard import FORM
from turnledger.server.config.settings import FORM_PATHS
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.openapi.schemas import QUOTA_REACHED, STRING, object_schema
from turnledger.server.service import Service
from turnledger.server.turns.passed_paths import PASSED_PATH
from turnledger.server.turns.run import TurnEndpoint

BODY = object_schema({"model": STRING})


def endpoints(service: Service) -> list[Endpoint]:
    return [
        Endpoint(
            route=f"POST /v1/{path}",
            handler=TurnEndpoint(service, PASSED_PATH),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary=f"Pass a request through to {path} of the model's upstream.",
            body=BODY,
            body_type=FORM if path in FORM_PATHS else "application/json",
            content={200: {"*/*": {}}},
            responses={
                200: "The response of the upstream.",
                403: "The token is restricted to chats, bounds or other models.",
                404: "Model not found, or it has no upstream.",
                502: "The upstream gave no complete answer.",
                504: "The upstream timed out.",
                **QUOTA_REACHED,
            },
        )
        for path in service.settings.passed_paths
    ]
