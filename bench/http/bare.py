"""The floor: a plain pass-through with Starlette and aiohttp that stores nothing.

`python -m bench.http.bare UPSTREAM` prints its port.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiohttp
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route


def make_bare(upstream: str) -> Starlette:
    @asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            app.state.session = session
            yield

    async def complete(request: Request) -> Response:
        body = await request.body()
        headers = {"content-type": "application/json"}
        answer = await request.app.state.session.post(
            f"{upstream}/chat/completions", data=body, headers=headers
        )
        if answer.content_type != "text/event-stream":
            return Response(await answer.read(), answer.status, media_type=answer.content_type)

        async def pieces() -> AsyncIterator[bytes]:
            async with answer:
                async for piece in answer.content.iter_any():
                    yield piece

        return StreamingResponse(pieces(), answer.status, media_type="text/event-stream")

    return Starlette(routes=[Route("/v1/chat/completions", complete, methods=["POST"])], lifespan=lifespan)


def main() -> None:
    listening = socket.socket()
    listening.bind(("127.0.0.1", 0))
    listening.listen(4096)
    print(listening.getsockname()[1], flush=True)
    config = uvicorn.Config(make_bare(sys.argv[1]), loop="uvloop", http="httptools", log_level="error")
    uvicorn.Server(config).run([listening])


if __name__ == "__main__":
    main()
