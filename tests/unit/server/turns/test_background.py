"""Background turns: requested over HTTP, run by any server of the store, listed, stopped and resumed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.unit.server.asgi import Reply, fetch
from tests.unit.server.site import NO_HEADERS, Headers, Site, site_of
from turnledger.model.access.token import TokenScope
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import ChatSettings, ServerLimits
from turnledger.server.models.models import ResolvedModel
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import Gate

TURNS = "/api/turns"
SOME = [scope for scope in TokenScope if scope is not TokenScope.ADMIN]


class GatedModel(DemoModel):
    """The demo model, which waits at its gate before it answers, and records what it is asked."""

    def __init__(self) -> None:
        super().__init__(pace=0)
        self.gate = Gate()
        self.asked: list[dict[str, Any]] = []

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        self.asked.append(msgspec.json.decode(msgspec.json.encode(dict(request.settings))))
        await self.gate.pass_through()
        async with super().stream(request) as batches:
            yield batches


class Place(Site):
    model: GatedModel

    async def enqueue(
        self,
        text: str = "Hello",
        headers: Headers = NO_HEADERS,
        *,
        token: str | None = None,
        **fields: Any,
    ) -> Reply:
        body = {"model": "demo", "input": text, "background": True, **fields}
        return await self.send("POST", TURNS, body, headers, token=token)

    async def end_of(self, turn: str, token: str | None = None) -> dict[str, Any]:
        """Wait until the turn has ended, by its events; return its state."""
        await self.send("GET", f"{TURNS}/{turn}/events", token=token)
        return dict((await self.send("GET", f"{TURNS}/{turn}", token=token)).json)

    async def jobs(self, token: str | None = None) -> list[tuple[str, str]]:
        page = await self.send("GET", "/api/jobs", token=token)
        assert page.status == 200, page.body
        return [(job["id"], job["state"]) for job in page.json["data"]]


@asynccontextmanager
async def place(
    url: str = "memory:", *, works: bool = True, clock: FakeClock | None = None, **settings: Any
) -> AsyncIterator[Place]:
    """Run a server over a store; without `works` it runs no background turns."""
    model = GatedModel()
    others = {"demo": ResolvedModel(model, "demo-1"), "other": ResolvedModel(DemoModel(pace=0), "other")}
    async with site_of(Place, url, others=others, clock=clock, **settings) as here:
        here.model = model
        if works:
            here.app.background.start()
        try:
            yield here
        finally:
            await here.app.drain(0)


def logged(caplog: pytest.LogCaptureFixture, event: str, *fields: str) -> list[tuple[object, ...]]:
    """Return these fields of all lines of an event; None where a line has none."""
    records = [record for record in caplog.records if record.getMessage() == event]
    return [tuple(getattr(record, name, None) for name in fields) for record in records]


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "turnledger")
    return caplog


async def test_background_turn_is_accepted_listed_and_run_with_its_recorded_settings() -> None:
    async with place() as here:
        tool = {"type": "function", "function": {"name": "look", "parameters": {}}}
        settings = {"temperature": 0.5, "tools": [tool], "metadata": {"of": "test"}}
        accepted = await here.enqueue("Hello", conversation_key="ada", settings=settings)
        assert accepted.status == 202, accepted.body
        id = accepted.json["id"]
        assert accepted.header(b"location") == f"{TURNS}/{id}".encode()
        assert accepted.header(b"x-turn-id") == id.encode()
        assert accepted.json["state"] in ("queued", "running")
        assert accepted.json["chat"]["conversation_key"] == "ada"
        await here.model.gate.arrived()
        assert await here.jobs() == [(id, "running")]
        here.model.gate.release()
        ended = await here.end_of(id)
        assert (ended["state"], ended["turn"]["id"]) == ("completed", id)
        assert ended["details"]["settings"] == {"temperature": 0.5}
        assert here.model.asked == [{**settings, "model": "demo-1"}]
        assert await here.jobs() == []
        metrics = (await fetch(here.app, "/metrics")).body
        assert b'turnledger_turns_total{outcome="completed"} 1.0' in metrics


async def test_background_turn_without_a_worker_waits_and_turns_behind_it_in_order() -> None:
    async with place(works=False) as here:
        first = (await here.enqueue("one", conversation_key="ada")).json
        second = (await here.enqueue("two", conversation_key="ada")).json
        assert (first["state"], second["state"]) == ("queued", "queued")
        assert await here.jobs() == [(first["id"], "queued"), (second["id"], "queued")]
        page = (await here.send("GET", "/api/jobs?limit=1")).json
        assert page["next"] == first["id"]
        rest = (await here.send("GET", f"/api/jobs?limit=1&after={page['next']}")).json
        assert [job["id"] for job in rest["data"]] == [second["id"]]
        beside = (await here.enqueue("three")).json
        jobs = (await here.send("GET", f"/api/jobs?chat={first['chat']['id']}")).json["data"]
        places = [(job["input"][0]["content"][0]["text"], job["before"]) for job in jobs]
        assert places == [("one", 0), ("two", 1)]
        other = (await here.send("GET", f"/api/jobs?chat={beside['chat']['id']}")).json["data"]
        assert [job["id"] for job in other] == [beside["id"]]
        assert (await here.send("GET", "/api/jobs?chat=ada")).code == "invalid_id"
        here.model.gate.release()
        here.app.background.start()
        assert (await here.end_of(second["id"]))["turn"]["number"] == 2


async def test_same_idempotency_key_returns_the_queued_and_then_the_ended_turn() -> None:
    async with place(works=False) as here:
        key = {"Idempotency-Key": "once"}
        first = await here.enqueue("Hello", key, conversation_key="ada")
        again = await here.enqueue("Hello", key, conversation_key="ada")
        assert (again.status, again.json["id"], again.json["state"]) == (202, first.json["id"], "queued")
        other = await here.enqueue("Bye", key, conversation_key="ada")
        assert (other.status, other.code) == (422, "idempotency_mismatch")
        here.model.gate.release()
        here.app.background.start()
        ended = await here.end_of(first.json["id"])
        replayed = await here.enqueue("Hello", key, conversation_key="ada")
        assert (replayed.status, replayed.json["turn"]) == (202, ended["turn"])
        marks = [each.header(b"idempotency-replayed") for each in (first, again, replayed)]
        assert marks == [None, b"true", b"true"]
        body = {"model": "demo", "input": "Hello", "conversation_key": "ada"}
        followed = await here.send("POST", TURNS, body, key)
        assert (followed.status, followed.json["turn"]) == (200, ended["turn"])
        assert len(here.model.asked) == 1


async def test_repeated_background_request_is_logged_and_counted_as_a_retry(
    log: pytest.LogCaptureFixture,
) -> None:
    async with place(works=False) as here:
        key = {"Idempotency-Key": "once"}
        turn = (await here.enqueue("Hello", key, conversation_key="ada")).json["id"]
        await here.enqueue("Hello", key, conversation_key="ada")
        here.model.gate.release()
        here.app.background.start()
        await here.end_of(turn)
        await here.enqueue("Hello", key, conversation_key="ada")
        lines = [line for line in logged(log, "request", "path", "turn", "retry") if line[0] == TURNS]
        assert lines == [(TURNS, turn, None), (TURNS, turn, "joined"), (TURNS, turn, "replayed")]
        counted = (await fetch(here.app, "/metrics")).body
        for outcome in (b"completed", b"joined", b"replayed"):
            assert b'turnledger_turns_total{outcome="%s"} 1.0' % outcome in counted


ENDED, LEFT, RESUMED = "background_turn_ended", "background_turn_left", "background_turn_resumed"


async def test_ended_background_turns_are_logged_with_their_outcome(log: pytest.LogCaptureFixture) -> None:
    async with place(works=False) as here:
        sent = [await here.enqueue("Hello", model=model) for model in ("demo", "other")]
        turns = [each.json["id"] for each in sent]
        here.app.service.models._by_name.pop("other")
        here.app.background.start()
        await here.model.gate.arrived()
        await here.end_of(turns[1])
        await here.send("POST", f"{TURNS}/{turns[0]}/stop", {})
    lines = logged(log, ENDED, "turn", "conversation", "outcome", "code", "resumes", "levelname")
    chats = [each.json["chat"]["id"] for each in sent]
    assert lines == [
        (turns[1], chats[1], "failed", "model_not_found", 0, "WARNING"),
        (turns[0], chats[0], "stopped", None, 0, "INFO"),
    ]
    assert not [event for event in log.messages if any(turn in event for turn in turns) and event[0] != "{"]


async def test_background_turn_left_by_a_shutdown_is_logged_without_a_warning_and_then_as_resumed(
    log: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    url = f"sqlite:///{tmp_path}/chats.db"
    async with place(url) as here:
        turn = (await here.enqueue("Hello")).json["id"]
        await here.model.gate.arrived()
    async with place(url) as there:
        there.model.gate.release()
        await there.end_of(turn)
    assert logged(log, LEFT, "turn", "code") == [(turn, "ledger_closed")]
    assert logged(log, RESUMED, "turn", "resumes") == [(turn, 0)]
    assert logged(log, ENDED, "turn", "outcome") == [(turn, "completed")]
    assert [record.levelname for record in log.records if record.levelno > logging.INFO] == []


@pytest.mark.parametrize(
    ("fields", "header", "words"),
    [
        ({"stream": True}, None, "excludes stream"),
        ({"replaces": "turn_" + "0" * 32, "chat": "conv_" + "0" * 32}, None, "excludes replaces"),
        ({"input": [], "regenerates": True, "conversation_key": "a"}, None, "excludes replaces"),
        ({"after": "turn_" + "0" * 32, "conversation_key": "a"}, None, "and after"),
        ({"settings": {"api_base": "x"}}, None, "api_base would not be stored"),
        ({"settings": {"stream_options": {}}}, None, "stream_options would not be stored"),
        ({}, {"x-turn-on-busy": "reject"}, "Omit X-Turn-On-Busy"),
        ({}, {"x-turn-on-disconnect": "keep"}, "On-Disconnect"),
    ],
)
async def test_options_that_do_not_apply_in_the_background_are_refused_and_nothing_is_stored(
    fields: dict[str, Any], header: dict[str, str] | None, words: str
) -> None:
    async with place(works=False) as here:
        refused = await here.enqueue("Hello", header or {}, **fields)
        assert (refused.status, refused.code) == (400, "invalid_input"), refused.body
        assert words in refused.json["error"]["message"]
        assert await here.jobs() == []


async def test_server_with_background_turns_switched_off_accepts_and_runs_none(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chats.db"
    async with place(url, works=False) as other:
        id = (await other.enqueue()).json["id"]
    async with place(url, limits=ServerLimits(background_turns=0)) as here:
        refused = await here.enqueue()
        assert (refused.status, refused.code) == (400, "background_off")
        assert await here.jobs() == [(id, "queued")]


async def test_unkept_chats_and_unknown_models_are_refused_before_anything_is_stored() -> None:
    async with place(works=False, chats=ChatSettings(keep=False)) as here:
        assert (await here.enqueue()).code == "not_kept"
    async with place(works=False) as here:
        assert (await here.enqueue(model="none")).code == "model_not_found"
        expecting = {"x-conversation-expect": "continued"}
        missing = await here.enqueue("Hi", expecting, conversation_key="x")
        assert missing.status == 404
        assert await here.jobs() == []


async def test_running_turn_of_a_server_that_shuts_down_is_finished_by_another(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chats.db"
    async with place(url, works=False) as there:
        async with place(url) as here:
            id = (await here.enqueue("Hello", conversation_key="ada")).json["id"]
            await here.model.gate.arrived()
            behind = (await here.enqueue("Bye", conversation_key="ada")).json["id"]
        assert await there.jobs() == [(id, "running"), (behind, "queued")]
        page = (await there.send("GET", "/api/jobs")).json
        assert [job["resumes"] for job in page["data"]] == [0, 0]
        there.model.gate.release()
        there.app.background.start()
        assert (await there.end_of(id))["turn"]["number"] == 1
        assert (await there.end_of(behind))["turn"]["number"] == 2


@pytest.mark.parametrize("is_running", [False, True])
@pytest.mark.parametrize("code", ["token_revoked", "token_expired"])
async def test_revoked_or_expired_token_fails_its_background_turn(code: str, is_running: bool) -> None:
    clock = FakeClock()
    async with place(works=is_running, clock=clock) as here:
        tokens = here.host.tokens
        token, text = await tokens.create(owner="ada", scopes=SOME, lifetime=60)
        _, reader = await tokens.create(owner="ada", scopes=SOME)
        id = (await here.enqueue("Hello", token=text)).json["id"]
        if is_running:
            await here.model.gate.arrived()
        if code == "token_revoked":
            await tokens.revoke(str(token.id))
        clock.advance(59 if code == "token_revoked" else 61)  # either way, time for the worker to look
        here.app.background.start()
        if is_running:
            [worker] = here.ledger._process.waiters.workers
            worker()
        ended = await here.end_of(id, reader)
        assert (ended["state"], ended["failure"]["code"]) == ("failed", code)
        assert (len(here.model.asked), await here.jobs(reader)) == (is_running, [])
        refused = await here.enqueue("Hello", token=text)
        assert (refused.status, refused.code) == (401, code)


async def test_model_that_is_no_longer_known_or_allowed_fails_the_turn(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/chats.db"
    async with place(url, works=False) as here:
        ids = [(await here.enqueue("Hello", model=model)).json["id"] for model in ("demo", "other")]
        modelless = await (await here.ledger.conversation()).enqueue("Hello")
    async with place(url, works=False) as there:
        del there.app.service.models._by_name["other"]
        there.model.gate.release()
        there.app.background.start()
        ended = [await there.end_of(id) for id in (*ids, modelless)]
    assert [each["state"] for each in ended] == ["completed", "failed", "failed"]
    assert [each["failure"]["code"] for each in ended[1:]] == ["model_not_found"] * 2


async def test_narrowed_token_keeps_its_bounds_and_sees_only_its_jobs() -> None:
    async with place(works=False) as here:
        tokens = here.host.tokens
        _, all_of_it = await tokens.create(owner="ada", scopes=SOME)
        _, narrow = await tokens.create(owner="ada", scopes=SOME, chat_scope="shop", max_tokens=7)
        _, other = await tokens.create(owner="bob", scopes=SOME)
        free = (await here.enqueue("/count 3", token=all_of_it)).json["id"]
        bound = (await here.enqueue("/count 3", token=narrow)).json["id"]
        refused = await here.enqueue("Hi", token=narrow, settings={"max_tokens": 8})
        assert (refused.status, refused.code) == (400, "parameter_too_large")
        assert [id for id, _ in await here.jobs(all_of_it)] == [free, bound]
        assert [id for id, _ in await here.jobs(narrow)] == [bound]
        assert await here.jobs(other) == []
        chats = [job["chat"] for job in (await here.send("GET", "/api/jobs", token=all_of_it)).json["data"]]
        for token, expected in ((all_of_it, [free]), (narrow, []), (other, [])):
            found = (await here.send("GET", f"/api/jobs?chat={chats[0]}", token=token)).json["data"]
            assert [job["id"] for job in found] == expected
        here.model.gate.release()
        here.app.background.start()
        for id in (free, bound):
            assert (await here.end_of(id, all_of_it))["state"] == "completed"
        assert sorted(asked.get("max_tokens", 0) for asked in here.model.asked) == [0, 7]


async def test_visitor_of_a_link_cannot_enqueue() -> None:
    async with place(works=False) as here:
        shares = here.host.shares
        _, code = await shares.create(scope="fair", owner="operator", visitor_lifetime=None)
        visit = await shares.exchange(code, "made-up-by-the-page-of-a-visitor")
        refused = await here.enqueue("Hi", token=visit.text)
        assert (refused.status, refused.code) == (403, "not_for_visitors")
        assert await here.jobs(visit.text) == []


async def test_jobs_of_internal_chats_are_in_no_list() -> None:
    async with place(works=False) as here:
        made = (await here.send("POST", "/api/chats", {"internal": True})).json
        accepted = await here.enqueue("Hi", chat=made["id"])
        assert accepted.status == 202
        assert await here.jobs() == []
        assert (await here.send("GET", f"{TURNS}/{accepted.json['id']}")).json["state"] == "queued"


async def test_deleted_chat_ends_its_background_turns() -> None:
    async with place() as here:
        chat = (await here.send("POST", "/api/chats", {})).json["id"]
        running = (await here.enqueue("one", chat=chat)).json["id"]
        await here.model.gate.arrived()
        queued = (await here.enqueue("two", chat=chat)).json["id"]
        assert (await here.send("DELETE", f"/api/chats/{chat}")).status == 200
        statuses = [(await here.send("GET", f"{TURNS}/{id}")).status for id in (running, queued)]
        assert statuses == [410, 404]
        assert await here.jobs() == []
        assert len(here.model.asked) == 1


async def test_stop_works_before_while_and_after_a_background_turn_runs() -> None:
    async with place(works=False) as here:
        key = {"Idempotency-Key": "k"}
        early = (await here.enqueue("early", key, conversation_key="ada")).json["id"]
        by_key = {"idempotency_key": "k"}
        stopped = (await here.send("POST", f"{TURNS}/stop", by_key)).json
        assert (stopped["turn"], stopped["state"], stopped["committed"]) == (early, "discarded", False)
        again = await here.enqueue("early", key, conversation_key="ada")
        assert (again.status, again.code) == (409, "turn_stopped")
        here.app.background.start()
        running = (await here.enqueue("Hello", conversation_key="ada")).json["id"]
        await here.model.gate.arrived()
        for _ in ("while", "after"):
            stopped = (await here.send("POST", f"{TURNS}/{running}/stop")).json
            assert stopped["state"] == "kept"
        assert len(here.model.asked) == 1
        assert await here.jobs() == []


async def test_background_turn_shows_its_model_the_history_that_it_asked_for() -> None:
    async with place() as here:
        here.model.gate.release()
        await here.enqueue("One", conversation_key="ada")
        id = (await here.enqueue("Two", conversation_key="ada", context={"last": 0})).json["id"]
        assert "I remember nothing before that." in str((await here.end_of(id))["turn"]["output"])


async def test_failed_model_fails_the_turn_and_the_next_one_runs() -> None:
    async with place() as here:
        here.model.gate.release()
        failed = (await here.enqueue("/fail", conversation_key="ada")).json["id"]
        next_one = (await here.enqueue("Hello", conversation_key="ada")).json["id"]
        ended = await here.end_of(failed)
        assert (ended["state"], ended["failure"]["code"]) == ("failed", "model_unavailable")
        assert (await here.end_of(next_one))["turn"]["number"] == 1


async def test_server_runs_as_many_background_turns_at_once_as_the_settings_allow() -> None:
    async with place(limits=ServerLimits(background_turns=2)) as here:
        ids: Sequence[str] = [(await here.enqueue(f"q{number}")).json["id"] for number in range(3)]
        await here.model.gate.arrived(2)
        assert sorted(state for _, state in await here.jobs()) == ["queued", "running", "running"]
        here.model.gate.release()
        for id in ids:
            assert (await here.end_of(id))["state"] == "completed"


async def test_first_background_turn_of_a_chat_is_titled_by_the_model() -> None:
    async with AsyncExitStack() as stack:
        here = await stack.enter_async_context(place(chats=ChatSettings(title_model="other")))
        here.model.gate.release()
        id = (await here.enqueue("Hello", conversation_key="ada")).json["id"]
        assert (await here.end_of(id))["state"] == "completed"
        titles = here.app.service.titles
        assert titles is not None
        while (await here.send("GET", f"{TURNS}/{id}")).json["chat"]["named_by"] != "model":
            await asyncio.sleep(0.01)
