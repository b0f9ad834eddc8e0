"""Other paths of the upstream pass through when they are switched on: whole, streamed, and as forms."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import openai
import pytest

from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, LiveServer
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Head, Status

PATHS = ("embeddings", "completions", "audio/speech", "audio/transcriptions")
ON = Settings(port=0, grace=0.0, passed_paths=PATHS, limits=ServerLimits(body_bytes=10_000))
EMBEDDING = {"object": "embedding", "index": 0, "embedding": [0.5, 0.25]}
EMBEDDINGS = json.dumps({"object": "list", "data": [EMBEDDING], "model": "m", "usage": {"prompt_tokens": 1}})
AUDIO = bytes(range(256)) * 100


def chunk(text: str, reason: str | None = None) -> str:
    choice = {"index": 0, "text": text, "finish_reason": reason, "logprobs": None}
    fields = {"id": "c", "object": "text_completion", "created": 1, "model": "m", "choices": [choice]}
    return f"data: {json.dumps(fields)}\n\n"


def post(served: LiveServer, path: str = "/v1/embeddings", token: str = "", **fields: Any) -> httpx2.Response:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    return served.http.post(path, json={"model": MODEL, "input": "Hi", **fields}, headers=headers)


def test_paths_are_unknown_by_default_and_the_error_names_the_setting(serve: Serve) -> None:
    served, file = serve(), ("a.wav", b"RIFF")
    for path, send in {
        "embeddings": lambda client: client.embeddings.create(model=MODEL, input="Hi"),
        "audio/transcriptions": lambda client: client.audio.transcriptions.create(model=MODEL, file=file),
    }.items():
        with pytest.raises(openai.NotFoundError, match=f"'{path}' in `passed_paths`") as problem:
            send(served.client())
        assert problem.value.code == "unknown_url"
        assert f"/v1/{path}" not in served.http.get("/openapi.json").json()["paths"]


def test_embeddings_pass_through_with_the_api_key_of_the_server_and_without_a_conversation(
    serve: Serve,
) -> None:
    served = serve([EMBEDDINGS], settings=ON, api_key="the-servers-own")
    found = served.client("k").embeddings.create(model=MODEL, input="Hi", encoding_format="float")
    assert found.data[0].embedding == [0.5, 0.25]
    [request] = served.upstream.received
    assert (request.path, request.body["input"]) == ("/v1/embeddings", "Hi")
    assert request.headers["authorization"] == "Bearer the-servers-own"
    assert not any(name.startswith("x-") for name in request.headers)
    assert served.http.get("/api/chats").json()["data"] == []


def test_streamed_completion_arrives_as_it_comes(serve: Serve) -> None:
    gate = Gate()
    script = [Head("text/event-stream"), chunk("Hel"), gate, chunk("lo", "stop"), "data: [DONE]\n\n"]
    served = serve(script, settings=ON)
    pieces = []
    for each in served.client().completions.create(model=MODEL, prompt="Hi", stream=True):
        pieces.append(each.choices[0].text)
        if len(pieces) == 1:
            served.release(gate)
    assert pieces == ["Hel", "lo"]


def test_audio_passes_through_byte_for_byte(serve: Serve) -> None:
    served = serve([Head("audio/mpeg"), AUDIO], settings=ON)
    answer = served.client().audio.speech.create(model=MODEL, input="Hi", voice="alloy")
    assert answer.content == AUDIO
    assert answer.response.headers["content-type"] == "audio/mpeg"


def test_form_with_a_file_passes_through(serve: Serve) -> None:
    served = serve(['{"text": "Hello."}'], settings=ON)
    heard = served.client().audio.transcriptions.create(model=MODEL, file=("a.wav", b"model\r\n\r\nx" * 99))
    assert heard.text == "Hello."
    [request] = served.upstream.received
    assert request.headers["content-type"].startswith("multipart/form-data")
    assert b"model\r\n\r\nx" * 99 in request.body


def test_form_without_a_model_or_at_another_path_is_refused(serve: Serve) -> None:
    served = serve(settings=ON)
    answer = served.http.post("/v1/audio/transcriptions", files={"file": ("a.wav", b"")})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")
    answer = served.http.post("/v1/embeddings", files={"file": ("a.wav", b"")})
    assert answer.status_code == 415
    headers = {"Origin": "https://elsewhere.test"}
    answer = served.http.post("/v1/audio/transcriptions", files={"file": ("a", b"")}, headers=headers)
    assert answer.status_code == 403


def test_refusal_of_the_upstream_keeps_its_status_and_words(serve: Serve) -> None:
    served = serve([Status(400, b'{"error": {"message": "Too many inputs", "code": "c"}}')], settings=ON)
    with pytest.raises(openai.BadRequestError, match="Too many inputs") as problem:
        served.client().embeddings.create(model=MODEL, input="Hi")
    assert problem.value.code == "c"


def test_cut_response_is_cut_for_the_client_too(serve: Serve) -> None:
    served = serve([Head("audio/mpeg"), AUDIO, CUT], settings=ON)
    with pytest.raises(httpx2.TransportError):
        post(served, "/v1/audio/speech")


def test_cut_stream_ends_with_an_error(serve: Serve) -> None:
    served = serve([Head("text/event-stream"), chunk("Hel"), CUT], settings=ON)
    with pytest.raises(openai.APIError) as problem:
        list(served.client().completions.create(model=MODEL, prompt="Hi", stream=True))
    assert problem.value.code == "model_unavailable"


def test_body_beyond_the_limit_is_refused(serve: Serve) -> None:
    served = serve(settings=ON)
    assert post(served, input="x" * 20_000).status_code == 413
    assert not served.upstream.received


def test_model_without_an_upstream_is_refused(serve: Serve) -> None:
    answer = post(serve(settings=ON), model="demo")
    assert (answer.status_code, answer.json()["error"]["code"]) == (404, "path_not_supported")


def test_tokens_restrict_models_and_what_cannot_be_checked_is_refused(serve: Serve) -> None:
    served = serve([EMBEDDINGS], settings=ON)

    def token(scopes: frozenset[TokenScope] = frozenset({TokenScope.TURNS_RUN}), **options: Any) -> str:
        return served.do(Host(served.ledger).tokens.create(owner="ann", scopes=scopes, **options))[1]

    narrow = token(models=[MODEL])
    _, link = served.do(Host(served.ledger).shares.create(scope="shop"))
    visitor = served.do(Host(served.ledger).shares.exchange(link, nonce="made-up-by-the-page-of-1")).text
    assert post(served, token=narrow).status_code == 200
    for text, fields, code in (
        (narrow, {"model": "other"}, "model_not_found"),
        (narrow, {"fallbacks": ["other"]}, "outside_models"),
        (token(chat_scope="shop"), {}, "path_not_allowed"),
        (token(max_tokens=5), {}, "path_not_allowed"),
        (visitor, {}, "path_not_allowed"),
        (token(frozenset({TokenScope.CHATS_READ})), {}, "insufficient_scope"),
    ):
        answer = post(served, token=text, **fields)
        assert answer.status_code in (403, 404), (code, answer.text)
        assert answer.json()["error"]["code"] == code
    assert len(served.upstream.received) == 1


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"api_base": "https://elsewhere.example"}, "unsupported_parameter"),
        ({"metadata": {}}, "unsupported_parameter"),
        ({"stream_options": {"include_usage": True, "other": 1}}, "unsupported_parameter"),
        ({"n": 2}, "parameter_too_large"),
        ({"max_tokens": 10**9}, "parameter_too_large"),
    ],
)
def test_narrowed_token_cannot_send_fields_or_sizes_that_chats_would_refuse(
    serve: Serve, fields: dict[str, Any], code: str
) -> None:
    served = serve(otherwise=[EMBEDDINGS], settings=ON)
    create = Host(served.ledger).tokens.create
    for models, is_refused in ((), False), ((MODEL,), True):
        _, token = served.do(create(owner="ann", scopes=(TokenScope.TURNS_RUN,), models=models))
        usual = {"prompt": "Hi", "encoding_format": "float", "stream": False, "n": 1, "max_tokens": 5}
        assert post(served, "/v1/completions", token, **usual).status_code == 200
        answer = post(served, "/v1/completions", token, **fields)
        assert (answer.status_code == 400) is is_refused, answer.text
        assert not is_refused or answer.json()["error"]["code"] == code


def test_error_object_in_a_stream_is_hidden_from_a_narrowed_token(serve: Serve) -> None:
    pieces = [chunk("Hel"), 'data: {"err', 'or": {"message": "org-7 is out of quota"}}\n\n']
    served = serve(otherwise=[Head("text/event-stream"), *pieces], settings=ON)
    create = Host(served.ledger).tokens.create
    for models, is_shown in (((), True), ((MODEL,), False)):
        _, token = served.do(create(owner="ann", scopes=(TokenScope.TURNS_RUN,), models=models))
        answer = post(served, "/v1/completions", token)
        assert ("org-7" in answer.text) is is_shown
        assert ("model_unavailable" in answer.text) is not is_shown


@pytest.mark.parametrize("split", [None, 5])
def test_api_key_that_the_upstream_repeats_in_a_response_is_hidden(serve: Serve, split: int | None) -> None:
    key = "the-servers-own"
    error = f'data: {{"error": {{"message": "No credit left for the-{key}, the-servers"}}}}\n\n'
    pieces = [error[at : at + split] for at in range(0, len(error), split)] if split else [error]
    served = serve([Head("text/event-stream"), *pieces, "the-serv"], settings=ON, api_key=key)
    assert post(served, "/v1/completions").text == error.replace(key, "[hidden]") + "the-serv"


def test_repeated_model_field_cannot_name_another_model(serve: Serve) -> None:
    served = serve([EMBEDDINGS], settings=ON)
    body = b'{"model": "other", "input": "Hi", "model": "scripted"}'
    served.http.post("/v1/embeddings", content=body, headers={"Content-Type": "application/json"})
    assert served.upstream.received[0].body["model"] == MODEL
