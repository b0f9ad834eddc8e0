"""Hand-offs between programs over HTTP: internal chats, which people find nowhere, and turns that are not
interactions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.server.routes.test_events import Stream
from tests.unit.server.routes.test_lifetimes import make, talk
from tests.unit.server.site import Site, site
from turnledger.testing.fake_clock import FakeClock

WORD = "zebra"
PLACES = (
    "/api/chats?archived=any",
    "/api/chats?tag=handoff",
    "/api/chats?deleted=true",
    "/api/search?q=zebra",
    "/api/export",
)


async def hand_off(here: Site, *, internal: bool) -> list[str]:
    """Do everything that a program may do in a chat; return the ids of all chats. Some are deleted."""
    fields = {"conversation_key": "handoff", "title": WORD, "tags": ["handoff"], "internal": internal}
    made = await here.send("POST", "/api/chats", fields)
    assert (made.status, made.json["internal"]) == (201, internal)
    chat = f"/api/chats/{made.json['id']}"
    turn = {"model": "demo", "chat": made.json["id"], "input": WORD, "interaction": False}
    message = {"model": "demo", "messages": [{"role": "user", "content": WORD}]}
    by_key = {"x-conversation-id": "handoff"}
    for method, path, body, status, *headers in (
        ("POST", "/api/turns", turn, 200),
        ("POST", "/v1/chat/completions", message, 200, by_key),
        ("POST", "/api/turns", {**turn, "input": "/fail"}, 502),
        ("POST", f"{chat}/undo", {}, 200),
        ("POST", f"{chat}/items", {"items": WORD}, 200),
        ("PATCH", chat, {"metadata": {"of": WORD}}, 200),
        ("PATCH", chat, {"title": None}, 200),
    ):
        reply = await here.send(method, path, body, *headers)
        assert reply.status in (status, 201), reply.body
    fork = await here.send("POST", f"{chat}/fork", {"internal": internal})
    fresh = await here.send("POST", "/api/chats/reset", {"conversation_key": "handoff"})
    assert fork.json["internal"] == fresh.json["internal"] == internal
    await here.send("DELETE", f"/api/chats/{fork.json['id']}")
    assert (await here.send("DELETE", chat)).status == 200
    assert (await here.send("POST", f"{chat}/restore")).status == 200
    return [str(each.json["id"]) for each in (made, fork, fresh)]


@pytest.mark.parametrize("store", ["memory:", "sqlite:///{}/chats.db"])
@pytest.mark.parametrize("internal", [True, False])
async def test_handoff_is_found_in_no_list_search_export_or_event_of_its_owner(
    internal: bool, store: str, tmp_path: Path
) -> None:
    async with site(store.format(tmp_path)) as here:
        stream = Stream(here.app)
        await stream.next()
        ids = await hand_off(here, internal=internal)
        last = (await here.send("POST", "/api/chats", {"title": "Last"})).json["id"]
        events: list[dict[str, Any]] = []
        while not events or events[-1]["chat"] != last:
            found = await stream.next()
            events += [found["data"]] if "data" in found else []
        await stream.leave()
        texts = [msgspec.json.encode(events[:-1]).decode()]
        for path in PLACES:
            reply = await here.send("GET", path)
            assert reply.status == 200
            texts.append(reply.body.decode())
        # The same search finds a chat that is not internal.
        assert [any(id in text for id in ids) for text in texts] == [not internal] * len(texts)
        assert (len(events) == 1) == internal
        assert (WORD in "".join(texts)) != internal
        for id in (ids[0], ids[2]):  # its id and its key open it
            assert (await here.send("GET", f"/api/chats/{id}")).status == 200
        named = await here.send("GET", "/api/chats?conversation_key=handoff")
        assert [each["id"] for each in named.json["data"]] == [ids[2]]


async def test_turn_that_is_no_interaction_postpones_no_expiry_and_causes_no_reset() -> None:
    clock = FakeClock()
    async with site(clock=clock) as here:
        old = await talk(here, "k", reset="idle 60")
        expiring = (await make(here, expires_after=60))["id"]
        clock.advance(59)
        reply = await here.turn("Note", chat=expiring, interaction=False)
        assert reply.status == 200, reply.body
        assert await talk(here, "k", interaction=False) == old
        clock.advance(1)
        assert (await here.send("GET", f"/api/chats/{expiring}")).status == 410
        assert await talk(here, "k", interaction=False) == old
        assert await talk(here, "k") != old
