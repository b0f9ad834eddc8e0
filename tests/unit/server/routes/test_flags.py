"""Flags over HTTP: items that the model or the user does not see."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.routes.test_lifetimes import make
from tests.unit.server.site import Site, site
from turnledger.model.ids import TurnId

UNKNOWN = TurnId("turn_01890000000070008000000000000000")


async def read(here: Site, chat: str) -> list[tuple[list[int], list[int]]]:
    turns = (await here.send("GET", f"/api/chats/{chat}")).json["turns"]
    return [(each["hidden"], each["hidden_from_model"]) for each in turns]


async def turn_in(here: Site, chat: str, text: str) -> dict[str, Any]:
    reply = await here.turn(text, chat=chat)
    assert reply.status == 200, reply.body
    return dict(reply.json["turn"])


async def test_item_hidden_over_http_reaches_no_later_model_and_is_listed_in_its_turn() -> None:
    async with site() as here:
        chat = (await make(here))["id"]
        first = await turn_in(here, chat, "Alpha")
        assert (first["hidden"], first["hidden_from_model"]) == ([], [])
        path = f"/api/chats/{chat}/turns/{first['id']}"
        flagged = await here.send("PATCH", path, {"to_model": False})
        expected = {"turn": first["id"], "hidden": [], "hidden_from_model": [0, 1]}
        assert (flagged.status, flagged.json) == (200, expected)
        second = await turn_in(here, chat, "Beta")
        assert "I remember nothing before that" in second["output"][0]["content"][0]["text"]
        assert await read(here, chat) == [([], [0, 1]), ([], [])]
        state = (await here.send("GET", f"/api/turns/{first['id']}")).json
        assert state["turn"]["hidden_from_model"] == [0, 1]
        await here.send("PATCH", path, {"items": [0], "to_model": True, "to_user": False})
        assert await read(here, chat) == [([0], [1]), ([], [])]
        shown = await here.send("PATCH", path, {"to_model": True, "to_user": True})
        assert (shown.json["hidden"], shown.json["hidden_from_model"]) == ([], [])
        third = await turn_in(here, chat, "Gamma")
        assert "I remember 2 messages" in third["output"][0]["content"][0]["text"]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"items": [2], "to_model": False}, "invalid_input"),
        ({"items": [-1], "to_model": False}, "invalid_input"),
        ({"items": 0, "to_model": False}, "invalid_body"),
        ({"to_model": "no"}, "invalid_body"),
        ({"hidden": [0]}, "invalid_body"),
    ],
)
async def test_invalid_flags_are_refused_and_change_nothing(body: Any, code: str) -> None:
    async with site() as here:
        chat = (await make(here))["id"]
        turn = await turn_in(here, chat, "Alpha")
        refused = await here.send("PATCH", f"/api/chats/{chat}/turns/{turn['id']}", body)
        assert (refused.status, refused.code) == (400, code)
        assert await read(here, chat) == [([], [])]


async def test_turn_of_another_chat_cannot_be_flagged() -> None:
    async with site() as here:
        chat, other = (await make(here))["id"], (await make(here))["id"]
        turn = await turn_in(here, chat, "Alpha")
        for id in (turn["id"], UNKNOWN):
            refused = await here.send("PATCH", f"/api/chats/{other}/turns/{id}", {"to_model": False})
            assert (refused.status, refused.code) == (404, "turn_not_found")
        assert await read(here, chat) == [([], [])]
