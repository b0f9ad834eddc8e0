"""Tokens over HTTP: the text is returned once, lists omit it, and revocation takes effect at once."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.site import ALL, site
from turnledger.model.access.token import digest_of, is_token_text
from turnledger.server.config.settings import ChatSettings, ScopeSettings


async def test_token_is_created_for_an_owner_and_its_text_returned_once() -> None:
    async with site() as here:
        admin = await here.token()
        body = {"owner": "ann", "scopes": ["turns:run"], "name": "phone", "expires_in": 60}
        made = await here.send("POST", "/api/tokens", body, token=admin)
        assert made.status == 201
        text = made.json["token"]
        assert is_token_text(text)
        assert (made.json["owner"], made.json["scopes"], made.json["name"]) == ("ann", ["turns:run"], "phone")
        assert made.json["expires_at"] > made.json["created_at"]
        listed = await here.send("GET", "/api/tokens", token=admin)
        assert listed.json["data"][0]["id"] == made.json["id"]
        assert text.encode() not in listed.body
        assert digest_of(text).hex().encode() not in listed.body
        assert (await here.complete(token=text)).status == 200
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
    async with site() as here:
        narrow = await here.token(scopes=["admin", "turns:run"], chat_scope="shop", lifetime=60)
        refused = await here.send("POST", "/api/tokens", fields, token=narrow)
        assert (refused.status, refused.code) == (status, code)
        assert len(await here.host.tokens.list()) == 1


async def test_narrowed_admin_lists_and_revokes_only_tokens_of_its_scope() -> None:
    async with site() as here:
        wide, narrow = await here.token(), await here.token(chat_scope="shop")
        other = (await here.send("POST", "/api/tokens", {"scopes": ["chats:read"]}, token=wide)).json
        own = (await here.send("POST", "/api/tokens", {"scopes": ["chats:read"]}, token=narrow)).json
        seen = {each["id"] for each in (await here.send("GET", "/api/tokens", token=narrow)).json["data"]}
        assert own["id"] in seen
        assert other["id"] not in seen
        assert (
            await here.send("DELETE", f"/api/tokens/{other['id']}", token=narrow)
        ).code == "token_not_found"
        assert (await here.send("DELETE", f"/api/tokens/{own['id']}", token=narrow)).status == 200


async def test_revoked_token_and_its_descendants_cannot_start_turns() -> None:
    async with site() as here:
        admin = await here.token()
        made = (await here.send("POST", "/api/tokens", {"owner": "ann", "scopes": ALL}, token=admin)).json
        child = (await here.send("POST", "/api/tokens", {"scopes": ALL}, token=made["token"])).json
        for text in (made["token"], child["token"]):
            assert (await here.complete(token=text)).status == 200
        revoked = await here.send("DELETE", f"/api/tokens/{made['id']}", token=admin)
        assert {each["id"] for each in revoked.json["data"]} == {made["id"], child["id"]}
        for text in (made["token"], child["token"]):
            assert ((await here.complete(token=text)).status, (await here.complete(token=text)).code) == (
                401,
                "token_revoked",
            )
            assert (
                await here.complete("", token=text)
            ).code == "token_revoked"  # passed through, without a begin
        (chat,) = (await here.ledger.for_owner("ann").list()).chats
        stored = await here.ledger.for_owner("ann").conversation(chat.conversation.id)
        [turn] = await stored.turns()
        assert len(await stored.siblings(turn.id)) == 2  # the same question twice: two answers to it


async def test_other_tokens_of_an_owner_work_after_one_is_revoked() -> None:
    async with site() as here:
        one, two = (
            await here.host.tokens.create(owner="ann", scopes=ALL),
            await here.token(owner="ann"),
        )
        assert (await here.complete(token=two)).status == 200
        await here.host.tokens.revoke(one[0].id)
        assert (await here.complete(token=two)).status == 200


async def test_token_can_show_and_revoke_itself() -> None:
    async with site() as here:
        plain = await here.token(owner="ann", scopes=["chats:read"], name="phone")
        shown = (await here.send("GET", "/api/tokens/self", token=plain)).json
        assert (shown["owner"], shown["name"], shown["scopes"]) == ("ann", "phone", ["chats:read"])
        assert (await here.send("DELETE", "/api/tokens/self", token=plain)).status == 200
        assert (await here.send("GET", "/api/tokens/self", token=plain)).code == "token_revoked"


async def test_tokenless_caller_is_shown_as_local_and_cannot_create_tokens() -> None:
    async with site() as here:
        shown = (await here.send("GET", "/api/tokens/self")).json
        assert (shown["id"], shown["owner"]) == (None, "local")
        assert "admin" not in shown["scopes"]
        refused = await here.send("POST", "/api/tokens", {"scopes": ["turns:run"]})
        assert (refused.status, refused.code) == (403, "insufficient_scope")
        assert (await here.send("DELETE", "/api/tokens/self")).code == "token_not_found"
        assert (await here.complete()).status == 200
        await here.token()
        assert ((await here.complete()).status, (await here.complete()).code) == (
            401,
            "missing_token",
        )


async def test_tokens_self_reports_whether_chats_are_kept_in_the_scope() -> None:
    chats = ChatSettings(keep=False, scopes={"shop": ScopeSettings(keep=True)})
    async with site(chats=chats) as here:

        async def keeps(text: str | None, query: str = "") -> object:
            return (await here.send("GET", f"/api/tokens/self{query}", token=text)).json["keeps"]

        assert [await keeps(None), await keeps(None, "?scope=shop")] == [False, True]
        wide, narrow = await here.token(), await here.token(chat_scope="shop")
        assert [await keeps(wide), await keeps(wide, "?scope=shop"), await keeps(narrow)] == [
            False,
            True,
            True,
        ]
    async with site() as here:
        assert (await here.send("GET", "/api/tokens/self")).json["keeps"] is True


async def test_equal_conversation_keys_in_different_chat_scopes_are_separate_chats() -> None:
    async with site() as here:
        wide = await here.token(owner="ann")
        shop = await here.token(owner="ann", chat_scope="shop")
        first, second = await here.complete(token=wide), await here.complete(token=shop)
        assert first.header(b"x-conversation-id") != second.header(b"x-conversation-id")
        in_shop = second.conversation
        assert (await here.send("GET", f"/api/chats/{in_shop}", token=wide)).json["scope"] == "shop"
        assert (await here.complete(in_shop, token=wide)).status == 200
        outside = first.conversation
        assert ((await here.complete(outside, token=shop)).status) == 404


async def test_invalid_token_field_is_refused_under_its_body_field_name() -> None:
    async with site() as here:
        admin = await here.token()
        refused = await here.send(
            "POST", "/api/tokens", {"scopes": ["turns:run"], "expires_in": -1}, token=admin
        )
        assert refused.json["error"]["message"].startswith("expires_in must be above 0")
