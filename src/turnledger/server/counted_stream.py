"""A stream that counts as one of its reader's, who may have only so many, for as long as it is sent."""

from __future__ import annotations

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from turnledger.server.admission import Principal
from turnledger.server.service import Service


class CountedStream:
    """A plain ASGI application, made for one endpoint: it says in `_tell` what is sent."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        who: Principal = request.state.principal
        place = self._service.quotas.stream(who.owner, is_tokenless=who.token is None, link=who.link)
        try:
            await self._tell(who, request, receive, send)
        finally:
            place.leave()

    async def _tell(self, who: Principal, request: Request, receive: Receive, send: Send) -> None:
        raise NotImplementedError
