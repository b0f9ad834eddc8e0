"""/api/usage: what each owner used of each model, for admins, within the scope of their token."""

from __future__ import annotations

from tests.unit.server.asgi import Reply
from tests.unit.server.site import Site, site
from turnledger.model.access.token import TokenScope


async def count(here: Site, text: str | None, cursor: str | None = None) -> Reply:
    return await here.send(
        "GET", "/api/usage" if cursor is None else f"/api/usage?cursor={cursor}", token=text
    )


async def used(here: Site, text: str) -> list[tuple[str, str, int]]:
    reply = await count(here, text)
    return sorted((each["owner"], each["model"], each["turns"]) for each in reply.json["data"])


async def test_usage_is_counted_by_owner_and_model_until_no_turn_is_left() -> None:
    async with site() as here:
        admin = await here.token()
        _, ann = await here.host.tokens.create(owner="ann", scopes=["turns:run"])
        for text in (admin, ann, ann):
            assert (await here.complete(token=text)).status == 200
        reply = await count(here, admin)
        assert [sorted(each) for each in reply.json["data"]] == [
            ["bytes", "input_tokens", "model", "output_tokens", "owner", "turns"]
        ] * 2
        of_ann = next(each for each in reply.json["data"] if each["owner"] == "ann")
        assert (of_ann["model"], of_ann["turns"]) == ("demo", 2)
        assert min(of_ann["input_tokens"], of_ann["output_tokens"], of_ann["bytes"]) > 0
        after = await count(here, admin, reply.json["next"])
        assert after.json == {"data": [], "next": None}


async def test_usage_refuses_a_cursor_that_this_route_did_not_return() -> None:
    async with site() as here:
        admin = await here.token()
        assert (await here.complete(token=admin)).status == 200
        position = (await here.send("GET", "/api/chats", token=admin)).json["as_of"]
        for cursor in ("", "turn_00000000000070008000000000000000", position):
            reply = await count(here, admin, cursor)
            assert (reply.status, reply.code) == (400, "invalid_input"), cursor


async def test_usage_of_a_narrowed_token_covers_its_scope_only() -> None:
    async with site() as here:
        admin = await here.token()
        tokens = here.host.tokens
        for owner, scope in (("ann", None), ("ann", "shop"), ("bob", "shop"), ("bob", "home")):
            _, text = await tokens.create(owner=owner, scopes=["turns:run"], chat_scope=scope)
            assert (await here.complete(f"of {owner} in {scope}", token=text)).status == 200
        assert await used(here, admin) == [("ann", "demo", 2), ("bob", "demo", 2)]
        narrowed = await here.token(chat_scope="shop")
        assert await used(here, narrowed) == [("ann", "demo", 1), ("bob", "demo", 1)]


async def test_usage_needs_the_scope_admin_which_no_caller_without_a_token_has() -> None:
    async with site() as here:
        reply = await count(here, None)
        assert (reply.status, reply.code) == (403, "insufficient_scope")
        others = [each for each in TokenScope if each is not TokenScope.ADMIN]
        reply = await count(here, await here.token(scopes=others))
        assert (reply.status, reply.code) == (403, "insufficient_scope")
