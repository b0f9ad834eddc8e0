"""Expiry and reset policies over HTTP: of one chat, of a scope, of the server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.site import Site, site
from turnledger.server.config.settings import ChatSettings, ScopeSettings
from turnledger.testing.fake_clock import FakeClock

KNOWN = "Known: never, idle SECONDS, daily HOUR [TIMEZONE]."


async def make(here: Site, **body: Any) -> dict[str, Any]:
    made = await here.post("/api/chats", body)
    assert made.status in (200, 201), made.body
    return dict(made.json)


async def talk(here: Site, key: str, **body: Any) -> str:
    """Run a turn under a key; return the id of its chat."""
    reply = await here.turn("Hi", conversation_key=key, **body)
    assert reply.status == 200, reply.body
    return str(reply.json["chat"]["id"])


async def complete(here: Site, key: str, scope: str = "") -> str:
    """Run a turn as an OpenAI client does; return the id of its chat."""
    reply = await here.complete(key, **({"x_conversation_scope": scope} if scope else {}))
    assert reply.status == 200, reply.body
    return reply.conversation


async def test_chat_shows_the_expiry_and_policy_it_was_created_with() -> None:
    async with site() as here:
        made = await make(here, conversation_key="k", expires_after=90.5, reset="daily 4 Europe/Berlin")
        assert (made["expires_after"], made["reset"]) == (90.5, "daily 4 Europe/Berlin")
        plain = await make(here)
        assert (plain["expires_after"], plain["reset"]) == (None, "never")
        listed = await here.send("GET", "/api/chats")
        assert [each["reset"] for each in listed.json["data"]] == ["never", "daily 4 Europe/Berlin"]


@pytest.mark.parametrize("path", ["/api/chats", "/api/turns"])
async def test_unknown_reset_policy_is_refused_with_the_known_ones(path: str) -> None:
    async with site() as here:
        body = {"conversation_key": "k", "reset": "weekly"}
        if path == "/api/turns":
            body |= {"model": "demo", "input": "Hi"}
        refused = await here.post(path, body)
        assert (refused.status, refused.code) == (400, "invalid_input")
        assert refused.json["error"]["message"] == f"Unknown reset policy 'weekly'. {KNOWN}"
        assert (await here.get("/api/chats?conversation_key=k"))["data"] == []


async def test_reset_policy_without_a_conversation_key_is_refused() -> None:
    async with site() as here:
        refused = await here.post("/api/chats", {"reset": "idle 5"})
        assert (refused.status, refused.code) == (400, "invalid_input")
        assert "conversation_key" in refused.json["error"]["message"]


async def test_idle_chat_gives_its_key_to_a_fresh_one_with_the_next_turn() -> None:
    clock = FakeClock()
    async with site(clock=clock) as here:
        first = await talk(here, "k", reset="idle 60")
        clock.advance(59)
        assert await talk(here, "k") == first
        clock.advance(60)
        second = await talk(here, "k")
        assert second != first
        shown = await here.send("GET", f"/api/chats/{second}")
        assert shown.json["reset"] == "idle 60"


async def test_reset_sent_with_a_turn_becomes_the_policy_of_the_key() -> None:
    clock = FakeClock()
    async with site(clock=clock, chats=ChatSettings(reset="idle 60")) as here:
        first = await talk(here, "k", reset="never")
        clock.advance(60)
        assert await talk(here, "k") == first
        await talk(here, "k", reset="idle 30")
        clock.advance(30)
        assert await talk(here, "k") != first


async def test_chat_expires_after_its_time_without_use() -> None:
    clock = FakeClock()
    async with site(clock=clock) as here:
        made = await make(here, expires_after=60)
        fork = await here.post(f"/api/chats/{made['id']}/fork", {"expires_after": 90})
        assert fork.json["expires_after"] == 90
        clock.advance(60)
        gone = await here.send("GET", f"/api/chats/{made['id']}")
        assert (gone.status, gone.code) == (410, "conversation_expired")
        assert (await here.send("GET", f"/api/chats/{fork.json['id']}")).status == 200


async def test_new_chats_of_every_api_have_the_lifetime_of_the_server_and_their_scope() -> None:
    scopes = {"desk": ScopeSettings(expires_after=30, reset="never")}
    clock = FakeClock()
    async with site(
        clock=clock, chats=ChatSettings(expires_after=300, reset="idle 60", scopes=scopes)
    ) as here:
        for create in (talk, complete):
            for scope, lifetime in (("", (300, "idle 60")), ("desk", (30, "never"))):
                id = await create(here, create.__name__, scope=scope)
                shown = (await here.send("GET", f"/api/chats/{id}")).json
                assert (shown["expires_after"], shown["reset"]) == lifetime
        old = await complete(here, "k")
        clock.advance(60)
        assert await complete(here, "k") != old
