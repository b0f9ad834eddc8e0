"""Export and import of chats over HTTP; an import runs while its body arrives."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from tests.guarded.town import Town, town
from tests.unit.server.asgi import HOST, Reply, fetch
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.server.routes import transfer as routes

NDJSON = (b"content-type", b"application/x-ndjson")


def bearer(town: Town, who: str) -> tuple[bytes, bytes]:
    return b"authorization", b"Bearer " + town.tokens[who].encode()


async def export(town: Town, path: str, who: str = "alice", query: bytes = b"") -> Reply:
    return await fetch(town.app, path, headers=[HOST, bearer(town, who)], query=query)


async def send(town: Town, *parts: bytes, who: str = "alice", leaves: bool = False) -> Reply:
    headers = [HOST, bearer(town, who), NDJSON, (b"transfer-encoding", b"chunked")]
    return await fetch(town.app, "/api/import", method="POST", headers=headers, parts=parts, leaves=leaves)


async def one_chat(town: Town) -> bytes:
    """The file of a chat of Alice's."""
    return (await export(town, f"/api/chats/{town.ids['chat']}/export")).body


def lines(reply: Reply) -> list[Any]:
    return [msgspec.json.decode(line) for line in reply.body.splitlines()]


async def test_exported_chat_can_be_imported_by_another_owner_once() -> None:
    async with town() as here:
        file = await export(here, f"/api/chats/{here.ids['chat']}/export")
        assert (file.status, file.is_whole) == (200, True)
        assert file.header(b"content-type") == b"application/x-ndjson"
        assert b"attachment" in (file.header(b"content-disposition") or b"")
        reply = await send(here, file.body[:50], file.body[50:], who="bob")
        assert reply.status == 200
        *reports, end = lines(reply)
        assert {each["did"] for each in reports} == {"renamed", "imported"}
        assert end["done"]["imported"] == 1
        [name] = {each["chat"] for each in reports}
        theirs = await export(here, f"/api/chats/{name}/export", who="bob")
        assert b"marzipan" in theirs.body
        again = lines(await send(here, file.body, who="bob"))
        assert again[-1]["done"] == {**dict.fromkeys(end["done"], 0), "unchanged": 1}


async def test_export_contains_only_the_chats_of_the_caller() -> None:
    async with town() as here:
        mine = await export(here, "/api/export")
        assert here.ids["chat"] in [line["id"] for line in lines(mine) if line["type"] == "chat"]
        assert b"marzipan" in mine.body
        assert mine.header(b"content-disposition") == (
            b"attachment; filename=\"chats.jsonl\"; filename*=UTF-8''chats.jsonl"
        )
        for other in ("bob", "narrow"):
            assert (await export(here, "/api/export", other)).body == b""
        refused = await export(here, "/api/export", "narrow", b"scope=other")
        assert (refused.status, refused.code) == (400, "invalid_input")


async def test_markdown_export_has_a_safe_file_name_and_fenced_text() -> None:
    async with town() as here:
        chat = await here.ledger.for_owner("alice").conversation(here.ids["chat"])
        await chat.update(title='A/b "c"\r\nX-Evil: 1 ü')
        path = f"/api/chats/{here.ids['chat']}/export"
        file = await export(here, path, query=b"format=markdown")
        assert file.header(b"content-type") == b"text/markdown; charset=utf-8"
        assert (file.header(b"content-disposition") or b"").split(b"; ") == [
            b"attachment",
            b'filename="A b c X-Evil 1 u.md"',
            b"filename*=UTF-8''A%20b%20c%20X-Evil%201%20%C3%BC.md",
        ]
        assert b"## User\n\n```text\nmarzipan\n```" in file.body
        refused = await export(here, path, query=b"format=pdf")
        assert (refused.status, refused.code) == (400, "invalid_input")


@pytest.mark.parametrize("format", [b"", b"format=markdown"])
async def test_export_of_a_chat_of_another_owner_is_not_found(format: bytes) -> None:
    async with town() as here:
        for who in ("bob", "narrow"):
            reply = await export(here, f"/api/chats/{here.ids['chat']}/export", who, format)
            assert (reply.status, reply.code) == (404, "conversation_not_found")


async def test_import_without_write_scope_is_refused() -> None:
    async with town() as here:
        reply = await send(here, b"{}", who="all but chats:write")
        assert reply.status == 403


async def test_import_of_a_client_that_disconnects_contains_only_whole_chats() -> None:
    async with town() as here:
        file = await one_chat(here)
        chat = msgspec.json.decode(file.splitlines()[0])
        other = file.replace(chat["id"].encode(), b"second")
        await send(here, file, other, who="bob", leaves=True)
        found = (await export(here, "/api/export", "bob")).body
        assert found.count(b'"type":"chat"') == 1


