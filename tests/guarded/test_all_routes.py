"""Every documented route is called with every kind of wrong token. Invalid tokens are refused; for another
owner, a narrowed token and a visitor, Alice's data is not found; a foreign id is answered like an unknown
one (`make proof` tries more)."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.guarded.foreign_probes import ROLES, add_roles, differences, ids_of, own_of
from tests.guarded.town import ALL, SECRETS, Operation, Town, chat_body, town
from tests.unit.server.asgi import HOST, JSON, Reply, fetch


def shows_nothing(reply: Reply, place: Town, operation: Operation) -> None:
    """Check that a reply has none of Alice's data except the requested ids."""
    text = reply.body.decode() + str(reply.headers)
    for secret in SECRETS:
        assert secret not in text, operation.name
    if not operation.names_hers:
        assert place.ids["chat"] not in text, operation.name


async def harmless(place: Town, who: str, besides: str = "") -> AsyncIterator[tuple[Operation, Reply]]:
    """Send every operation with Alice's ids; no reply shows anything of her, and nothing of her changes."""
    before = await place.alices()
    for operation in place.operations():
        if operation.name != besides:
            reply = await place.walk(operation, who)
            shows_nothing(reply, place, operation)
            yield operation, reply
    assert await place.alices() == before


async def test_request_without_a_valid_token_is_refused_on_every_route() -> None:
    async with town() as place:
        place.clock.advance(60)  # the one that expires has done so
        before = await place.alices()
        for who, code in (
            (None, "missing_token"),
            ("garbage", "invalid_token"),
            ("unknown", "invalid_token"),
            ("revoked", "token_revoked"),
            ("expired", "token_expired"),
        ):
            for operation in place.operations():
                reply = await place.walk(operation, who)
                if operation.is_public:
                    assert reply.status in (200, 503), operation.name
                else:
                    assert (reply.status, reply.code) == (401, code), f"{operation.name} for {who}"
                    assert reply.header(b"www-authenticate") == b"Bearer"
                shows_nothing(reply, place, operation)
        assert await place.alices() == before


async def test_chat_of_another_owner_is_not_found_on_every_route() -> None:
    async with town() as place:
        async for operation, reply in harmless(place, "bob"):
            if operation.needs_admin or "{token}" in operation.path:
                assert reply.status == 403, operation.name
            elif operation.names_hers:
                assert reply.status == 404, operation.name
            else:
                assert reply.status == 200, operation.name


async def test_chat_outside_the_scope_of_a_narrowed_token_is_not_found_on_every_route() -> None:
    async with town() as place:
        async for operation, reply in harmless(place, "narrow", besides="POST /api/tokens"):
            if operation.names_hers or "{token}" in operation.path:
                assert reply.status == 404, operation.name
            else:
                assert reply.status == 200, operation.name


async def test_chat_other_than_that_of_a_chat_token_is_not_found_on_every_route() -> None:
    async with town() as place:
        other = await place.ledger.for_owner("alice", scope="aside").conversation()
        place.tokens["of another chat"] = await place.token(
            owner="alice", scopes=["chats:read"], conversation=other.id
        )
        async for operation, reply in harmless(place, "of another chat"):
            if not operation.is_public and operation.needs not in (None, "chats:read"):
                assert (reply.status, reply.code) == (403, "insufficient_scope"), operation.name
            elif operation.names_hers:
                assert reply.status == 404, operation.name
            elif "{token}" in operation.path:
                assert reply.status == 403, operation.name
            else:
                assert reply.status == 200, operation.name


async def test_missing_scope_is_refused_on_exactly_the_routes_that_need_it() -> None:
    for scope in ALL:
        async with town() as place:
            for operation in place.operations():
                reply = await place.walk(operation, f"all but {scope}")
                if operation.is_public:
                    continue
                if operation.needs == scope:
                    assert (reply.status, reply.code) == (403, "insufficient_scope"), operation.name
                    shows_nothing(reply, place, operation)
                else:
                    assert reply.status in (200, 201, 403), operation.name


async def test_write_only_token_never_receives_message_text() -> None:
    async with town() as place:
        place.tokens["writer"] = await place.token(owner="alice", scopes=["chats:write"])
        path = f"/api/chats/{place.ids['chat']}"
        stale = [HOST, JSON, (b"authorization", f"Bearer {place.tokens['writer']}".encode())]
        lost = await fetch(
            place.app,
            path,
            method="PATCH",
            headers=[*stale, (b"if-match", b'"9"')],
            parts=(b'{"pinned":true}',),
        )
        assert lost.status == 412
        replies = [lost]
        for operation in place.operations():
            if operation.needs_admin or operation.is_public:
                continue
            replies.append(await place.walk(operation, "writer"))
        replies.append(await place.fetch("POST", "/api/chats", "writer", {"conversation_key": SECRETS[1]}))
        assert sum(each.status < 300 for each in replies) > 8
        assert not [each.body for each in replies if SECRETS[0] in each.body.decode()]
        assert (await place.fetch("POST", f"{path}/restore", "writer")).status == 200
        named = await place.fetch("PATCH", path, "writer", {"title": "Cakes"})
        assert (named.status, named.json["title"], named.json["preview"]) == (200, "Cakes", "")


