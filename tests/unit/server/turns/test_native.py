"""Turns at /api/turns: whole or streamed, in a new or existing chat, as edits and regenerations."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from starlette.types import Message

from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from tests.unit.server.site import Site, at_once, site, site_of
from turnledger.errors import ConversationDeleted
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.server.wire.events import COMMENT

UNKNOWN = "turn_01890000000070008000000000000000"


class Place(Site):
    async def once(self, body: Any, left: asyncio.Event, reply: Reply | None = None) -> Reply:
        """Run a turn under one key, as a client that disconnects once `left` is set. A given reply is
        filled as it arrives."""
        sent, reply = msgspec.json.encode(body), reply or Reply()
        parts: list[Message] = [{"type": "http.request", "body": sent}]
        headers = [HOST, JSON, (b"content-length", b"%d" % len(sent)), (b"idempotency-key", b"once")]

        async def receive() -> Message:
            if not parts:
                await left.wait()
            return parts.pop() if parts else {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if not left.is_set():
                reply.status = reply.status or message["status"]
                reply.headers = reply.headers or list(message["headers"])
                reply.body += message.get("body", b"")

        scope = {"type": "http", "method": "POST", "path": "/api/turns", "headers": headers}
        await self.app({**scope, "query_string": b""}, receive, send)
        return reply


class Listening(DemoModel):
    """Remembers what it was shown."""

    def __init__(self) -> None:
        super().__init__(sleep=at_once)
        self.shown: list[list[tuple[str, str]]] = []

    async def complete(self, request: ModelRequest) -> bytes:
        messages = msgspec.json.decode(request.messages, type=list[dict[str, Any]])
        self.shown.append([(each["role"], each["content"]) for each in messages])
        return await super().complete(request)


def serving(
    model: DemoModel | None = None, store: str = "memory:", **settings: Any
) -> AbstractAsyncContextManager[Place]:
    return site_of(Place, store, model=model, **settings)


def events_of(reply: Reply) -> list[tuple[str, Any]]:
    """The types and data of the events of a stream; their numbers are 1, 2, 3, …."""
    events = re.findall(r"id: (\d+)\nevent: (\S+)\ndata: (.*)\n\n", reply.body.decode())
    assert [int(number) for number, _, _ in events] == list(range(1, len(events) + 1))
    return [(kind, msgspec.json.decode(data)) for _, kind, data in events]


def texts(turn: dict[str, Any]) -> str:
    return "".join(part["text"] for item in turn["output"] for part in item["content"])


async def test_turn_without_a_chat_creates_one_and_the_next_turn_continues_it() -> None:
    async with serving() as place:
        first = await place.turn("Hello")
        assert first.status == 200, first.body
        answer = first.json
        assert answer["state"] == "created"
        assert answer["turn"]["number"] == 1
        assert answer["turn"]["input"][0]["role"] == "user"
        assert answer["branch"] == answer["chat"]["branch"]
        assert first.header(b"x-conversation-id") == answer["chat"]["id"].encode()
        assert first.header(b"x-turn-id") == answer["turn"]["id"].encode()
        second = (await place.turn("And again", chat=answer["chat"]["id"])).json
        assert (second["state"], second["turn"]["number"]) == ("continued", 2)
        assert second["turn"]["parent"] == answer["turn"]["id"]


async def test_rapid_first_sends_with_one_conversation_key_make_one_chat() -> None:
    async with serving() as place:
        replies = await asyncio.gather(
            *(place.turn(f"Hello {number}", conversation_key="page", scope="shop") for number in range(8))
        )
        assert [reply.status for reply in replies] == [200] * 8
        assert len({reply.json["chat"]["id"] for reply in replies}) == 1
        assert sorted(reply.json["turn"]["number"] for reply in replies) == list(range(1, 9))
        assert [reply.json["state"] for reply in replies].count("created") == 1
        assert {reply.json["chat"]["scope"] for reply in replies} == {"shop"}


async def test_turn_stream_has_the_same_events_as_the_events_endpoint() -> None:
    async with serving() as place:
        reply = await place.turn("Hello", stream=True)
        assert reply.header(b"content-type") == b"text/event-stream; charset=utf-8"
        events = events_of(reply)
        assert events[0][0] == "turn.started"
        assert events[-1][0] == "turn.finished"
        assert events[-1][1]["state"] == "completed"
        turn = reply.turn
        again = await fetch(place.app, f"/api/turns/{turn}/events")
        assert again.body == reply.body
        shown = await place.get(f"/api/chats/{reply.conversation}")
        text = "".join(each["text"] for kind, each in events if kind == "text.delta")
        assert text == texts(shown["turns"][0])


async def test_failed_turn_stream_ends_with_turn_finished_and_no_error_event() -> None:
    async with serving() as place:
        reply = await place.turn("/fail after 1", stream=True, conversation_key="k")
        events = events_of(reply)
        assert (reply.status, events[-1][0], events[-1][1]["state"]) == (200, "turn.finished", "failed")
        assert b"event: error" not in reply.body
        whole = await place.turn("/fail", conversation_key="k")
        assert (whole.status, whole.code) == (502, "model_unavailable")


async def test_turn_stream_refused_before_it_begins_is_a_plain_error() -> None:
    async with serving() as place:
        reply = await place.turn("", stream=True)
        assert (reply.status, reply.code) == (400, "no_new_input")


async def test_edit_and_regeneration_create_separate_branches() -> None:
    async with serving() as place:
        first = (await place.turn("One", conversation_key="k")).json
        second = (await place.turn("Two", conversation_key="k")).json
        edited = (await place.turn("Other", chat=first["chat"]["id"], replaces=second["turn"]["id"])).json
        assert (edited["state"], edited["turn"]["number"]) == ("branched", 2)
        assert edited["branch"] not in (first["branch"], second["branch"])
        assert edited["chat"]["branch"] == edited["branch"]
        for by_name in (False, True):
            which = edited["turn"]["id"] if by_name else True
            again = await place.turn(chat=first["chat"]["id"], regenerates=which)
            assert again.json["turn"]["input"] == edited["turn"]["input"], again.body
            assert again.json["state"] == "branched"
            edited = again.json
        siblings = await place.get(f"/api/chats/{first['chat']['id']}/turns/{edited['turn']['id']}/siblings")
        assert len(siblings["data"]) == 4
        assert [each["is_current"] for each in siblings["data"]] == [False, False, False, True]


async def test_turn_reports_its_hidden_items_in_every_answer() -> None:
    async with serving() as place:
        once = {"Idempotency-Key": "once"}
        first = (await place.turn("One", once, conversation_key="k")).json
        id, chat = first["turn"]["id"], f"/api/chats/{first['chat']['id']}"
        assert first["turn"]["hidden"] == []
        await (await place.ledger.conversation(first["chat"]["id"])).flag(id, 0, to_user=False)
        [again] = (await place.turn("One", once, conversation_key="k"),)
        assert again.json["turn"] == {**first["turn"], "hidden": [0]}
        assert (await place.get(f"/api/turns/{id}"))["turn"] == again.json["turn"]
        assert (await place.get(chat))["turns"] == [again.json["turn"]]
        regenerated = (await place.turn(conversation_key="k", regenerates=True)).json
        assert regenerated["turn"]["hidden"] == [0]
        siblings = await place.get(f"{chat}/turns/{regenerated['turn']['id']}/siblings")
        assert [each["turn"]["hidden"] for each in siblings["data"]] == [[0], [0]]


@pytest.mark.parametrize(
    ("body", "status", "code"),
    [
        ({"input": "Hi", "replaces": "turn_01890000000070008000000000000000"}, 400, "invalid_input"),
        ({"regenerates": True}, 400, "invalid_input"),
        ({"input": "Hi", "regenerates": True, "conversation_key": "k"}, 400, "invalid_input"),
        ({"regenerates": True, "conversation_key": "unknown"}, 404, "conversation_not_found"),
        ({"input": "Hi", "chat": "conv_01890000000070008000000000000000"}, 404, "conversation_not_found"),
        ({"input": "Hi", "chat": "nonsense"}, 400, "invalid_id"),
        ({"input": "Hi", "settings": {"messages": []}}, 400, "invalid_input"),
        ({"input": "Hi", "settings": {"n": 2}}, 400, "unsupported_parameter"),
        ({"input": "Hi", "settings": {"tools": [{"type": "mcp"}]}}, 400, "unsupported_tool"),
        ({"input": "Hi", "inptu": "Hi"}, 400, "invalid_body"),
        ({"input": [{"type": "message"}]}, 400, "malformed_items"),
        ({}, 400, "no_new_input"),
    ],
)
async def test_invalid_turn_request_is_refused_and_leaves_no_attempt(
    body: dict[str, Any], status: int, code: str
) -> None:
    async with serving() as place:
        await place.turn("Hello", conversation_key="k")
        reply = await place.turn(**body)
        assert (reply.status, reply.code) == (status, code), reply.body
        chat = await place.ledger.conversation(conversation_key="k")
        assert len(await chat.turns()) == 1
        assert await chat.attempts() == []


@pytest.mark.parametrize("header", ["X-Conversation-Id", "X-Turn-On-Divergence", "X-Conversation-Messages"])
async def test_header_without_effect_on_a_native_turn_is_refused(header: str) -> None:
    async with serving() as place:
        reply = await place.turn("Hello", {header: "new"})
        assert (reply.status, reply.code) == (400, "invalid_input")
        assert header.lower() in reply.json["error"]["message"]


@pytest.mark.parametrize("stream", [False, True])
async def test_turn_repeated_with_one_idempotency_key_is_replayed(stream: bool) -> None:
    async with serving() as place:
        key = {"Idempotency-Key": "once"}
        first = await place.turn("Hello", key, stream=stream)
        again = await place.turn("Hello", key, stream=stream)
        assert again.header(b"idempotency-replayed") == b"true"
        assert again.header(b"x-turn-id") == first.header(b"x-turn-id")
        if stream:
            assert again.body == first.body
        else:
            assert again.json == {**first.json, "state": "continued"}
        other = await place.turn("Something else", key, stream=stream)
        assert (other.status, other.code) == (422, "idempotency_mismatch")


async def test_turn_that_expects_an_existing_chat_does_not_create_one() -> None:
    async with serving() as place:
        reply = await place.turn("Hello", {"X-Conversation-Expect": "continued"}, conversation_key="k")
        assert (reply.status, reply.code) == (404, "conversation_not_found")


async def test_instructions_of_a_turn_are_stored_and_cleared() -> None:
    async with serving() as place:
        answer = (await place.turn("/help", instructions="Be brief.", settings={"temperature": 0})).json
        chat = await place.ledger.conversation(answer["chat"]["id"])
        assert [item.text for item in await chat.instructions()] == ["Be brief."]
        ended = await place.turn("Hi", chat=answer["chat"]["id"], instructions="")
        assert ended.status == 200
        assert await chat.instructions() == ()


@pytest.mark.parametrize(("policy", "kinds"), [("keep", ["interrupted"]), ("discard", [])])
async def test_turn_whose_client_disconnects_ends_by_its_policy(policy: str, kinds: list[str]) -> None:
    begun = asyncio.Event()

    async def never(_: float) -> None:
        await asyncio.Event().wait()

    async def leaves() -> Message:
        await begun.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        if b"turn.started" in message.get("body", b""):
            begun.set()

    async with site(model=DemoModel(sleep=never)) as place:
        body = {"model": "demo", "input": "Hello", "stream": True, "conversation_key": "k"}
        parts = [{"type": "http.request", "body": msgspec.json.encode(body)}]

        async def receive() -> Message:
            return parts.pop() if parts else await leaves()

        headers = [HOST, JSON, (b"x-turn-on-disconnect", policy.encode())]
        scope = {"type": "http", "method": "POST", "path": "/api/turns", "headers": headers}
        async with asyncio.timeout(10):
            await place.app({**scope, "query_string": b""}, receive, send)
        chat = await place.ledger.conversation(conversation_key="k")
        assert [turn.kind for turn in await chat.turns()] == kinds


PRIMER = [{"role": "user", "content": "marzipan?"}, {"role": "assistant", "content": "Yes, marzipan."}]
PRIMED = [(each["role"], each["content"]) for each in PRIMER]


async def test_primer_is_placed_between_instructions_and_history_for_one_turn() -> None:
    model = Listening()
    async with serving(model) as place:
        first = await place.turn("Hello", instructions="Be brief.")
        chat = first.json["chat"]["id"]
        await place.turn("And now?", chat=chat, primer=PRIMER)
        await place.turn("And then?", chat=chat)
    system = ("system", "Be brief.")
    assert model.shown[1][:4] == [system, *PRIMED, ("user", "Hello")]
    assert model.shown[1][-1] == ("user", "And now?")
    assert model.shown[2][:2] == [system, ("user", "Hello")]


async def test_context_of_a_turn_bounds_the_history_that_its_model_receives() -> None:
    model = Listening()
    async with serving(model) as place:
        chat = (await place.turn("One", instructions="Be brief.")).json["chat"]["id"]
        await place.turn("Two", chat=chat)
        for context in ({"last": 1}, {"budget": 0}, {}):
            assert (await place.turn("Now?", chat=chat, context=context)).status == 200
        for context in ({"last": 1, "budget": 1}, {"last": -1}, {"first": 1}, {"budget": "much"}):
            assert (await place.turn("Now?", chat=chat, context=context)).status == 400
    asked = [[text for role, text in shown if role != "assistant"] for shown in model.shown[2:]]
    assert asked == [
        ["Be brief.", "Two", "Now?"],
        ["Be brief.", "Now?"],
        ["Be brief.", "One", "Two", "Now?", "Now?", "Now?"],
    ]


async def test_primer_applies_to_edits_and_regenerations() -> None:
    model = Listening()
    async with serving(model) as place:
        first = (await place.turn("Hello")).json
        chat, turn = first["chat"]["id"], first["turn"]["id"]
        edited = await place.turn("Ahoy", chat=chat, replaces=turn, primer=PRIMER)
        again = await place.turn(chat=chat, regenerates=True, primer=PRIMER)
    assert (edited.status, again.status) == (200, 200), again.body
    assert model.shown[1:] == [[*PRIMED, ("user", "Ahoy")]] * 2


def bytes_in(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in folder.iterdir())


async def test_primer_is_never_stored_even_if_the_turn_fails(tmp_path: Path) -> None:
    key = {"Idempotency-Key": "once"}
    async with serving(store=f"sqlite:///{tmp_path / 'chats.db'}") as place:
        answered = await place.turn("/count 3", key, primer=PRIMER)  # other questions are echoed
        failed = await place.turn("/fail after 1", chat=answered.json["chat"]["id"], primer=PRIMER)
        assert (answered.status, failed.status) == (200, 502)
    stored = bytes_in(tmp_path)
    assert (b"/count 3" in stored, b"marzipan" in stored) == (True, False)


async def test_turn_with_a_reused_idempotency_key_and_another_primer_is_refused() -> None:
    key = {"Idempotency-Key": "once"}
    async with serving() as place:
        first = await place.turn("Hello", key, primer=PRIMER)
        again = await place.turn("Hello", key, primer=PRIMER)
        other = await place.turn("Hello", key, primer=PRIMER[:1])
    assert again.json["turn"] == first.json["turn"]
    assert (again.header(b"idempotency-replayed"), other.code) == (b"true", "idempotency_mismatch")


async def test_primer_with_an_open_tool_call_is_refused_and_creates_no_chat() -> None:
    call = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
    async with serving() as place:
        refused = await place.turn("Hello", primer=[call], conversation_key="k")
        assert (refused.status, refused.code) == (400, "malformed_items")
        assert not await place.host.is_named("k")
        large = await place.turn("Hello", primer=["marzipan"] * 10_001)
        assert (large.status, large.code) == (400, "malformed_items"), large.body


@pytest.mark.parametrize("leaves", [False, True], ids=["both wait", "the first client leaves"])
@pytest.mark.parametrize("stream", [False, True], ids=["whole", "stream"])
async def test_queued_requests_with_one_idempotency_key_are_one_turn(leaves: bool, stream: bool) -> None:
    body = {"model": "demo", "input": "Hi", "conversation_key": "k", "stream": stream}
    async with serving() as place, asyncio.timeout(10):
        left = asyncio.Event()
        async with place.ledger.turn("Before", conversation_key="k") as before:
            pending = []
            for is_last in (False, True):
                pending.append(asyncio.create_task(place.once(body, asyncio.Event() if is_last else left)))
                while place.host.at_work().waiting < len(pending):
                    await asyncio.sleep(0)
                if leaves:
                    left.set()
            before.emit("Yes.")
        first, second = await asyncio.gather(*pending)
        late = await place.once(body, asyncio.Event())
        chat = await place.ledger.conversation(conversation_key="k")
        turns = [str(turn.id) for turn in await chat.turns()]
        assert (len(turns), await chat.attempts(), place.host.at_work().waiting) == (2, [], 0)
    for reply in (second, late) if leaves else (first, second, late):
        assert (reply.status, reply.header(b"x-turn-id")) == (200, turns[1].encode()), reply.body
    assert second.body == late.body if stream else second.json["turn"] == late.json["turn"]
    # A stream begins at once; its client left later.
    assert (first.status, late.header(b"idempotency-replayed")) == (
        0 if leaves and not stream else 200,
        b"true",
    )


@asynccontextmanager
async def queued_behind_another(
    place: Place, *replies: Reply, **fields: Any
) -> AsyncIterator[list[asyncio.Task[Reply]]]:
    """Requests that wait for a turn, which ends with the block."""
    body = {"model": "demo", "input": "Hi", "conversation_key": "k", "stream": True, **fields}
    async with place.ledger.turn("Before", conversation_key="k") as before:
        pending = [asyncio.create_task(place.once(body, asyncio.Event(), reply)) for reply in replies]
        while place.host.at_work().waiting < len(replies):
            await asyncio.sleep(0)
        yield pending
        before.emit("Yes.")


async def test_turn_stream_of_a_silent_model_is_kept_alive_until_it_ends() -> None:
    reply, goes_on = Reply(), asyncio.Event()

    async def wait(_: float) -> None:
        await goes_on.wait()

    async with serving(DemoModel(sleep=wait)) as place, asyncio.timeout(10):
        pending = asyncio.create_task(
            place.once({"model": "demo", "input": "Hi", "stream": True}, asyncio.Event(), reply)
        )
        while b"turn.started" not in reply.body:
            await asyncio.sleep(0)
        for _ in range(2):
            place.app.service.streams.send_heartbeats()
        assert reply.body.endswith(b"\n\n" + COMMENT)
        goes_on.set()
        await pending
        assert place.app.service.streams._kept_alive == {}
    assert reply.body.count(COMMENT) == 1
    assert events_of(reply)[-1][0] == "turn.finished"


async def test_queued_turn_stream_sends_its_turn_id_at_once_and_heartbeats_while_waiting() -> None:
    reply = Reply()
    async with serving() as place, asyncio.timeout(10):
        async with queued_behind_another(place, reply) as pending:
            assert (reply.status, reply.body) == (200, COMMENT)
            for _ in range(2):
                place.app.service.streams.send_heartbeats()
            assert reply.body == COMMENT * 2
            id = reply.turn
            standing = await place.get(f"/api/turns/{id}")
        await asyncio.gather(*pending)
        chat = await place.ledger.conversation(conversation_key="k")
        [_, turn] = await chat.turns()
        assert place.app.service.streams._kept_alive == {}
    assert (standing["state"], standing["chat"]["id"]) == ("queued", chat.id)
    assert (turn.id, reply.header(b"x-conversation-id")) == (id, chat.id.encode())
    assert reply.header(b"x-conversation-state") == b"continued"
    assert [kind for kind, _ in events_of(reply)][:1] == ["turn.started"]
    assert [kind for kind, _ in events_of(reply)][-1:] == ["turn.finished"]


async def test_queued_turn_stopped_while_waiting_ends_its_stream_with_an_error() -> None:
    reply = Reply()
    async with serving() as place, asyncio.timeout(10), queued_behind_another(place, reply) as pending:
        turn = reply.turn
        stopped = await place.post(f"/api/turns/{turn}/stop", {})
        await asyncio.gather(*pending)
        assert (stopped.json["turn"], stopped.json["state"]) == (turn, "discarded")
        assert (reply.status, reply.body.count(b"event: error")) == (200, 1)
        assert b'"code":"turn_stopped"' in reply.body


async def test_queued_turn_refused_when_the_lane_is_free_ends_its_stream_with_an_error() -> None:
    reply, result = Reply(), {"type": "function_call_output", "call_id": "c", "output": "x"}
    async with serving() as place, asyncio.timeout(10):
        async with queued_behind_another(place, reply, input=[result]) as pending:
            assert reply.status == 200
        await asyncio.gather(*pending)
        assert reply.body.count(b"event: error") == 1
        assert b'"code":"malformed_items"' in reply.body


async def test_queued_turn_whose_key_names_another_chat_meanwhile_is_reported_as_moved() -> None:
    reply, body = Reply(), {"model": "demo", "input": "Hi", "conversation_key": "k", "stream": True}
    async with serving() as place, asyncio.timeout(10):
        with pytest.raises(ConversationDeleted):  # the turn before it
            async with queued_behind_another(place, reply) as pending:
                deleted = await place.ledger.conversation(conversation_key="k")
                await deleted.delete()
        await asyncio.gather(*pending)
        assert reply.header(b"x-conversation-id") == deleted.id.encode()
        assert b'"code":"turn_moved"' in reply.body
        again = await place.once(body, asyncio.Event())
        assert again.header(b"x-conversation-id") not in (None, deleted.id.encode())
        assert events_of(again)[-1][1]["state"] == "completed"


@pytest.mark.parametrize(
    ("headers", "body", "status", "code"),
    [
        ({"X-Turn-On-Busy": "reject"}, {}, 409, "conversation_busy"),
        ({}, {"input": []}, 400, "no_new_input"),
        ({}, {"model": "none"}, 404, "model_not_found"),
        ({"X-Turn-On-Busy": "interrupt"}, {"replaces": UNKNOWN}, 404, "turn_not_found"),
    ],
)
async def test_stream_refused_at_once_has_its_own_status(
    headers: dict[str, str], body: dict[str, Any], status: int, code: str
) -> None:
    async with serving() as place, asyncio.timeout(10):
        async with place.ledger.turn("Before", conversation_key="k") as before:
            sent = {"input": "Hi", "conversation_key": "k", "stream": True, **body}
            refused = asyncio.create_task(place.turn(headers=headers, **sent))
            reply = await refused  # a task of its own: this one runs a turn
            before.emit("Yes.")
        assert (reply.status, reply.code) == (status, code)


async def test_queued_duplicate_turn_stream_begins_with_the_turn_that_answers_it() -> None:
    replies = [Reply(), Reply()]
    async with serving() as place, asyncio.timeout(10):
        async with queued_behind_another(place, *replies) as pending:
            assert sorted(reply.status for reply in replies) == [0, 200]
        await asyncio.gather(*pending)
        chat = await place.ledger.conversation(conversation_key="k")
        [_, turn] = await chat.turns()
    assert {reply.header(b"x-turn-id") for reply in replies} == {turn.id.encode()}
    assert events_of(replies[0]) == events_of(replies[1])


async def test_queued_duplicate_turn_stream_ends_with_turn_moved_and_its_retry_follows() -> None:
    replies = [Reply(), Reply()]
    body = {"model": "demo", "input": "Hi", "conversation_key": "k", "stream": True}
    async with serving() as place, asyncio.timeout(10):
        async with queued_behind_another(place, *replies) as pending:
            for _ in range(2):
                place.app.service.streams.send_heartbeats()
        await asyncio.gather(*pending)
        again = await place.once(body, asyncio.Event())
        chat = await place.ledger.conversation(conversation_key="k")
        [_, turn] = await chat.turns()
    [moved] = [reply for reply in replies if b"event: error" in reply.body]
    [answered] = [reply for reply in replies if reply is not moved]
    assert b'"type":"server_error"' in moved.body
    assert b'"code":"turn_moved"' in moved.body
    assert answered.header(b"x-turn-id") == again.header(b"x-turn-id") == turn.id.encode()
    assert events_of(answered) == events_of(again)


@pytest.mark.parametrize("stream", [True, False])
async def test_turn_details_record_model_and_usage(stream: bool) -> None:
    async with serving() as here:
        assert (await here.turn("Hello", stream=stream)).status == 200
        [listed] = (await here.ledger.list()).chats
        chat = await here.ledger.conversation(listed.conversation.id)
        [turn] = await chat.turns()
        assert turn.details["model"] == "demo"
        assert turn.details["usage"]["total_tokens"] == 9
        assert turn.committed_at >= turn.created_at


async def test_failed_turn_shows_model_tools_settings_and_metadata_but_no_keys() -> None:
    tool = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
    settings = {"temperature": 0.5, "tools": [tool], "metadata": {"case": "7"}, "api_key": "secret"}
    recorded = {
        "model": "demo",
        "tools": [tool],
        "metadata": {"case": "7"},
        "settings": {"temperature": 0.5},
    }
    async with serving() as here:
        chat = (await here.turn("Hello")).json["chat"]["id"]
        failed = await here.turn("/fail", chat=chat, settings=settings)
        [attempt] = (await here.get(f"/api/chats/{chat}"))["attempts"]
        assert (failed.status, attempt["state"], attempt["details"]) == (502, "failed", recorded)
        state = await here.get(f"/api/turns/{attempt['id']}")
        assert (state["state"], state["details"]) == ("failed", recorded)


@pytest.mark.parametrize("stream", [True, False])
async def test_reasoning_is_sent_before_the_message(stream: bool) -> None:
    async with serving() as here:
        reply = await here.turn("/think hard", stream=stream)
        kinds = re.findall(rb'"type":"(reasoning|message)"', reply.body)
        assert kinds[-2:] == [b"reasoning", b"message"]
        if stream:
            assert reply.body.index(b"event: reasoning.delta") < reply.body.index(b"event: text.delta")
