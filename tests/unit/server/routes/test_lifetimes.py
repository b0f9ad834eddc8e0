"""Expiry and reset policies over HTTP: of one chat, of a scope, of the server."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from turnledger import Ledger
from turnledger.runners.demo import DemoModel
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import ChatSettings, ScopeSettings, Settings
from turnledger.server.listen.serve import engine_limits
from turnledger.server.models.models import Models, ResolvedModel
from turnledger.stores.url import open_store
from turnledger.testing.fake_clock import FakeClock

KNOWN = "Known: never, idle SECONDS, daily HOUR [TIMEZONE]."


class Place:
    def __init__(self, app: App, clock: FakeClock) -> None:
        self.app, self.clock = app, clock

    async def post(self, path: str, **body: Any) -> Reply:
        return await fetch(
            self.app, path, method="POST", headers=[HOST, JSON], parts=(msgspec.json.encode(body),)
        )

    async def make(self, **body: Any) -> dict[str, Any]:
        made = await self.post("/api/chats", **body)
        assert made.status in (200, 201), made.body
        return dict(made.json)

    async def talk(self, key: str, **body: Any) -> str:
        """Run a turn under a key; return the id of its chat."""
        reply = await self.post("/api/turns", model="demo", input="Hi", conversation_key=key, **body)
        assert reply.status == 200, reply.body
        return str(reply.json["chat"]["id"])

    async def complete(self, key: str, scope: str = "") -> str:
        """Run a turn as an OpenAI client does; return the id of its chat."""
        headers = [HOST, JSON, (b"x-conversation-id", key.encode())]
        if scope:
            headers.append((b"x-conversation-scope", scope.encode()))
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
        reply = await fetch(
            self.app,
            "/v1/chat/completions",
            method="POST",
            headers=headers,
            parts=(msgspec.json.encode(body),),
        )
        assert reply.status == 200, reply.body
        return (reply.header(b"x-conversation-id") or b"").decode()


@asynccontextmanager
async def place(url: str = "memory:", **chats: Any) -> AsyncIterator[Place]:
    settings, clock = Settings(chats=ChatSettings(**chats)), FakeClock()
    async with await Ledger.over(
        await open_store(url), clock=clock, limits=engine_limits(settings)
    ) as ledger:
        models = Models({"demo": ResolvedModel(DemoModel(), "demo")})
        yield Place(make_app(ledger, models, settings), clock)


async def test_chat_shows_the_expiry_and_policy_it_was_created_with() -> None:
    async with place() as here:
        made = await here.make(conversation_key="k", expires_after=90.5, reset="daily 4 Europe/Berlin")
        assert (made["expires_after"], made["reset"]) == (90.5, "daily 4 Europe/Berlin")
        plain = await here.make()
        assert (plain["expires_after"], plain["reset"]) == (None, "never")
        listed = await fetch(here.app, "/api/chats", headers=[HOST], query=b"")
        assert [each["reset"] for each in listed.json["data"]] == ["never", "daily 4 Europe/Berlin"]


@pytest.mark.parametrize("path", ["/api/chats", "/api/turns"])
async def test_unknown_reset_policy_is_refused_with_the_known_ones(path: str) -> None:
    async with place() as here:
        body = {"conversation_key": "k", "reset": "weekly"}
        if path == "/api/turns":
            body |= {"model": "demo", "input": "Hi"}
        refused = await here.post(path, **body)
        assert (refused.status, refused.code) == (400, "invalid_input")
        assert refused.json["error"]["message"] == f"Unknown reset policy 'weekly'. {KNOWN}"
        assert (await fetch(here.app, "/api/chats", query=b"conversation_key=k")).json["data"] == []


async def test_reset_policy_without_a_conversation_key_is_refused() -> None:
    async with place() as here:
        refused = await here.post("/api/chats", reset="idle 5")
        assert (refused.status, refused.code) == (400, "invalid_input")
        assert "conversation_key" in refused.json["error"]["message"]


async def test_idle_chat_gives_its_key_to_a_fresh_one_with_the_next_turn() -> None:
    async with place() as here:
        first = await here.talk("k", reset="idle 60")
        here.clock.advance(59)
        assert await here.talk("k") == first
        here.clock.advance(60)
        second = await here.talk("k")
        assert second != first
        shown = await fetch(here.app, f"/api/chats/{second}", query=b"")
        assert shown.json["reset"] == "idle 60"


async def test_reset_sent_with_a_turn_becomes_the_policy_of_the_key() -> None:
    async with place(reset="idle 60") as here:
        first = await here.talk("k", reset="never")
        here.clock.advance(60)
        assert await here.talk("k") == first
        await here.talk("k", reset="idle 30")
        here.clock.advance(30)
        assert await here.talk("k") != first


async def test_chat_expires_after_its_time_without_use() -> None:
    async with place() as here:
        made = await here.make(expires_after=60)
        fork = await here.post(f"/api/chats/{made['id']}/fork", expires_after=90)
        assert fork.json["expires_after"] == 90
        here.clock.advance(60)
        gone = await fetch(here.app, f"/api/chats/{made['id']}", query=b"")
        assert (gone.status, gone.code) == (410, "conversation_expired")
        assert (await fetch(here.app, f"/api/chats/{fork.json['id']}", query=b"")).status == 200


async def test_new_chats_of_every_api_have_the_lifetime_of_the_server_and_their_scope() -> None:
    scopes = {"desk": ScopeSettings(expires_after=30, reset="never")}
    async with place(expires_after=300, reset="idle 60", scopes=scopes) as here:
        for create in (here.talk, here.complete):
            for scope, lifetime in (("", (300, "idle 60")), ("desk", (30, "never"))):
                id = await create(create.__name__, scope=scope)
                shown = (await fetch(here.app, f"/api/chats/{id}", query=b"")).json
                assert (shown["expires_after"], shown["reset"]) == lifetime
        old = await here.complete("k")
        here.clock.advance(60)
        assert await here.complete("k") != old
