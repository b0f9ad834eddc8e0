"""Turns and branches over HTTP: the state of a turn, stops, forks, switches, undo and reset."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, Reply, fetch, run_app
from tests.unit.server.site import Site, site
from tests.unit.server.turns.test_native import serving
from turnledger.chats import Chats
from turnledger.errors import ModelTimeout, TurnStopped
from turnledger.model.access.token import TokenScope
from turnledger.model.turn import AttemptState
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import ChatSettings


@pytest.mark.parametrize("body", [b'{"polcy": "discard"}', b'{"policy": "drop"}', b"[]", b"{"])
async def test_stop_with_an_invalid_body_is_refused_and_stops_no_turn(body: bytes) -> None:
    replies: list[Any] = []
    async with run_app() as app:
        ledger = app.service.ledger
        async with ledger.turn("Hello") as turn:
            path = f"/api/turns/{turn.id}/stop"
            headers = [HOST, JSON, (b"content-length", b"%d" % len(body))]
            stopping = fetch(app, path, method="POST", headers=headers, parts=(body,))
            replies.append(await asyncio.create_task(stopping))  # this task runs the turn
            turn.emit("Hi.")
    assert (replies[0].status, turn.state) == (400, AttemptState.COMPLETED)


async def test_turn_state_is_reported_while_it_runs_and_after() -> None:
    async with run_app() as app:
        ledger = app.service.ledger
        async with ledger.turn("Hello", conversation_key="k") as turn:
            running = await fetch(app, f"/api/turns/{turn.id}")
            turn.emit("Hi.")
        after = await fetch(app, f"/api/turns/{turn.id}")
    assert (running.status, running.json["state"]) == (200, "running")
    assert (running.json["turn"], running.json["branch"], running.json["failure"]) == (None, None, None)
    assert running.json["chat"]["id"] == str(turn.conversation.id)
    assert (after.json["state"], after.json["turn"]["id"]) == ("completed", str(turn.id))
    assert (after.json["branch"], after.json["chat"]["turn_count"]) == (str(turn.conversation.branch), 1)


async def test_failed_turn_reports_its_error_and_unknown_turn_is_not_found() -> None:
    async with run_app() as app:
        ledger = app.service.ledger
        with pytest.raises(ModelTimeout):
            async with ledger.turn("Hello") as turn:
                raise ModelTimeout
        failed = await fetch(app, f"/api/turns/{turn.id}")
        unknown = await fetch(app, "/api/turns/turn_01890000000070008000000000000000")
    assert (failed.json["state"], failed.json["failure"]["code"]) == ("failed", "model_timeout")
    assert (unknown.status, unknown.code) == (404, "turn_not_found")


@pytest.mark.parametrize("policy", ["keep", "discard"])
async def test_stop_of_a_chat_stops_its_running_turn(policy: str) -> None:
    async with run_app() as app:
        ledger = app.service.ledger
        chat = await ledger.conversation()
        began = asyncio.Event()

        async def run() -> None:
            with suppress(TurnStopped):
                async with chat.turn("Hello") as turn:
                    turn.emit("Hi")
                    began.set()
                    await asyncio.Event().wait()

        running = asyncio.create_task(run())
        await began.wait()
        body = msgspec.json.encode({"policy": policy})
        headers = [HOST, JSON, (b"content-length", b"%d" % len(body))]
        path = f"/api/chats/{chat.id}/stop"
        stopped = await fetch(app, path, method="POST", headers=headers, parts=(body,))
        again = await fetch(app, path, method="POST")
        await running
        state = "kept" if policy == "keep" else "discarded"
        assert (stopped.status, stopped.json["state"]) == (200, state)
        assert stopped.json["committed"] is (policy == "keep")
        assert (again.status, again.json["state"], again.json["turn"]) == (200, None, None)
        [attempt] = (await chat.turns()) or [each.attempt for each in await chat.attempts()]
        assert stopped.json["turn"] == str(attempt.id)


async def test_running_and_queued_turns_are_stopped_by_their_idempotency_keys() -> None:
    async with serving(DemoModel()) as place:
        chat = str((await place.ledger.conversation()).id)
        left, replies = asyncio.Event(), [Reply(), Reply()]
        running = asyncio.create_task(
            place.once({"model": "demo", "input": "/stall", "chat": chat, "stream": True}, left, replies[0])
        )
        while not replies[0].status:
            await asyncio.sleep(0)
        queued = asyncio.create_task(place.turn("Next", {"Idempotency-Key": "second"}, chat=chat))
        while not place.host.at_work().waiting:
            await asyncio.sleep(0)
        stops = [await place.post("/api/turns/stop", {"idempotency_key": "second"})]
        stops.append(await place.post("/api/turns/stop", {"idempotency_key": "once", "policy": "discard"}))
        stops.append(await place.post("/api/turns/stop", {"idempotency_key": "once"}))
        stops.append(await place.post("/api/turns/stop", {"idempotency_key": "third"}))
        refused, _ = await queued, await running
        assert (refused.status, refused.code) == (409, "turn_stopped")
        first = replies[0].turn
        assert [(each.status, each.json["state"]) for each in stops] == [
            (200, "discarded"),
            (200, "discarded"),
            (200, "discarded"),
            (200, None),
        ]
        assert [each.json["turn"] for each in stops[1:]] == [first, first, None]
        invalid = await place.post("/api/turns/stop", {"policy": "keep"})
        assert (invalid.status, invalid.code) == (400, "invalid_body")


UNKNOWN = "01890000000070008000000000000000"


async def chat_of(place: Site, count: int = 3) -> tuple[str, list[str]]:
    """A chat with so many turns."""
    turns = [(await place.turn(f"q{number}", conversation_key="k")).json for number in range(1, count + 1)]
    return turns[0]["chat"]["id"], [each["turn"]["id"] for each in turns]


async def questions(place: Site, chat: str, query: str = "") -> list[str]:
    shown = await place.get(f"/api/chats/{chat}{query}")
    return [turn["input"][0]["content"][0]["text"] for turn in shown["turns"]]


async def test_fork_is_a_separate_chat() -> None:
    async with site() as place:
        chat, turns = await chat_of(place)
        made = await place.post(
            f"/api/chats/{chat}/fork", {"turn": turns[1], "title": "T", "metadata": {"a": "b"}}
        )
        assert made.status == 201
        assert (made.json["title"], made.json["metadata"]) == ("T", {"a": "b"})
        assert await questions(place, made.json["id"]) == ["q1", "q2"]
        assert await questions(place, chat) == ["q1", "q2", "q3"]
        plain = await fetch(place.app, f"/api/chats/{chat}/fork", method="POST", headers=[HOST])
        assert await questions(place, plain.json["id"]) == ["q1", "q2", "q3"]


async def test_fork_and_undo_repeated_with_one_idempotency_key_happen_once() -> None:
    async with site() as place:
        chat, _turns = await chat_of(place)
        once = {"Idempotency-Key": "f"}
        forks = [await place.post(f"/api/chats/{chat}/fork", {}, once) for _ in range(2)]
        assert forks[0].json["id"] == forks[1].json["id"]
        assert [each.header(b"idempotency-replayed") for each in forks] == [None, b"true"]
        for _ in range(2):
            undone = await place.post(f"/api/chats/{chat}/undo", {}, {"Idempotency-Key": "u"})
            assert undone.status == 200
        assert await questions(place, chat) == ["q1", "q2"]
        other = await place.post(f"/api/chats/{chat}/undo", {"forget": True}, {"Idempotency-Key": "u"})
        assert (other.status, other.code) == (422, "idempotency_mismatch")


async def test_branches_are_listed_read_and_switched_to() -> None:
    async with site() as place:
        chat, turns = await chat_of(place)
        old = (await place.get(f"/api/chats/{chat}"))["branch"]
        undone = await place.post(f"/api/chats/{chat}/undo", {"turn": turns[2]})
        assert undone.json["branch"] != old
        again = await place.post(f"/api/chats/{chat}/undo", {"turn": turns[2]})
        assert (again.status, again.code) == (409, "history_diverged")
        listed = (await place.get(f"/api/chats/{chat}/branches"))["data"]
        assert [(each["turns"], each["shared"], each["is_current"]) for each in listed] == [
            (2, 2, True),
            (3, 0, False),
        ]
        assert (listed[0]["base"], listed[0]["head"], listed[1]["id"]) == (turns[1], turns[1], old)
        assert await questions(place, chat, f"?branch={old}") == ["q1", "q2", "q3"]
        switched = await place.post(f"/api/chats/{chat}/switch", {"branch": old})
        assert switched.json["branch"] == old
        assert await questions(place, chat) == ["q1", "q2", "q3"]


async def test_branch_list_pages_continue_at_next() -> None:
    async with site() as place:
        chat, _turns = await chat_of(place)
        await place.post(f"/api/chats/{chat}/undo", {})
        first = await place.get(f"/api/chats/{chat}/branches?limit=1")
        second = await place.get(f"/api/chats/{chat}/branches?limit=1&before={first['next']}")
        both = await place.get(f"/api/chats/{chat}/branches")
        assert [*first["data"], *second["data"]] == both["data"]
        assert both["next"] is None


async def test_a_page_of_turns_is_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnledger.server.routes.chat_history.PAGE_BYTES", 700)
    async with site() as place:
        chat, turns = await chat_of(place, 6)
        seen, before = list[str](), None
        while True:
            query = "" if before is None else f"?before={before}"
            page = await place.get(f"/api/chats/{chat}{query}")
            assert 1 <= len(page["turns"]) < 6
            seen = [turn["id"] for turn in page["turns"]] + seen
            before = page["before"]
            if before is None:
                break
        assert seen == turns


async def test_a_reset_gives_the_key_to_a_fresh_chat() -> None:
    async with site() as place:
        chat, _ = await chat_of(place)
        body = {"conversation_key": "k", "replaces": chat}
        fresh = [(await place.post("/api/chats/reset", body)).json["id"] for _ in range(2)]
        assert fresh[0] == fresh[1] != chat
        assert (await place.turn("q", conversation_key="k")).json["chat"]["id"] == fresh[0]


@pytest.mark.parametrize(
    ("path", "body", "status", "code"),
    [
        ("fork", {"turn": f"turn_{UNKNOWN}"}, 404, "turn_not_found"),
        ("fork", {"turn": ""}, 400, "invalid_id"),
        ("fork", {"title": "T" * 600}, 400, "invalid_input"),
        ("fork", {"conversation_key": "k"}, 400, "invalid_input"),
        ("switch", {"branch": f"branch_{UNKNOWN}"}, 404, "branch_not_found"),
        ("switch", {}, 400, "invalid_body"),
        ("undo", {"turn": ""}, 400, "invalid_id"),
        ("undo", {"turns": 2}, 400, "invalid_body"),
    ],
)
async def test_invalid_branch_operation_is_refused(path: str, body: Any, status: int, code: str) -> None:
    async with site() as place:
        chat, _ = await chat_of(place, 1)
        reply = await place.post(f"/api/chats/{chat}/{path}", body)
        assert (reply.status, reply.code) == (status, code), reply.body
        assert len((await place.get(f"/api/chats/{chat}/branches"))["data"]) == 1
        assert len((await place.ledger.list()).chats) == 1


async def test_token_revoked_during_a_branch_operation_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    async with site() as place:
        chat, _ = await chat_of(place)
        token, text = await place.host.tokens.create(owner="local", scopes=tuple(TokenScope))
        bearer = {"Authorization": f"Bearer {text}"}
        open_chat = Chats.conversation

        async def opened_late(chats: Chats, id: str) -> Any:
            found = await open_chat(chats, id)
            await place.host.tokens.revoke(token.id)
            return found

        monkeypatch.setattr(Chats, "conversation", opened_late)
        for path in ("undo", "fork"):
            reply = await place.post(f"/api/chats/{chat}/{path}", {}, bearer)
            assert reply.status == 401, reply.body
        found = await open_chat(place.ledger, chat)
        assert len(await found.turns()) == 3
        assert len((await place.ledger.list()).chats) == 1


async def test_turn_reset_and_fork_are_refused_where_chats_are_not_kept() -> None:
    async with site(chats=ChatSettings(keep=False)) as place:
        kept = await place.ledger.conversation()
        for path, body in (
            ("/api/turns", {"model": "demo", "input": "Hi"}),
            ("/api/turns", {"model": "demo", "input": "Hi", "chat": str(kept.id)}),
            ("/api/chats/reset", {"conversation_key": "k"}),
            (f"/api/chats/{kept.id}/fork", {}),
        ):
            reply = await place.post(path, body)
            assert (reply.status, reply.code) == (409, "not_kept"), reply.body
        assert await kept.turns() == []


async def test_reset_path_is_not_read_as_a_chat_id() -> None:
    async with site() as place:
        reply = await fetch(place.app, "/api/chats/reset")
        assert (reply.status, reply.code) == (405, "method_not_allowed")


@pytest.mark.parametrize(
    ("query", "remedy"),
    [("last=1&budget=2", "not both"), ("budget=x", "number"), ("", "Give last or budget")],
)
async def test_context_that_cannot_be_sent_is_refused_with_the_remedy(
    query: str, remedy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnledger.server.routes.chat_history.CONTEXT_BYTES", 10)
    async with run_app() as app:
        ledger = app.service.ledger
        async with ledger.turn("Hello") as turn:
            turn.emit("Hi.")
        reply = await fetch(app, f"/api/chats/{turn.conversation.id}/context", query=query.encode())
    assert (reply.status, remedy in reply.json["error"]["message"]) == (400, True)
