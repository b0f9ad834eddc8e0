"""JSON as the server sends it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct
from starlette.responses import Response

from turnledger.api.json import encode


def json_response(
    shape: Struct | Mapping[str, Any], status: int = 200, headers: Mapping[str, str] | None = None
) -> Response:
    return Response(encode(shape), status, headers, media_type="application/json")
