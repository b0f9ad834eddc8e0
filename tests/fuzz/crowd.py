"""A crowd: clients of several owners that send random requests to one server in virtual time.

The seed decides everything: requests and tokens, which clients disconnect or read slowly, and the order of
tasks. Answers are checked against the API description; `at_rest` checks the state after the last client.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import msgspec
from starlette.types import Message

from tests.fuzz.api_description import ApiDescription
from tests.fuzz.replies import check_reply
from tests.unit.server.asgi import HOST, JSON, Reply
from turnledger import Ledger
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Store
from turnledger.engine.turn.policies import OnDisconnect
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.model.turn import OnBusy, OnFailure, OnStop
from turnledger.runners.demo import DemoModel
from turnledger.server.access.limits import REQUESTS, STREAMS, TURNS, WAITING
from turnledger.server.app import App, make_app
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.models.models import Models, ResolvedModel
from turnledger.server.ops.audience import READERS
from turnledger.server.ops.readiness import Readiness
from turnledger.server.requests.turn import CREATE_HEADER_NAMES, MOVE_HEADER_NAMES, TURN_HEADER_NAMES
from turnledger.testing.simulated_loop import SimulatedLoop
from turnledger.testing.simulation.wall_clock import SimulatedClock, WallClock

CHAT = "POST /v1/chat/completions"
CREATE_TURN = "POST /api/turns"
EVENTS = "GET /api/turns/{turn}/events"
OWNERS = ("alice", "bob")
LIMITS = Limits(queue_length=3, queue_wait=20.0, reader_events=3)
WIDE = ServerLimits(body_wait=5.0, send_wait=5.0)
TIGHT = ServerLimits(
    requests=12,
    turns=7,
    waiting=4,
    streams=3,
    owner_turns=4,
    owner_waiting=3,
    owner_streams=2,
    owner_turns_per_minute=40,
    body_wait=5.0,
    send_wait=5.0,
)
INPUTS = (
    *("Hi", "What did I say?", "/count 30"),
    *("/slow Tell me", "/stall", "/stall after 2", "/fail", "/fail after 2", "/cut", "/cut after 1"),
    *("/refuse", "/length", '/call f {"a": 1}'),
)
AT_LEISURE = 120
"""Virtual seconds after which deferred work is done and rate limits are free."""
ANONYMOUS = "nobody"
"""Sends no token."""


class Crowd:
    """A server, and the tokens, conversations, turns and requests its clients know."""

    def __init__(self, seed: int, loop: SimulatedLoop, description: ApiDescription) -> None:
        self._random = Random(seed)
        self._loop = loop
        self._described = description
        self._clients: set[asyncio.Task[None]] = set()
        self._texts: dict[str, str] = {}
        self._owners: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._ended: set[str] = set()
        """Revoked tokens."""
        self._turns = ["turn_01890000000070008000000000000000"]
        self._chats = ["conv_01890000000070008000000000000000"]
        self._branches = ["branch_01890000000070008000000000000000"]
        self._sent: list[tuple[str, list[tuple[bytes, bytes]], bytes]] = []
        self.log: list[str] = []
        """Requests and answers, in order."""

    async def open(self, store: Store) -> None:
        clock = SimulatedClock(self._loop, WallClock(self._loop), 0)
        self.ledger = await Ledger.over(store, limits=LIMITS, clock=clock, random=self._random)
        model = DemoModel(patience=8.0, now=self._loop.time)
        settings = Settings(limits=self._random.choice((WIDE, TIGHT)))
        self.app: App = make_app(self.ledger, Models({"demo": ResolvedModel(model, "demo")}), settings)
        self.app.service.readiness = Readiness(Host(self.ledger).probe, self._loop.time)
        for owner in OWNERS:
            await self._make(owner, owner, scopes=tuple(TokenScope))
            await self._make(f"{owner}, narrowed", owner, scopes=tuple(TokenScope), chat_scope="app")
            await self._make(f"{owner}, reading", owner, scopes=[TokenScope.CHATS_READ])
            await self._make(f"{owner}, for a while", owner, scopes=[TokenScope.TURNS_RUN], lifetime=20)
        self._at_first = asyncio.all_tasks(self._loop)

    async def _make(self, name: str, owner: str, **kind: Any) -> None:
        token, text = await Host(self.ledger).tokens.create(owner=owner, **kind)
        self._remember_token(name, owner, str(token.id), text)

    def _remember_token(self, name: str, owner: str, id: str, text: str) -> None:
        self._texts[name], self._owners[name], self._ids[name] = text, owner, id

    async def run_clients(self, count: int) -> None:
        """Start this many clients one after the other, and wait for all."""
        for _ in range(count):
            client = asyncio.create_task(self._do_something(), name="client")
            self._clients.add(client)
            await asyncio.sleep(self._random.choice((0, 0, 0, 0.01, 0.01, 0.1, 1)))
        await asyncio.gather(*self._clients)

    def _do_something(self) -> Coroutine[Any, Any, None]:
        deeds: list[tuple[int, Callable[[], Coroutine[Any, Any, None]]]] = [
            (30, self._send_a_turn),
            (15, self._create_turn),
            (10, self._move),
            (4, self._look_at_branches),
            (10, self._repeat),
            (12, self._stop),
            (12, self._follow),
            (8, self._read),
            (4, self._look_around),
            (4, self._make_a_token),
            (3, self._revoke_a_token),
            (1, self._delete),
        ]
        (deed,) = self._random.choices([deed for _, deed in deeds], [weight for weight, _ in deeds])
        return deed()

    async def _send_a_turn(self) -> None:
        random, headers = self._random, []
        body: dict[str, Any] = {
            "model": "demo" if random.random() < 0.97 else "none",
            "messages": [{"role": "user", "content": random.choice(INPUTS)}],
            "stream": random.random() < 0.6,
        }
        if random.random() < 0.9:
            place = random.choice((b"one", b"two", b"three", random.choice(self._chats).encode()))
            headers = [(b"x-conversation-id", place), *self._policies()]
        await self._converse(self._somebody(), headers, msgspec.json.encode(body))

    def _policies(self) -> list[tuple[bytes, bytes]]:
        random = self._random
        choices: list[tuple[bytes, list[str], float]] = [
            (b"x-conversation-messages", ["new"], 0.7),
            (b"x-conversation-scope", ["app", "other"], 0.1),
            (b"x-conversation-expect", ["continued"], 0.1),
            (b"x-context", ["all", "last=1", "budget=50"], 0.3),
            (b"x-turn-on-busy", list(OnBusy), 0.5),
            (b"x-turn-on-stop", list(OnStop), 0.3),
            (b"x-turn-on-failure", list(OnFailure), 0.3),
            (b"x-turn-on-disconnect", list(OnDisconnect), 0.5),
            (b"x-turn-on-divergence", ["branch", "reject"], 0.3),
            (b"idempotency-key", ["k1", "k2", "k3"], 0.2),
            (b"x-stainless-retry-count", ["0", "1"], 0.2),
        ]
        return [
            (name, random.choice(values).encode())
            for name, values, chance in choices
            if random.random() < chance
        ]

    async def _create_turn(self) -> None:
        """Use the native API, which edits and regenerates turns by id."""
        random = self._random
        body: dict[str, Any] = {"model": "demo", "stream": random.random() < 0.6}
        where = random.choice((None, "chat", "conversation_key"))
        if where is not None:
            body[where] = (
                random.choice(self._chats[-6:]) if where == "chat" else random.choice(("one", "two"))
            )
        wish = random.choice((None, None, "replaces", "regenerates", "after"))
        if wish is not None:
            body[wish] = (
                random.choice((self._known_turn(), True)) if wish == "regenerates" else self._known_turn()
            )
        if wish != "regenerates":
            body["input"] = random.choice(INPUTS)
        taken = [each for each in self._policies() if each[0] in TURN_HEADER_NAMES]
        reply = await self.fetch(
            CREATE_TURN, self._somebody(), "/api/turns", taken, msgspec.json.encode(body)
        )
        self._remember(reply)

    async def _move(self) -> None:
        random, chat = self._random, self._random.choice(self._chats[-6:])
        name = random.choice(("fork", "switch", "undo", "undo"))
        body: dict[str, Any] = {"branch": random.choice(self._branches[-6:])} if name == "switch" else {}
        if name != "switch" and random.random() < 0.5:
            body["turn"] = self._known_turn()
        known = CREATE_HEADER_NAMES if name == "fork" else MOVE_HEADER_NAMES
        headers = [each for each in self._policies() if each[0] in known]
        label = f"POST /api/chats/{{chat}}/{name}"
        path = f"/api/chats/{chat}/{name}"
        reply = await self.fetch(label, self._somebody(), path, headers, msgspec.json.encode(body))
        if reply.is_whole and reply.status < 300:
            moved = msgspec.json.decode(reply.body)
            self._chats.append(moved["id"])
            self._branches.append(moved["branch"])

    async def _look_at_branches(self) -> None:
        chat, turn = self._random.choice(self._chats[-6:]), self._known_turn()
        path, label = self._random.choice(
            (
                (f"/api/chats/{chat}/branches", "GET /api/chats/{chat}/branches"),
                (
                    f"/api/chats/{chat}/turns/{turn}/siblings",
                    "GET /api/chats/{chat}/turns/{turn}/siblings",
                ),
            )
        )
        await self.fetch(label, self._somebody(), path, [])

    async def _repeat(self) -> None:
        if self._sent:
            await self._converse(*self._random.choice(self._sent))

    async def _converse(self, who: str, headers: list[tuple[bytes, bytes]], body: bytes) -> None:
        self._sent.append((who, headers, body))
        reply = await self.fetch(CHAT, who, "/v1/chat/completions", headers, body)
        self._remember(reply)

    def _remember(self, reply: Reply) -> None:
        named = dict(reply.headers)
        if b"x-turn-id" in named:
            self._turns.append(named[b"x-turn-id"].decode())
            self._chats.append(named[b"x-conversation-id"].decode())

    async def _stop(self) -> None:
        body = self._random.choice((b"", b"{}", b'{"policy": "keep"}', b'{"policy": "discard"}'))
        turn = await self._some_turn()
        await self.fetch("POST /api/turns/{turn}/stop", self._somebody(), f"/api/turns/{turn}/stop", [], body)

    async def _follow(self) -> None:
        turn, last = await self._some_turn(), self._random.choice((b"0", b"2", b"1000"))
        path = f"/api/turns/{turn}/events"
        await self.fetch(EVENTS, self._somebody(), path, [(b"last-event-id", last)])

    async def _some_turn(self) -> str:
        """Return a known turn, or one that runs, as a look at its chat shows."""
        running = list(self.ledger._process.attempts)
        return (
            str(self._random.choice(running))
            if running and self._random.random() < 0.8
            else self._known_turn()
        )

    def _known_turn(self) -> str:
        return self._random.choice(self._turns[-6:])

    async def _read(self) -> None:
        chat = self._random.choice(self._chats[-6:])
        await self.fetch("GET /api/chats/{chat}", self._somebody(), f"/api/chats/{chat}", [])

    async def _look_around(self) -> None:
        path = self._random.choice(
            [
                "/v1/models",
                "/healthz",
                "/readyz",
                "/metrics",
                "/openapi.json",
                "/api/tokens",
                "/api/tokens/self",
            ]
        )
        await self.fetch(f"GET {path}", self._somebody(), path, [])

    async def _make_a_token(self) -> None:
        random, maker = self._random, self._somebody()
        owner = random.choice((*OWNERS, None))
        body = {
            "scopes": random.sample(list(TokenScope), 2),
            "owner": owner,
            "expires_in": random.choice((None, 30)),
        }
        reply = await self.fetch("POST /api/tokens", maker, "/api/tokens", [], msgspec.json.encode(body))
        if reply.status == 201:
            made = msgspec.json.decode(reply.body)
            self._remember_token(f"made {len(self._texts)}", made["owner"], made["id"], made["token"])

    async def _revoke_a_token(self) -> None:
        caller = self._somebody()
        name = self._random.choice([each for each in self._texts if each not in OWNERS])
        given = self._random.choice((self._ids[name], "self")) if caller not in OWNERS else self._ids[name]
        reply = await self.fetch("DELETE /api/tokens/{token}", caller, f"/api/tokens/{given}", [])
        if reply.status == 200:
            gone = {each["id"] for each in msgspec.json.decode(reply.body)["data"]}
            self._ended |= {each for each, id in self._ids.items() if id in gone}

    async def _delete(self) -> None:
        page = await self.ledger.for_owner(self._random.choice(OWNERS)).list()
        if page.chats:
            found = self._random.choice(page.chats).conversation
            chat = await self.ledger.for_owner(found.owner).conversation(str(found.id))
            await chat.delete()

    def _somebody(self) -> str:
        if self._random.random() < 0.6:
            return self._random.choice(OWNERS)
        return self._random.choice([*self._texts, ANONYMOUS])

    async def fetch(
        self, label: str, who: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes = b""
    ) -> Reply:
        """Send a request and read the answer, perhaps slowly, or disconnect; check the answer against the
        description."""
        was_ended = who in self._ended or who == ANONYMOUS
        sent = [HOST, *headers]
        if who != ANONYMOUS:
            sent.append((b"authorization", b"Bearer " + self._texts[who].encode()))
        if body:
            sent += [JSON, (b"content-length", b"%d" % len(body))]
        client = Client(self._random, self._loop)
        reply = await client.fetch(self.app, label.partition(" ")[0], path, sent, body)
        self.log.append(f"{who}: {label} {reply.status}")
        if reply.is_whole:
            if reply.body or label != EVENTS:  # a withdrawn turn has no events
                check_reply(reply, method=label.partition(" ")[0])
            self._described.check(label, reply)
        else:
            assert client.has_left, f"{label}: half an answer"
        if was_ended and "security" in self._described.operations[label].definition.raw:
            # A refusal by a limit may be cached.
            assert reply.status in (0, 401, 429), (
                f"{label}: {who} has no access any more, and got {reply.summary}"
            )
        return reply

    async def at_rest(self) -> None:
        """Check after the last client that nothing is counted, runs or waits, and every lane is free."""
        counters = self.app.service.counters
        kinds = (REQUESTS, TURNS, WAITING, STREAMS, READERS)
        assert {kind: counters.sum(kind) for kind in kinds} == dict.fromkeys(kinds, 0)
        await asyncio.sleep(AT_LEISURE)
        assert Host(self.ledger).at_work() == (0, 0, 0)
        assert await self.ledger.check(at_rest=True) == []
        for owner in OWNERS:
            for chat in (await self.ledger.for_owner(owner).list(limit=1000)).chats:
                await self._takes_one_more(owner, str(chat.conversation.id))
        assert await self.ledger.check(at_rest=True) == []
        await asyncio.sleep(AT_LEISURE)
        here = asyncio.current_task()
        assert [each.get_name() for each in asyncio.all_tasks() - self._at_first if each is not here] == []

    async def _takes_one_more(self, owner: str, chat: str) -> None:
        headers = [HOST, JSON, (b"x-conversation-id", chat.encode()), (b"x-turn-on-busy", b"reject")]
        headers += [
            (b"x-conversation-messages", b"new"),
            (b"authorization", b"Bearer " + self._texts[owner].encode()),
        ]
        body = b'{"model": "demo", "messages": [{"role": "user", "content": "Still there?"}]}'
        patient = Client(None, self._loop)
        reply = await patient.fetch(self.app, "POST", "/v1/chat/completions", headers, body)
        assert reply.status == 200, f"the lane of {chat} is not free: {reply.summary}"

    async def close(self) -> None:
        await self.app.drain(0)
        await self.ledger.close()


class Client:
    """One connection; with a Random it may be slow, or disconnect at any time."""

    def __init__(self, random: Random | None, loop: SimulatedLoop) -> None:
        self._pause = random.choice((0, 0, 0, 0, 0.05, 2, 9)) if random else 0
        self._leaves_after = random.choice((None, None, None, 0, 0.03, 0.3, 4)) if random else None
        self._splits = random.random() < 0.3 if random else False
        self._gone = asyncio.Event()
        self._over = asyncio.Event()
        self._has_room = asyncio.Event()
        self._loop = loop
        self.has_left = False

    async def fetch(
        self, app: App, method: str, path: str, headers: list[tuple[bytes, bytes]], body: bytes
    ) -> Reply:
        reply, half = Reply(), len(body) // 2 if self._splits else 0
        parts: list[Message] = [{"type": "http.request", "body": body[half:], "more_body": False}]
        if half:
            parts.append({"type": "http.request", "body": body[:half], "more_body": True})
        timer = None if self._leaves_after is None else self._loop.call_later(self._leaves_after, self._leave)

        async def receive() -> Message:
            if parts and not self.has_left:
                await asyncio.sleep(self._pause if len(parts) > 1 else 0)
                return parts.pop()
            await self._either()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if self.has_left:
                return
            if message["type"] == "http.response.start":
                assert not reply.status, "answered twice"
                reply.status, reply.headers = message["status"], list(message["headers"])
                return
            assert not reply.is_whole, "more after the end"
            reply.body += message.get("body", b"")
            if self._pause:
                await self._until_read()
            reply.is_whole = not message.get("more_body", False) and not self.has_left
            if reply.is_whole:
                self._over.set()

        scope = {
            "type": "http",
            "http_version": "1.1",
            "method": method,
            "path": path,
            "query_string": b"",
            "headers": headers,
            "client": ("127.0.0.1", 1),
            "extensions": {"turnledger.cut": {"cut": self._leave}},
        }
        try:
            await app(scope, receive, send)
        finally:
            if timer is not None:
                timer.cancel()
        return reply

    def _leave(self) -> None:
        self.has_left = True
        self._gone.set()
        self._has_room.set()

    async def _until_read(self) -> None:
        """Wait until the client has read. The sender may continue in another task, so this must not be bound
        to one."""
        self._has_room.clear()
        self._loop.call_later(self._pause, self._has_room.set)
        await self._has_room.wait()

    async def _either(self) -> None:
        tasks = [asyncio.ensure_future(each.wait()) for each in (self._gone, self._over)]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
