"""Limits over HTTP: requests are refused before any work and accepted again later. The limits of a share
link hold for all its visitors together."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import msgspec
import pytest
from starlette.types import Message

from tests.guarded.town import town
from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from tests.unit.server.site import Site, site_of
from turnledger.model.conversation import BLOCK
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.server.access.limits import IMPORTS, OTHER_REQUESTS, STREAMS, TURNS, WAITING, Caller
from turnledger.server.app import App
from turnledger.server.config.settings import ServerLimits
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import Gate
from turnledger.tokens import Tokens

PATH = "/v1/chat/completions"
Result = TypeVar("Result")


class Held(DemoModel):
    """Answers when it is allowed to."""

    def __init__(self) -> None:
        super().__init__(pace=0)
        self.gate = Gate()

    async def complete(self, request: ModelRequest) -> bytes:
        await self.gate.pass_through()
        return await super().complete(request)


class House(Site):
    """A server with a model that holds its answers, and people with tokens."""

    model: Held
    clock: FakeClock

    def __init__(self, app: App) -> None:
        super().__init__(app)
        self.counters = app.service.counters
        self._tokens: dict[str, str] = {}

    async def fetch(
        self, who: str | None, chat: str | None, text: str = "Hi", idempotency_key: str | None = None
    ) -> Reply:
        headers, body = await self._request(who, chat, text, idempotency_key)
        return await fetch(self.app, PATH, method="POST", headers=headers, parts=(body,))

    async def fetch_and_leave(
        self, who: str, chat: str, leaving: asyncio.Event, idempotency_key: str | None = None
    ) -> None:
        """Send a whole request, and go at some time."""
        headers, body = await self._request(who, chat, "Hi", idempotency_key)
        messages: list[Message] = [{"type": "http.request", "body": body}]

        async def receive() -> Message:
            if messages:
                return messages.pop()
            await leaving.wait()
            return {"type": "http.disconnect"}

        async def send(_: Message) -> None:
            raise OSError

        scope = {"type": "http", "method": "POST", "path": PATH, "headers": headers, "query_string": b""}
        await self.app(scope, receive, send)

    async def begin(self, who: str | None, chat: str | None, **more: Any) -> asyncio.Task[Reply]:
        """Send a request, and wait until it reaches the model."""
        return await self._begun(asyncio.create_task(self.fetch(who, chat, **more)))

    async def begin_and_leave(self, who: str, chat: str) -> asyncio.Task[None]:
        leaving = asyncio.Event()
        leaving.set()
        return await self._begun(asyncio.create_task(self.fetch_and_leave(who, chat, leaving)))

    async def _begun(self, pending: asyncio.Task[Result]) -> asyncio.Task[Result]:
        arrivals = self.model.gate._arrivals
        await self.model.gate.arrived(arrivals + 1)
        return pending

    async def follow(self, who: str | None, turn: str) -> Reply:
        return await fetch(self.app, f"/api/turns/{turn}/events", headers=await self._heads(who))

    async def until(self, kind: str, count: int) -> None:
        while self.counters.sum(kind) != count:
            await asyncio.sleep(0)

    async def _request(
        self, who: str | None, chat: str | None, text: str, idempotency_key: str | None
    ) -> tuple[list[tuple[bytes, bytes]], bytes]:
        headers = [*await self._heads(who), JSON]
        if chat is not None:
            headers.append((b"x-conversation-id", chat.encode()))
        if idempotency_key is not None:
            headers.append((b"idempotency-key", idempotency_key.encode()))
        body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
        return headers, msgspec.json.encode(body)

    async def _heads(self, who: str | None) -> list[tuple[bytes, bytes]]:
        if who is None:
            return [HOST]
        if who not in self._tokens:
            self._tokens[who] = await self.token(owner=who)
        return [HOST, (b"authorization", b"Bearer " + self._tokens[who].encode())]


@asynccontextmanager
async def house(**limits: int) -> AsyncIterator[House]:
    clock, model = FakeClock(60_000), Held()
    chosen = ServerLimits(**limits)  # type: ignore[arg-type]
    async with site_of(House, model=model, clock=clock, limits=chosen) as here, asyncio.timeout(60):
        here.model, here.clock = model, clock
        yield here
        assert [here.counters.sum(kind) for kind in (TURNS, WAITING, STREAMS)] == [0, 0, 0]


def refusal(reply: Reply) -> tuple[int, str, bytes | None]:
    return reply.status, reply.code, reply.header(b"retry-after")


@pytest.mark.parametrize("chat", ["one", None])
async def test_owner_at_the_turn_limit_is_refused_until_a_turn_ends(chat: str | None) -> None:
    async with house(owner_turns=1) as here:
        first = await here.begin("ann", chat)
        assert refusal(await here.fetch("ann", "two")) == (429, "too_many_turns", b"2")
        bobs = await here.begin("bob", "two")
        here.model.gate.release()
        assert ((await first).status, (await bobs).status) == (200, 200)
        assert (await here.fetch("ann", "two")).status == 200


async def test_refused_request_is_answered_without_reading_body_or_store(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with house(owner_turns=1, owner_streams=1) as here:
        running = await here.begin("ann", "one")
        reader = here.app.service.quotas.admit_stream(Caller("ann"))
        heads = await here._heads("ann")

        async def fails(*_: object) -> Any:
            raise AssertionError

        monkeypatch.setattr(Tokens, "find", fails)
        answers: list[Message] = []

        async def send(message: Message) -> None:
            answers.append(message)

        for method, path in (("POST", PATH), ("GET", "/api/turns/turn_1/events")):
            scope = {"type": "http", "method": method, "path": path, "query_string": b""}
            declared = [JSON, (b"content-length", b"9")] if method == "POST" else []
            await here.app({**scope, "headers": [*heads, *declared]}, fails, send)
        assert [each["status"] for each in answers if "status" in each] == [429, 429]
        reader.release()
        here.model.gate.release()
        await running


async def test_turn_counts_until_its_end_after_its_client_disconnects() -> None:
    async with house(owner_turns=1) as here:
        left = await here.begin_and_leave("ann", "one")
        assert refusal(await here.fetch("ann", "two"))[1] == "too_many_turns"
        here.model.gate.release()
        await left
        assert (await here.fetch("ann", "one")).status == 200


async def test_queued_turn_counts_as_waiting_until_it_begins() -> None:
    async with house(owner_waiting=1) as here:
        first = await here.begin("ann", "one")
        second = asyncio.create_task(here.fetch("ann", "one", "And?"))
        await here.until(TURNS, 2)
        assert refusal(await here.fetch("ann", "two")) == (429, "too_many_waiting", b"2")
        here.model.gate.release()
        assert ((await first).status, (await second).status) == (200, 200)


async def test_turn_without_a_conversation_stops_waiting_once_the_model_is_called() -> None:
    async with house(owner_waiting=1) as here:
        both = [await here.begin("ann", None) for _ in range(2)]
        here.model.gate.release()
        assert [(await each).status for each in both] == [200, 200]


async def test_attached_follower_counts_only_while_its_client_is_connected() -> None:
    async with house(owner_turns=2) as here:
        first = await here.begin("ann", "one", idempotency_key="once")
        for is_prompt in (True, False):
            leaving = asyncio.Event()
            pending = asyncio.create_task(here.fetch_and_leave("ann", "one", leaving, "once"))
            if not is_prompt:
                await here.until("readers", 1)
            leaving.set()
            await pending
            assert here.counters.total(TURNS, "ann") == 1
        follower = asyncio.create_task(here.fetch("ann", "one", idempotency_key="once"))
        await here.until(TURNS, 2)
        assert refusal(await here.fetch("ann", "two"))[1] == "too_many_turns"
        here.model.gate.release()
        assert (await first).header(b"x-turn-id") == (await follower).header(b"x-turn-id") is not None


async def test_refused_request_releases_its_slot() -> None:
    async with house(owner_turns=1) as here:
        for _ in range(2):
            headers = [*await here._heads("ann"), JSON]
            broken = await fetch(here.app, PATH, method="POST", headers=headers, parts=(b"{",))
            assert (broken.status, broken.code) == (400, "malformed_json")


async def test_event_streams_are_limited_per_owner() -> None:
    async with house(owner_streams=1) as here:
        first = await here.begin("ann", "one")
        (turn,) = here.app.service.ledger._process.running
        reading = asyncio.create_task(here.follow("ann", str(turn)))
        await here.until(STREAMS, 1)
        assert refusal(await here.follow("ann", str(turn))) == (429, "too_many_streams", b"2")
        assert (await here.follow("bob", str(turn))).status == 404
        here.model.gate.release()
        assert (await first).status == (await reading).status == 200
        assert (await here.follow("ann", str(turn))).status == 200


async def test_other_requests_are_limited_per_owner_while_their_body_arrives() -> None:
    async with house(owner_requests=1) as here:
        first = await here.begin("ann", "one")
        (turn,) = here.app.service.ledger._process.running
        stop, heads = f"/api/turns/{turn}/stop", [*await here._heads("ann"), JSON]
        body: asyncio.Queue[bytes] = asyncio.Queue()
        answers: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": await body.get()}

        async def send(message: Message) -> None:
            answers.append(message)

        scope = {"type": "http", "method": "POST", "path": stop, "headers": heads, "query_string": b""}
        slow = asyncio.create_task(here.app(scope, receive, send))
        await here.until(OTHER_REQUESTS, 1)
        refused = await fetch(here.app, stop, method="POST", headers=heads)
        assert refusal(refused) == (429, "too_many_requests", b"2")
        assert (await fetch(here.app, stop, method="POST", headers=await here._heads("bob"))).status == 404
        assert (await fetch(here.app, "/healthz", headers=heads)).status == 200
        body.put_nowait(b"{}")
        await slow
        assert answers[0]["status"] == 200
        assert ((await first).status, here.counters.sum(OTHER_REQUESTS)) == (409, 0)


async def test_imports_are_limited_per_owner() -> None:
    async with house(owner_imports=1) as here:
        heads = [*await here._heads("ann"), (b"content-type", b"application/x-ndjson")]
        body: asyncio.Queue[bytes] = asyncio.Queue()
        answers: list[Message] = []

        async def receive() -> Message:
            return {"type": "http.request", "body": await body.get()}

        async def send(message: Message) -> None:
            answers.append(message)

        path = "/api/import"
        scope = {"type": "http", "method": "POST", "path": path, "headers": heads, "query_string": b""}
        slow = asyncio.create_task(here.app(scope, receive, send))
        await here.until(IMPORTS, 1)
        refused = await fetch(here.app, path, method="POST", headers=heads)
        assert refusal(refused) == (429, "too_many_imports", b"2")
        others = [*await here._heads("bob"), (b"content-type", b"application/x-ndjson")]
        assert (await fetch(here.app, path, method="POST", headers=others)).status == 200
        body.put_nowait(b"")
        await slow
        assert (answers[0]["status"], here.counters.sum(IMPORTS)) == (200, 0)
        assert (await fetch(here.app, path, method="POST", headers=heads)).status == 200


async def test_large_bodies_are_accepted_only_for_turns_and_imports() -> None:
    """Of other requests, an owner may have many open, and none needs as much."""
    async with town() as place:
        large = {
            "POST /v1/chat/completions",
            "POST /v1/responses",
            "POST /v1/responses/input_tokens",
            "POST /v1/conversations",
            "POST /v1/conversations/{conversation}/items",
            "POST /api/turns",
            "POST /api/chats/{chat}/items",
            "POST /api/import",
        }
        for operation in place.operations():
            if "requestBody" not in operation.about or operation.name in large:
                continue
            path = re.sub(r"{(\w+)}", lambda found: place.ids[found[1]], operation.path)
            heads = [HOST, JSON, (b"authorization", f"Bearer {place.tokens['alice']}".encode())]
            announced = (b"content-length", b"1048577")
            reply = await fetch(place.app, path, method=operation.method, headers=[*heads, announced])
            assert (reply.status, reply.code) == (413, "body_too_large"), operation.name


async def test_turns_per_minute_are_available_again_after_retry_after() -> None:
    async with house(owner_turns_per_minute=2) as here:
        here.model.gate.release()
        for _ in range(2):
            assert (await here.fetch("ann", "one")).status == 200
        refused = await here.fetch("ann", "one")
        assert refusal(refused) == (429, "too_many_turns_per_minute", b"90")
        assert (await here.fetch("bob", "one")).status == 200
        here.clock.advance(90)
        assert (await here.fetch("ann", "one")).status == 200


async def test_tokenless_server_applies_only_the_server_limits() -> None:
    async with house(turns=3, owner_turns=1, owner_turns_per_minute=1) as here:
        running = [await here.begin(None, f"chat {number}") for number in range(3)]
        assert refusal(await here.fetch(None, "one")) == (429, "server_busy", b"2")
        here.model.gate.release()
        assert [(await each).status for each in running] == [200] * 3


async def visitors(here: House, count: int, **limits: int) -> list[str]:
    """Follow a new link so many times; the names of the visitors."""
    _, code = await here.host.shares.create(scope="shop", **limits)  # type: ignore[arg-type]
    for number in range(count):
        visit = await here.host.shares.exchange(code, nonce=f"made-up-by-the-page-of-{number}")
        here._tokens[f"visitor {number}"] = visit.text
    return [f"visitor {number}" for number in range(count)]


@pytest.mark.parametrize(
    ("of_owner", "of_link"), [({"owner_turns": 2}, {}), ({"owner_turns": 9}, {"turns": 2})]
)
async def test_concurrent_turns_of_all_visitors_are_limited(
    of_owner: dict[str, int], of_link: dict[str, int]
) -> None:
    async with house(**of_owner) as here:
        one, two, three = await visitors(here, 3, **of_link)
        first, second = await here.begin(one, "chat"), await here.begin(two, "chat")
        refused = await here.fetch(three, "chat")
        assert (refused.status, refused.code) == (429, "too_many_turns")
        limit = "2 " if of_link else ""
        assert (
            f"The visitors of this link have reached their limit of {limit}turns at once."
            in refused.body.decode()
        )
        anns = await here.begin("ann", "chat")
        here.model.gate.release()
        assert [(await each).status for each in (first, second, anns)] == [200, 200, 200]
        assert (await here.fetch(three, "chat")).status == 200


@pytest.mark.parametrize(
    ("of_owner", "of_link"), [({"owner_turns_per_minute": 2}, {}), ({}, {"turns_per_minute": 2})]
)
async def test_turns_per_minute_of_all_visitors_are_limited(
    of_owner: dict[str, int], of_link: dict[str, int]
) -> None:
    async with house(**of_owner) as here:
        here.model.gate.release()
        replies = [await here.fetch(who, "chat") for who in await visitors(here, 4, **of_link)]
        assert [each.status for each in replies] == [200, 200, 429, 429]
        assert ("limit of 2 turns per minute" in replies[3].body.decode()) == bool(of_link)
        assert "owner" not in replies[3].body.decode()
        assert (await here.fetch("ann", "chat")).status == 200
        here.clock.advance(120)
        assert (await here.fetch("visitor 3", "chat")).status == 200


async def test_storage_of_all_visitors_of_a_link_is_limited() -> None:
    async with house() as here:
        here.model.gate.release()
        replies = [await here.fetch(who, "chat") for who in await visitors(here, 3, bytes=2 * BLOCK)]
        assert [each.status for each in replies] == [200, 200, 507]
        assert replies[2].code == "storage_full"
        assert f"Storage quota of {2 * BLOCK} bytes" in replies[2].body.decode()
        replies = [await here.fetch(who, "chat") for who in await visitors(here, 2, chats=1)]
        assert [each.status for each in replies] == [200, 507]


@pytest.mark.parametrize(
    ("limits", "before"),
    [
        ({"owner_turns": 1}, 1),
        ({"owner_turns_per_minute": 1}, 1),
        ({"owner_bytes": 1}, 1),
        ({"owner_chats": 1}, 1),
        ({"turns": 6}, 5),
    ],
)
async def test_visitor_refusal_reveals_no_owner_limit(limits: dict[str, int], before: int) -> None:
    async with house(**limits) as here:
        [visitor] = await visitors(here, 1)
        begun = [await here.begin(visitor, f"chat {number}") for number in range(before)]
        if limits.keys() & {"owner_bytes", "owner_chats"}:
            here.model.gate.release()
            await begun[0]
        refused = await here.fetch(visitor, "another chat")
        here.model.gate.release()
        assert [(await each).status for each in begun] == [200] * before
    assert refused.status in (429, 507), refused.body
    message, _, _ = msgspec.json.decode(refused.body)["error"]["message"].partition("Try again in")
    assert "owner" not in message
    assert not any(character.isdigit() for character in message), message
