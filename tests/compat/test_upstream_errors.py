"""The words and the meaning of an upstream's error reach the client, without credentials; retries do not
multiply."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.compat.completions import Way, both_ways, send_streamed, send_whole
from tests.compat.conftest import Serve
from tests.compat.live_server import LiveServer
from turnledger.runners.upstream.upstream import Retries
from turnledger.testing.upstream import Data, End, Status

API_KEY = "quite-unlike-any-pattern"
WORDS = "The image was too large.\n\x1b[31mSend a smaller one"


def body(message: Any, **fields: Any) -> bytes:
    return json.dumps({"error": {"message": message, **fields}}).encode()


def problem_of(served: LiveServer, way: Way, conversation: str | None = "k", **headers: str) -> Any:
    with pytest.raises(openai.APIError) as problem:
        way(served.client(conversation, **headers), "Hi")
    return problem.value


def retry_of(problem: Any) -> str | None:
    value: str | None = problem.response.headers.get("x-should-retry")
    return value


@both_ways
@pytest.mark.parametrize("conversation", ["k", None])
def test_words_of_a_failed_upstream_are_kept_on_one_line(
    serve: Serve, way: Way, conversation: str | None
) -> None:
    served = serve([Status(500, body(WORDS))])
    problem = problem_of(served, way, conversation)
    assert (problem.status_code, problem.code) == (502, "model_unavailable")
    assert "The image was too large. \\x1b[31mSend a smaller one." in problem.message


@pytest.mark.parametrize(
    "answer",
    [
        body("Too big"),
        b'{"error": "Too big"}',
        b'{"detail": "Too big"}',
        b'{"message": "Too big", "object": "error"}',
        b'[{"error": {"code": 500, "message": "Too big", "status": "INTERNAL"}}]',
        b'{"detail": [{"loc": ["body"], "msg": "Too big"}]}',
        b"Too big",
    ],
)
def test_words_are_found_wherever_servers_put_them(serve: Serve, answer: bytes) -> None:
    assert "Too big" in problem_of(serve([Status(500, answer)]), send_whole).message


def test_page_of_a_proxy_is_not_shown(serve: Serve) -> None:
    problem = problem_of(serve([Status(502, b"<html><h1>nginx</h1></html>")]), send_whole)
    assert "nginx" not in problem.message


@pytest.mark.parametrize("answer", [b"404 page not found", b'{"detail": "Not Found"}', b"<html></html>"])
def test_path_that_the_upstream_lacks_names_the_url_as_the_remedy(serve: Serve, answer: bytes) -> None:
    problem = problem_of(serve([Status(404, answer)]), send_whole)
    assert (problem.status_code, problem.code) == (404, "model_refused")
    assert "check the upstream's URL, which often ends with /v1" in problem.message
    assert "URL" not in problem_of(serve([Status(404, body("No model 'x'"))]), send_whole).message


def test_stream_without_anything_names_the_remedy_of_a_chat_that_is_too_long(serve: Serve) -> None:
    problem = problem_of(serve([End(None, done=False)]), send_streamed)
    assert problem.code == "malformed_answer"
    assert "set `context_tokens`" in problem.message


def test_words_are_bounded(serve: Serve) -> None:
    problem = problem_of(serve([Status(400, body("x" * 50_000, code="c" * 50_000))]), send_whole)
    assert len(problem.message) < 1000
    assert (problem.status_code, problem.code) == (400, "model_refused")


@pytest.mark.parametrize(
    ("status", "says", "hides"),
    [(401, "refused the api_key", True), (402, "payment", False), (403, "denied access", True)],
)
@both_ways
def test_status_about_the_account_says_what_to_check_and_forbids_retries(
    serve: Serve, way: Way, status: int, says: str, hides: bool
) -> None:
    served = serve([Status(status, body("Out of words"))])
    problem = problem_of(served, way)
    assert (problem.status_code, problem.code, retry_of(problem)) == (502, "model_unavailable", "false")
    assert says in problem.message
    assert ("api_key" in problem.message) is (status == 401)
    assert ("Out of words" in problem.message) is not hides


@both_ways
@pytest.mark.parametrize(("code", "hides"), [(401, True), (402, False), (403, True), (529, False)])
def test_error_object_in_an_answer_says_the_same(serve: Serve, way: Way, code: int, hides: bool) -> None:
    served = serve([Data(body("Out of words", code=code))])
    problem = problem_of(served, way)
    assert ("Out of words" in problem.message) is not hides
    assert ("api_key" in problem.message) is (code == 401)


ECHOES = [f"Your header was Authorization: Bearer {API_KEY}", "No access with sk-proj-abcdefgh12345678"]
"""Further ones are in the tests of the cleaner."""


@pytest.mark.parametrize("in_band", [True, False])
@pytest.mark.parametrize("conversation", ["k", None])
@both_ways
def test_credentials_in_the_words_are_hidden(
    serve: Serve, way: Way, conversation: str | None, in_band: bool
) -> None:
    for echo in ECHOES:
        sent = body(f"Sorry. {echo}", param=API_KEY, type="sk-proj-abcdefgh12345678")
        served = serve([Data(sent) if in_band else Status(400, sent)], api_key=API_KEY)
        if in_band and conversation is None and way is send_whole:  # an answer to this client
            with served.raw_completion({"messages": [{"role": "user", "content": "Hi"}]}) as answer:
                shown = answer.read().decode()
        else:
            shown = str(problem_of(served, way, conversation).body)
        stored = json.dumps(served.chat_json("k")) if conversation else ""
        assert "Sorry" in shown
        for secret in (API_KEY, "abcdefgh1234"):
            assert secret not in shown + stored


def failed_choice(words: str, field: str) -> bytes:
    """An answer whose only choice has an error object, as OpenRouter sends it."""
    error = {"code": 502, "message": words, "metadata": {"provider": words}}
    choice = {"index": 0, field: {"role": "assistant", "content": ""}, "finish_reason": "error"}
    return json.dumps({"id": "a", "choices": [{**choice, "error": error}]}).encode()


@pytest.mark.parametrize("conversation", ["k", None])
@pytest.mark.parametrize("stream", [True, False])
def test_error_object_of_a_choice_is_cleaned_and_hidden_like_any_other(
    serve: Serve, stream: bool, conversation: str | None
) -> None:
    words = f"Sorry, {API_KEY} and sk-proj-abcdefgh12345678 failed"
    served = serve(otherwise=[Data(failed_choice(words, "delta" if stream else "message"))], api_key=API_KEY)
    tokens = served.app.service.host.tokens
    _, token = served.do(tokens.create(scopes=["turns:run"], models=["scripted"]))
    _, whole = served.do(tokens.create(scopes=["turns:run"]))
    request = {"messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    for each, is_shown in ((whole, True), (token, False)):
        with served.raw_completion(request, conversation, Authorization=f"Bearer {each}") as answer:
            text = answer.read().decode()
        assert ("Sorry" in text) is is_shown
        assert API_KEY not in text
        assert "abcdefgh1234" not in text


@pytest.mark.parametrize(
    ("answer", "retry"),
    [
        (Status(400), "false"),
        (Status(500), None),
        (Status(501), "false"),
        (Status(307, headers={"Location": "/v2"}), "false"),
        (Status(503, headers={"x-should-retry": "false"}), "false"),
        (Status(429), None),
        (Status(429, body("Pay.", code="insufficient_quota")), "false"),
        (Data(b"{not JSON"), "false"),
    ],
    ids=str,
)
def test_response_forbids_retries_that_cannot_help(serve: Serve, answer: Any, retry: str | None) -> None:
    assert retry_of(problem_of(serve([answer]), send_whole)) == retry


@pytest.mark.parametrize("conversation", ["k", None])
@pytest.mark.parametrize("status", [429, 503])
def test_retries_of_the_official_client_and_of_the_server_do_not_multiply(
    serve: Serve, monkeypatch: pytest.MonkeyPatch, status: int, conversation: str | None
) -> None:
    served = serve(otherwise=[Status(status, headers={"retry-after-ms": "1"})], retries=Retries())
    monkeypatch.setattr(openai.OpenAI, "_sleep_for_retry", lambda *_, **__: None)
    client = served.client(conversation).with_options(max_retries=openai.DEFAULT_MAX_RETRIES)
    with pytest.raises(openai.APIStatusError):
        send_whole(client, "Hi")
    assert len(served.upstream.received) == 3


def test_ai_sdk_retries_by_itself_whatever_the_server_says(serve: Serve) -> None:
    served = serve(otherwise=[Status(503)], retries=Retries())
    body = {"model": "scripted", "messages": [{"role": "user", "content": "Hi"}]}
    headers = {"User-Agent": "ai/6.0.1 ai-sdk/openai-compatible/2.0.1 runtime/node.js/22"}
    answer = served.http.post("/v1/chat/completions", json=body, headers=headers)
    assert (answer.status_code, len(served.upstream.received)) == (502, 1)


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
def test_client_without_retries_has_those_of_the_server_and_is_told_not_to_add_its_own(
    serve: Serve, path: str
) -> None:
    served = serve(otherwise=[Status(503, headers={"retry-after-ms": "1"})], retries=Retries())
    asked = {"messages": [{"role": "user", "content": "Hi"}]} if path.startswith("/v1") else {"input": "Hi"}
    answer = served.http.post(path, json={"model": "scripted", **asked})
    assert (answer.status_code, answer.headers["x-should-retry"]) == (502, "false")
    assert len(served.upstream.received) == 3
