"""The official client with its own retries, on a faulty line and without waits between tries."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum
from typing import Any

import httpx2
from openai import OpenAI

from tests.compat.live_server import NO_TLS, PATIENCE, LiveServer

MOMENT = 0.25
"""Seconds after which a client times out: long enough for its request to arrive on a busy machine. The
upstream is held until then."""


class Fault(Enum):
    NOTHING = "nothing"
    NEVER_SENT = "never sent"  # the connection breaks before the request is sent
    TIMES_OUT = "times out"  # the client times out
    DROPPED = "dropped"  # the connection breaks before the answer


class FaultyLine:
    """One fault per try, in order; later tries succeed. `tries` are the retry counts that the client sent."""

    def __init__(self, *faults: Fault) -> None:
        self._faults = deque(faults)
        self.tries: list[str] = []

    def plan(self, request: httpx2.Request) -> Fault:
        """Record a try, and return its fault."""
        self.tries.append(request.headers["x-stainless-retry-count"])
        fault = self._faults.popleft() if self._faults else Fault.NOTHING
        if fault is Fault.NEVER_SENT:
            raise httpx2.ConnectError("scripted", request=request)
        if fault is not Fault.NOTHING:
            request.extensions["timeout"] = {**request.extensions["timeout"], "read": MOMENT}
        return fault


class Transport(httpx2.HTTPTransport):
    def __init__(self, line: FaultyLine) -> None:
        super().__init__(verify=NO_TLS)
        self._line = line

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        fault = self._line.plan(request)
        try:
            return super().handle_request(request)
        except httpx2.ReadTimeout as problem:
            raise _as_seen(fault, problem) from None


def _as_seen(fault: Fault, problem: httpx2.ReadTimeout) -> Exception:
    return httpx2.ReadError("scripted") if fault is Fault.DROPPED else problem


class RetryingClient(OpenAI):
    def __init__(
        self, served: LiveServer, conversation: str, line: FaultyLine, between: Callable[[], object]
    ) -> None:
        super().__init__(
            http_client=httpx2.Client(transport=Transport(line)), **_options(served, conversation)
        )
        self._between = between

    def _sleep_for_retry(self, **_: Any) -> None:
        self._between()


def _options(served: LiveServer, conversation: str) -> dict[str, Any]:
    return {
        "base_url": f"{served.url}/v1",
        "api_key": "of no use here",
        "timeout": PATIENCE,
        "default_headers": {"X-Conversation-Id": conversation},
    }
