"""Each status that the OpenAPI document lists for an operation can be provoked."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from tests.fuzz.replies import check_error
from tests.unit.server.asgi import HOST, JSON, Reply, fetch
from tests.unit.server.fake_page import ASSET, PAGE
from turnledger import Ledger
from turnledger.engine.access.tokens import find
from turnledger.engine.limits import Limits
from turnledger.engine.ports import Tables
from turnledger.errors import ModelError, ModelRefused, ModelTimeout
from turnledger.hosting import Host
from turnledger.model.access.share import new_code
from turnledger.model.access.token import TokenScope
from turnledger.model.conversation import ConversationState
from turnledger.model.ids import ConversationId
from turnledger.runners.demo import DemoModel
from turnledger.server.app import App, make_app
from turnledger.server.chat_page.files import BuiltPage
from turnledger.server.config.settings import ChatSettings, ServerLimits, Settings
from turnledger.server.models.models import Models, ResolvedModel
from turnledger.server.openapi.document import all_responses, path_of
from turnledger.server.openapi.endpoint import Endpoint
from turnledger.server.requests.persistence import PersistencePolicy
from turnledger.stores.memory import MemoryStore
from turnledger.testing.gates import GatedStore

CHAT, TURNS, RESPONSES = "/v1/chat/completions", "/api/turns", "/v1/responses"
EXCHANGE, CONVERSATIONS = "/api/shares/exchange", "/v1/conversations"
UNKNOWN = "01890000000070008000000000000000"


class Failing(DemoModel):
    """Cannot list its models."""

    def __init__(self, problem: ModelError) -> None:
        super().__init__()
        self._problem = problem

    async def models(self) -> list[dict[str, Any]]:
        raise self._problem


def _others(ids: dict[str, str]) -> dict[str, str]:
    """Return the names of the same chat and turn in the API of OpenAI."""
    turn = ids["turn"].removeprefix("turn_")
    return {"conversation": ids["chat"], "response": f"resp_{turn}", "item": f"msg_{turn}0000000"}


class Place:
    """A server with a chat, a deleted chat and their turns; and one request to an endpoint of it."""

    def __init__(self, app: App, store: GatedStore, ledger: Ledger, endpoint: Endpoint) -> None:
        self.app, self.store, self.ledger = app, store, ledger
        self.is_chat = endpoint.path == CHAT
        self.endpoint = endpoint
        self.ids = {"model": "demo", "name": ASSET}
        self.headers: dict[bytes, bytes] = {}
        self.more: list[tuple[bytes, bytes]] = []
        self.body: Any = None
        self.query = b""
        self.arrives = True

    async def settle(self) -> None:
        token, text = await Host(self.ledger).tokens.create(owner="alice", scopes=tuple(TokenScope))
        self.ids["token"] = str(token.id)
        self.headers = {HOST[0]: HOST[1], b"authorization": b"Bearer " + text.encode()}
        self.gone = await self._chat("gone")
        self.ids |= await self._chat("there")
        chat = await self.ledger.for_owner("alice").conversation(self.gone["chat"])
        await chat.delete(purge=True)
        share, code = await Host(self.ledger).shares.create(scope="fair", owner="alice")
        self.ids["share"] = str(share.id)
        self.bodies: dict[str, Any] = {
            "/v1/responses/input_tokens": {"model": "demo", "conversation": self.ids["chat"], "input": "Hi"},
            "/v1/conversations": {},
            "/v1/conversations/{conversation}": {"metadata": {"a": "b"}},
            "/v1/conversations/{conversation}/items": {"items": [{"role": "user", "content": "Hi"}]},
            "/api/tokens": {"scopes": ["chats:read"], "chat": self.ids["chat"]},
            "/api/shares": {"chat": self.ids["chat"]},
            EXCHANGE: {"code": code, "nonce": "n" * 32},
            "/api/chats/{chat}/items": {"items": "Hi"},
            "/api/chats/{chat}/turns/{turn}": {"to_model": False},
            "/api/turns/{turn}/stop": {},
            "/api/turns/stop": {"idempotency_key": "once"},
            "/api/chats/{chat}/stop": {},
            "/api/chats": {"conversation_key": "new"},
            "/api/chats/{chat}": {"title": "T"},
            "/api/chats/{chat}/fork": {},
            "/api/chats/{chat}/switch": {"branch": self.ids["branch"]},
            "/api/chats/{chat}/undo": {},
            "/api/chats/reset": {"conversation_key": "there"},
            "/api/import": {},
        }
        if self.endpoint.body is not None:
            self.set_text("Hi")
        if self.is_chat:
            self.headers[b"x-conversation-id"] = self.ids["chat"].encode()

    async def _chat(self, conversation_key: str) -> dict[str, str]:
        async with self.ledger.for_owner("alice").turn(
            "Hi", conversation_key=conversation_key, idempotency_key=conversation_key
        ) as turn:
            turn.emit("Hello")
        branch = str(turn.conversation.branch)
        ids = {"chat": str(turn.conversation.id), "turn": str(turn.id), "branch": branch}
        return ids | _others(ids)

    def set_text(self, text: str) -> None:
        if self.endpoint.path in (TURNS, RESPONSES):
            self.body = {"model": "demo", NAMED[self.endpoint.path]: self.ids["chat"], "input": text}
            return
        if not self.is_chat:
            self.body = self.bodies[self.endpoint.path]
            return
        self.body = {"model": "demo", "messages": [{"role": "user", "content": text}]}
        self.headers[b"x-conversation-messages"] = b"new"

    async def fetch(self) -> Reply:
        path = path_of(self.endpoint).format(**self.ids)
        body = b"" if self.body is None else msgspec.json.encode(self.body)
        headers = dict(self.headers)
        if body:
            headers = {JSON[0]: JSON[1], b"content-length": b"%d" % len(body), **headers}
        given, parts = [*headers.items(), *self.more], (body,) if self.arrives else ()
        method = self.endpoint.method
        return await fetch(self.app, path, method=method, headers=given, parts=parts, query=self.query)


async def go_well(place: Place) -> None:
    """Nothing is wrong."""


async def ask_for_work_in_the_background(place: Place) -> None:
    place.body |= {"background": True}


async def find_it_there(place: Place) -> None:
    if place.endpoint.path == "/api/chats" and place.body is not None:
        place.body = {"conversation_key": "there"}


async def name_two_hosts(place: Place) -> None:
    place.more = [HOST]


async def show_no_token(place: Place) -> None:
    del place.headers[b"authorization"]


async def name_a_foreign_host(place: Place) -> None:
    place.headers[b"host"] = b"elsewhere.example"


async def name_what_is_not_there(place: Place) -> None:
    place.ids = {
        "chat": f"conv_{UNKNOWN}",
        "turn": f"turn_{UNKNOWN}",
        "token": f"tok_{UNKNOWN}",
        "share": f"share_{UNKNOWN}",
        "model": "none",
        "name": "none.js",
    }
    place.ids |= _others(place.ids)
    if place.endpoint.path == CONVERSATIONS:
        place.query = f"after={place.ids['chat']}".encode()
    if place.endpoint.path in {"/favicon.svg", "/service-worker.js"}:
        place.app = make_app(place.ledger, MODELS, Settings(), chat_page=BuiltPage({}))
    place.headers |= {b"x-conversation-id": place.ids["chat"].encode()} if place.is_chat else {}
    if place.endpoint.path in NAMED and place.body is not None:
        place.body[NAMED[place.endpoint.path]] = place.ids["chat"]
    if place.endpoint.path == EXCHANGE:
        place.body["code"] = new_code(lambda bits: 1)


async def keep_the_body_back(place: Place) -> None:
    place.arrives = False


async def be_in_the_way(place: Place) -> None:
    if "X-Turn-On-Busy" in place.endpoint.headers:
        place.headers[b"x-turn-on-busy"] = b"reject"
        block = place.ledger.for_owner("alice").turn("Hi", conversation=place.ids["chat"])
        await block.__aenter__()
        return
    if place.endpoint.path in ("/v1/responses/{response}", "/v1/responses/{response}/input_items"):
        block = place.ledger.for_owner("alice").turn("Hi", conversation=place.ids["chat"])
        running = await block.__aenter__()
        place.ids["response"] = running.id
        return
    if place.endpoint.path == "/api/shares":
        for _ in range(2):
            await Host(place.ledger).shares.create(scope="fair", owner="alice")
        return
    if place.endpoint.path != "/api/tokens":
        place.app.service.persistence = PersistencePolicy(ChatSettings(keep=False), Host(place.ledger))
        return
    for _ in range(2):
        await Host(place.ledger).tokens.create(owner="alice", scopes=["admin"])


async def name_what_was_deleted(place: Place) -> None:
    if place.endpoint.path == "/api/chats":
        await place.store.transact(_lapse, ConversationId(place.ids["chat"]), "alice")
        if place.body is not None:
            place.body = {"conversation_key": "there"}
        else:
            place.query = b"conversation_key=there"
        return
    if place.endpoint.path == CONVERSATIONS and place.endpoint.method == "POST":
        place.headers[b"idempotency-key"] = b"again"
        made = msgspec.json.decode((await place.fetch()).body)["id"]
        await place.ledger.for_owner("alice").delete(made, purge=True)
        return
    place.ids |= place.gone
    if place.endpoint.path == CONVERSATIONS:
        place.query = f"after={place.ids['chat']}".encode()
    if place.endpoint.path == "/api/turns/stop":
        place.body = {"idempotency_key": "gone"}
    if (name := NAMED.get(place.endpoint.path)) in ("chat", "conversation") and place.body is not None:
        place.body[name] = place.ids["chat"]
    place.headers |= {b"x-conversation-id": place.ids["chat"].encode()} if place.is_chat else {}


async def _lapse(tables: Tables, id: ConversationId) -> None:
    found = await tables.conversation(id)
    assert found is not None
    await tables.save_conversation(replace(found, state=ConversationState.EXPIRED))


async def have_it_already(place: Place) -> None:
    place.headers[b"if-none-match"] = b"*"


async def be_late(place: Place) -> None:
    place.headers[b"if-match"] = b'"7"'


async def announce_too_much(place: Place) -> None:
    place.headers[b"content-length"] = b"1000000000"
    place.headers[b"content-type"] = b"application/json"


async def send_a_form(place: Place) -> None:
    place.headers |= {b"content-length": b"2", b"content-type": b"text/plain"}


async def use_a_key_twice(place: Place) -> None:
    place.headers[b"idempotency-key"] = b"once"
    assert (await place.fetch()).status in (200, 201)
    place.set_text("Something else")
    if place.endpoint.path in OTHERWISE:
        place.body = {**place.body, **OTHERWISE[place.endpoint.path]}


async def be_one_too_many(place: Place) -> None:
    for _ in range(place.app.service.settings.limits.requests):
        place.app.service.quotas.request_opened()


async def fail(place: Place) -> None:
    is_turn = "X-Turn-On-Busy" in place.endpoint.headers
    if is_turn:
        place.set_text("/fail")
    place.app.service.models = MODELS if is_turn else Models({}, Failing(ModelRefused(404)))


async def take_too_long(place: Place) -> None:
    is_turn = "X-Turn-On-Busy" in place.endpoint.headers
    if is_turn:
        place.set_text("/stall")
    place.app.service.models = MODELS if is_turn else Models({}, Failing(ModelTimeout()))


async def shut_down(place: Place) -> None:
    if place.endpoint.serves_while_ending and not place.endpoint.is_public:
        place.store.refuse(find)
    else:
        place.app.service.shutting_down.set()


async def store_too_much(place: Place) -> None:
    async with place.ledger.for_owner("alice").turn("Hi", conversation_key="large") as turn:
        turn.emit("Hello " * 10_000)
    if place.endpoint.method == "PATCH" or place.endpoint.path == "/v1/conversations/{conversation}":
        place.body = {"metadata": {str(number): "x" * 500 for number in range(16)}}


NAMED = {
    TURNS: "chat",
    RESPONSES: "conversation",
    "/v1/responses/input_tokens": "conversation",
    "/api/tokens": "chat",
    "/api/shares": "chat",
    "/api/chats/reset": "replaces",
}
OTHERWISE: dict[str, dict[str, Any]] = {
    "/v1/conversations": {"metadata": {"a": "other"}},
    "/v1/conversations/{conversation}/items": {"items": [{"role": "user", "content": "Another"}]},
    "/api/chats": {"title": "Another"},
    "/api/chats/{chat}/items": {"items": "Another"},
    "/api/chats/{chat}/fork": {"title": "Another"},
    "/api/chats/{chat}/switch": {"branch": f"branch_{UNKNOWN}"},
    "/api/chats/{chat}/undo": {"forget": True},
}
MODELS = Models({"demo": ResolvedModel(DemoModel(pace=0, patience=0), "demo")})
PROVOKED: dict[int, Callable[[Place], Awaitable[None]]] = {
    200: find_it_there,
    201: go_well,
    202: ask_for_work_in_the_background,
    304: have_it_already,
    400: name_two_hosts,
    401: show_no_token,
    403: name_a_foreign_host,
    404: name_what_is_not_there,
    408: keep_the_body_back,
    409: be_in_the_way,
    410: name_what_was_deleted,
    412: be_late,
    413: announce_too_much,
    415: send_a_form,
    422: use_a_key_twice,
    429: be_one_too_many,
    502: fail,
    503: shut_down,
    504: take_too_long,
    507: store_too_much,
}
LIMITS = {409: Limits(tokens=3, shares=3), 507: Limits(owner_bytes=50_000)}
SERVER = {408: ServerLimits(body_wait=0.0)}


@asynccontextmanager
async def place_for(status: int, number: int) -> AsyncIterator[Place]:
    """A fresh one, for the endpoint of this number."""
    store = GatedStore(MemoryStore())
    async with await Ledger.over(store, limits=LIMITS.get(status)) as ledger:
        app = make_app(ledger, MODELS, Settings(limits=SERVER.get(status, ServerLimits())), chat_page=PAGE)
        place = Place(app, store, ledger, app.endpoints[number])
        await place.settle()
        yield place


async def documented() -> list[dict[int, str]]:
    async with place_for(200, 0) as place:
        return [all_responses(endpoint) for endpoint in place.app.endpoints]


async def test_documented_statuses_each_have_a_scenario_that_provokes_them() -> None:
    assert {status for answers in await documented() for status in answers} == set(PROVOKED)


@pytest.mark.parametrize("status", list(PROVOKED))
async def test_operations_return_every_status_they_document(status: int) -> None:
    for number, answers in enumerate(await documented()):
        if status not in answers:
            continue
        async with place_for(status, number) as place:
            await PROVOKED[status](place)
            reply = await place.fetch()
            name = f"{place.endpoint.method} {place.endpoint.path}"
            assert reply.status == status, f"{name}: {reply.summary}"
            if status >= 400 and place.endpoint.path != "/readyz":
                check_error(msgspec.json.decode(reply.body))
