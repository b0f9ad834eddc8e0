"""Models by name; titles are made a bounded number at a time, and failures are only logged."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest

from tests.unit.model.shapes import some_id
from turnledger import Context, Ledger
from turnledger.chat import Chat
from turnledger.errors import InvalidInput, ModelError, ModelRefused, ModelUnavailable
from turnledger.hosting import Host
from turnledger.model.access.token import Token
from turnledger.model.conversation import TitleSource
from turnledger.model.ids import TokenId
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.runners.http.dial import Proxy
from turnledger.runners.upstream.upstream import Upstream
from turnledger.server.access.auth import Principal
from turnledger.server.access.guard import RequestHead
from turnledger.server.config.settings import ModelSettings, ModelTimeouts, Settings
from turnledger.server.errors import RequestRefused
from turnledger.server.models import title_queue as titles_module
from turnledger.server.models.models import ContextWindow, Models, ResolvedModel, make_models
from turnledger.server.models.redaction import RedactedModel
from turnledger.server.models.title_queue import Titles
from turnledger.testing.gates import Gate

ANYBODY = Principal("local", frozenset(), 0)
HEAD = RequestHead({"headers": ()})


class Named:
    """A model that only knows the names it lists, and whether it was closed."""

    def __init__(self, *names: str) -> None:
        self.names = names
        self.closed = 0

    async def models(self) -> list[dict[str, Any]]:
        if not self.names:
            raise ModelUnavailable
        return [{"id": name, "object": "model", "owned_by": "upstream"} for name in self.names]

    async def close(self) -> None:
        self.closed += 1


def named(*names: str) -> Any:
    return Named(*names)


async def test_models_without_settings_are_the_demo_model_only() -> None:
    models = make_models(Settings(), {})
    model, name, *_ = models.find("demo", ANYBODY)
    assert isinstance(model, DemoModel)
    assert name == "demo"
    assert [each["id"] for each in await models.list_models(ANYBODY, HEAD)] == ["demo"]
    with pytest.raises(RequestRefused, match=r"Unknown model 'gpt'\. Known: demo\.") as refused:
        models.find("gpt", ANYBODY)
    assert (refused.value.status, refused.value.code, refused.value.param) == (
        404,
        "model_not_found",
        "model",
    )
    await models.close()


def test_demo_model_has_no_use_for_a_credential_but_refuses_a_token_of_this_server() -> None:
    models = make_models(Settings(credential_header="X-Upstream-Key"), {})
    demo = models.find("demo", ANYBODY).model

    def head(credential: bytes) -> RequestHead:
        return RequestHead({"headers": ((b"x-upstream-key", credential),)})

    assert models.credential_of(head(b"Bearer own")) == "own"
    assert models.for_client(demo, head(b"own")) is demo
    with pytest.raises(InvalidInput, match="X-Upstream-Key has a token of Turnledger"):
        models.for_client(demo, head(b"tlt_" + b"0" * 39))


async def test_upstream_without_named_models_accepts_every_model_name() -> None:
    models = make_models(Settings(upstream="http://localhost:1/v1"), {})
    model, name, *_ = models.find("anything", ANYBODY)
    assert isinstance(model, Upstream)
    assert name == "anything"
    assert models.names == []
    await models.close()


async def test_named_models_use_their_own_upstream_and_upstream_name() -> None:
    settings = Settings(
        models={
            "fast": ModelSettings(upstream="http://a/v1", model="llama3.2"),
            "same": ModelSettings(upstream="http://a/v1"),
            "slow": ModelSettings(upstream="http://a/v1", timeouts=ModelTimeouts(total=3)),
        }
    )
    models = make_models(settings, {})
    assert models.find("fast", ANYBODY).upstream_name == "llama3.2"
    assert models.find("same", ANYBODY).upstream_name == "same"
    assert models.find("fast", ANYBODY).model is models.find("same", ANYBODY).model  # one pool of connections
    assert models.find("slow", ANYBODY).model is not models.find("fast", ANYBODY).model
    with pytest.raises(RequestRefused):
        models.find("llama3.2", ANYBODY)
    await models.close()


async def test_model_list_has_each_name_once() -> None:
    upstream = named("x", "fast")
    models = Models({"fast": ResolvedModel(upstream, "llama3.2")}, upstream)
    assert [(each["id"], each["owned_by"]) for each in await models.list_models(ANYBODY, HEAD)] == [
        ("fast", "turnledger"),
        ("x", "upstream"),
    ]
    with pytest.raises(ModelUnavailable):
        await Models({}, named()).list_models(ANYBODY, HEAD)


@pytest.mark.parametrize(("status", "kind"), [(404, ModelError), (422, ModelError), (429, ModelRefused)])
async def test_upstream_without_a_model_list_is_not_reported_as_a_refusal(
    status: int, kind: type[ModelError]
) -> None:
    class Listless(Named):
        async def models(self) -> list[dict[str, Any]]:
            raise ModelRefused(status)

    listless: Any = Listless()
    with pytest.raises(ModelError) as raised:
        await Models({}, listless).list_models(ANYBODY, HEAD)
    assert type(raised.value) is kind


async def test_closing_models_closes_each_upstream_once() -> None:
    one, other = named("a"), named("b")
    await Models({"a": ResolvedModel(one, "a"), "b": ResolvedModel(one, "b")}, other).close()
    assert (one.closed, other.closed) == (1, 1)


def test_unknown_model_name_is_truncated_and_printable_in_the_error() -> None:
    with pytest.raises(RequestRefused) as refused:
        Models({}).find("\x1b[2J" + "x" * 1000, ANYBODY)
    assert str(refused.value).isprintable()
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize(
    "name", ["Model", "MODEL", "models", "Models", "model\u017f", "fallbacks", "extra_body"]
)
async def test_token_restricted_to_models_cannot_name_others_in_other_fields(name: str) -> None:
    models = Models({"fast": ResolvedModel(named("fast"), "fast")})
    async with await Ledger.open() as ledger:
        narrow, _ = await Host(ledger).tokens.create(scopes=["turns:run"], models=["fast"])
        wide, _ = await Host(ledger).tokens.create(scopes=["turns:run"])
    fields = ["model", "temperature", name]
    with pytest.raises(RequestRefused, match="restricted to some models") as refused:
        models.check_fields(fields, Principal("ann", narrow.scopes, 0, narrow))
    assert (refused.value.status, refused.value.code, refused.value.param) == (403, "outside_models", name)
    models.check_fields(fields[:2], Principal("ann", narrow.scopes, 0, narrow))
    models.check_fields(fields, Principal("ann", wide.scopes, 0, wide))
    models.check_fields(fields, ANYBODY)


async def test_model_list_for_a_narrowed_token_omits_upstream_details() -> None:
    async with await Ledger.open() as ledger:
        narrow, _ = await Host(ledger).tokens.create(scopes=["turns:run"], max_tokens=5)
        wide, _ = await Host(ledger).tokens.create(scopes=["turns:run"])
    models = Models({}, named("fast"))
    [listed] = await models.list_models(Principal("ann", narrow.scopes, 0, narrow), HEAD)
    assert listed == {"id": "fast", "object": "model", "created": 0, "owned_by": "turnledger"}
    [listed] = await models.list_models(Principal("ann", wide.scopes, 0, wide), HEAD)
    assert listed["owned_by"] == "upstream"


async def test_model_settings_for_finish_reasons_reuse_and_proxy_reach_the_upstream() -> None:
    url = "http://localhost:1/v1"
    one = ModelSettings(upstream=url, finish_reasons=("COMPLETE",), reuse=False, proxy="http://a.test:1")
    settings = Settings(upstream=url, finish_reasons=("DONE",), models={"one": one}, proxy="http://b.test:2")
    models = make_models(settings, {})
    named, other = models.find("one", ANYBODY).model, models.find("other", ANYBODY).model
    assert isinstance(named, Upstream)
    assert isinstance(other, Upstream)
    assert "COMPLETE" in named.finish_reasons
    assert "COMPLETE" not in other.finish_reasons
    assert "DONE" in other.finish_reasons
    pools = [each._connections.pool() for each in (named, other)]
    assert [(each._reuse, each._proxy) for each in pools] == [
        (False, Proxy("a.test", 1)),
        (True, Proxy("b.test", 2)),
    ]
    await models.close()


async def test_length_field_is_set_per_model_name_over_shared_connections() -> None:
    url = "http://localhost:1/v1"
    one = ModelSettings(upstream=url, length_field="max_completion_tokens")
    settings = Settings(upstream=url, length_field="max_tokens", models={"one": one})
    models = make_models(settings, {})
    named, other = models.find("one", ANYBODY), models.find("other", ANYBODY)
    assert (named.length_field, other.length_field) == ("max_completion_tokens", "max_tokens")
    assert named.model is other.model
    await models.close()


async def test_context_of_a_model_takes_precedence_over_that_of_the_server() -> None:
    url = "http://localhost:1/v1"
    one = ModelSettings(upstream=url, context_tokens=1000, answer_tokens=100)
    same = ModelSettings(upstream=url)
    models = make_models(Settings(upstream=url, context_tokens=8000, models={"one": one, "same": same}), {})
    assert models.context("one", {}) == Context.budget(900)
    assert models.context("same", {}) == models.context("other", {}) == Context.budget(6000)
    assert models.find("one", ANYBODY).model is models.find("other", ANYBODY).model
    await models.close()


@pytest.mark.parametrize(
    ("settings", "budget"),
    [
        ({"max_tokens": msgspec.Raw(b"300")}, 700),
        ({"max_completion_tokens": 300, "max_tokens": None}, 700),
        ({"max_tokens": 5000}, 500),
        ({"max_tokens": "many"}, 900),
        ({"tools": msgspec.Raw(b"[" + b" " * 398 + b"]")}, 800),
        ({"tools": ["x" * 8000]}, 0),
    ],
)
def test_answer_and_tools_of_a_request_take_their_share_of_the_context(
    settings: dict[str, Any], budget: int
) -> None:
    assert ContextWindow(1000, 100).budget(settings) == Context.budget(budget)


def test_history_is_shown_whole_without_settings() -> None:
    assert make_models(Settings(), {}).context("demo", {}) is None


async def test_narrowed_caller_sees_no_upstream_text_and_keeps_its_finish_reasons() -> None:
    class RateLimited(Named):
        finish_reasons = frozenset({"COMPLETE"})

        async def models(self) -> list[dict[str, Any]]:
            raise ModelRefused(429, {"message": "Rate limit of organization org-7."}, None)

    model: Any = RateLimited()
    token = Token(
        id=some_id(TokenId, 1), owner="o", scopes=frozenset(), models=("m",), created_at=0, digest=b""
    )
    for narrowed, is_visible in ((token, False), (None, True)):
        with pytest.raises(ModelRefused) as refused:
            await Models({}, model).list_models(Principal("o", frozenset(), 0, token=narrowed), HEAD)
        assert ("org-7" in f"{refused.value} {refused.value.error}") is is_visible
    assert RedactedModel(model).finish_reasons == {"COMPLETE"}


@pytest.fixture
async def ledger(anyio_backend: str) -> AsyncIterator[Ledger]:
    async with await Ledger.open() as ledger:
        yield ledger


class Namer:
    """Gives every caller the same answer, behind a gate."""

    def __init__(self, problem: BaseException | None = None) -> None:
        self.gate = Gate()
        self.concurrency = 0
        self.most_at_once = 0
        self._problem = problem

    async def complete(self, request: ModelRequest) -> bytes:
        self.concurrency += 1
        self.most_at_once = max(self.most_at_once, self.concurrency)
        try:
            await self.gate.pass_through()
        finally:
            self.concurrency -= 1
        if self._problem is not None:
            raise self._problem
        choice = {"message": {"content": "A name"}, "finish_reason": "stop"}
        return msgspec.json.encode({"choices": [choice]})

    def stream(self, request: ModelRequest) -> Any:
        raise AssertionError("a title is not streamed")

    async def models(self) -> list[dict[str, Any]]:
        return []

    async def close(self) -> None:
        return


async def talk(ledger: Ledger, titles: Titles) -> Chat:
    chat = await ledger.conversation()
    async with chat.turn("Hello there") as turn:
        turn.emit("Hi.")
    assert turn.turn is not None
    titles.enqueue(turn.conversation, turn.turn)
    return chat


async def made(titles: Titles) -> None:
    while titles.tasks:
        await asyncio.sleep(0)


async def test_titles_beyond_the_queue_limit_keep_the_first_words(ledger: Ledger) -> None:
    namer = Namer()
    titles = Titles(Host(ledger), ResolvedModel(namer, "tiny"), concurrency=2, queue_length=3)
    chats = [await talk(ledger, titles) for _ in range(7)]
    await namer.gate.arrived(2)
    assert len(titles.tasks) == 5
    namer.gate.release()
    await made(titles)
    assert namer.most_at_once == 2
    by = [(await chat.info()).named_by for chat in chats]
    assert by == [TitleSource.MODEL] * 5 + [TitleSource.WORDS] * 2


@pytest.mark.parametrize("problem", [ModelUnavailable("gone"), TimeoutError(), ValueError("a bug")])
async def test_title_failure_leaves_the_first_words_as_title(ledger: Ledger, problem: BaseException) -> None:
    namer = Namer(problem)
    namer.gate.release()
    titles = Titles(Host(ledger), ResolvedModel(namer, "tiny"))
    chat = await talk(ledger, titles)
    await made(titles)
    assert (await chat.info()).named_by is TitleSource.WORDS


async def test_title_model_that_times_out_leaves_the_first_words_as_title(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(titles_module, "PATIENCE", 0.0)
    titles = Titles(Host(ledger), ResolvedModel(Namer(), "tiny"))
    chat = await talk(ledger, titles)
    await made(titles)
    assert (await chat.info()).named_by is TitleSource.WORDS


async def test_closing_titles_cancels_pending_ones_and_accepts_no_more(ledger: Ledger) -> None:
    namer = Namer()
    titles = Titles(Host(ledger), ResolvedModel(namer, "tiny"))
    chat = await talk(ledger, titles)
    await namer.gate.arrived()
    await titles.close()
    assert not titles.tasks
    await talk(ledger, titles)
    assert not titles.tasks
    assert (await chat.info()).title == "Hello there"


async def test_internal_chat_gets_no_model_title(ledger: Ledger) -> None:
    titles = Titles(Host(ledger), ResolvedModel(Namer(), "tiny"))
    chat = await ledger.conversation(internal=True)
    async with chat.turn("Hello") as turn:
        turn.emit("Hi.")
    assert turn.turn is not None
    titles.enqueue(turn.conversation, turn.turn)
    assert not titles.tasks
