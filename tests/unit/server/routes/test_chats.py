"""The chat catalogue over HTTP: lists with cursors, changes with If-Match, deletion and restore."""

from __future__ import annotations

import asyncio
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.unit.server.site import Site, site_of
from turnledger import Chat
from turnledger.errors import TurnledgerError
from turnledger.model.conversation import Conversation
from turnledger.server.config.settings import ChatSettings
from turnledger.server.routes.chats import revision_of
from turnledger.server.routes.events import POSITION

ONCE = {"Idempotency-Key": "once"}


class Place(Site):
    async def make(self, **body: Any) -> dict[str, Any]:
        made = await self.post("/api/chats", body)
        assert made.status == 201, made.body
        return dict(made.json)

    async def run_turn(self, text: str, key: str) -> None:
        async with self.ledger.turn(text, conversation_key=key) as turn:
            turn.emit(f"You said {text}.")

    async def named(self, key: str, **query: str) -> list[dict[str, Any]]:
        found = await self.send("GET", f"/api/chats?{urlencode({'conversation_key': key, **query})}")
        assert found.status == 200, found.body
        return list(found.json["data"])

    async def titles(self, **query: Any) -> list[str]:
        listed = await self.send("GET", f"/api/chats?{urlencode(query)}")
        assert listed.status == 200, listed.body
        return [each["title"] for each in listed.json["data"]]


def place(store: str = "memory:", **settings: Any) -> AbstractAsyncContextManager[Place]:
    return site_of(Place, store, **settings)


async def test_listed_chat_shows_title_and_preview_of_its_last_turn() -> None:
    async with place() as here:
        await here.run_turn("Where is\nmy order?", "k")
        listed = await here.send("GET", "/api/chats")
        (chat,) = listed.json["data"]
        assert listed.json["next"] is None
        assert (chat["title"], chat["named_by"]) == ("Where is my order?", "words")
        assert (chat["turn_count"], chat["is_running"], chat["preview"]) == (
            1,
            False,
            "You said Where is my order?.",
        )
        assert (chat["tags"], chat["pinned"], chat["archived"], chat["revision"]) == ([], False, False, 1)


async def test_chat_list_pages_cover_all_chats_and_end() -> None:
    async with place() as here:
        for number in range(5):
            await here.make(title=str(number))
        seen: list[str] = []
        query = {"limit": "2"}
        for _ in range(3):
            found = await here.get(f"/api/chats?{urlencode(query)}")
            seen += [each["title"] for each in found["data"]]
            query["cursor"] = found["next"] or ""
        assert sorted(seen) == ["0", "1", "2", "3", "4"]
        assert found["next"] is None


async def test_chat_list_filters_by_tag_pin_archive_scope_and_deletion() -> None:
    async with place() as here:
        for title, changes in (
            ("plain", {}),
            ("tagged", {"tags": ["work", "home"]}),
            ("pinned", {"pinned": True}),
            ("old", {"archived": True}),
        ):
            chat = await here.make(title=title)
            changed = await here.send("PATCH", f"/api/chats/{chat['id']}", changes)
            assert changed.status == 200
        await here.make(title="elsewhere", scope="shop")
        assert set(await here.titles()) == {"plain", "tagged", "pinned", "elsewhere"}
        assert await here.titles(tag="work") == ["tagged"]
        assert await here.titles(pinned="true") == ["pinned"]
        assert await here.titles(archived="true") == ["old"]
        assert len(await here.titles(archived="any")) == 5
        assert await here.titles(scope="shop") == ["elsewhere"]
        assert await here.titles(deleted="true") == []
        await here.send("DELETE", f"/api/chats/{chat['id']}")
        assert await here.titles(deleted="true") == ["old"]


@pytest.mark.parametrize(
    "query", ["cursor=abc", "archived=1", "pinned=", "deleted=any", "limit=0", "tag=", "tag=%00", "scope=%01"]
)
async def test_chat_list_with_an_invalid_filter_is_refused(query: str) -> None:
    async with place() as here:
        refused = await here.send("GET", f"/api/chats?{query}")
        assert (refused.status, refused.json["error"]["type"]) == (400, "invalid_request_error")


