"""Over HTTP a chat is deleted for a while or for good, and comes back."""

from __future__ import annotations

from tests.unit.server.asgi import Reply, ask, serving
from turnledger import Chat
from turnledger.server.app import App


async def made(app: App, conversation_key: str | None = None) -> Chat:
    ledger = app.service.ledger
    chat = await ledger.conversation(conversation_key=conversation_key, title="Orders")
    async with chat.turn("Hello") as turn:
        turn.emit("Hi")
    return chat


async def delete(app: App, chat: Chat, query: str = "") -> Reply:
    return await ask(app, f"/api/chats/{chat.id}", method="DELETE", query=query.encode())


async def restore(app: App, chat: Chat) -> Reply:
    return await ask(app, f"/api/chats/{chat.id}/restore", method="POST")


async def test_a_deleted_chat_is_gone_until_it_is_restored() -> None:
    async with serving() as app:
        chat = await made(app, "k")
        before = (await ask(app, f"/api/chats/{chat.id}")).json
        first = await delete(app, chat)
        assert (first.status, first.json["state"]) == (200, "deleted")
        assert (await delete(app, chat, "purge=false")).json == first.json
        gone = await ask(app, f"/api/chats/{chat.id}")
        assert (gone.status, gone.code) == (410, "conversation_deleted")
        assert "It can be restored until 20" in gone.json["error"]["message"]
        back = await restore(app, chat)
        assert (back.status, back.json["title"], back.json["conversation_key"]) == (200, "Orders", "k")
        assert back.json["former_conversation_key"] is None
        assert (await restore(app, chat)).json == back.json
        assert (await ask(app, f"/api/chats/{chat.id}")).json == before


async def test_a_chat_whose_key_is_taken_says_so() -> None:
    async with serving() as app:
        chat = await made(app, "k")
        await delete(app, chat)
        await made(app, "k")
        back = await restore(app, chat)
        assert (back.json["conversation_key"], back.json["former_conversation_key"]) == (None, "k")


async def test_what_is_purged_does_not_come_back() -> None:
    async with serving() as app:
        chat = await made(app)
        await delete(app, chat)
        purged = await delete(app, chat, "purge=true")
        assert purged.json == {"id": chat.id, "state": "purged", "purge_at": None}
        assert (await delete(app, chat)).json == purged.json
        reply = await restore(app, chat)
        assert (reply.status, reply.code) == (410, "conversation_deleted")
        assert "for good" in reply.json["error"]["message"]


async def test_purge_is_true_or_false() -> None:
    async with serving() as app:
        chat = await made(app)
        assert (await delete(app, chat, "purge=1")).status == 400
        assert (await ask(app, f"/api/chats/{chat.id}")).status == 200
