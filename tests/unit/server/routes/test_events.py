"""The stream of live updates: its events, its start position, and its end."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from tests.unit.server.asgi import HOST, fetch, run_app
from turnledger import Ledger
from turnledger.api.json import encode
from turnledger.api.views import show_change
from turnledger.hosting import OWNER, Host
from turnledger.model.access.share import VISIT
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.ids import ConversationId
from turnledger.server.access.cursors import Seal
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.models.models import Models
from turnledger.server.routes import events
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock

CHAT = ConversationId("conv_01890000000070008000000000000000")


class Stream:
    """A client of the stream, with the events it has received."""

    def __init__(self, app: App, *headers: tuple[bytes, bytes]) -> None:
        self.status = 0
        self.is_whole = False
        self.largest = 0
        self._unread = b""
        self._arrived = asyncio.Event()
        self._left = asyncio.Event()
        scope = {
            "type": "http",
            "method": "GET",
            "path": "/api/events",
            "headers": [HOST, *headers],
            "query_string": b"",
        }
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))

    async def _receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
        self._unread += message.get("body", b"")
        self.largest = max(self.largest, len(message.get("body", b"")))
        self.is_whole = message["type"] == "http.response.body" and not message.get("more_body", False)
        self._arrived.set()

    async def next(self) -> dict[str, Any]:
        """The next event, by its fields; a comment is one, too."""
        async with asyncio.timeout(10):
            while b"\n\n" not in self._unread:
                self._arrived.clear()
                await self._arrived.wait()
        event, self._unread = self._unread.split(b"\n\n", 1)
        fields = dict(line.split(": ", 1) for line in event.decode().split("\n"))
        if "data" in fields:
            fields["data"] = msgspec.json.decode(fields["data"])
        return fields

    async def leave(self) -> None:
        self._left.set()
        async with asyncio.timeout(10):
            await self.task


@asynccontextmanager
async def serving(**limits: Any) -> AsyncIterator[tuple[App, Ledger]]:
    async with run_app(Settings(limits=ServerLimits(**limits))) as app:
        yield app, app.service.ledger


async def run_turn(ledger: Ledger, text: str, owner: str = OWNER) -> Any:
    async with ledger.for_owner(owner).turn(text, conversation_key="k") as turn:
        turn.emit("Yes.")
    return turn


async def unseal(app: App, id: str) -> str | None:
    """The position that is sealed in an id."""
    return (await app.service.cursor_seal.get()).unseal(events.POSITION, id)


async def test_event_stream_sends_each_change_with_id_and_type() -> None:
    async with serving() as (app, ledger):
        stream = Stream(app)
        start = await stream.next()
        assert (stream.status, start["event"]) == (200, "start")
        chat = await ledger.for_owner("local", scope="shop").conversation()
        made = await stream.next()
        assert made["event"] == made["data"]["type"] == "chat.created"
        assert (made["data"]["chat"], made["data"]["scope"]) == (chat.id, "shop")
        assert await unseal(app, made["id"]) == await ledger.position() != await unseal(app, start["id"])
        await chat.update(title="Orders", metadata={"a": "b"})
        renamed = (await stream.next())["data"]
        assert (renamed["title"], renamed["metadata"], renamed["revision"]) == ("Orders", {"a": "b"}, 2)
        assert (renamed["tags"], renamed["pinned"], renamed["archived"]) == ([], False, False)
        await stream.leave()
        assert Host(ledger).at_work().readers == 0


@asynccontextmanager
async def shared_chat(app: App, ledger: Ledger) -> AsyncIterator[tuple[Any, str, tuple[bytes, bytes]]]:
    """A chat of Ann, the id of a link to it, and the header of its visitor."""
    chat = await ledger.for_owner("ann").conversation(title="Secret plans", tags=["war"])
    shares = Host(ledger).shares
    share, code = await shares.create(chat=str(chat.id), owner="ann")
    text = (await shares.exchange(code, "n" * 32)).text
    yield chat, str(share.id), (b"authorization", f"Bearer {text}".encode())


async def test_visitor_of_a_chat_receives_its_visible_changes_without_their_content() -> None:
    async with serving() as (app, ledger), shared_chat(app, ledger) as (chat, _, visitor):
        stream = Stream(app, visitor)
        assert (await stream.next())["event"] == "start"
        other = await ledger.for_owner("ann").conversation(title="Another")
        async with other.turn("Elsewhere") as turn:
            turn.emit("Yes.")
        with suppress(RuntimeError):
            async with chat.turn("Attempt"):
                raise RuntimeError
        async with chat.turn("Hello") as turn:
            turn.emit("Hi.")
        await chat.flag(turn.id, 1, to_user=False)
        await chat.update(title="Renamed", metadata={"a": "b"})
        await chat.undo()
        await chat.delete()
        received = [await stream.next() for _ in range(5)]
        await stream.leave()
        kinds = ["turn.committed", "turn.flagged", "chat.changed", "chat.switched", "chat.deleted"]
        assert [each["event"] for each in received] == kinds
        for each, kind in zip(received, kinds, strict=True):
            fields = {name: value for name, value in each["data"].items() if value is not None}
            assert fields.keys() == {"type", "at", "chat"}
            assert (fields["type"], fields["chat"]) == (kind, chat.id)
        again = Stream(app, visitor, (b"last-event-id", received[3]["id"].encode()))
        assert (await again.next())["event"] == "chat.deleted"
        await again.leave()


@pytest.mark.parametrize("ending", ["revoked", "expired"])
async def test_stream_of_a_visitor_ends_with_its_link(ending: str) -> None:
    clock = FakeClock()
    async with await Ledger.over(MemoryStore(), clock=clock) as ledger:
        app = make_app(ledger, Models({}), Settings())
        async with shared_chat(app, ledger) as (_, share, visitor):
            stream = Stream(app, visitor)
            await stream.next()
            if ending == "revoked":
                await Host(ledger).shares.revoke(share)
            else:
                clock.advance(VISIT + 1)
            await app.service.token_watch.check_tokens()
            last = await stream.next()
            async with asyncio.timeout(10):
                await stream.task
            assert (last["event"], last["data"]["error"]["code"]) == ("error", f"token_{ending}")


async def test_streams_of_visitors_count_apart_from_those_of_the_owner() -> None:
    async with serving(owner_streams=1) as (app, ledger), shared_chat(app, ledger) as (_, _, visitor):
        _, text = await Host(ledger).tokens.create(owner="ann", scopes=["chats:read"])
        owner = (b"authorization", f"Bearer {text}".encode())
        streams = [Stream(app, who) for who in (visitor, owner)]
        for each in streams:
            assert (await each.next())["event"] == "start"
        for who in (visitor, owner):
            refused = await fetch(app, "/api/events", headers=[HOST, who])
            assert (refused.status, refused.code) == (429, "too_many_streams")
        for each in streams:
            await each.leave()


async def test_event_stream_resumes_after_last_event_id() -> None:
    async with serving() as (app, ledger):
        stream = Stream(app)
        last = (await stream.next())["id"]
        await stream.leave()
        turn = await run_turn(ledger, "Hello")
        again = Stream(app, (b"last-event-id", last.encode()))
        received = [await again.next()]
        while received[-1]["event"] != "turn.committed":
            received.append(await again.next())
        assert {"chat.created", "turn.running"} <= {each["event"] for each in received}
        assert (received[-1]["data"]["turn"], received[-1]["data"]["outcome"]) == (turn.id, "completed")
        await again.leave()


async def test_event_stream_resumed_without_news_sends_a_comment_immediately() -> None:
    async with serving() as (app, ledger):
        await run_turn(ledger, "Hello")
        position = str(await ledger.position())
        last = (await app.service.cursor_seal.get()).seal(events.POSITION, position)
        stream = Stream(app, (b"last-event-id", last.encode()))
        event = await stream.next()
        assert (stream.status, "data" in event) == (200, False)
        assert await unseal(app, event["id"]) == position
        await stream.leave()


@pytest.mark.parametrize("unknown", [b"7", b"abc-00000000", b"\xff", b"ffffffff-ffffffff"])
async def test_event_stream_with_an_unknown_last_event_id_reports_a_gap(unknown: bytes) -> None:
    async with serving() as (app, ledger):
        await run_turn(ledger, "Hello")
        stream = Stream(app, (b"last-event-id", unknown))
        gap = await stream.next()
        assert (gap["event"], await unseal(app, gap["id"])) == ("gap", await ledger.position())
        await stream.leave()


async def test_event_ids_do_not_reveal_the_activity_of_others() -> None:
    async with serving() as (app, ledger):
        ids = []
        for _ in range(2):
            stream = Stream(app)
            ids.append((await stream.next())["id"])
            await stream.leave()
        assert ids[0] != ids[1]
        assert await unseal(app, ids[0]) == await unseal(app, ids[1])
        await run_turn(ledger, "Hello", owner="somebody else")
        listed = (await fetch(app, "/api/chats", headers=[HOST])).json["as_of"]
        assert await unseal(app, listed) == await ledger.position()
        assert {len(each) for each in (*ids, listed)} == {76}
        assert str(await ledger.position()) not in listed


async def test_event_stream_heartbeat_carries_an_id_to_resume_from(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "HEARTBEAT_EVERY", 0.0)
    async with serving() as (app, ledger):
        stream = Stream(app)
        assert (await stream.next())["event"] == "start"
        assert set(await stream.next()) == {"", "id"}
        await run_turn(ledger, "Hello", owner="somebody else")
        position = await ledger.position()
        async with asyncio.timeout(10):
            while await unseal(app, (await stream.next())["id"]) != position:
                pass
        await stream.leave()


async def test_event_streams_end_with_an_error_on_shutdown() -> None:
    async with serving() as (app, ledger):
        streams = [Stream(app) for _ in range(3)]
        for stream in streams:
            await stream.next()
        app.service.shutting_down.set()
        for stream in streams:
            last = await stream.next()
            assert (last["event"], last["data"]["error"]["code"]) == ("error", "shutting_down")
            async with asyncio.timeout(10):
                await stream.task
            assert stream.is_whole
        assert Host(ledger).at_work().readers == 0


async def test_event_stream_of_a_narrowed_token_is_limited_to_its_scope_and_ends_on_revocation() -> None:
    async with serving() as (app, ledger):
        token, text = await Host(ledger).tokens.create(owner="ann", scopes=["chats:read"], chat_scope="shop")
        stream = Stream(app, (b"authorization", b"Bearer " + text.encode()))
        await stream.next()
        await ledger.for_owner("ann", scope="desk").conversation()
        await ledger.for_owner("bob", scope="shop").conversation()
        chat = await ledger.for_owner("ann", scope="shop").conversation()
        assert (await stream.next())["data"]["chat"] == chat.id
        await Host(ledger).tokens.revoke(str(token.id))
        await app.service.token_watch.check_tokens()
        last = await stream.next()
        assert (last["event"], last["data"]["error"]["code"]) == ("error", "token_revoked")
        async with asyncio.timeout(10):
            await stream.task
        again = Stream(app, (b"authorization", b"Bearer " + text.encode()))
        async with asyncio.timeout(10):
            await again.task
        assert again.status == 401


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        (ChangeKind.TURN_COMMITTED, "outcome"),
        (ChangeKind.TURN_FAILED, "code"),
        (ChangeKind.CHAT_DELETED, "reason"),
    ],
)
def test_change_detail_is_sent_under_the_field_name_of_its_kind(kind: ChangeKind, name: str) -> None:
    change = LiveChange(kind=kind, owner="ann", conversation=CHAT, detail="word", position=Position("a-1"))
    assert msgspec.json.decode(encode(show_change(change))) == {
        "type": kind,
        "at": 0,
        "chat": CHAT,
        "scope": None,
        name: "word",
    }
    seal = Seal(bytes(32))
    id, event, _ = events.encode_change(change, seal).split(b"\n", 2)
    assert seal.unseal(events.POSITION, id.decode().removeprefix("id: ")) == "a-1"
    assert event == b"event: %s" % kind.encode()


async def test_event_stream_sends_many_changes_in_chunks_of_whole_events() -> None:
    async with serving() as (app, ledger):
        first = Stream(app)
        start = (await first.next())["id"]
        await first.leave()
        for _ in range(40):
            await ledger.conversation(metadata={f"{number}": "v" * 512 for number in range(16)})
        stream = Stream(app, (b"last-event-id", start.encode()))
        received = [await stream.next() for _ in range(40)]
        assert [each["event"] for each in received] == ["chat.created"] * 40
        assert len({each["id"] for each in received}) == 40
        assert 10_000 < stream.largest <= events.PIECE_BYTES
        await stream.leave()


def test_event_chunks_end_at_event_boundaries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "PIECE_BYTES", 4)
    assert events.join_events([b"ab", b"cd", b"e", b"fghijk", b"l"]) == [b"abcd", b"e", b"fghijk", b"l"]
    assert events.join_events([]) == []


async def test_encoded_event_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(events, "CACHED_BYTES", 1_000)
    async with serving() as (app, _):
        updates, seal = events.LiveUpdates(app.service), Seal(bytes(32))
        batches = [
            [LiveChange(kind=ChangeKind.CHAT_DELETED, owner="a", conversation=CHAT)] for _ in range(50)
        ]
        sent = [updates._encode_batch(batch, seal) for batch in batches]
        assert updates._encode_batch(batches[-1], seal) is sent[-1]
        assert 1 < len(updates._encoded) < 10
        assert updates._encoded_bytes == sum(len(b"".join(pieces)) for _, pieces in updates._encoded.values())
        large = [[*batches[0]] * 50]
        updates._encode_batch(large[0], seal)
        assert (updates._encoded, updates._encoded_bytes) == ({}, 0)
