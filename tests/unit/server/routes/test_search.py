"""Search over HTTP: pages of chats with snippets, limited to the owner and scope of the caller."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.server.asgi import Reply
from tests.unit.server.site import Site, site


async def search(here: Site, token: str, typed: str, more: str = "") -> Reply:
    return await here.send("GET", f"/api/search?q={quote(typed)}{more}", token=token)


async def run_turn(here: Site, text: str, owner: str = "ann", scope: str = "") -> str:
    async with here.ledger.for_owner(owner, scope=scope).turn(text) as turn:
        turn.emit("Yes.")
    return turn.id


async def reader(here: Site, **fields: Any) -> str:
    return await here.token(**{"owner": "ann", "scopes": ["chats:read"], **fields})


async def test_search_hit_has_chat_turn_and_marked_snippet() -> None:
    async with site() as here:
        turn = await run_turn(here, "A <b>heron</b> at the lake?", scope="birds")
        reply = await search(here, await reader(here), "lake heron")
        assert reply.status == 200
        [hit] = reply.json["data"]
        assert (hit["turn"], hit["chat"]["scope"], hit["branch"]) == (turn, "birds", hit["chat"]["branch"])
        assert [hit["snippet"][start:end] for start, end in hit["marks"]] == ["heron", "lake"]
        assert (reply.json["next"], reply.json["complete"]) == (None, True)


async def test_search_pages_continue_at_the_cursor() -> None:
    async with site() as here:
        for number in range(3):
            await run_turn(here, f"Heron {number}")
        token = await reader(here)
        first = (await search(here, token, "heron", "&limit=2")).json
        second = (await search(here, token, "heron", f"&limit=2&cursor={first['next']}")).json
        shown = [hit["snippet"] for page in (first, second) for hit in page["data"]]
        assert (shown, second["next"]) == (["Heron 2", "Heron 1", "Heron 0"], None)
        assert (await search(here, token, "heron", "&cursor=here")).status == 400
        # The cursor counts the messages of all owners, so it is sealed, not a readable number.
        again = (await search(here, token, "heron", "&limit=2")).json["next"]
        assert len({first["next"], again}) == 2
        assert (await search(here, token, "heron", "&cursor=1")).status == 400
        assert (await search(here, token, "heron", "&limit=0")).status == 400


async def test_search_is_limited_to_the_owner_and_scope_of_the_token() -> None:
    async with site() as here:
        await run_turn(here, "My heron")
        await run_turn(here, "My heron in the shop", scope="shop")
        await run_turn(here, "His heron", owner="ben")
        wide, narrow = await reader(here), await reader(here, chat_scope="shop")
        for token, more, found in (
            (wide, "", ["My heron in the shop", "My heron"]),
            (wide, "&scope=shop", ["My heron in the shop"]),
            (wide, "&scope=", ["My heron"]),
            (narrow, "", ["My heron in the shop"]),
        ):
            shown = (await search(here, token, "heron", more)).json["data"]
            assert [hit["snippet"] for hit in shown] == found
        assert (await search(here, narrow, "heron", "&scope=elsewhere")).status == 400
        assert (await search(here, await reader(here, scopes=["turns:run"]), "heron")).status == 403


@pytest.mark.parametrize("typed", ["", '"', "a AND", "*", "\x00", "%", "🙂", "x" * 5_000, "NEAR(", "'--"])
async def test_search_accepts_any_query_text(typed: str) -> None:
    async with site() as here:
        await run_turn(here, "Plain")
        reply = await search(here, await reader(here), typed)
        assert (reply.status, reply.json["data"]) == (200, [])
