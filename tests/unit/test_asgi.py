"""Turns as responses of an application: what its clients receive, and what happens when they leave."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from turnledger import Ledger, Limits, RunningTurn, asgi
from turnledger.asgi import TurnStreams, error_response
from turnledger.errors import ModelUnavailable, TurnledgerError
from turnledger.model.text.sse import EventSplitter, fields_of


class Stage:
    """An application over a ledger in memory, whose model says words as the test lets it."""

    def __init__(self, ledger: Ledger, streams: TurnStreams) -> None:
        self.ledger = ledger
        self.words: asyncio.Queue[str | Exception | None] = asyncio.Queue()

        async def answer(turn: RunningTurn) -> None:
            while (word := await self.words.get()) is not None:
                if isinstance(word, Exception):
                    raise word
                turn.emit(word)

        async def send(request: Request) -> Response:
            key = request.headers.get("idempotency-key")
            block = ledger.turn(
                "Hello", conversation_key="k", idempotency_key=key, attach=True, gives_way=True
            )
            return streams.start(block, answer)

        async def follow(request: Request) -> Response:
            turn = request.path_params["turn"]
            after = int(request.headers.get("last-event-id", 0))
            return streams.follow(await ledger.of_turn(turn), turn, after=after)

        async def pass_on(request: Request, call: Callable[[Request], Awaitable[Response]]) -> Response:
            return await call(request)

        self.app = Starlette(
            routes=[Route("/", send, methods=["POST"]), Route("/turns/{turn}", follow)],
            middleware=[Middleware(BaseHTTPMiddleware, dispatch=pass_on)],
            exception_handlers={TurnledgerError: error_response},  # type: ignore[dict-item]
        )

    def say(self, *words: str | Exception | None) -> None:
        for word in words:
            self.words.put_nowait(word)

    async def texts(self) -> list[str]:
        chat = await self.ledger.conversation(conversation_key="k")
        return [turn.text for turn in await chat.turns()]


class Client:
    """One request, and what has arrived of its response."""

    def __init__(self, stage: Stage, method: str, path: str, **headers: str) -> None:
        self.status = 0
        self.headers: dict[str, str] = {}
        self.body = b""
        self._arrived = asyncio.Condition()
        self._has_left = asyncio.Event()
        self._has_sent = False
        scope = {
            "type": "http",
            "asgi": {"spec_version": "2.3"},
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()],
        }
        self.done = asyncio.create_task(stage.app(scope, self._receive, self._send))

    async def _receive(self) -> dict[str, Any]:
        if not self._has_sent:
            self._has_sent = True
            return {"type": "http.request", "body": b"", "more_body": False}
        await self._has_left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        async with self._arrived:
            if message["type"] == "http.response.start":
                self.status = message["status"]
                self.headers = {name.decode(): value.decode() for name, value in message["headers"]}
            self.body += message.get("body", b"")
            self._arrived.notify_all()

    async def until(self, text: bytes) -> None:
        async with self._arrived:
            await self._arrived.wait_for(lambda: text in self.body)

    async def leave(self) -> None:
        self._has_left.set()
        await self.done

    def events(self) -> list[dict[str, Any]]:
        events = map(fields_of, EventSplitter(1 << 20, ValueError).split(self.body))
        return [json.loads(event[b"data"][0]) for event in events if b"data" in event]


@asynccontextmanager
async def on_stage(limits: Limits | None = None) -> AsyncIterator[Stage]:
    async with await Ledger.open(limits=limits) as ledger, TurnStreams() as streams:
        yield Stage(ledger, streams)


def words_of(events: list[dict[str, Any]]) -> list[str]:
    return [event["text"] for event in events if event["type"] == "text.delta"]


async def test_response_streams_the_turn_up_to_its_commit() -> None:
    async with on_stage() as stage:
        client = Client(stage, "POST", "/")
        stage.say("One", " two")
        await client.until(b" two")
        assert await stage.texts() == []
        stage.say(None)
        await client.done
        events = client.events()
        assert (client.status, words_of(events)) == (200, ["One", " two"])
        assert [event["number"] for event in events] == list(range(1, len(events) + 1))
        assert (events[-1]["type"], events[-1]["state"]) == ("turn.finished", "completed")
        assert await stage.texts() == ["One two"]
        chat = await stage.ledger.of_turn(client.headers["x-turn-id"])
        assert (chat.id, client.headers["content-type"]) == (
            client.headers["x-conversation-id"],
            "text/event-stream; charset=utf-8",
        )


async def test_turn_goes_on_without_its_client_which_follows_it_from_its_last_event() -> None:
    async with on_stage() as stage:
        client = Client(stage, "POST", "/")
        stage.say("One")
        await client.until(b"One")
        await client.leave()
        stage.say(" two")
        last = str(client.events()[-1]["number"])
        again = Client(stage, "GET", f"/turns/{client.headers['x-turn-id']}", last_event_id=last)
        await again.until(b" two")
        stage.say(None)
        await again.done
        assert words_of(again.events()) == [" two"]
        assert await stage.texts() == ["One two"]


async def test_turn_that_gives_way_and_that_nobody_reads_is_kept_when_the_next_one_wants_its_lane() -> None:
    async with on_stage() as stage:
        first = Client(stage, "POST", "/")
        stage.say("One")
        await first.until(b"One")
        await first.leave()
        position = await stage.ledger.position()
        second = Client(stage, "POST", "/")
        async for change in stage.ledger.changes(after=position):
            if change.kind == "turn.running":
                break
        stage.say("Two", None)
        await second.done
        assert words_of(second.events()) == ["Two"]
        assert await stage.texts() == ["One", "Two"]


async def test_request_with_the_key_of_a_turn_follows_it_while_it_runs_and_afterwards() -> None:
    async with on_stage() as stage:
        first = Client(stage, "POST", "/", idempotency_key="1")
        stage.say("One")
        await first.until(b"One")
        second = Client(stage, "POST", "/", idempotency_key="1")
        await second.until(b"One")
        await first.leave()
        stage.say(" two", None)
        await second.done
        third = Client(stage, "POST", "/", idempotency_key="1")
        await third.done
        assert first.headers["x-turn-id"] == second.headers["x-turn-id"] == third.headers["x-turn-id"]
        assert second.body == third.body
        assert await stage.texts() == ["One two"]


async def test_failure_before_the_first_word_has_an_error_status_and_a_later_one_is_the_last_event() -> None:
    async with on_stage() as stage:
        at_once = Client(stage, "POST", "/")
        stage.say(ModelUnavailable())
        await at_once.done
        assert (at_once.status, json.loads(at_once.body)["error"]["code"]) == (502, "model_unavailable")
        later = Client(stage, "POST", "/")
        stage.say("One", ValueError("a bug"))
        await later.done
        assert later.events()[-1]["failure"] == {"code": "ValueError", "message": "ValueError"}
        assert await stage.texts() == []


async def test_queued_turn_sends_comments_while_it_waits_and_its_error_if_it_waits_too_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with on_stage(Limits(queue_wait=0.05)) as stage:
        first = Client(stage, "POST", "/")
        stage.say("One")
        await first.until(b"One")
        refused = Client(stage, "POST", "/")
        await refused.done
        assert (refused.status, json.loads(refused.body)["error"]["code"]) == (409, "wait_ended")
        monkeypatch.setattr(asgi, "HEARTBEAT_EVERY", 0.001)
        late = Client(stage, "POST", "/")
        await late.done
        assert (late.status, late.body.startswith(asgi.COMMENT)) == (200, True)
        assert late.events() == [json.loads(refused.body)]
        stage.say(None)
        await first.done


async def test_unknown_turn_is_refused_with_the_status_of_the_server() -> None:
    async with on_stage() as stage:
        unknown = Client(stage, "GET", "/turns/turn_01a1ebec9ddc7bb4a914b02a9286d3a7")
        await unknown.done
        assert (unknown.status, json.loads(unknown.body)["error"]["code"]) == (404, "turn_not_found")


async def test_leaving_the_streams_waits_for_turns_whose_clients_have_left() -> None:
    async with await Ledger.open() as ledger:
        async with TurnStreams() as streams:
            stage = Stage(ledger, streams)
            client = Client(stage, "POST", "/")
            stage.say("One")
            await client.until(b"One")
            await client.leave()
            stage.say(" two", None)
        assert await stage.texts() == ["One two"]
