"""An application on a ledger, and a client that sends it JSON."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec

from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from turnledger import Ledger
from turnledger.engine.ports import Store
from turnledger.model.access.token import TokenScope
from turnledger.runners.demo import DemoModel
from turnledger.server.app import App, make_app
from turnledger.server.chat_page.files import BuiltPage
from turnledger.server.config.settings import Settings
from turnledger.server.listen.serve import engine_limits
from turnledger.server.models.models import Models, ResolvedModel
from turnledger.stores.url import open_store
from turnledger.testing.fake_clock import FakeClock

Headers = Mapping[str, str]
NO_HEADERS: Headers = MappingProxyType({})
ALL = [str(each) for each in TokenScope]


class Site:
    def __init__(self, app: App) -> None:
        self.app = app
        self.ledger, self.host = app.service.ledger, app.service.host

    async def send(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: Headers = NO_HEADERS,
        *,
        token: str | None = None,
    ) -> Reply:
        """Send a request; its path may have a query."""
        path, _, query = path.partition("?")
        sent = b"" if body is None else msgspec.json.encode(body)
        given = headers if token is None else {**headers, "authorization": f"Bearer {token}"}
        named = [(name.lower().encode(), value.encode()) for name, value in given.items()]
        fixed = [HOST, JSON, (b"content-length", b"%d" % len(sent))]
        async with asyncio.timeout(20):
            return await fetch(
                self.app, path, method=method, headers=[*fixed, *named], parts=(sent,), query=query.encode()
            )

    async def post(self, path: str, body: Any, headers: Headers = NO_HEADERS) -> Reply:
        return await self.send("POST", path, body, headers)

    async def get(self, path: str) -> Any:
        return (await self.send("GET", path)).json

    async def turn(self, input: Any = None, headers: Headers = NO_HEADERS, **body: Any) -> Reply:
        sent = {"model": "demo", **({} if input is None else {"input": input}), **body}
        return await self.post("/api/turns", sent, headers)

    async def complete(self, key: str = "chat", *, token: str | None = None, **headers: str) -> Reply:
        """Run a turn as an OpenAI client does; without a key it is passed through."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
        given = {"x-conversation-id": key, **named} if key else named
        return await self.send("POST", "/v1/chat/completions", body, given, token=token)

    async def token(self, **fields: Any) -> str:
        """Create a token, by default with all scopes; return its text."""
        return (await self.host.tokens.create(**{"owner": "boss", "scopes": ALL, **fields}))[1]


AnySite = TypeVar("AnySite", bound=Site)


async def at_once(_: float) -> None:
    await asyncio.sleep(0)


@asynccontextmanager
async def site_of(
    kind: type[AnySite],
    store: str | Store = "memory:",
    *,
    model: DemoModel | None = None,
    others: Mapping[str, ResolvedModel] = MappingProxyType({}),
    clock: FakeClock | None = None,
    page: BuiltPage | None = None,
    **settings: Any,
) -> AsyncIterator[AnySite]:
    """Run an application with the demo model and others, on a ledger with the limits of the settings."""
    chosen = Settings(**settings)
    opened = await open_store(store) if isinstance(store, str) else store
    async with await Ledger.over(opened, clock=clock, limits=engine_limits(chosen)) as ledger:
        demo = ResolvedModel(model or DemoModel(sleep=at_once), "demo")
        yield kind(make_app(ledger, Models({"demo": demo, **others}), chosen, chat_page=page))


def site(store: str | Store = "memory:", **options: Any) -> AbstractAsyncContextManager[Site]:
    return site_of(Site, store, **options)
