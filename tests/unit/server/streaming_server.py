"""A server process with streams that stay open: `python -m … GRACE`."""

from __future__ import annotations

import asyncio
import sys

from starlette.types import Receive, Scope, Send

from tests.unit.server.asgi import StreamingEndpoint, echo, endpoint
from turnledger import Ledger
from turnledger.server.app import App, all_endpoints
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.listen.serve import serve_app
from turnledger.server.listen.socket import bind
from turnledger.server.models.models import Models
from turnledger.server.ops.logs import configure
from turnledger.server.service import Service


class StreamUntilShutdown:
    """A stream that sends more when the server shuts down."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"hello,", "more_body": True})
        await self._service.shutting_down.wait()
        await send({"type": "http.response.body", "body": b" last words"})


async def main() -> None:
    settings = Settings(port=0, grace=float(sys.argv[1]), limits=ServerLimits(body_bytes=1000))
    configure("json", "info", sys.stderr)
    async with await Ledger.open() as ledger:
        service = Service(ledger, Models({}), settings)
        more = [
            endpoint("/until-shutdown", StreamUntilShutdown(service)),
            endpoint("/for-ever", StreamingEndpoint()),
            echo(settings),
        ]
        app = App(service, [*all_endpoints(service), *more])
        with bind(settings) as listening:
            await serve_app(app, listening, lambda url: print(url, flush=True))
    print("closed", flush=True)


if __name__ == "__main__":
    asyncio.run(main())
