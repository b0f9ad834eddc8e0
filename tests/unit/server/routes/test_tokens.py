"""Tokens over HTTP: the text is returned once, lists omit it, and revocation takes effect at once."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from turnledger import Ledger
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope, digest_of, is_token_text
from turnledger.runners.demo import DemoModel
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import ChatSettings, ScopeSettings, Settings
from turnledger.server.models.models import Models, ResolvedModel

ALL = [str(each) for each in TokenScope]


class Place:
    def __init__(self, app: App, ledger: Ledger) -> None:
        self.app, self.ledger = app, ledger

    async def fetch(self, method: str, path: str, text: str | None, body: Any = None, key: str = "") -> Reply:
        sent = b"" if body is None else msgspec.json.encode(body)
        headers = [HOST, JSON, (b"content-length", b"%d" % len(sent))]
        if text is not None:
            headers.append((b"authorization", f"Bearer {text}".encode()))
        if key:
            headers.append((b"x-conversation-id", key.encode()))
        return await fetch(self.app, path, method=method, headers=headers, parts=(sent,))

    async def admin(self, **fields: Any) -> str:
        return (await Host(self.ledger).tokens.create(**{"owner": "boss", "scopes": ALL, **fields}))[1]

    async def complete(self, text: str | None, key: str = "chat") -> Reply:
        body = {"model": "demo", "messages": [{"role": "user", "content": "Hi"}]}
        return await self.fetch("POST", "/v1/chat/completions", text, body, key)


@asynccontextmanager
async def place(settings: Settings | None = None) -> AsyncIterator[Place]:
    async with await Ledger.open() as ledger:
        models = Models({"demo": ResolvedModel(DemoModel(), "demo")})
        yield Place(make_app(ledger, models, settings or Settings()), ledger)


async def test_token_is_created_for_an_owner_and_its_text_returned_once() -> None:
    async with place() as here:
        admin = await here.admin()
        body = {"owner": "ann", "scopes": ["turns:run"], "name": "phone", "expires_in": 60}
        made = await here.fetch("POST", "/api/tokens", admin, body)
        assert made.status == 201
        text = made.json["token"]
        assert is_token_text(text)
        assert (made.json["owner"], made.json["scopes"], made.json["name"]) == ("ann", ["turns:run"], "phone")
        assert made.json["expires_at"] > made.json["created_at"]
        listed = await here.fetch("GET", "/api/tokens", admin)
        assert listed.json["data"][0]["id"] == made.json["id"]
        assert text.encode() not in listed.body
        assert digest_of(text).hex().encode() not in listed.body
        assert (await here.complete(text)).status == 200
        (chat,) = (await here.ledger.for_owner("ann").list()).chats
        assert chat.conversation.conversation_key == "chat"
        assert (await here.ledger.list()).chats == ()


@pytest.mark.parametrize(
    ("fields", "status", "code"),
    [
        ({"scopes": ["admin", "chats:write"]}, 403, "token_too_wide"),
        ({"scopes": ["turns:run"], "chat_scope": "other"}, 403, "token_too_wide"),
        ({"scopes": ["turns:run"], "expires_in": 3600}, 403, "token_too_wide"),
        ({"scopes": ["everything"]}, 400, "invalid_body"),
        ({"scopes": []}, 400, "invalid_input"),
        ({"scopes": ["turns:run"], "owner": ""}, 400, "invalid_input"),
        ({"scopes": ["turns:run"], "expires_in": -1}, 400, "invalid_input"),
        ({"scopes": ["turns:run"], "expires": "never"}, 400, "invalid_body"),
        ({}, 400, "invalid_body"),
    ],
)
async def test_token_cannot_create_a_wider_token(fields: dict[str, Any], status: int, code: str) -> None:
    async with place() as here:
        narrow = await here.admin(scopes=["admin", "turns:run"], chat_scope="shop", lifetime=60)
        refused = await here.fetch("POST", "/api/tokens", narrow, fields)
        assert (refused.status, refused.code) == (status, code)
        assert len(await Host(here.ledger).tokens.list()) == 1


async def test_narrowed_admin_lists_and_revokes_only_tokens_of_its_scope() -> None:
    async with place() as here:
        wide, narrow = await here.admin(), await here.admin(chat_scope="shop")
        other = (await here.fetch("POST", "/api/tokens", wide, {"scopes": ["chats:read"]})).json
        own = (await here.fetch("POST", "/api/tokens", narrow, {"scopes": ["chats:read"]})).json
        seen = {each["id"] for each in (await here.fetch("GET", "/api/tokens", narrow)).json["data"]}
        assert own["id"] in seen
        assert other["id"] not in seen
        assert (await here.fetch("DELETE", f"/api/tokens/{other['id']}", narrow)).code == "token_not_found"
        assert (await here.fetch("DELETE", f"/api/tokens/{own['id']}", narrow)).status == 200


async def test_revoked_token_and_its_descendants_cannot_start_turns() -> None:
    async with place() as here:
        admin = await here.admin()
        made = (await here.fetch("POST", "/api/tokens", admin, {"owner": "ann", "scopes": ALL})).json
        child = (await here.fetch("POST", "/api/tokens", made["token"], {"scopes": ALL})).json
        for text in (made["token"], child["token"]):
            assert (await here.complete(text)).status == 200
        revoked = await here.fetch("DELETE", f"/api/tokens/{made['id']}", admin)
        assert {each["id"] for each in revoked.json["data"]} == {made["id"], child["id"]}
        for text in (made["token"], child["token"]):
            assert ((await here.complete(text)).status, (await here.complete(text)).code) == (
                401,
                "token_revoked",
            )
            assert (
                await here.complete(text, key="")
            ).code == "token_revoked"  # passed through, without a begin
        (chat,) = (await here.ledger.for_owner("ann").list()).chats
        stored = await here.ledger.for_owner("ann").conversation(chat.conversation.id)
        [turn] = await stored.turns()
        assert len(await stored.siblings(turn.id)) == 2  # the same question twice: two answers to it


async def test_other_tokens_of_an_owner_work_after_one_is_revoked() -> None:
    async with place() as here:
        one, two = (
            await Host(here.ledger).tokens.create(owner="ann", scopes=ALL),
            await here.admin(owner="ann"),
        )
        assert (await here.complete(two)).status == 200
        await Host(here.ledger).tokens.revoke(one[0].id)
        assert (await here.complete(two)).status == 200


async def test_token_can_show_and_revoke_itself() -> None:
    async with place() as here:
        plain = await here.admin(owner="ann", scopes=["chats:read"], name="phone")
        shown = (await here.fetch("GET", "/api/tokens/self", plain)).json
        assert (shown["owner"], shown["name"], shown["scopes"]) == ("ann", "phone", ["chats:read"])
        assert (await here.fetch("DELETE", "/api/tokens/self", plain)).status == 200
        assert (await here.fetch("GET", "/api/tokens/self", plain)).code == "token_revoked"


async def test_tokenless_caller_is_shown_as_local_and_cannot_create_tokens() -> None:
    async with place() as here:
        shown = (await here.fetch("GET", "/api/tokens/self", None)).json
        assert (shown["id"], shown["owner"]) == (None, "local")
        assert "admin" not in shown["scopes"]
        refused = await here.fetch("POST", "/api/tokens", None, {"scopes": ["turns:run"]})
        assert (refused.status, refused.code) == (403, "insufficient_scope")
        assert (await here.fetch("DELETE", "/api/tokens/self", None)).code == "token_not_found"
        assert (await here.complete(None)).status == 200
        await here.admin()
        assert ((await here.complete(None)).status, (await here.complete(None)).code) == (
            401,
            "missing_token",
        )


async def test_tokens_self_reports_whether_chats_are_kept_in_the_scope() -> None:
    chats = ChatSettings(keep=False, scopes={"shop": ScopeSettings(keep=True)})
    async with place(Settings(chats=chats)) as here:

        async def keeps(text: str | None, query: bytes = b"") -> object:
            headers = [HOST] if text is None else [HOST, (b"authorization", b"Bearer " + text.encode())]
            return (await fetch(here.app, "/api/tokens/self", headers=headers, query=query)).json["keeps"]

        assert [await keeps(None), await keeps(None, b"scope=shop")] == [False, True]
        wide, narrow = await here.admin(), await here.admin(chat_scope="shop")
        assert [await keeps(wide), await keeps(wide, b"scope=shop"), await keeps(narrow)] == [
            False,
            True,
            True,
        ]
    async with place() as here:
        assert (await here.fetch("GET", "/api/tokens/self", None)).json["keeps"] is True


async def test_equal_conversation_keys_in_different_chat_scopes_are_separate_chats() -> None:
    async with place() as here:
        wide = await here.admin(owner="ann")
        shop = await here.admin(owner="ann", chat_scope="shop")
        first, second = await here.complete(wide), await here.complete(shop)
        assert first.header(b"x-conversation-id") != second.header(b"x-conversation-id")
        in_shop = (second.header(b"x-conversation-id") or b"").decode()
        assert (await here.fetch("GET", f"/api/chats/{in_shop}", wide)).json["scope"] == "shop"
        assert (await here.complete(wide, key=in_shop)).status == 200
        outside = (first.header(b"x-conversation-id") or b"").decode()
        assert ((await here.complete(shop, key=outside)).status) == 404


async def test_invalid_token_field_is_refused_under_its_body_field_name() -> None:
    async with place() as here:
        admin = await here.admin()
        refused = await here.fetch("POST", "/api/tokens", admin, {"scopes": ["turns:run"], "expires_in": -1})
        assert refused.json["error"]["message"].startswith("expires_in must be above 0")
