"""Search over HTTP: pages of chats with snippets, limited to the owner and scope of the caller."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import pytest

from tests.unit.server.asgi import HOST, Reply, fetch
from turnledger import Ledger
from turnledger.hosting import Host
from turnledger.runners.demo import DemoModel
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models, ResolvedModel


class Place:
    def __init__(self, app: App, ledger: Ledger) -> None:
        self.app, self.ledger = app, ledger

    async def token(self, **fields: Any) -> str:
        return (
            await Host(self.ledger).tokens.create(**{"owner": "ann", "scopes": ["chats:read"], **fields})
        )[1]

    async def search(self, token: str, typed: str, more: str = "") -> Reply:
        headers = [HOST, (b"authorization", f"Bearer {token}".encode())]
        return await fetch(self.app, "/api/search", headers=headers, query=f"q={quote(typed)}{more}".encode())

    async def run_turn(self, text: str, owner: str = "ann", scope: str = "") -> str:
        async with self.ledger.for_owner(owner, scope=scope).turn(text) as turn:
            turn.emit("Yes.")
        return turn.id


@asynccontextmanager
async def place() -> AsyncIterator[Place]:
    async with await Ledger.open() as ledger:
        models = Models({"demo": ResolvedModel(DemoModel(), "demo")})
        yield Place(make_app(ledger, models, Settings()), ledger)


async def test_search_hit_has_chat_turn_and_marked_snippet() -> None:
    async with place() as here:
        turn = await here.run_turn("A <b>heron</b> at the lake?", scope="birds")
        reply = await here.search(await here.token(), "lake heron")
        assert reply.status == 200
        [hit] = reply.json["data"]
        assert (hit["turn"], hit["chat"]["scope"], hit["branch"]) == (turn, "birds", hit["chat"]["branch"])
        assert [hit["snippet"][start:end] for start, end in hit["marks"]] == ["heron", "lake"]
        assert (reply.json["next"], reply.json["complete"]) == (None, True)


async def test_search_pages_continue_at_the_cursor() -> None:
    async with place() as here:
        for number in range(3):
            await here.run_turn(f"Heron {number}")
        token = await here.token()
        first = (await here.search(token, "heron", "&limit=2")).json
        second = (await here.search(token, "heron", f"&limit=2&cursor={first['next']}")).json
        shown = [hit["snippet"] for page in (first, second) for hit in page["data"]]
        assert (shown, second["next"]) == (["Heron 2", "Heron 1", "Heron 0"], None)
        assert (await here.search(token, "heron", "&cursor=here")).status == 400
        # The cursor counts the messages of all owners, so it is sealed, not a readable number.
        again = (await here.search(token, "heron", "&limit=2")).json["next"]
        assert len({first["next"], again}) == 2
        assert (await here.search(token, "heron", "&cursor=1")).status == 400
        assert (await here.search(token, "heron", "&limit=0")).status == 400


async def test_search_is_limited_to_the_owner_and_scope_of_the_token() -> None:
    async with place() as here:
        await here.run_turn("My heron")
        await here.run_turn("My heron in the shop", scope="shop")
        await here.run_turn("His heron", owner="ben")
        wide, narrow = await here.token(), await here.token(chat_scope="shop")
        for token, more, found in (
            (wide, "", ["My heron in the shop", "My heron"]),
            (wide, "&scope=shop", ["My heron in the shop"]),
            (wide, "&scope=", ["My heron"]),
            (narrow, "", ["My heron in the shop"]),
        ):
            shown = (await here.search(token, "heron", more)).json["data"]
            assert [hit["snippet"] for hit in shown] == found
        assert (await here.search(narrow, "heron", "&scope=elsewhere")).status == 400
        assert (await here.search(await here.token(scopes=["turns:run"]), "heron")).status == 403


@pytest.mark.parametrize("typed", ["", '"', "a AND", "*", "\x00", "%", "🙂", "x" * 5_000, "NEAR(", "'--"])
async def test_search_accepts_any_query_text(typed: str) -> None:
    async with place() as here:
        await here.run_turn("Plain")
        reply = await here.search(await here.token(), typed)
        assert (reply.status, reply.json["data"]) == (200, [])
