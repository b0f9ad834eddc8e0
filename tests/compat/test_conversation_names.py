"""Conversations named as clients can: by a header of their own, the base URL, or a field of the body."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import openai
import pytest
from openai import OpenAI

from tests.compat.completions import CONTINUED, CREATED, Way, both_ways, send_whole
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, LiveServer
from tests.unit.server.logging_state import kept_logging
from turnledger.hosting import Host
from turnledger.server.config.settings import ChatSettings, Settings
from turnledger.server.ops import logs

CHAT, TASK = "X-OpenWebUI-Chat-Id", "X-OpenWebUI-Task"
WAYS = (CHAT, "base_url", "metadata.conversation_id", "user", "prompt_cache_key")
by_each_way = pytest.mark.parametrize("source", WAYS)


def settings(*named_by: str, **fields: Any) -> Settings:
    return Settings(port=0, grace=0.0, chats=ChatSettings(named_by=named_by, **fields))


def named(served: LiveServer, source: str, name: str, token: str = "") -> tuple[OpenAI, dict[str, Any]]:
    """Return a client and the fields of its requests that name a conversation this way."""
    client = served.client().with_options(api_key=token or "none")
    if source == CHAT:
        return client.with_options(default_headers={CHAT: name}), {}
    if source == "base_url":
        return client.with_options(base_url=f"{served.url}/c/{name}/v1"), {}
    if source == "metadata.conversation_id":
        return client, {"metadata": {"conversation_id": name}}
    return client, {source: name}


@both_ways
@by_each_way
def test_conversation_is_named_in_each_way_once_it_is_switched_on(
    serve: Serve, way: Way, source: str
) -> None:
    served = serve(otherwise=["Hello."], settings=settings(source))
    client, fields = named(served, source, "ann")
    assert [way(client, text, **fields).state for text in ("One", "Two")] == [CREATED, CONTINUED]
    assert [text for _, text in served.messages("ann")] == ["One", "Hello.", "Two", "Hello."]
    assert send_whole(served.client("ann"), "Three").state == CONTINUED


@by_each_way
def test_name_is_not_read_until_it_is_switched_on(serve: Serve, source: str) -> None:
    served = serve(otherwise=["Hello."], settings=settings(*(each for each in WAYS if each != source)))
    client, fields = named(served, source, "ann")
    if source == "base_url":
        served = serve(otherwise=["Hello."])
        client, fields = named(served, source, "ann")
        with pytest.raises(openai.NotFoundError):
            client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "Hi"}])
        return
    assert "x-conversation-id" not in send_whole(client, "Hi", **fields).headers
    assert served.http.get("/api/chats").json()["data"] == []


def test_field_called_like_another_source_names_nothing(serve: Serve) -> None:
    served = serve(otherwise=["Hello."], settings=settings(CHAT, "base_url"))
    fields = dict.fromkeys((CHAT, CHAT.lower(), "base_url", ""), "ann")
    assert "x-conversation-id" not in send_whole(served.client(), "Hi", extra_body=fields).headers


def test_first_name_in_the_order_of_the_settings_counts(serve: Serve) -> None:
    served = serve(otherwise=["Hello."], settings=settings("user", CHAT, "base_url", "prompt_cache_key"))
    url = f"{served.url}/c/of-the-url/v1"
    keyed = {"prompt_cache_key": "of-the-field"}
    client = served.client(X_OpenWebUI_Chat_Id="of-the-header").with_options(base_url=url)
    for number, options in enumerate(({"user": "of-the-user"}, {"user": " "}, {"user": None})):
        send_whole(client, f"Hi {number}", **keyed, **options)
    send_whole(served.client(X_OpenWebUI_Chat_Id="").with_options(base_url=url), "Hi", **keyed)
    send_whole(served.client(), "Hi", **keyed)
    first = client.with_options(default_headers={"X-Conversation-Id": "first"})
    send_whole(first, "Hi", **keyed, user="of-the-user")
    counts = {
        name: len(served.messages(name)) // 2 for name in ("of-the-user", "of-the-header", "of-the-url")
    }
    assert counts == {"of-the-user": 1, "of-the-header": 2, "of-the-url": 1}
    assert len(served.messages("of-the-field")) == len(served.messages("first")) == 2


def test_auxiliary_requests_of_a_chat_pass_through_and_store_nothing(serve: Serve) -> None:
    rules = (TASK, f"{CHAT}: local:*")
    served = serve(otherwise=["Hello."], settings=settings(CHAT, "user", skip_when_header=rules))
    shared = {CHAT: "ann", TASK: "", "X-Turn-On-Busy": "reject", "Idempotency-Key": "of-the-connection"}
    client = served.client().with_options(default_headers=shared)
    assert send_whole(client, "Hi").state == CREATED
    stored = served.turns("ann")
    for skipped in ({TASK: "title_generation"}, {CHAT: "local:1"}, {TASK: "t", "X-Conversation-Id": "ann"}):
        answer = send_whole(client, "Name this chat", extra_headers=skipped, user="ann")
        assert (answer.text, answer.headers.get("x-conversation-id")) == ("Hello.", None)
    assert served.turns("ann") == stored
    assert len(served.http.get("/api/chats").json()["data"]) == 1


def test_auxiliary_responses_of_a_chat_store_nothing(serve: Serve) -> None:
    rules = (TASK, f"{CHAT}: local:*")
    served = serve(otherwise=["Hello."], settings=settings(CHAT, "user", skip_when_header=rules))
    shared = {CHAT: "ann", TASK: "", "X-Turn-On-Busy": "reject"}
    responses = served.client().with_options(default_headers=shared).responses
    first = responses.create(model=MODEL, input="Hi")
    stored = served.turns("ann")
    ignored = {"Idempotency-Key": "of-the-connection"}
    for skipped in ({TASK: "title_generation"}, {CHAT: "local:1"}, {TASK: "t", "X-Conversation-Id": "ann"}):
        headers = {**ignored, **skipped}
        answer = responses.create(model=MODEL, input="Name this chat", user="ann", extra_headers=headers)
        assert (answer.output_text, answer.conversation) == ("Hello.", None)
        assert len(served.upstream.received[-1].body["messages"]) == 1
    continued = responses.create(
        model=MODEL, input="Name this chat", previous_response_id=first.id, extra_headers={TASK: "title"}
    )
    assert (continued.store, len(served.upstream.received[-1].body["messages"])) == (False, 3)
    with pytest.raises(openai.BadRequestError, match="background"):
        responses.create(model=MODEL, input="Hi", background=True, extra_headers={TASK: "title"})
    assert served.turns("ann") == stored
    assert len(served.http.get("/api/chats").json()["data"]) == 1


@pytest.mark.parametrize(
    ("source", "name"),
    [(source, "a" * 2000) for source in WAYS]
    + [
        (CHAT, "%ff"),
        ("base_url", "%ff"),
        ("base_url", "%20"),
        ("user", 5),
        ("metadata.conversation_id", []),
    ],
)
def test_invalid_name_is_refused_and_nothing_runs(serve: Serve, source: str, name: Any) -> None:
    served = serve(settings=settings(source))
    client, fields = named(served, source, name)
    with pytest.raises(openai.BadRequestError):
        send_whole(client, "Hi", **fields)
    assert not served.upstream.received


def test_repeated_header_is_refused(serve: Serve) -> None:
    served = serve(settings=settings(CHAT))
    body = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}
    answer = served.http.post("/v1/chat/completions", json=body, headers=[(CHAT, "a"), (CHAT, "b")])
    assert (answer.status_code, answer.json()["error"]["code"]) == (400, "invalid_input")


@by_each_way
def test_name_reaches_only_chats_that_the_token_may_see(serve: Serve, source: str) -> None:
    chosen = Settings(port=0, grace=0.0, chats=ChatSettings(named_by=(source,)), passed_fields=("metadata",))
    served = serve(otherwise=["Hello."], settings=chosen)
    host = Host(served.ledger)
    scopes = ("chats:read", "turns:run")
    owner = served.do(host.tokens.create(owner="ann", scopes=scopes))[1]
    narrowed = served.do(host.tokens.create(owner="ann", scopes=scopes, chat_scope="shop"))[1]
    _, link = served.do(host.shares.create(owner="ann", scope="shop"))
    visitor = served.do(host.shares.exchange(link, nonce="made-up-by-the-page-of-1")).text
    stranger = served.do(host.tokens.create(owner="bob", scopes=scopes))[1]

    client, fields = named(served, source, "mine", owner)
    id = send_whole(client, "Hi", **fields).conversation
    for token in (narrowed, visitor, stranger):
        client, fields = named(served, source, id, token)
        with pytest.raises(openai.NotFoundError):
            send_whole(client, "Hi", **fields)
        client, fields = named(served, source, "mine", token)
        assert send_whole(client, "Hi", **fields).state == CREATED  # in their own chats
    chat = served.do(served.ledger.for_owner("ann").conversation(id))
    assert served.do(chat.summary()).turns == 1


def test_base_url_serves_the_other_paths_too_and_reaches_no_log(serve: Serve, tmp_path: Path) -> None:
    lines, audit = io.StringIO(), tmp_path / "audit.log"
    chosen = Settings(port=0, grace=0.0, audit_log=str(audit), chats=ChatSettings(named_by=("base_url",)))
    with kept_logging():
        logs.configure("json", "info", lines)
        served = serve(["Hello."], settings=chosen)
        client = served.client().with_options(base_url=f"{served.url}/c/ann%2F%C3%A4/v1")
        assert [each.id for each in client.models.list()] == ["demo", MODEL]
        send_whole(client, "Hi")
        assert len(served.messages("ann/ä")) == 2
    for logged in (lines.getvalue(), audit.read_text()):
        assert "/v1/models" in logged
        assert "ann" not in logged
