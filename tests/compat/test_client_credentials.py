"""A client's own credential for the upstream: sent there, and nowhere else."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import openai
import pytest

from tests.compat.completions import Way, both_ways, send_whole
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL
from turnledger.hosting import Host
from turnledger.model.access.token import TokenScope
from turnledger.runners.upstream.upstream import Retries
from turnledger.server.config.settings import Settings
from turnledger.testing.upstream import Status

OWN = "of-the-client-alone"
SERVERS = "of-the-server-itself"
HEADER = "X-Upstream-Key"


def settings(**fields: Any) -> Settings:
    return Settings(port=0, grace=0.0, credential_header=HEADER, passed_paths=("embeddings",), **fields)


def sent_keys(served: Any) -> list[str | None]:
    return [request.headers.get("authorization") for request in served.upstream.received]


@both_ways
@pytest.mark.parametrize("conversation", ["k", None])
def test_credential_of_the_client_takes_the_place_of_the_servers(
    serve: Serve, way: Way, conversation: str | None
) -> None:
    served = serve(otherwise=["Hello."], settings=settings(), api_key=SERVERS)
    _, token = served.do(Host(served.ledger).tokens.create(owner="ann", scopes=(TokenScope.TURNS_RUN,)))
    for value in (OWN, f"Bearer {OWN}"):
        client = served.client(conversation, X_Upstream_Key=value).with_options(api_key=token)
        assert way(client, "Hi").text == "Hello."
    assert way(served.client(conversation).with_options(api_key=token), "Hi").text == "Hello."
    assert sent_keys(served) == [f"Bearer {OWN}", f"Bearer {OWN}", f"Bearer {SERVERS}"]
    received = json.dumps([request.headers for request in served.upstream.received])
    assert token not in received
    assert HEADER.lower() not in received


def test_each_client_keeps_its_own_credential_and_retries(serve: Serve) -> None:
    failure = Status(503, headers={"retry-after-ms": "1"})
    served = serve(otherwise=[failure], settings=settings(), api_key=SERVERS, retries=Retries())
    expected: list[str | None] = []
    for value, own_retries in ((OWN, 0), ("another", 0), (OWN, 0), (OWN, 2), (None, 0), ("another", 2)):
        headers = {} if value is None else {HEADER: value}
        headers |= {"X-Stainless-Retry-Count": "0"} if own_retries else {}
        body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
        assert served.http.post("/v1/chat/completions", json=body, headers=headers).status_code == 502
        expected += [f"Bearer {value or SERVERS}"] * (1 if own_retries else 3)
    assert sent_keys(served) == expected


def test_other_endpoints_use_it_too(serve: Serve) -> None:
    served = serve(['{"object": "list", "data": []}'], ["Hello."], ["Greeting"], settings=settings())
    client = served.client(X_Upstream_Key=OWN)
    client.embeddings.create(model=MODEL, input="Hi", encoding_format="float")
    body = {"model": MODEL, "input": "Hi"}
    assert served.http.post("/api/turns", json=body, headers={HEADER: OWN}).status_code == 200
    assert [each.id for each in client.models.list()] == ["demo", MODEL]
    titles = served.app.service.titles
    assert titles is not None
    served.wait_until(lambda: not titles.tasks)
    assert sent_keys(served) == [f"Bearer {OWN}"] * 3


def test_header_without_the_setting_is_ignored(serve: Serve) -> None:
    served = serve(["Hello."], api_key=SERVERS)
    send_whole(served.client("k", X_Upstream_Key=OWN), "Hi")
    assert sent_keys(served) == [f"Bearer {SERVERS}"]


@pytest.mark.parametrize("value", ["two words", "tlt_" + "0" * 39])
def test_invalid_credential_is_refused_without_repeating_it(serve: Serve, value: str) -> None:
    served = serve(settings=settings(), api_key=SERVERS)
    with pytest.raises(openai.BadRequestError) as problem:
        send_whole(served.client("k", X_Upstream_Key=value), "Hi")
    assert value not in problem.value.message
    assert not served.upstream.received


def test_background_turn_with_a_credential_is_refused(serve: Serve) -> None:
    served = serve(settings=settings())
    body = {"model": MODEL, "input": "Hi", "background": True}
    answer = served.http.post("/api/turns", json=body, headers={HEADER: OWN})
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "credential_not_stored")


def test_credential_is_in_no_log_store_or_error(
    serve: Serve, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    echo = json.dumps({"error": {"message": f"You sent {OWN}", "code": "c"}}).encode()
    scripts = ["Hello."], [Status(400, echo)], [Status(401, echo)], [Status(500, echo)]
    audit = tmp_path / "audit.log"
    options = {"settings": settings(audit_log=str(audit)), "store": f"sqlite:///{tmp_path / 'chats.db'}"}
    served = serve(*scripts, **options)
    client = served.client("k", X_Upstream_Key=OWN)
    send_whole(client, "Hi")
    for _ in range(3):
        with pytest.raises(openai.APIStatusError) as problem:
            send_whole(client, "Hi")
        assert OWN not in str(problem.value.body)
    assert len(sent_keys(served)) == 4
    assert OWN not in json.dumps(served.chat_json("k"))
    assert OWN not in caplog.text + repr([record.__dict__ for record in caplog.records])
    for path in filter(Path.is_file, tmp_path.rglob("*")):
        assert OWN.encode() not in path.read_bytes(), path
    assert audit.read_bytes()
