"""A server with two owners, and requests for every operation of its description."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from tests.unit.server.asgi import Reply
from tests.unit.server.fake_page import ASSET, PAGE
from tests.unit.server.site import Site, site_of
from turnledger.engine.ports import Store
from turnledger.model.access.token import TokenScope, new_token_text
from turnledger.model.ids import SystemEntropy, TurnId
from turnledger.server.app import App
from turnledger.server.openapi.document import PATH, describe
from turnledger.server.responses.items import response_id
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock

ALL = tuple(TokenScope)
NONCE = "made-up-by-the-page-of-a-visitor"
SECRETS = ("marzipan", "okapi-42", "hers alone")
"""Alice's text, conversation_key and token name, which no other caller may see."""


class Operation(msgspec.Struct, frozen=True):
    method: str
    path: str
    about: dict[str, Any]

    @property
    def name(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def is_public(self) -> bool:
        return "security" not in self.about

    @property
    def needs_admin(self) -> bool:
        return not self.is_public and self.needs == TokenScope.ADMIN

    @property
    def names_hers(self) -> bool:
        """Whether it takes an id from one of Alice's chats."""
        by_path = any(name in self.path for name in ("{chat}", "{turn}", "{share}", "{response}", "{conv"))
        return by_path or self.name == "POST /api/shares"

    @property
    def needs(self) -> str | None:
        needed = self.about["security"][0]["token"]
        return needed[0] if needed else None


class Town(Site):
    """Alice's chats, and the tokens of all callers."""

    clock: FakeClock

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.ids: dict[str, str] = {"name": ASSET}
        """Ids, by their names in paths."""
        self.tokens: dict[str, str] = {}
        self.bodies: dict[str, Any] = {}
        """Ids created here."""

    async def settle(self) -> None:
        tokens = self.host.tokens
        made, self.tokens["alice"] = await tokens.create(owner="alice", scopes=ALL, name=SECRETS[2])
        self.ids["token"] = str(made.id)
        reply = await self.fetch(
            "POST", "/v1/chat/completions", "alice", chat_body(SECRETS[0]), key=SECRETS[1]
        )
        assert reply.status == 200, reply.body
        self.ids["chat"] = reply.conversation
        self.ids["turn"] = reply.turn
        self.ids["response"], self.ids["conversation"] = (
            response_id(TurnId(self.ids["turn"])),
            self.ids["chat"],
        )
        self.ids["item"] = f"msg_{self.ids['turn'].removeprefix('turn_')}0000000"
        self.ids["model"] = "demo"
        # A background turn that no server runs: only its owner may find it listed.
        await self.ledger.for_owner("alice").enqueue(SECRETS[0], details={"model": SECRETS[0]})
        chat = await self.ledger.for_owner("alice").conversation(self.ids["chat"])
        BODIES["POST /api/chats/{chat}/switch"] = {"branch": str((await chat.info()).branch)}
        _, self.tokens["bob"] = await tokens.create(owner="bob", scopes=[s for s in ALL if s != "admin"])
        _, self.tokens["narrow"] = await tokens.create(owner="alice", scopes=ALL, chat_scope="elsewhere")
        _, self.tokens["modelless"] = await tokens.create(owner="alice", scopes=ALL, models=["other"])
        for scope in ALL:
            name = f"all but {scope}"
            _, self.tokens[name] = await tokens.create(owner="alice", scopes=set(ALL) - {scope})
        revoked, self.tokens["revoked"] = await tokens.create(owner="alice", scopes=ALL)
        await tokens.revoke(str(revoked.id))
        _, self.tokens["expired"] = await tokens.create(owner="alice", scopes=ALL, lifetime=59)
        await self._share()
        self.tokens["unknown"] = unknown_token()
        self.tokens["garbage"] = "sk-unused"

    async def _share(self) -> None:
        """Create two links with a visitor each: one for a scope, one to read a chat."""
        shares = self.host.shares
        _, into_scope = await shares.create(scope="fair", owner="operator", visitor_lifetime=None)
        shared, to_chat = await shares.create(chat=self.ids["chat"], owner="alice", name=SECRETS[2])
        self.ids["share"] = str(shared.id)
        self.tokens["guest"] = (await shares.exchange(into_scope, NONCE)).text
        self.tokens["reader"] = (await shares.exchange(to_chat, NONCE)).text
        self.bodies["POST /api/shares"] = {"chat": self.ids["chat"]}
        self.bodies["POST /api/shares/exchange"] = {"code": into_scope, "nonce": "another-" + NONCE}

    def operations(self) -> Iterator[Operation]:
        document = describe(self.app.endpoints)
        for path, methods in document["paths"].items():
            for method, about in methods.items():
                if path not in (PATH, REFUSED):
                    yield Operation(method.upper(), path, about)

    async def walk(self, operation: Operation, who: str | None) -> Reply:
        """Send the operation with Alice's ids."""
        path = re.sub(r"{(\w+)}", lambda found: self.ids[found[1]], operation.path)
        body = self.bodies[operation.name] if operation.name in self.bodies else body_of(operation)
        return await self.fetch(operation.method, path, who, body)

    async def fetch(
        self, method: str, path: str, who: str | None, body: Any = None, key: str | None = None
    ) -> Reply:
        named = {} if key is None else {"x-conversation-id": key}
        return await self.send(method, path, body, named, token=None if who is None else self.tokens[who])

    async def alices(self) -> list[Any]:
        """Return everything of Alice, except in other scopes."""
        chat = await self.ledger.for_owner("alice").conversation(self.ids["chat"])
        listed = (await self.ledger.for_owner("alice", scope="").list()).chats
        tokens = await self.host.tokens.list(owner="alice", limit=100)
        valid = [(each.id, each.revoked_at) for each in tokens]
        return [await chat.info(), await chat.turns(), await chat.attempts(), listed, valid]


def chat_body(text: str) -> dict[str, Any]:
    return {"model": "demo", "messages": [{"role": "user", "content": text}]}


REFUSED = "/v1/responses/compact"
"""The server refuses every request to it."""
BODIES: dict[str, Any] = {
    "POST /v1/responses": {"model": "demo", "input": "Hello"},
    "POST /v1/responses/input_tokens": {"model": "demo", "input": "Hello"},
    "POST /v1/conversations": {"metadata": {"a": "b"}},
    "POST /v1/conversations/{conversation}": {"metadata": {"a": "b"}},
    "POST /v1/conversations/{conversation}/items": {"items": [{"role": "user", "content": "Hello"}]},
    "POST /v1/chat/completions": chat_body("Hello"),
    "POST /api/turns": {"model": "demo", "input": "Hello"},
    "POST /api/chats/{chat}/items": {"items": "Hello"},
    "POST /api/turns/{turn}/stop": {},
    "POST /api/turns/stop": {"idempotency_key": "okapi-42"},
    "POST /api/chats/{chat}/stop": {},
    "POST /api/import": {"type": "chat", "schema_version": 1, "id": "a", "created_at": 1, "touched_at": 1},
    "POST /api/chats": {"conversation_key": "another"},
    "PATCH /api/chats/{chat}": {"title": "Mine"},
    "PATCH /api/chats/{chat}/turns/{turn}": {"to_model": False},
    "POST /api/chats/{chat}/fork": {},
    "POST /api/chats/{chat}/switch": {},
    "POST /api/chats/{chat}/undo": {},
    "POST /api/chats/reset": {"conversation_key": "another"},
    "POST /api/tokens": {"owner": "alice", "scopes": ["chats:read"], "expires_in": 60},
}


def body_of(operation: Operation) -> Any:
    assert ("requestBody" in operation.about) == (operation.name in BODIES), f"{operation.name}: needs a body"
    return BODIES.get(operation.name)


def unknown_token() -> str:
    """Return a token that this server never created."""
    return new_token_text(SystemEntropy())


@asynccontextmanager
async def town(store: Store | None = None) -> AsyncIterator[Town]:
    clock = FakeClock()
    async with site_of(Town, store or MemoryStore(), clock=clock, page=PAGE) as place:
        place.clock = clock
        await place.settle()
        yield place
