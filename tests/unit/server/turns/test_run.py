"""Running a turn for a client: shutdown, disconnects, outcomes and reference cycles."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import msgspec
import pytest

from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from tests.unit.server.garbage import garbage_of
from turnledger import Ledger
from turnledger.engine.access.tokens import find
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.commit import commit
from turnledger.errors import CommitOutcomeUnknown, ModelTimeout, NoNewInput, TurnStopped
from turnledger.model.turn import Turn, TurnKind
from turnledger.runners.demo import DemoModel
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import Settings
from turnledger.server.models.models import Models, ResolvedModel
from turnledger.server.turns.run import outcome_of
from turnledger.stores.memory import Database, MemoryStore
from turnledger.testing.gates import GatedStore, When

CHAT, TURNS = "/v1/chat/completions", "/api/turns"
either_api = pytest.mark.parametrize("path", [CHAT, TURNS])


def turn_request(path: str, text: str, *more: tuple[bytes, bytes], stream: bool) -> dict[str, Any]:
    """A turn of the same conversation, by one API or the other."""
    fields: dict[str, Any] = {"messages": [{"role": "user", "content": text}]}
    named = [(b"x-conversation-id", b"ada")]
    if path == TURNS:
        fields, named = {"input": text, "conversation_key": "ada"}, []
    body = msgspec.json.encode({"model": "demo", "stream": stream, **fields})
    return {"path": path, "method": "POST", "headers": (HOST, JSON, *named, *more), "parts": (body,)}


def is_done(reply: Reply, path: str) -> bool:
    """Whether a stream reports that the turn was committed."""
    last = b"data: [DONE]" if path == CHAT else b'"state":"completed"'
    return last in reply.body[-200:]


class Place(NamedTuple):
    app: App
    ledger: Ledger
    store: GatedStore

    def shut_down(self) -> None:
        """Cancel the open requests, as after the grace time."""
        self.app.service.shutting_down.set()
        self.app.cancel_requests()

    async def turns(self) -> list[Turn]:
        return await (await self.ledger.conversation(conversation_key="ada", create=False)).turns()


@asynccontextmanager
async def place(model: DemoModel | None = None) -> AsyncIterator[Place]:
    store = GatedStore(MemoryStore(Database()))
    models = Models({"demo": ResolvedModel(model or DemoModel(pace=0), "demo")})
    async with await Ledger.over(store) as ledger:
        yield Place(make_app(ledger, models, Settings()), ledger, store)


def stalling() -> tuple[DemoModel, asyncio.Event]:
    """Return a model that never goes on, and the event of its stall."""
    stalled = asyncio.Event()

    async def never(_: float) -> None:
        stalled.set()
        await asyncio.Event().wait()

    return DemoModel(pace=1, sleep=never), stalled


@either_api
@pytest.mark.parametrize("stream", [False, True])
async def test_turn_committed_during_shutdown_is_answered_as_complete(path: str, stream: bool) -> None:
    async with place() as here:
        with here.store.hold(commit, When.AFTER) as gate:
            pending = asyncio.ensure_future(fetch(here.app, **turn_request(path, "Hello", stream=stream)))
            await gate.arrived()
            here.shut_down()
        reply: Reply = await pending
        assert reply.status == 200
        assert is_done(reply, path) if stream else reply.is_whole
        assert b"error" not in reply.body
        assert len(await here.turns()) == 1


def leaves_once(app: App, left: asyncio.Event) -> Any:
    """The application behind a connection that breaks once `left` is set."""

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        async def receive_until() -> Any:
            receiving = asyncio.ensure_future(receive())
            leaving = asyncio.ensure_future(left.wait())
            done, waiting = await asyncio.wait((receiving, leaving), return_when=asyncio.FIRST_COMPLETED)
            for each in waiting:
                each.cancel()
            return receiving.result() if receiving in done else {"type": "http.disconnect"}

        await app(scope, receive_until, send)

    return breaking


def leaves_at(app: App, kind: str) -> Any:
    """The application behind a connection that breaks while a message of this kind is on its way."""
    left = asyncio.Event()

    async def breaking(scope: Any, receive: Any, send: Any) -> None:
        async def send_until(message: Any) -> None:
            if message["type"] == kind and not message.get("more_body", False):
                left.set()
                await asyncio.sleep(0)
                await asyncio.sleep(0)  # meanwhile the server receives the disconnect
            await send(message)

        await leaves_once(app, left)(scope, receive, send_until)

    return breaking


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("kind", "turns"), [("http.response.start", ["q"]), ("http.response.body", ["q", "q"])]
)
async def test_retry_replays_an_answer_only_if_its_last_bytes_cannot_have_arrived(
    kind: str, turns: list[str], stream: bool
) -> None:
    async with place() as here:
        for count in (b"0", b"1"):
            server = leaves_at(here.app, kind) if count == b"0" else here.app
            more = (b"x-stainless-retry-count", count), (b"x-conversation-messages", b"new")
            reply = await fetch(server, **turn_request(CHAT, "q", *more, stream=stream))
        assert reply.is_whole
        assert [turn.input[0].text for turn in await here.turns()] == turns


@pytest.mark.parametrize(
    ("problem", "word"),
    [
        (TurnStopped(), "stopped"),
        (CommitOutcomeUnknown(), "unknown"),
        (NoNewInput(), "refused"),
        (ModelTimeout(), "failed"),
        (RuntimeError(), "failed"),
    ],
)
def test_turn_outcome_metric_follows_from_the_exception(problem: BaseException, word: str) -> None:
    assert outcome_of(problem) == word


@either_api
@pytest.mark.parametrize("stream", [False, True])
async def test_turn_interrupted_by_shutdown_is_kept_and_not_reported_done(path: str, stream: bool) -> None:
    model, stalled = stalling()
    async with place(model) as here:
        keep = (b"x-turn-on-failure", b"keep")
        pending = asyncio.ensure_future(fetch(here.app, **turn_request(path, "/stall", keep, stream=stream)))
        await stalled.wait()
        here.shut_down()
        reply: Reply = await pending
        # The last event of a stream reports it.
        assert (b'"state":"kept"' if path == TURNS and stream else b"shutting_down") in reply.body
        assert not is_done(reply, path)
        assert [turn.kind for turn in await here.turns()] == [TurnKind.INTERRUPTED]


@either_api
@pytest.mark.parametrize("stream", [False, True])
async def test_answered_turn_leaves_no_reference_cycles(path: str, stream: bool) -> None:
    async with place() as here:

        async def turn() -> None:
            reply = await fetch(here.app, **turn_request(path, "Hello", stream=stream))
            assert reply.status == 200

        await turn()  # the conversation is made, which takes a way of its own
        with garbage_of() as left:
            await turn()
            for _ in range(5):
                await asyncio.sleep(0)  # what was cancelled has ended
        assert not {"RunningTurn", "ClientStream", "TurnExchange", "TurnRun"} & left


@either_api
async def test_malformed_request_of_a_revoked_token_reports_the_token_and_leaves_no_cycle(path: str) -> None:
    async with place() as here:
        tokens = here.app.service.host.tokens
        token, text = await tokens.create(owner="ann", scopes=["turns:run"])
        request = turn_request(path, "Hello", (b"authorization", b"Bearer " + text.encode()), stream=False)
        assert (await fetch(here.app, **request)).status == 200  # remembered
        await tokens.revoke(str(token.id))
        request["parts"] = (b"{",)
        with garbage_of() as left:
            reply = await fetch(here.app, **request)
    assert (reply.status, reply.code) == (401, "token_revoked")
    assert not {"TurnExchange", "RequestRefused", "TokenEnded"} & left


async def test_stream_cancelled_while_its_failure_is_checked_ends_with_the_shutdown() -> None:
    model, stalled = stalling()
    async with place(model) as here:
        app = here.app
        running = asyncio.create_task(fetch(app, **turn_request(TURNS, "/stall", stream=True)))
        await stalled.wait()
        process = here.ledger._process
        waiting = asyncio.create_task(fetch(app, **turn_request(TURNS, "next", stream=True)))
        while not any(process.attempts.values()):
            await asyncio.sleep(0)
        [queued] = [attempt for attempt, has_queued in process.attempts.items() if has_queued]
        for _ in range(2):
            app.service.streams.send_heartbeats()  # the stream begins before its turn does
        chat = await here.ledger.conversation(conversation_key="ada", create=False)
        with here.store.hold(find) as gate:
            await chat.stop(queued)
            await gate.arrived()
            here.shut_down()
            reply = await waiting
        assert reply.status == 200
        assert reply.is_whole
        assert b"shutting_down" in reply.body
        await running


@pytest.mark.parametrize("when", list(When))
async def test_turn_whose_client_left_while_it_began_is_counted_once(when: When) -> None:
    async with place() as here:
        left = asyncio.Event()
        stop = (b"x-turn-on-disconnect", b"keep")
        with here.store.hold(begin, when) as gate:
            pending = asyncio.create_task(
                fetch(leaves_once(here.app, left), **turn_request(TURNS, "Hello", stop, stream=True))
            )
            await gate.arrived()
            left.set()
            while not any(task.get_name() == "turnledger stop" for task in asyncio.all_tasks()):
                await asyncio.sleep(0)
        await pending
        text = here.app.service.metrics.text().decode()
        assert re.findall(r'turns_total{outcome="(\w+)"} (.+)', text) == [("stopped", "1.0")]