async def test_cancel_by_a_token_that_cannot_read_shows_only_the_status() -> None:
    async with town() as place:
        told = {"model": "demo", "input": "Hi", "instructions": SECRETS[0], "metadata": {"a": SECRETS[0]}}
        made = await place.fetch("POST", "/v1/responses", "alice", told)
        path = f"/v1/responses/{made.json['id']}/cancel"
        reply = await place.fetch("POST", path, "all but chats:read")
        assert (reply.status, reply.json["status"], reply.json["output"]) == (200, "completed", [])
        assert SECRETS[0] not in reply.body.decode()
        assert SECRETS[0] in (await place.fetch("POST", path, "alice")).body.decode()


async def test_model_outside_the_token_is_not_found() -> None:
    async with town() as place:
        reply = await place.fetch("POST", "/v1/chat/completions", "modelless", chat_body("Hi"), key="new")
        assert (reply.status, reply.code) == (404, "model_not_found")
        assert (await place.fetch("GET", "/v1/models", "modelless")).json["data"] == []
        assert (await place.fetch("GET", "/v1/models/demo", "modelless")).status == 404


async def test_model_outside_the_token_cannot_be_named_in_other_fields() -> None:
    async with town() as place:
        place.tokens["demo only"] = await place.token(owner="alice", scopes=ALL, models=["demo"])
        for field in ({"Model": "big"}, {"models": ["big"]}):
            for key in ("new", None):
                body = {**chat_body("Hi"), **field}
                reply = await place.fetch("POST", "/v1/chat/completions", "demo only", body, key=key)
                assert (reply.status, reply.code) == (403, "outside_models")
                assert (
                    await place.fetch("POST", "/v1/chat/completions", "alice", body, key=key)
                ).status == 200


@pytest.mark.parametrize("who", ROLES)
async def test_foreign_id_is_answered_like_an_unknown_one(who: str) -> None:
    async with town() as place:
        await add_roles(place)
        chat = await place.ledger.for_owner("alice").conversation(conversation_key="private-of-alice")
        async with chat.turn("Hi", idempotency_key="private-of-alice") as turn:
            turn.emit("Hello.")
        theirs, own = await ids_of(place, chat, turn.id), await own_of(place, who)
        before = await place.alices()
        assert await differences(place, who, theirs, own) == []
        assert await place.alices() == before


OPEN_TO_READERS = {"GET /api/chats/{chat}", "GET /api/events", "GET /api/tokens/self"}


async def test_guest_of_a_scope_gets_the_same_status_as_a_stranger_on_every_route() -> None:
    async with town() as place:
        async for operation, reply in harmless(place, "guest", besides="POST /api/shares"):
            assert reply.status == (await place.walk(operation, "bob")).status, operation.name


async def test_guest_has_private_chats_in_the_shared_scope_only() -> None:
    async with town() as place:
        reply = await place.fetch("POST", "/v1/chat/completions", "guest", chat_body("Hello"), key="mine")
        assert reply.status == 200
        chat = reply.conversation
        shown = await place.fetch("GET", f"/api/chats/{chat}", "guest")
        assert (shown.status, shown.json["scope"]) == (200, "fair")
        for other in ("alice", "bob", "reader"):
            assert (await place.fetch("GET", f"/api/chats/{chat}", other)).status == 404
        me = (await place.fetch("GET", "/api/tokens/self", "guest")).json
        assert me["owner"].startswith("guest_")
        assert (me["chat_scope"], me["scopes"]) == ("fair", ["chats:read", "chats:write", "turns:run"])


async def test_visitor_of_a_share_link_cannot_create_share_links() -> None:
    async with town() as place:
        completion = await place.fetch(
            "POST", "/v1/chat/completions", "guest", chat_body("Hello"), key="mine"
        )
        own = completion.conversation
        for chat in (own, place.ids["chat"]):
            reply = await place.fetch("POST", "/api/shares", "guest", {"chat": chat})
            assert (reply.status, reply.code) == (403, "token_too_wide")
        assert (await place.fetch("POST", "/api/shares", "reader", {"chat": own})).status == 403