async def test_chat_creation_with_a_conversation_key_creates_one_chat() -> None:
    async with place() as here:
        made = await here.send("POST", "/api/chats", {"conversation_key": "k", "title": "T", "tags": ["a"]})
        again = await here.send("POST", "/api/chats", {"conversation_key": "k", "title": "U"})
        assert (made.status, again.status) == (201, 200)
        assert made.json == again.json
        assert (made.json["title"], made.json["tags"], made.json["named_by"]) == ("T", ["a"], "person")
        assert made.header(b"etag") == b'"1"'


async def test_chat_creation_on_a_server_that_keeps_no_chats_is_refused() -> None:
    async with place(chats=ChatSettings(keep=False)) as here:
        refused = await here.send("POST", "/api/chats", {})
        assert (refused.status, refused.json["error"]["code"]) == (409, "not_kept")
        assert await here.titles() == []


async def test_stale_if_match_is_answered_412_with_the_current_chat() -> None:
    async with place() as here:
        chat = f"/api/chats/{(await here.make(title='T'))['id']}"
        first = await here.send("PATCH", chat, {"title": "A", "pinned": True}, {"If-Match": '"1"'})
        late = await here.send("PATCH", chat, {"title": "B"}, {"If-Match": '"1"'})
        assert (first.status, first.header(b"etag"), first.json["revision"]) == (200, b'"2"', 2)
        assert (late.status, late.header(b"etag")) == (412, b'"2"')
        assert late.json["error"]["code"] == "revision_conflict"
        assert (late.json["chat"]["title"], late.json["chat"]["pinned"]) == ("A", True)
        shown = await here.send("GET", chat)
        assert (shown.header(b"etag"), shown.json["title"]) == (b'"2"', "A")


async def test_change_sent_again_with_the_same_if_match_succeeds() -> None:
    async with place() as here:
        chat = f"/api/chats/{(await here.make(title='T'))['id']}"
        answers = [await here.send("PATCH", chat, {"tags": ["a"]}, {"If-Match": '"1"'}) for _ in range(2)]
        assert [each.status for each in answers] == [200, 200]
        assert answers[0].json == answers[1].json


async def test_removed_title_falls_back_to_the_first_words() -> None:
    async with place() as here:
        await here.run_turn("Where is my order?", "k")
        (listed,) = (await here.send("GET", "/api/chats")).json["data"]
        chat = f"/api/chats/{listed['id']}"
        named = await here.send("PATCH", chat, {"title": "Mine"})
        assert (named.json["title"], named.json["named_by"]) == ("Mine", "person")
        taken_back = await here.send("PATCH", chat, {"title": None, "metadata": None, "tags": None})
        assert (taken_back.json["title"], taken_back.json["named_by"]) == ("Where is my order?", "words")


@pytest.mark.parametrize(
    "body",
    [
        {"title": "x" * 513},
        {"tags": [""]},
        {"tags": ["x" * 65]},
        {"tags": [str(number) for number in range(17)]},
        {"tags": "work"},
        {"tags": ["a\nb"]},
        {"pinned": None},
        {"colour": "red"},
        {"metadata": {"a": 1}},
    ],
)
async def test_chat_update_with_an_invalid_field_is_refused_as_a_whole(body: dict[str, Any]) -> None:
    async with place() as here:
        made = await here.make(title="T")
        refused = await here.send("PATCH", f"/api/chats/{made['id']}", {"archived": True, **body})
        assert refused.status == 400
        assert (await here.send("GET", f"/api/chats/{made['id']}")).json["revision"] == 1


@pytest.mark.parametrize(("given", "revision"), [(None, None), ("*", None), ('"3"', 3), (' W/"12" ', 12)])
def test_if_match_header_is_parsed_to_a_revision(given: str | None, revision: int | None) -> None:
    assert revision_of(given) == revision


