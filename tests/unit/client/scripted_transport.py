"""A scripted server behind httpx2, for both edges, with the same answers as for the core."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from typing import Any

import httpx2

from tests.unit.client.script import Streamed
from turnledger.client.core.exchange import Pacing, Retries
from turnledger.client.core.steps import ConnectionFailure, Reply

AT = "https://server.test"


class _Pieces(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """The body of a stream, which may break."""

    def __init__(self, streamed: Streamed, request: httpx2.Request) -> None:
        self._streamed = streamed
        self._request = request
        self.is_closed = False

    def __iter__(self) -> Iterator[bytes]:
        yield from filter(None, self._streamed.pieces)
        if isinstance(self._streamed.end, ConnectionFailure):
            raise httpx2.ReadError(self._streamed.end.reason, request=self._request)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        for piece in self:
            yield piece

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


class ScriptedTransport:
    """Answers in order, and records requests and pauses without waiting."""

    def __init__(self, *answers: Reply | ConnectionFailure | Streamed) -> None:
        self._answers = list(answers)
        self.received: list[httpx2.Request] = []
        self.bodies: list[_Pieces] = []
        self.pauses: list[float] = []
        self.pacing = Pacing(now=lambda: 0.0, chance=lambda: 1.0, sleep=self.pauses.append)
        self.retries = Retries(times=4, first_pause=1.0, max_pause=8.0, patience=100.0)
        self.http = httpx2.Client(transport=httpx2.MockTransport(self._answer))
        self.async_http = httpx2.AsyncClient(transport=httpx2.MockTransport(self._answer))

    @property
    def options(self) -> dict[str, Any]:
        """For a client of it."""
        return {"retries": self.retries, "pacing": self.pacing, "model": "demo"}

    def _answer(self, request: httpx2.Request) -> httpx2.Response:
        self.received.append(request)
        assert self._answers, f"not written down: {request.method} {request.url.path}"
        answer = self._answers.pop(0)
        if isinstance(answer, ConnectionFailure):
            kind = httpx2.ReadError if answer.may_have_arrived else httpx2.ConnectError
            raise kind(answer.reason, request=request)
        if isinstance(answer, Streamed):
            body = _Pieces(answer, request)
            self.bodies.append(body)
            return httpx2.Response(200, headers=answer.headers, stream=body)
        return httpx2.Response(answer.status, headers=dict(answer.headers), content=answer.body)
