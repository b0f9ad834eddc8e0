"""Turns without a model over HTTP."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.site import Site, site
from turnledger.server.config.settings import ChatSettings, ServerLimits

RESULT = {"type": "function_call_output", "call_id": "c", "output": "Lyon"}
ITEMS = ["Where is it?", {"role": "assistant", "content": "In Lyon."}]


async def chat_in(place: Site) -> str:
    return str((await place.ledger.conversation()).id)


async def test_appended_turn_is_answered_like_any_committed_turn() -> None:
    async with site() as place:
        chat = await chat_in(place)
        reply = await place.post(f"/api/chats/{chat}/items", {"items": ITEMS, "details": {"from": "mail"}})
        assert reply.status == 200, reply.body
        answer = reply.json
        assert (answer["turn"]["number"], answer["turn"]["kind"], answer["state"]) == (
            1,
            "completed",
            "continued",
        )
        assert answer["turn"]["output"][0]["content"] == "In Lyon."
        assert answer["turn"]["details"] == {"from": "mail"}
        assert (answer["chat"]["id"], answer["chat"]["turn_count"]) == (chat, 1)
        asked = (await place.turn("Thanks", chat=chat)).json
        assert answer.keys() == asked.keys()
        assert asked["turn"]["parent"] == answer["turn"]["id"]
        shown = await place.get(f"/api/chats/{chat}")
        assert shown["turns"][0] == answer["turn"]


async def test_append_repeated_with_one_idempotency_key_happens_once() -> None:
    async with site() as place:
        path, once = f"/api/chats/{await chat_in(place)}/items", {"Idempotency-Key": "k"}
        first, second = [await place.post(path, {"items": ITEMS}, once) for _ in range(2)]
        assert first.json == second.json
        assert second.json["chat"]["turn_count"] == 1
        other = await place.post(path, {"items": "Something else"}, once)
        assert (other.status, other.code) == (422, "idempotency_mismatch")


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"items": []}, 400, "no_new_input"),
        ({"items": [RESULT]}, 400, "malformed_items"),
        ({}, 400, "invalid_body"),
        ({"items": "Hi", "model": "demo"}, 400, "invalid_body"),
        ({"items": "x" * 3000}, 413, "body_too_large"),
    ],
)
async def test_invalid_append_is_refused_and_adds_no_turn(body: Any, status: int, code: str) -> None:
    async with site(limits=ServerLimits(body_bytes=2000)) as place:
        chat = await chat_in(place)
        reply = await place.post(f"/api/chats/{chat}/items", body)
        assert (reply.status, reply.code) == (status, code), reply.body
        assert (await place.get(f"/api/chats/{chat}"))["turns"] == []


async def test_append_counts_as_a_turn_per_minute() -> None:
    async with site(limits=ServerLimits(owner_turns_per_minute=1)) as place:
        chat = await chat_in(place)
        token, path = await place.token(owner="local"), f"/api/chats/{chat}/items"
        replies = [await place.send("POST", path, {"items": "Hi"}, token=token) for _ in range(2)]
        assert [each.status for each in replies] == [200, 429]
        assert replies[1].code == "too_many_turns_per_minute"


async def test_append_is_refused_where_chats_are_not_kept() -> None:
    async with site(chats=ChatSettings(keep=False)) as place:
        chat = await chat_in(place)
        reply = await place.post(f"/api/chats/{chat}/items", {"items": ITEMS})
        assert (reply.status, reply.code) == (409, "not_kept"), reply.body