async def test_share_reader_can_use_only_the_routes_open_to_readers() -> None:
    async with town() as place:
        before = await place.alices()
        for operation in place.operations():
            reply = await place.walk(operation, "reader")
            if operation.is_public or operation.name in OPEN_TO_READERS:
                assert reply.status == 200, operation.name
            else:
                assert reply.status == 403, operation.name
            text = reply.body.decode() + str(reply.headers)
            assert SECRETS[1] not in text, operation.name
            assert (SECRETS[0] in text) == (operation.name == "GET /api/chats/{chat}"), operation.name
        assert await place.alices() == before


async def test_share_reader_sees_visible_messages_without_owner_data() -> None:
    async with town() as place:
        ledger, ids = place.ledger, place.ids
        chat = await ledger.for_owner("alice").conversation(ids["chat"])
        await chat.update(title="Cakes", metadata={"customer": "4711"}, tags=["regular"])
        call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
        result = {"type": "function_call_output", "call_id": "c", "output": "the password"}
        async with chat.turn("Look it up", details={"model": "m"}) as turn:
            await turn.add(call, result)
            turn.emit("It is blue.")
        await chat.flag(turn.id, 3, to_user=False)
        await chat.flag(turn.id, 0, to_model=False)
        with pytest.raises(ZeroDivisionError):
            async with chat.turn("Divide it"):
                raise ZeroDivisionError
        shown = (await place.fetch("GET", f"/api/chats/{ids['chat']}", "reader")).json
        assert (shown["title"], shown["conversation_key"], shown["metadata"]) == ("Cakes", None, {})
        assert (shown["tags"], shown["attempts"]) == ([], [])
        assert [(each["hidden"], each["hidden_from_model"]) for each in shown["turns"]] == [([], [])] * 2
        assert [len(each["input"]) + len(each["output"]) for each in shown["turns"]] == [2, 1]
        assert [each["details"] for each in shown["turns"]] == [{}, {}]
        assert "blue" not in str(shown)
        assert "alice" not in str(shown)
        assert (await place.fetch("GET", "/api/tokens/self", "reader")).json["owner"] == ""
        other = await ledger.for_owner("alice").conversation()
        assert (await place.fetch("GET", f"/api/chats/{other.id}", "reader")).status == 404


async def test_derived_title_for_share_readers_uses_only_visible_words() -> None:
    async with town() as place:
        path = f"/api/chats/{place.ids['chat']}"
        chat = await place.ledger.for_owner("alice").conversation(place.ids["chat"])
        [first] = await chat.turns()
        assert (await place.fetch("GET", path, "reader")).json["title"] == SECRETS[0]
        async with chat.edit(first.id, "Nougat") as turn:
            turn.emit("Yes.")
        assert (await place.fetch("GET", path, "alice")).json["title"] == SECRETS[0]  # she sees all of it
        shown = await place.fetch("GET", path, "reader")
        assert shown.json["title"] == "Nougat"
        assert SECRETS[0] not in shown.body.decode()
        await chat.flag(turn.id, 0, to_user=False)
        shown = await place.fetch("GET", path, "reader")
        assert shown.json["title"] is None
        assert "Nougat" not in shown.body.decode()


async def test_search_finds_messages_only_for_their_owner() -> None:
    async with town() as place:
        other = await place.ledger.for_owner("alice").conversation()
        place.tokens["of another chat"] = await place.token(
            owner="alice", scopes=["chats:read"], conversation=other.id
        )
        path = f"/api/search?q={SECRETS[0]}"
        hers = (await place.fetch("GET", path, "alice")).json
        assert [each["chat"]["id"] for each in hers["data"]] == [place.ids["chat"]]
        for who in ("bob", "narrow", "guest", "of another chat"):
            found = (await place.fetch("GET", path, who)).json
            assert (found["data"], found["next"]) == ([], None), who
        assert (await place.fetch("GET", path, "reader")).status == 403


async def test_revoked_share_link_closes_every_route_to_its_visitors() -> None:
    async with town() as place:
        revoked = await place.fetch("DELETE", f"/api/shares/{place.ids['share']}", "alice")
        assert revoked.json["revoked_at"] is not None
        for operation in place.operations():
            if not operation.is_public:
                reply = await place.walk(operation, "reader")
                assert (reply.status, reply.code) == (401, "token_revoked"), operation.name


async def test_visitor_can_revoke_its_own_token() -> None:
    async with town() as place:
        for who in ("guest", "reader"):
            assert (await place.fetch("DELETE", "/api/tokens/self", who)).status == 200
            assert (await place.fetch("GET", "/api/tokens/self", who)).status == 401
