"""What visitors can do who came by a link, and what they cannot: walked over everything that there is."""

from __future__ import annotations

from tests.guarded.test_all_routes import shows_nothing
from tests.guarded.walking import SECRETS, chat_body, town

OPEN_TO_READERS = {"GET /api/chats/{chat}", "GET /api/tokens/self"}


async def test_to_a_guest_of_a_scope_all_is_as_to_any_stranger() -> None:
    async with town() as place:
        before = await place.alices()
        for operation in place.operations():
            if operation.name == "POST /api/shares":
                continue
            reply, strangers = await place.walk(operation, "guest"), await place.walk(operation, "bob")
            assert reply.status == strangers.status, operation.name
            shows_nothing(reply, place, operation)
        assert await place.alices() == before


async def test_a_guest_has_chats_of_his_own_in_the_scope_and_nowhere_else() -> None:
    async with town() as place:
        said = await place.ask("POST", "/v1/chat/completions", "guest", chat_body("Hello"), key="mine")
        assert said.status == 200
        chat = (said.header(b"x-conversation-id") or b"").decode()
        shown = await place.ask("GET", f"/api/chats/{chat}", "guest")
        assert (shown.status, shown.json["scope"]) == (200, "fair")
        for other in ("alice", "bob", "reader"):
            assert (await place.ask("GET", f"/api/chats/{chat}", other)).status == 404
        me = (await place.ask("GET", "/api/tokens/self", "guest")).json
        assert me["owner"].startswith("guest_")
        assert (me["chat_scope"], me["scopes"]) == ("fair", ["chats:read", "chats:write", "turns:run"])


async def test_nobody_who_came_by_a_link_makes_one() -> None:
    async with town() as place:
        said = await place.ask("POST", "/v1/chat/completions", "guest", chat_body("Hello"), key="mine")
        own = (said.header(b"x-conversation-id") or b"").decode()
        for chat in (own, place.ids["chat"]):
            reply = await place.ask("POST", "/api/shares", "guest", {"chat": chat})
            assert (reply.status, reply.code) == (403, "token_too_wide")
        assert (await place.ask("POST", "/api/shares", "reader", {"chat": own})).status == 403


async def test_a_reader_reads_one_chat_and_nothing_else_is_open_to_him() -> None:
    async with town() as place:
        before = await place.alices()
        for operation in place.operations():
            reply = await place.walk(operation, "reader")
            if operation.is_public or operation.name in OPEN_TO_READERS:
                assert reply.status == 200, operation.name
            else:
                assert reply.status == 403, operation.name
            told = reply.body.decode() + str(reply.headers)
            assert SECRETS[1] not in told, operation.name
            assert (SECRETS[0] in told) == (operation.name == "GET /api/chats/{chat}"), operation.name
        assert await place.alices() == before


async def test_a_reader_sees_what_was_said_and_not_whose_it_is() -> None:
    async with town() as place:
        ledger, ids = place.ledger, place.ids
        chat = await ledger.conversation(ids["chat"], owner="alice")
        await chat.update(title="Cakes", metadata={"customer": "4711"})
        async with chat.turn("Look it up") as turn:
            turn.emit("It is blue.")
        await chat.flag(turn.id, 1, to_user=False)
        shown = (await place.ask("GET", f"/api/chats/{ids['chat']}", "reader")).json
        assert (shown["title"], shown["conversation_key"], shown["metadata"]) == ("Cakes", None, {})
        assert shown["attempts"] == []
        assert [len(each["input"]) + len(each["output"]) for each in shown["turns"]] == [2, 1]
        assert "blue" not in str(shown)
        assert "alice" not in str(shown)
        assert (await place.ask("GET", "/api/tokens/self", "reader")).json["owner"] == ""
        other = await ledger.conversation(owner="alice")
        assert (await place.ask("GET", f"/api/chats/{other.id}", "reader")).status == 404


async def test_a_chat_is_not_called_by_words_that_its_readers_do_not_see() -> None:
    async with town() as place:
        path = f"/api/chats/{place.ids['chat']}"
        chat = await place.ledger.conversation(place.ids["chat"], owner="alice")
        [first] = await chat.turns()
        assert (await place.ask("GET", path, "reader")).json["title"] == SECRETS[0]
        async with chat.edit(first.id, "Nougat") as turn:
            turn.emit("Yes.")
        assert (await place.ask("GET", path, "alice")).json["title"] == SECRETS[0]  # she sees all of it
        shown = await place.ask("GET", path, "reader")
        assert shown.json["title"] == "Nougat"
        assert SECRETS[0] not in shown.body.decode()
        await chat.flag(turn.id, 0, to_user=False)
        shown = await place.ask("GET", path, "reader")
        assert shown.json["title"] is None
        assert "Nougat" not in shown.body.decode()


async def test_nobody_but_her_finds_what_she_said() -> None:
    async with town() as place:
        other = await place.ledger.conversation(owner="alice")
        _, place.tokens["of another chat"] = await place.ledger.tokens.create(
            owner="alice", scopes=["chats:read"], conversation=other.id
        )
        path = f"/api/search?q={SECRETS[0]}"
        hers = (await place.ask("GET", path, "alice")).json
        assert [each["chat"]["id"] for each in hers["data"]] == [place.ids["chat"]]
        for who in ("bob", "narrow", "guest", "of another chat"):
            found = (await place.ask("GET", path, who)).json
            assert (found["data"], found["next"]) == ([], None), who
        assert (await place.ask("GET", path, "reader")).status == 403


async def test_when_the_link_is_revoked_everything_is_closed() -> None:
    async with town() as place:
        revoked = await place.ask("DELETE", f"/api/shares/{place.ids['share']}", "alice")
        assert revoked.json["revoked_at"] is not None
        for operation in place.operations():
            if not operation.is_public:
                reply = await place.walk(operation, "reader")
                assert (reply.status, reply.code) == (401, "token_revoked"), operation.name


async def test_a_visitor_can_leave() -> None:
    async with town() as place:
        for who in ("guest", "reader"):
            assert (await place.ask("DELETE", "/api/tokens/self", who)).status == 200
            assert (await place.ask("GET", "/api/tokens/self", who)).status == 401