@pytest.mark.parametrize("given", ["3", '"a"', '"1", "2"', '""', '"-1"'])
def test_if_match_that_is_not_a_revision_is_refused(given: str) -> None:
    with pytest.raises(TurnledgerError, match="If-Match must be the ETag of the chat"):
        revision_of(given)


async def test_events_from_the_as_of_of_a_list_have_no_gap_or_duplicate() -> None:
    async with place() as here:
        await here.make(title="shown")
        listed = await here.send("GET", "/api/chats")
        later = await here.make(title="later")
        seal = await here.app.service.cursor_seal.get()
        with here.host.follow(here.ledger, after=seal.unseal(POSITION, listed.json["as_of"])) as following:
            batch = await following.next_batch()
        assert [(each.kind.value, each.conversation) for each in batch if each.conversation] == [
            ("chat.created", later["id"])
        ]


async def test_rename_of_a_chat_deleted_right_after_reports_success(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with place() as here:
        await here.run_turn("Where is my order?", "k")
        (chat,) = (await here.send("GET", "/api/chats")).json["data"]
        update = Chat.update

        async def update_then_delete(self: Chat, **changes: Any) -> Conversation:
            changed = await update(self, **changes)
            await here.ledger.delete(self.id)
            return changed

        monkeypatch.setattr(Chat, "update", update_then_delete)
        renamed = await here.send(
            "PATCH", f"/api/chats/{chat['id']}", {"title": "Orders"}, {"If-Match": '"1"'}
        )
        assert (renamed.status, renamed.json["title"], renamed.json["turn_count"]) == (200, "Orders", 1)
        restored = await here.send("POST", f"/api/chats/{chat['id']}/restore")
        assert restored.json["title"] == "Orders"


async def test_chat_creation_repeated_with_one_idempotency_key_creates_one_chat() -> None:
    async with place() as here:
        body = {"title": "Orders", "metadata": {"b": "2", "a": "1"}, "tags": ["shop"]}
        made = await here.send("POST", "/api/chats", body, ONCE)
        again = await here.send("POST", "/api/chats", dict(reversed(body.items())), ONCE)
        assert (made.status, again.status) == (201, 200)
        assert (made.header(b"idempotency-replayed"), again.header(b"idempotency-replayed")) == (
            None,
            b"true",
        )
        assert again.json == made.json
        assert await here.titles() == ["Orders"]


async def test_concurrent_chat_creations_with_one_idempotency_key_create_one_chat() -> None:
    async with place() as here:
        requests = [here.send("POST", "/api/chats", {"title": "Orders"}, ONCE) for _ in range(8)]
        replies = await asyncio.gather(*requests)
        assert sorted(each.status for each in replies) == [*[200] * 7, 201]
        assert (len({each.json["id"] for each in replies}), await here.titles()) == (1, ["Orders"])


@pytest.mark.parametrize(
    "other", [{"title": "Others"}, {"title": "Orders", "tags": ["a"]}, {"scope": "shop"}]
)
async def test_chat_creation_with_a_reused_idempotency_key_is_refused(other: dict[str, Any]) -> None:
    async with place() as here:
        await here.send("POST", "/api/chats", {"title": "Orders"}, ONCE)
        refused = await here.send("POST", "/api/chats", other, ONCE)
        assert (refused.status, refused.code) == (422, "idempotency_mismatch")
        assert await here.titles() == ["Orders"]


async def test_chat_creation_repeated_after_deletion_is_answered_410() -> None:
    async with place() as here:
        made = await here.send("POST", "/api/chats", {}, ONCE)
        await here.send("DELETE", f"/api/chats/{made.json['id']}")
        late = await here.send("POST", "/api/chats", {}, ONCE)
        assert (late.status, late.code) == (410, "conversation_deleted")


async def test_chat_found_by_conversation_key_is_not_marked_as_a_replay() -> None:
    async with place() as here:
        made = await here.make(conversation_key="k")
        found = await here.send("POST", "/api/chats", {"conversation_key": "k"}, ONCE)
        assert (found.status, found.json["id"]) == (200, made["id"])
        assert found.header(b"idempotency-replayed") is None


async def test_chat_is_found_by_conversation_key_before_its_first_turn_is_committed() -> None:
    async with place() as server:
        assert await server.named("desk 7") == []
        async with server.ledger.turn("Hi", conversation_key="desk 7") as turn:
            [running] = await server.named("desk 7")
            assert await server.titles() == []
            turn.emit("Hello.")
        assert (running["id"], running["is_running"], running["turn_count"]) == (
            str(turn.conversation.id),
            True,
            0,
        )
        await (await server.ledger.conversation(conversation_key="desk 7")).update(archived=True)
        [found] = await server.named("desk 7")
        assert (found["id"], found["archived"], found["turn_count"]) == (running["id"], True, 1)


async def test_conversation_key_is_looked_up_only_in_its_scope() -> None:
    async with place() as server:
        made = await server.make(conversation_key="k", scope="shop")
        assert [each["id"] for each in await server.named("k", scope="shop")] == [made["id"]]
        assert await server.named("k") == await server.named("k", scope="") == []


async def test_conversation_key_of_a_deleted_chat_finds_no_chat() -> None:
    async with place() as server:
        chat = await server.ledger.conversation(conversation_key="k")
        await chat.delete()
        assert await server.named("k") == []


@pytest.mark.parametrize("other", ["tag=a", "archived=any", "pinned=true", "deleted=true", "cursor=x"])
async def test_conversation_key_filter_combined_with_another_filter_is_refused(other: str) -> None:
    async with place() as server:
        refused = await server.send("GET", f"/api/chats?conversation_key=k&{other}")
        assert refused.status == 400, refused.body


async def made(here: Place, conversation_key: str | None = None) -> str:
    """Make a chat with a turn; return its path."""
    chat = await here.ledger.conversation(conversation_key=conversation_key, title="Orders")
    async with chat.turn("Hello") as turn:
        turn.emit("Hi")
    return f"/api/chats/{chat.id}"


async def test_a_deleted_chat_is_gone_until_it_is_restored() -> None:
    async with place() as here:
        chat = await made(here, "k")
        before = await here.get(chat)
        first = await here.send("DELETE", chat)
        assert (first.status, first.json["state"]) == (200, "deleted")
        assert (await here.send("DELETE", f"{chat}?purge=false")).json == first.json
        gone = await here.send("GET", chat)
        assert (gone.status, gone.code) == (410, "conversation_deleted")
        assert "It can be restored until 20" in gone.json["error"]["message"]
        back = await here.post(f"{chat}/restore", None)
        assert (back.status, back.json["title"], back.json["conversation_key"]) == (200, "Orders", "k")
        assert back.json["former_conversation_key"] is None
        assert (await here.post(f"{chat}/restore", None)).json == back.json
        assert await here.get(chat) == before


async def test_restored_chat_whose_key_was_reused_reports_its_former_key() -> None:
    async with place() as here:
        chat = await made(here, "k")
        await here.send("DELETE", chat)
        await made(here, "k")
        back = await here.post(f"{chat}/restore", None)
        assert (back.json["conversation_key"], back.json["former_conversation_key"]) == (None, "k")


async def test_purged_chat_cannot_be_restored() -> None:
    async with place() as here:
        chat = await made(here)
        await here.send("DELETE", chat)
        purged = await here.send("DELETE", f"{chat}?purge=true")
        assert purged.json == {"id": chat.rpartition("/")[2], "state": "purged", "purge_at": None}
        assert (await here.send("DELETE", chat)).json == purged.json
        reply = await here.post(f"{chat}/restore", None)
        assert (reply.status, reply.code) == (410, "conversation_deleted")
        assert "purged" in reply.json["error"]["message"]


async def test_purge_parameter_that_is_not_a_boolean_is_refused() -> None:
    async with place() as here:
        chat = await made(here)
        assert (await here.send("DELETE", f"{chat}?purge=1")).status == 400
        assert (await here.send("GET", chat)).status == 200
