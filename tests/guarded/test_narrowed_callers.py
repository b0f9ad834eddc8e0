"""Narrowed tokens and visitors may send only known fields within the limits of the token, and receive only
the kind of an upstream error, never its text."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, Literal

import httpx2
import pytest

from tests.compat.live_server import MODEL, LiveServer, run_server
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.server.config.settings import ChatSettings, ServerLimits, Settings
from turnledger.server.requests.allowed_fields import LENGTH_FIELDS
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Data, Status

ALL = tuple(TokenScope)
STRAY: dict[str, Any] = {
    "plugins": [{"id": "web"}],
    "mcp_servers": [{"url": "http://evil.example"}],
    "user_config": {"model_list": []},
    "api_base": "http://evil.example",
    "API_BASE": "http://evil.example",
    "extra_headers": {"Authorization": "x"},
    "service_tier": "priority",
    "metadata": {"tags": ["x"]},
    "store": True,
}
NARROWED: dict[str, dict[str, Any]] = {
    "models": {"models": [MODEL]},
    "chat_scope": {"chat_scope": "shop"},
    "max_tokens": {"max_tokens": 100},
    "n": {"n": 2},
}


UNTITLED = ChatSettings(title_model="")


def complete(
    served: LiveServer, text: str, path: str = "/v1/chat/completions", **fields: Any
) -> httpx2.Response:
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], **fields}
    if path == "/api/turns":
        body = {"model": fields.pop("model", MODEL), "input": "Hi", "settings": fields}
    return served.http.post(path, json=body, headers={"Authorization": f"Bearer {text}"})


def token(served: LiveServer, **fields: Any) -> str:
    _, text = served.do(Host(served.ledger).tokens.create(owner="ann", scopes=ALL, **fields))
    return text


def visitor(served: LiveServer, **fields: Any) -> str:
    _, code = served.do(Host(served.ledger).shares.create(scope="shop", **fields))
    return served.do(Host(served.ledger).shares.exchange(code, nonce="made-up-by-the-page-of-1")).text


@pytest.fixture
def served() -> Any:
    with run_server(otherwise=["Hello."]) as served:
        yield served


def received(served: LiveServer) -> list[dict[str, Any]]:
    """The bodies that reached the upstream."""
    return [each.body for each in served.upstream.received]


def lengths(body: dict[str, Any]) -> dict[str, Any]:
    return {name: body[name] for name in LENGTH_FIELDS if name in body}


def refusal(answer: httpx2.Response) -> tuple[int, str, str]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
def test_unlisted_field_of_a_narrowed_token_is_refused_by_name(served: LiveServer, path: str) -> None:
    narrow = [token(served, **narrowed) for narrowed in NARROWED.values()]
    for text in (*narrow, visitor(served)):
        for name, value in STRAY.items():
            answer = complete(served, text, path, **{name: value})
            assert refusal(answer) == (400, "unsupported_parameter", name), answer.text
    assert received(served) == []
    assert complete(served, token(served), path, plugins=[]).status_code == 200


def test_listed_fields_of_a_narrowed_token_reach_the_upstream(served: LiveServer) -> None:
    fields = {"temperature": 0.5, "max_tokens": 7, "seed": 1, "user": "ann", "stop": ["."]}
    assert complete(served, visitor(served), **fields).status_code == 200
    [request] = received(served)
    assert {name: request[name] for name in fields} == fields


def test_fields_allowed_by_the_operator_reach_the_upstream() -> None:
    settings = Settings(port=0, grace=0.0, passed_fields=("top_a",))
    with run_server(otherwise=["Hello."], settings=settings) as served:
        assert complete(served, visitor(served), top_a=0.5).status_code == 200
        assert received(served)[0]["top_a"] == 0.5


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
@pytest.mark.parametrize("name", ["max_tokens", "max_completion_tokens"])
def test_max_tokens_above_the_token_limit_is_refused(served: LiveServer, path: str, name: str) -> None:
    for text in (token(served, max_tokens=100), visitor(served, max_tokens=100)):
        for value, code in ((101, "parameter_too_large"), (10**9, "parameter_too_large")):
            assert refusal(complete(served, text, path, **{name: value})) == (400, code, name)
        for odd in (1e9, "9", True, 0, -1):
            assert refusal(complete(served, text, path, **{name: odd})) == (
                400,
                "unsupported_parameter",
                name,
            )
    assert received(served) == []
    text = token(served, max_tokens=100)
    assert complete(served, text, path, **{name: 100}).status_code == 200
    assert complete(served, text, path).status_code == 200
    bounded, unsaid = received(served)
    assert (bounded[name], unsaid["max_tokens"]) == (100, 100)  # requests without a limit are bounded, too


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
def test_max_tokens_limit_is_sent_in_the_field_of_the_model(path: str) -> None:
    with run_server(otherwise=["Hello."]) as served:
        text = token(served, max_tokens=100)
        for model in ("o3-mini", "openai/gpt-5", "gpt-4o", "llama3.2"):
            assert complete(served, text, path, model=model).status_code == 200
        assert complete(served, text, path, max_completion_tokens=None).status_code == 200
        assert complete(served, text, path, max_tokens=7, max_completion_tokens=8).status_code == 200
        fields = [lengths(body) for body in received(served)]
    completion, older = {"max_completion_tokens": 100}, {"max_tokens": 100}
    both = {"max_tokens": 7, "max_completion_tokens": 8}
    assert fields == [completion, completion, older, older, completion, both]


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
@pytest.mark.parametrize("name", LENGTH_FIELDS)
def test_max_tokens_limit_is_sent_in_the_configured_field(
    path: str, name: Literal["max_tokens", "max_completion_tokens"]
) -> None:
    [other] = {*LENGTH_FIELDS} - {name}
    settings = Settings(port=0, grace=0.0, length_field=name, chats=UNTITLED)
    with run_server(otherwise=["Hello."], settings=settings) as served:
        text = token(served, max_tokens=100)
        for sent in ({}, {name: 9}, {other: 9}, {other: None}, {name: 8, other: 9}):
            assert complete(served, text, path, **sent).status_code == 200
        assert complete(served, token(served), path, **{other: 9}).status_code == 200
        fields = [lengths(body) for body in received(served)]
    assert fields == [{name: 100}, {name: 9}, {name: 9}, {name: 100}, {name: 8, other: 9}, {other: 9}]


def test_number_of_answers_above_the_token_limit_is_refused(served: LiveServer) -> None:
    for text, most in ((visitor(served), 1), (token(served, n=3), 3)):
        assert refusal(complete(served, text, n=most + 1)) == (400, "parameter_too_large", "n")
        assert complete(served, text, n=most).status_code == 200
    assert [each["n"] for each in received(served)] == [1, 3]


def test_token_with_a_max_tokens_limit_causes_no_request_for_a_title() -> None:
    with run_server(otherwise=["Hello."]) as served:
        for text in (token(served, max_tokens=100), visitor(served, max_tokens=100)):
            assert complete(served, text, "/api/turns").status_code == 200
        titles = served.app.service.titles
        assert titles is not None
        served.wait_until(lambda: not titles.tasks)
        assert [lengths(body) for body in received(served)] == [{"max_tokens": 100}] * 2


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
@pytest.mark.parametrize("name", LENGTH_FIELDS)
def test_narrowed_token_without_a_limit_is_bound_by_narrowed_max_tokens(path: str, name: str) -> None:
    limits = ServerLimits(narrowed_max_tokens=200)
    settings = Settings(port=0, grace=0.0, limits=limits, chats=UNTITLED)
    with run_server(otherwise=["Hello."], settings=settings) as served:
        for text in (token(served, models=[MODEL]), visitor(served)):
            for value in (201, 10**9):
                refused = refusal(complete(served, text, path, **{name: value}))
                assert refused == (400, "parameter_too_large", name)
            assert refusal(complete(served, text, path, **{name: 1e9}))[1] == "unsupported_parameter"
            assert complete(served, text, path, **{name: 200}).status_code == 200
            assert complete(served, text, path).status_code == 200
        for text in (token(served), token(served, max_tokens=300)):
            assert complete(served, text, path, **{name: 300}).status_code == 200
        sent = [lengths(body) for body in received(served)]
    assert sent == [{name: 200}, {}, {name: 200}, {}, {name: 300}, {name: 300}]


def test_token_cannot_create_one_with_higher_limits(served: LiveServer) -> None:
    maker = token(served, max_tokens=100)
    headers = {"Authorization": f"Bearer {maker}"}
    body = {"scopes": ["turns:run"], "max_tokens": 101}
    refused = served.http.post("/api/tokens", json=body, headers=headers)
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "token_too_wide")
    more = served.http.post("/api/tokens", json={**body, "max_tokens": None, "n": 2}, headers=headers)
    assert (more.status_code, more.json()["error"]["code"]) == (403, "token_too_wide")
    made = served.http.post("/api/tokens", json={**body, "max_tokens": None, "n": 1}, headers=headers).json()
    assert (made["max_tokens"], made["n"]) == (100, 1)
    shared = served.http.post("/api/shares", json={"scope": "shop", "turns": 5}, headers=headers).json()
    assert (shared["max_tokens"], shared["turns"], shared["stored_bytes"]) == (100, 5, 0)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
def test_stream_options_of_a_narrowed_token_accept_null_and_are_validated(
    served: LiveServer, path: str
) -> None:
    text = token(served, models=[MODEL])
    assert complete(served, text, path, stream_options=None).status_code == 200
    assert complete(served, text, path, stream_options=[1]).status_code == 400


SECRET = "org-Zk3VeryPrivate"
UPSTREAM_ERROR = {"message": f"Rate limit reached in organization {SECRET}.", "type": SECRET, "code": SECRET}
REFUSED = [Status(400, json.dumps({"error": UPSTREAM_ERROR}).encode())]
IN_BAND = [Data(json.dumps({"error": UPSTREAM_ERROR}).encode())]


def run_script(
    served: LiveServer,
    text: str,
    script: list[Any],
    path: str,
    *,
    stream: bool,
    key: str | None,
    **more: str,
) -> str:
    served.upstream.scripts.append(script)
    headers = {name.replace("_", "-"): value for name, value in more.items()}
    headers["Authorization"] = f"Bearer {text}"
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    if path == "/api/turns":
        body = {"model": MODEL, "input": "Hi", "stream": stream, "conversation_key": key}
    elif key is not None:
        headers["X-Conversation-Id"] = key
    answer = served.http.post(path, json=body, headers=headers)
    return f"{answer.headers} {answer.text}"


@pytest.mark.parametrize("script", [REFUSED, IN_BAND], ids=["refused", "in-band"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
def test_narrowed_caller_receives_no_upstream_error_text(
    served: LiveServer, path: str, script: list[Any]
) -> None:
    everywhere = token(served)
    for number, text in enumerate((visitor(served), token(served, chat_scope="shop"))):
        for stream in (True, False):
            for key in (f"chat {number} {stream}", None if path.startswith("/v1") else "other"):
                response = run_script(served, text, script, path, stream=stream, key=key)
                assert SECRET not in response
                assert "model_refused" in response or "model_unavailable" in response, response
    assert SECRET in run_script(served, everywhere, script, path, stream=True, key="mine")


def test_narrowed_caller_reads_no_upstream_error_text_of_a_failed_turn(served: LiveServer) -> None:
    everywhere, narrow = token(served), token(served, max_tokens=5)
    response = run_script(served, everywhere, REFUSED, "/api/turns", stream=False, key="k")
    assert SECRET in response
    chat = served.do(served.ledger.for_owner("ann").conversation(conversation_key="k"))
    [aside] = served.do(chat.attempts())
    paths = (
        f"/api/chats/{chat.id}",
        f"/api/turns/{aside.attempt.id}",
        f"/api/turns/{aside.attempt.id}/events",
    )
    for path in paths:
        for text, is_visible in ((everywhere, True), (narrow, False)):
            answer = served.http.get(path, headers={"Authorization": f"Bearer {text}"})
            assert answer.status_code == 200
            assert (SECRET in answer.text) is is_visible, path
            assert "model_refused" in answer.text


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
def test_narrowed_caller_that_joined_a_turn_receives_no_upstream_error_text(
    served: LiveServer, path: str, stream: bool
) -> None:
    gate = Gate()
    script = ["Hel", gate, *IN_BAND]
    everywhere, narrow = token(served), token(served, max_tokens=5)
    with ThreadPoolExecutor() as threads:
        run = partial(run_script, served, path=path, stream=stream, key="k", Idempotency_Key="once")
        first = threads.submit(run, everywhere, script)
        served.wait_arrived(gate)
        joined = threads.submit(run, narrow, [])
        served.wait_attached()
        served.release(gate)
        assert SECRET in first.result()
        assert SECRET not in joined.result()
        assert "turn_failed" in joined.result() or "model_unavailable" in joined.result()


def test_upstream_error_text_is_logged(served: LiveServer, caplog: pytest.LogCaptureFixture) -> None:
    run_script(served, visitor(served), REFUSED, "/v1/chat/completions", stream=False, key=None)
    [line] = [each for each in caplog.records if each.message == "model_failed"]
    assert SECRET in line.details  # type: ignore[attr-defined]


def test_upstream_that_rejects_stream_options_is_called_again_without_them(served: LiveServer) -> None:
    served.upstream.scripts.extend(
        [[Status(400, b'{"error":{"message":"Unknown field stream_options"}}')], ["Hello."]]
    )
    response = served.http.post(
        "/api/turns",
        json={"model": MODEL, "input": "Hi", "stream": True},
        headers={"Authorization": f"Bearer {visitor(served)}"},
    )
    assert "Hello." in response.text