async def test_import_that_stalls_reports_the_error_after_the_finished_chats() -> None:
    async with town() as here:
        here.app.service.settings = msgspec.structs.replace(
            here.app.service.settings,
            limits=msgspec.structs.replace(here.app.service.settings.limits, body_wait=0.01),
        )
        file = await one_chat(here)
        parts = [file, file]
        reply = await _stalling(here, parts)
        assert reply.status == 200
        *reports, end = lines(reply)
        assert [each["did"] for each in reports if each["did"] != "renamed"] == ["imported"]
        assert end["error"]["code"] == "body_too_slow"
        nothing = await _stalling(here, [])
        assert (nothing.status, nothing.code) == (408, "body_too_slow")


def importing(town: Town, who: str) -> dict[str, Any]:
    headers = [HOST, bearer(town, who), NDJSON, (b"transfer-encoding", b"chunked")]
    return {"type": "http", "method": "POST", "path": "/api/import", "headers": headers, "query_string": b""}


async def _stalling(town: Town, parts: list[bytes]) -> Reply:
    reply, waiting = Reply(), parts[::-1]

    async def receive() -> Message:
        if waiting:
            return {"type": "http.request", "body": waiting.pop(), "more_body": True}
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: Message) -> None:
        if message["type"] == "http.response.start":
            reply.status, reply.headers = message["status"], list(message["headers"])
        reply.body += message.get("body", b"")

    await town.app(importing(town, "bob"), receive, send)
    return reply


async def test_import_stops_when_its_token_is_revoked() -> None:
    async with town() as here:
        made, here.tokens["leaving"] = await Host(here.ledger).tokens.create(
            owner="bob", scopes=[TokenScope.CHATS_WRITE]
        )
        file, begun = await one_chat(here), asyncio.Event()
        reply = Reply()

        async def receive() -> Message:
            if not begun.is_set():
                begun.set()
                return {"type": "http.request", "body": file + b'{"type":"chat"}\n', "more_body": True}
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
            reply.body += message.get("body", b"")

        headers = [HOST, bearer(here, "leaving"), NDJSON, (b"transfer-encoding", b"chunked")]
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/api/import",
            "headers": headers,
            "query_string": b"",
        }
        pending = asyncio.create_task(here.app(scope, receive, send))
        await begun.wait()
        while not (await export(here, "/api/export", "bob")).body:
            await asyncio.sleep(0)
        await Host(here.ledger).tokens.revoke(str(made.id))
        await here.app.service.token_watch.check_tokens()
        async with asyncio.timeout(20):
            await pending
        assert reply.status == 200
        assert lines(reply)[-1]["error"]["code"] == "token_revoked"


async def test_import_reports_are_held_back_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(routes, "HELD_BYTES", 10)
    async with town() as here:
        reply = await send(here, b"1\n2\n", b"3\n")
        assert [each.get("did") for each in lines(reply)] == ["refused"] * 3 + [None]
        assert reply.is_whole


async def test_import_with_a_narrowed_token_goes_to_its_scope() -> None:
    async with town() as here:
        file = await one_chat(here)
        reply = await send(here, file, who="narrow")
        assert lines(reply)[-1]["done"]["imported"] == 1
        assert (await export(here, "/api/export", "narrow")).body.count(b'"scope":"elsewhere"') == 1


async def test_export_is_cut_off_when_its_token_is_revoked() -> None:
    async with town() as here:
        made, here.tokens["leaving"] = await Host(here.ledger).tokens.create(
            owner="alice", scopes=[TokenScope.CHATS_READ]
        )
        chat = await here.ledger.for_owner("alice").conversation(here.ids["chat"])
        for _ in range(3):
            async with chat.turn("x" * 100_000) as turn:
                turn.emit("y" * 100_000)
        reply, begun, stuck = Reply(), asyncio.Event(), asyncio.Event()

        async def receive() -> Message:
            await asyncio.Event().wait()
            raise AssertionError

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                reply.status = message["status"]
                return
            reply.is_whole = not message.get("more_body", False)
            begun.set()
            await stuck.wait()

        scope = {**importing(here, "leaving"), "method": "GET", "path": f"/api/chats/{chat.id}/export"}
        scope["headers"] = [HOST, bearer(here, "leaving")]
        pending = asyncio.create_task(here.app(scope, receive, send))
        await begun.wait()
        await Host(here.ledger).tokens.revoke(str(made.id))
        await here.app.service.token_watch.check_tokens()
        stuck.set()
        async with asyncio.timeout(20):
            await pending
        assert (reply.status, reply.is_whole) == (200, False)
