"""Share links over HTTP: the code is returned once, exchanged without a token, and revoked for all visitors
at once. Tests of visitors are in tests/guarded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from tests.unit.server.asgi import HOST
from tests.unit.server.routes.test_tokens import ALL, Place, place
from turnledger.model.access.share import is_code, new_code
from turnledger.server.config.settings import ServerLimits, Settings

EXCHANGE = "/api/shares/exchange"
NONCE = "n" * 32
USER = [each for each in ALL if each != "admin"]


async def shared(where: Place, text: str, **wish: Any) -> dict[str, Any]:
    reply = await where.fetch("POST", "/api/shares", text, wish)
    assert reply.status == 201, reply.body
    made: dict[str, Any] = reply.json
    return made


async def test_share_link_is_created_exchanged_and_revoked() -> None:
    async with place() as where:
        admin = await where.admin()
        made = await shared(
            where, admin, scope="shop", name="fair", max_uses=2, expires_in=60, models=["demo"]
        )
        assert is_code(made["code"])
        assert made["path"] == "/share#" + made["code"]
        assert made["expires_at"] == made["created_at"] + 60_000
        visit = await where.fetch("POST", EXCHANGE, None, {"code": made["code"], "nonce": NONCE})
        assert visit.status == 200
        assert (visit.json["kind"], visit.json["scope"], visit.json["chat"]) == ("scope", "shop", None)
        assert visit.json["owner"].startswith("guest_")
        assert (await where.complete(visit.json["token"])).status == 200
        listed = (await where.fetch("GET", "/api/shares", admin)).json["data"]
        assert [(each["id"], each["uses"], each["kind"]) for each in listed] == [(made["id"], 1, "scope")]
        assert "code" not in listed[0]
        gone = await where.fetch("DELETE", f"/api/shares/{made['id']}", admin)
        assert gone.json["revoked_at"] is not None
        assert (await where.complete(visit.json["token"])).code == "token_revoked"
        refused = await where.fetch("POST", EXCHANGE, None, {"code": made["code"], "nonce": NONCE})
        assert (refused.status, refused.code) == (404, "link_not_valid")


async def test_share_link_to_a_chat_is_created_and_revoked_only_by_its_owner() -> None:
    async with place() as where:
        ann, ben = await where.admin(owner="ann", scopes=USER), await where.admin(owner="ben", scopes=USER)
        chat = ((await where.complete(ann)).header(b"x-conversation-id") or b"").decode()
        made = await shared(where, ann, chat=chat)
        visit = (await where.fetch("POST", EXCHANGE, None, {"code": made["code"], "nonce": NONCE})).json
        assert (visit["kind"], visit["chat"], visit["owner"]) == ("chat", chat, None)
        assert (await where.fetch("GET", f"/api/chats/{chat}", visit["token"])).status == 200
        for path in ("/api/shares", f"/api/shares/{made['id']}"):
            assert (
                "ann"
                not in (
                    await where.fetch("GET" if path == "/api/shares" else "DELETE", path, ben)
                ).body.decode()
            )
        assert (await where.fetch("DELETE", f"/api/shares/{made['id']}", ben)).status == 404
        assert (await where.fetch("POST", "/api/shares", ben, {"chat": chat})).status == 404
        assert (await where.fetch("POST", "/api/shares", ann, {"scope": "shop"})).code == "token_too_wide"


async def test_share_links_into_a_scope_are_hidden_from_callers_without_admin() -> None:
    async with place() as where:
        boss = await where.admin(owner="ann")
        user = await where.admin(owner="ann", scopes=USER)
        other = await where.admin(owner="eve", chat_scope="desk")
        into_scope = await shared(where, boss, scope="shop")
        chat = ((await where.complete(user)).header(b"x-conversation-id") or b"").decode()
        to_chat = await shared(where, user, chat=chat)
        for text, seen in ((boss, [to_chat, into_scope]), (user, [to_chat]), (other, [])):
            listed = (await where.fetch("GET", "/api/shares", text)).json["data"]
            assert [each["id"] for each in listed] == [each["id"] for each in seen]
        for text in (user, other):
            assert (await where.fetch("DELETE", f"/api/shares/{into_scope['id']}", text)).status == 404


async def test_sharing_is_refused_on_a_server_without_tokens() -> None:
    async with place() as where:
        chat = ((await where.complete(None)).header(b"x-conversation-id") or b"").decode()
        refused = await where.fetch("POST", "/api/shares", None, {"chat": chat})
        assert (refused.status, refused.code) == (403, "sharing_needs_tokens")
        assert (await where.fetch("GET", "/api/shares", None)).json == {"data": []}
        assert (await where.complete(None)).status == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"code": new_code(lambda bits: 1), "nonce": NONCE}, 404),
        ({"code": "", "nonce": NONCE}, 404),
        ({"code": new_code(lambda bits: 1), "nonce": "short"}, 400),
        ({"code": new_code(lambda bits: 1)}, 400),
        ({"code": "x" * 20_000, "nonce": NONCE}, 413),
    ],
)
async def test_share_exchange_with_an_invalid_code_is_refused(body: dict[str, str], status: int) -> None:
    async with place() as where:
        assert (await where.fetch("POST", EXCHANGE, None, body)).status == status


async def test_share_exchanges_per_minute_are_limited() -> None:
    async with place(Settings(limits=ServerLimits(exchanges_per_minute=2))) as where:
        body = {"code": new_code(lambda bits: 1), "nonce": NONCE}
        replies = [await where.fetch("POST", EXCHANGE, None, body) for _ in range(3)]
        assert [each.status for each in replies] == [404, 404, 429]
        assert replies[2].code == "too_many_exchanges"
        assert int(replies[2].header(b"retry-after") or 0) >= 1


async def test_token_for_one_chat_reads_only_that_chat_and_its_events() -> None:
    async with place() as where:
        admin = await where.admin()
        reply = await where.complete(admin)
        chat, turn = ((reply.header(name) or b"").decode() for name in (b"x-conversation-id", b"x-turn-id"))
        wish = {"scopes": ["chats:read"], "chat": chat}
        made = (await where.fetch("POST", "/api/tokens", admin, wish)).json
        assert made["chat"] == chat
        for path in (f"/api/chats/{chat}", f"/api/turns/{turn}/events", "/api/tokens/self"):
            assert (await where.fetch("GET", path, made["token"])).status == 200
        other = ((await where.complete(admin, "other")).header(b"x-conversation-id") or b"").decode()
        assert (await where.fetch("GET", f"/api/chats/{other}", made["token"])).status == 404
        wide = await where.fetch("POST", "/api/tokens", admin, {"scopes": ["turns:run"], "chat": chat})
        assert (wide.status, wide.code) == (400, "invalid_input")


async def test_share_exchange_limit_for_guessed_codes_does_not_affect_valid_ones() -> None:
    async with place(Settings(limits=ServerLimits(exchanges_per_minute=2))) as where:
        made = await shared(where, await where.admin(), scope="shop")
        guess = {"code": new_code(lambda bits: 1), "nonce": NONCE}
        guesses = [await where.fetch("POST", EXCHANGE, None, guess) for _ in range(3)]
        assert [each.status for each in guesses] == [404, 404, 429]
        visits = [
            await where.fetch("POST", EXCHANGE, None, {"code": made["code"], "nonce": letter * 32})
            for letter in "aabbc"
        ]
        assert [each.status for each in visits] == [200, 200, 200, 200, 429]
        assert visits[4].code == "too_many_exchanges"
        [listed] = (await where.fetch("GET", "/api/shares", await where.admin())).json["data"]
        assert listed["uses"] == 2


async def test_share_readers_do_not_use_up_the_request_limit_of_the_owner() -> None:
    async with place(Settings(limits=ServerLimits(owner_requests=1))) as where:
        ann = await where.admin(owner="ann", scopes=USER)
        chat = ((await where.complete(ann)).header(b"x-conversation-id") or b"").decode()
        made = await shared(where, ann, chat=chat)
        visit = (await where.fetch("POST", EXCHANGE, None, {"code": made["code"], "nonce": NONCE})).json
        path = f"/api/chats/{chat}"
        head = [HOST, (b"authorization", b"Bearer " + visit["token"].encode())]
        begun, taken = asyncio.Event(), asyncio.Event()

        async def reads_slowly() -> None:
            scope = {"type": "http", "method": "GET", "path": path, "headers": head, "query_string": b""}

            async def send(_: Message) -> None:
                begun.set()
                await taken.wait()

            await where.app(scope, nothing_more, send)

        async def nothing_more() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        reading = asyncio.create_task(reads_slowly())
        await begun.wait()
        assert (await where.fetch("GET", path, visit["token"])).code == "too_many_requests"
        assert (await where.fetch("GET", path, ann)).status == 200
        taken.set()
        await reading


async def test_slow_unauthenticated_exchange_does_not_use_up_the_limits_of_owners() -> None:
    async with place(Settings(limits=ServerLimits(owner_requests=1))) as where:
        ann = await where.admin(owner="ann", scopes=USER)
        waits, comes = asyncio.Event(), asyncio.Event()

        async def slowly() -> Message:
            waits.set()
            await comes.wait()
            return {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            raise AssertionError("nobody is there")

        head = [HOST, (b"content-type", b"application/json"), (b"content-length", b"100")]
        scope = {"type": "http", "method": "POST", "path": EXCHANGE, "headers": head, "query_string": b""}
        slow = asyncio.create_task(where.app(scope, slowly, send))
        await waits.wait()
        refused = await where.fetch("POST", EXCHANGE, None, {"code": "x", "nonce": NONCE})
        assert (refused.status, refused.code) == (429, "too_many_requests")
        assert (await where.fetch("GET", "/api/chats", ann)).status == 200
        comes.set()
        await slow
        assert (await where.fetch("POST", EXCHANGE, None, {"code": "x", "nonce": NONCE})).status == 404
