"""The whole application in the loop of the test, called over ASGI and inspected inside."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

import msgspec

from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from tests.unit.server.fake_page import PAGE
from tests.unit.server.site import at_once
from turnledger import Ledger
from turnledger.hosting import Host
from turnledger.ledger import OWNER
from turnledger.model.access.token import TokenScope
from turnledger.runners.demo import DemoModel
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.models.models import Models, ResolvedModel

T = TypeVar("T")
Headers = Iterable[tuple[bytes, bytes]]

KNOWN = "a known chat"
"""The key of a conversation that has turns."""
BODY_LIMIT = 300_000


class Application:
    """An application over a ledger in memory, with a fast demo model, shared by all tests."""

    def __init__(self) -> None:
        self._runner = asyncio.Runner()
        self._run(self._open())

    def _run(self, doing: Coroutine[Any, Any, T]) -> T:
        return self._runner.run(doing)

    async def _open(self) -> None:
        self.ledger = await Ledger.open()
        model = DemoModel(sleep=at_once, patience=0)
        settings = Settings(limits=ServerLimits(body_bytes=BODY_LIMIT))
        self.app: App = make_app(
            self.ledger, Models({"demo": ResolvedModel(model, "demo")}), settings, chat_page=PAGE
        )
        for text in ("One", "Two"):
            body = msgspec.json.encode({"model": "demo", "messages": [{"role": "user", "content": text}]})
            headers = [HOST, JSON, (b"x-conversation-id", KNOWN.replace(" ", "%20").encode())]
            assert (await self._fetch("POST", "/v1/chat/completions", headers, body)).status == 200
        (known,) = (await self.ledger.list()).chats
        self.chat = str(known.conversation.id)
        chat = await self.ledger.conversation(self.chat)
        self.turn = str((await chat.turns())[-1].id)

    def new_token(self, **kind: Any) -> tuple[str, str]:
        """Create a token, by default with all rights; return id and text. From then on requests need one."""
        given = {"owner": OWNER, "scopes": tuple(TokenScope), **kind}
        token, text = self._run(Host(self.ledger).tokens.create(**given))
        return str(token.id), text

    def close(self) -> None:
        self._run(self.ledger.close())
        self._runner.close()

    def fetch(self, method: str, path: str, headers: Headers, body: bytes, query: bytes = b"") -> Reply:
        """Send a request and wait for the whole answer."""
        return self._run(self._fetch(method, path, headers, body, query))

    async def _fetch(
        self, method: str, path: str, headers: Headers, body: bytes, query: bytes = b""
    ) -> Reply:
        half, lower = len(body) // 2, [(name.lower(), value) for name, value in headers]
        parts = (body[:half], body[half:])
        return await fetch(self.app, path, method=method, headers=lower, parts=parts, query=query)

    def everything(self) -> dict[str, list[str]]:
        """Return all conversations and their turns."""
        return self._run(self._everything())

    async def _everything(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        cursor: str | None = None
        while True:
            page = await self.ledger.list(limit=1000, archived=None, cursor=cursor)
            for each in page.chats:
                id = str(each.conversation.id)
                chat = await self.ledger.conversation(id)
                found[id] = [str(turn.id) for turn in await chat.turns(limit=1000)]
            if page.next is None:
                return found
            cursor = page.next
