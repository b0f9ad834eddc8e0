"""Everything that the description lists is asked for with every kind of wrong token. To whoever has one that
is not valid there is nothing; to another owner, and to one who is narrowed, what is Alice's is not there."""

from __future__ import annotations

from tests.guarded.walking import ALL, SECRETS, Operation, Town, chat_body, town
from tests.unit.server.asgi import HOST, JSON, Reply, ask


def shows_nothing(reply: Reply, place: Town, operation: Operation) -> None:
    """Nothing of what is Alice's, but for the ids that were asked for."""
    told = reply.body.decode() + str(reply.headers)
    for secret in SECRETS:
        assert secret not in told, operation.name
    if "{chat}" not in operation.path:
        assert place.ids["chat"] not in told, operation.name


async def test_without_a_valid_token_nothing_is_answered() -> None:
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


async def test_to_another_owner_what_is_hers_does_not_exist() -> None:
    async with town() as place:
        before = await place.alices()
        for operation in place.operations():
            reply = await place.walk(operation, "bob")
            if operation.needs_admin or "{token}" in operation.path:
                assert reply.status == 403, operation.name
            elif operation.names_hers:
                assert reply.status == 404, operation.name
            else:
                assert reply.status == 200, operation.name
            shows_nothing(reply, place, operation)
        assert await place.alices() == before


async def test_to_one_who_is_narrowed_other_chats_do_not_exist() -> None:
    async with town() as place:
        before = await place.alices()
        for operation in place.operations():
            if operation.name == "POST /api/tokens":
                continue  # what he may make is his own test
            reply = await place.walk(operation, "narrow")
            if operation.names_hers or "{token}" in operation.path:
                assert reply.status == 404, operation.name
            else:
                assert reply.status == 200, operation.name
            shows_nothing(reply, place, operation)
        assert await place.alices() == before


async def test_to_one_who_is_narrowed_to_a_chat_others_do_not_exist() -> None:
    async with town() as place:
        other = await place.ledger.conversation(owner="alice", scope="aside")
        _, place.tokens["of another chat"] = await place.ledger.tokens.create(
            owner="alice", scopes=["chats:read"], conversation=other.id
        )
        before = await place.alices()
        for operation in place.operations():
            reply = await place.walk(operation, "of another chat")
            if not operation.is_public and operation.needs not in (None, "chats:read"):
                assert (reply.status, reply.code) == (403, "insufficient_scope"), operation.name
            elif operation.names_hers:
                assert reply.status == 404, operation.name
            elif "{token}" in operation.path:
                assert reply.status == 403, operation.name
            else:
                assert reply.status == 200, operation.name
            shows_nothing(reply, place, operation)
        assert await place.alices() == before


async def test_each_scope_opens_what_needs_it_and_nothing_else() -> None:
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


async def test_who_may_change_chats_is_not_told_what_was_said_there() -> None:
    async with town() as place:
        _, place.tokens["writer"] = await place.ledger.tokens.create(owner="alice", scopes=["chats:write"])
        path = f"/api/chats/{place.ids['chat']}"
        stale = [HOST, JSON, (b"authorization", f"Bearer {place.tokens['writer']}".encode())]
        lost = await ask(
            place.app,
            path,
            method="PATCH",
            headers=[*stale, (b"if-match", b'"9"')],
            parts=(b'{"pinned":true}',),
        )
        assert lost.status == 412
        told = [lost]
        for operation in place.operations():
            if operation.needs_admin or operation.is_public:
                continue
            told.append(await place.walk(operation, "writer"))
        told.append(await place.ask("POST", "/api/chats", "writer", {"conversation_key": SECRETS[1]}))
        assert sum(each.status < 300 for each in told) > 8
        assert not [each.body for each in told if SECRETS[0] in each.body.decode()]
        named = await place.ask("PATCH", path, "writer", {"title": "Cakes"})
        assert (named.status, named.json["title"], named.json["preview"]) == (200, "Cakes", "")


async def test_a_model_that_is_not_on_the_list_is_not_there() -> None:
    async with town() as place:
        asked = await place.ask("POST", "/v1/chat/completions", "modelless", chat_body("Hi"), key="new")
        assert (asked.status, asked.code) == (404, "model_not_found")
        assert (await place.ask("GET", "/v1/models", "modelless")).json["data"] == []
        assert (await place.ask("GET", "/v1/models/demo", "modelless")).status == 404


async def test_a_model_is_not_named_past_the_list() -> None:
    async with town() as place:
        _, place.tokens["demo only"] = await place.ledger.tokens.create(
            owner="alice", scopes=ALL, models=["demo"]
        )
        for field in ({"Model": "big"}, {"models": ["big"]}):
            for key in ("new", None):
                body = {**chat_body("Hi"), **field}
                asked = await place.ask("POST", "/v1/chat/completions", "demo only", body, key=key)
                assert (asked.status, asked.code) == (403, "outside_models")
                assert (await place.ask("POST", "/v1/chat/completions", "alice", body, key=key)).status == 200
