"""Share links over HTTP: the code is returned once, exchanged without a token, and revoked for all visitors
at once. Tests of visitors are in tests/guarded."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from tests.unit.server.asgi import HOST
from tests.unit.server.site import ALL, Site, site
from turnledger.model.access.share import is_code, new_code
from turnledger.server.config.settings import ServerLimits

EXCHANGE = "/api/shares/exchange"
NONCE = "n" * 32
USER = [each for each in ALL if each != "admin"]


async def shared(where: Site, text: str, **wish: Any) -> dict[str, Any]:
    reply = await where.send("POST", "/api/shares", wish, token=text)
    assert reply.status == 201, reply.body
    made: dict[str, Any] = reply.json
    return made


async def test_share_link_is_created_exchanged_and_revoked() -> None:
    async with site() as where:
        admin = await where.token()
        made = await shared(
            where, admin, scope="shop", name="fair", max_uses=2, expires_in=60, models=["demo"]
        )
        assert is_code(made["code"])
        assert made["path"] == "/share#" + made["code"]
        assert made["expires_at"] == made["created_at"] + 60_000
        visit = await where.send("POST", EXCHANGE, {"code": made["code"], "nonce": NONCE})
        assert visit.status == 200
        assert (visit.json["kind"], visit.json["scope"], visit.json["chat"]) == ("scope", "shop", None)
        assert visit.json["owner"].startswith("guest_")
        assert (await where.complete(token=visit.json["token"])).status == 200
        listed = (await where.send("GET", "/api/shares", token=admin)).json["data"]
        assert [(each["id"], each["uses"], each["kind"]) for each in listed] == [(made["id"], 1, "scope")]
        assert "code" not in listed[0]
        gone = await where.send("DELETE", f"/api/shares/{made['id']}", token=admin)
        assert gone.json["revoked_at"] is not None
        assert (await where.complete(token=visit.json["token"])).code == "token_revoked"
        refused = await where.send("POST", EXCHANGE, {"code": made["code"], "nonce": NONCE})
        assert (refused.status, refused.code) == (404, "link_not_valid")


async def test_share_link_to_a_chat_is_created_and_revoked_only_by_its_owner() -> None:
    async with site() as where:
        ann, ben = await where.token(owner="ann", scopes=USER), await where.token(owner="ben", scopes=USER)
        chat = (await where.complete(token=ann)).conversation
        made = await shared(where, ann, chat=chat)
        visit = (await where.send("POST", EXCHANGE, {"code": made["code"], "nonce": NONCE})).json
        assert (visit["kind"], visit["chat"], visit["owner"]) == ("chat", chat, None)
        assert (await where.send("GET", f"/api/chats/{chat}", token=visit["token"])).status == 200
        for path in ("/api/shares", f"/api/shares/{made['id']}"):
            method = "GET" if path == "/api/shares" else "DELETE"
            assert b"ann" not in (await where.send(method, path, token=ben)).body
        assert (await where.send("DELETE", f"/api/shares/{made['id']}", token=ben)).status == 404
        assert (await where.send("POST", "/api/shares", {"chat": chat}, token=ben)).status == 404
        assert (
            await where.send("POST", "/api/shares", {"scope": "shop"}, token=ann)
        ).code == "token_too_wide"


async def test_share_links_into_a_scope_are_hidden_from_callers_without_admin() -> None:
    async with site() as where:
        boss = await where.token(owner="ann")
        user = await where.token(owner="ann", scopes=USER)
        other = await where.token(owner="eve", chat_scope="desk")
        into_scope = await shared(where, boss, scope="shop")
        chat = (await where.complete(token=user)).conversation
        to_chat = await shared(where, user, chat=chat)
        for text, seen in ((boss, [to_chat, into_scope]), (user, [to_chat]), (other, [])):
            listed = (await where.send("GET", "/api/shares", token=text)).json["data"]
            assert [each["id"] for each in listed] == [each["id"] for each in seen]
        for text in (user, other):
            assert (await where.send("DELETE", f"/api/shares/{into_scope['id']}", token=text)).status == 404


async def test_sharing_is_refused_on_a_server_without_tokens() -> None:
    async with site() as where:
        chat = (await where.complete()).conversation
        refused = await where.send("POST", "/api/shares", {"chat": chat})
        assert (refused.status, refused.code) == (403, "sharing_needs_tokens")
        assert (await where.send("GET", "/api/shares")).json == {"data": []}
        assert (await where.complete()).status == 200


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
    async with site() as where:
        assert (await where.send("POST", EXCHANGE, body)).status == status


async def test_share_exchanges_per_minute_are_limited() -> None:
    async with site(limits=ServerLimits(exchanges_per_minute=2)) as where:
        body = {"code": new_code(lambda bits: 1), "nonce": NONCE}
        replies = [await where.send("POST", EXCHANGE, body) for _ in range(3)]
        assert [each.status for each in replies] == [404, 404, 429]
        assert replies[2].code == "too_many_exchanges"
        assert int(replies[2].header(b"retry-after") or 0) >= 1


async def test_token_for_one_chat_reads_only_that_chat_and_its_events() -> None:
    async with site() as where:
        admin = await where.token()
        reply = await where.complete(token=admin)
        chat, turn = ((reply.header(name) or b"").decode() for name in (b"x-conversation-id", b"x-turn-id"))
        wish = {"scopes": ["chats:read"], "chat": chat}
        made = (await where.send("POST", "/api/tokens", wish, token=admin)).json
        assert made["chat"] == chat
        for path in (f"/api/chats/{chat}", f"/api/turns/{turn}/events", "/api/tokens/self"):
            assert (await where.send("GET", path, token=made["token"])).status == 200
        other = ((await where.complete("other", token=admin)).header(b"x-conversation-id") or b"").decode()
        assert (await where.send("GET", f"/api/chats/{other}", token=made["token"])).status == 404
        wide = await where.send("POST", "/api/tokens", {"scopes": ["turns:run"], "chat": chat}, token=admin)
        assert (wide.status, wide.code) == (400, "invalid_input")


async def test_share_exchange_limit_for_guessed_codes_does_not_affect_valid_ones() -> None:
    async with site(limits=ServerLimits(exchanges_per_minute=2)) as where:
        made = await shared(where, await where.token(), scope="shop")
        guess = {"code": new_code(lambda bits: 1), "nonce": NONCE}
        guesses = [await where.send("POST", EXCHANGE, guess) for _ in range(3)]
        assert [each.status for each in guesses] == [404, 404, 429]
        visits = [
            await where.send("POST", EXCHANGE, {"code": made["code"], "nonce": letter * 32})
            for letter in "aabbc"
        ]
        assert [each.status for each in visits] == [200, 200, 200, 200, 429]
        assert visits[4].code == "too_many_exchanges"
        [listed] = (await where.send("GET", "/api/shares", token=await where.token())).json["data"]
        assert listed["uses"] == 2


async def test_share_readers_do_not_use_up_the_request_limit_of_the_owner() -> None:
    async with site(limits=ServerLimits(owner_requests=1)) as where:
        ann = await where.token(owner="ann", scopes=USER)
        chat = (await where.complete(token=ann)).conversation
        made = await shared(where, ann, chat=chat)
        visit = (await where.send("POST", EXCHANGE, {"code": made["code"], "nonce": NONCE})).json
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
        assert (await where.send("GET", path, token=visit["token"])).code == "too_many_requests"
        assert (await where.send("GET", path, token=ann)).status == 200
        taken.set()
        await reading


async def test_slow_unauthenticated_exchange_does_not_use_up_the_limits_of_owners() -> None:
    async with site(limits=ServerLimits(owner_requests=1)) as where:
        ann = await where.token(owner="ann", scopes=USER)
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
        refused = await where.send("POST", EXCHANGE, {"code": "x", "nonce": NONCE})
        assert (refused.status, refused.code) == (429, "too_many_requests")
        assert (await where.send("GET", "/api/chats", token=ann)).status == 200
        comes.set()
        await slow
        assert (await where.send("POST", EXCHANGE, {"code": "x", "nonce": NONCE})).status == 404
