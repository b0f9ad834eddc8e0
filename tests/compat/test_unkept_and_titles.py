"""Unkept turns are answered from the messages sent and stored nowhere. Kept chats get a title from a model
after the answer, never over a title by a person."""

from __future__ import annotations

from typing import Any

import msgspec
import openai
import pytest

from tests.compat.completions import (
    CONTINUED,
    CREATED,
    Way,
    assistant,
    both_ways,
    send_streamed,
    send_whole,
    user,
)
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, LiveServer
from turnledger.hosting import Host
from turnledger.model.conversation import TitleSource
from turnledger.server.config.settings import ChatSettings, ScopeSettings, ServerLimits, Settings
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Data, Status

LIFE = {"renew", "find"}
"""Store operations of the server itself: heartbeats and authentication."""
NOTHING_KEPT = Settings(port=0, grace=0.0, chats=ChatSettings(keep=False))
DESK_UNKEPT = Settings(port=0, grace=0.0, chats=ChatSettings(scopes={"desk": ScopeSettings(keep=False)}))


@both_ways
def test_turn_with_keep_no_is_answered_and_not_stored(serve: Serve, store_url: str, way: Way) -> None:
    served = serve(["One."], ["Two."], store=store_url)
    client = served.client("k", X_Conversation_Keep="no")
    first = way(client, "first")
    history = [user("first"), assistant("One."), user("second")]
    second = way(client, history)
    assert (first.text, second.text) == ("One.", "Two.")
    for answer in (first, second):
        assert answer.state == "unkept"
        assert "x-conversation-id" not in answer.headers
        assert "x-turn-id" not in answer.headers
    assert served.upstream.received[-1].body["messages"] == history
    assert not served.do(Host(served.ledger).is_named("k"))
    assert way(served.client("k"), "Hi", model="demo").state == CREATED


def test_unkept_turn_does_not_write_to_the_store(serve: Serve) -> None:
    served = serve(["One."], ["Kept."], settings=DESK_UNKEPT)
    served.store.operations.clear()
    assert send_whole(served.client("k", X_Conversation_Scope="desk"), "first").state == "unkept"
    unkept = set(served.store.operations)
    send_whole(served.client("k"), "first")
    writes = {"begin", "commit"}
    assert writes & unkept == set()
    assert writes <= set(served.store.operations)
    # A look whether the key names a chat that is kept; and the worker looks for background turns.
    assert unkept - LIFE - {"ready_jobs"} == {"find_by_key"}


@both_ways
def test_server_that_keeps_no_chats_answers_turns(serve: Serve, way: Way) -> None:
    served = serve(otherwise=["Hello."], settings=NOTHING_KEPT)
    assert way(served.client("k"), "Hi").state == "unkept"
    assert way(served.client("k", X_Conversation_Keep="no"), "Hi").state == "unkept"
    assert "x-conversation-state" not in way(served.client(), "Hi").headers
    assert way(served.client(X_Conversation_Keep="no"), "Hi").state == "unkept"


def test_kept_chat_is_preserved_by_a_server_that_keeps_no_chats(serve: Serve, tmp_path: object) -> None:
    store = f"sqlite:///{tmp_path}/chats.db"
    before = serve(["One."], store=store)
    kept = send_whole(before.client("k"), "first")
    after = serve(["Two."], store=store, settings=NOTHING_KEPT)
    for name in ("k", kept.conversation):
        with pytest.raises(openai.ConflictError) as problem:
            send_whole(after.client(name), "second")
        assert problem.value.code == "conversation_is_kept"
        assert "Send all messages" in problem.value.message
    assert after.upstream.received == []
    everything = [user("first"), assistant("One."), user("second")]
    answer = send_whole(after.client("k", X_Conversation_Messages="full"), everything)
    assert (answer.state, answer.text) == ("unkept", "Two.")
    assert after.messages("k") == [("user", "first"), ("assistant", "One.")]


def test_import_into_an_unkept_scope_is_refused(serve: Serve) -> None:
    before = serve(otherwise=["One."])
    send_whole(before.client("k"), "first")
    send_whole(before.client("k", X_Conversation_Scope="desk"), "first")
    file = before.http.get("/api/export")
    after = serve(settings=DESK_UNKEPT)
    response = after.http.post(
        "/api/import", content=file.content, headers={"Content-Type": "application/x-ndjson"}
    )
    *reports, end = [msgspec.json.decode(line) for line in response.content.splitlines()]
    assert (end["done"]["imported"], end["done"]["refused"]) == (1, 1)
    assert [each["why"] for each in reports if each["did"] == "refused"] == [
        "The chats of this scope are not stored."
    ]
    assert not after.do(Host(after.ledger).is_named("k", scope="desk"))
    assert after.do(Host(after.ledger).is_named("k"))


@both_ways
def test_unkept_turn_that_fails_is_reported_and_leaves_no_chat(serve: Serve, way: Way) -> None:
    served = serve([Status(503)], ["Hel", CUT], ["Hello."])
    client = served.client("k", X_Conversation_Keep="no")
    for _ in range(2):
        with pytest.raises(openai.APIError):
            way(client, "Hi")
    assert way(client, "Hi").text == "Hello."
    assert not served.do(Host(served.ledger).is_named("k"))


def test_unkept_turn_counts_toward_the_turn_limit_until_it_ends(serve: Serve) -> None:
    gate = Gate()
    limits = ServerLimits(turns=1)
    served = serve(
        ["Hel", gate, "lo."],
        settings=Settings(port=0, grace=0.0, limits=limits, chats=ChatSettings(keep=False)),
    )
    body = {"messages": [user("Hi")], "stream": True}
    with served.raw_completion(body, "k") as running:
        served.wait_arrived(gate)
        with pytest.raises(openai.RateLimitError) as problem:
            send_whole(served.client("other"), "Hi")
        assert problem.value.code == "server_busy"
        served.release(gate)
        assert b"[DONE]" in running.read()


def test_unkept_turn_ends_when_its_client_disconnects(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    with served.raw_completion({"messages": [user("Hi")], "stream": True}, "k", X_Conversation_Keep="no"):
        served.wait_arrived(gate)
    served.wait_alone()
    served.wait_until(lambda: not served.app.service.counters.sum("turns"))
    assert Host(served.ledger).at_work().running == 0


def test_unkept_turn_does_not_affect_the_kept_conversation(serve: Serve, store_url: str) -> None:
    served = serve(["One."], ["Aside."], ["Two."], store=store_url)
    send_whole(served.client("k"), "first")
    everything = [user("first"), assistant("One."), user("aside")]
    aside = send_streamed(
        served.client("k", X_Conversation_Keep="no", X_Conversation_Messages="full"), everything, model=MODEL
    )
    assert aside.state == "unkept"
    assert send_whole(served.client("k"), "second").state == CONTINUED
    assert [text for _, text in served.messages("k")] == ["first", "One.", "second", "Two."]


TITLED = Settings(port=0, grace=0.0, chats=ChatSettings(title_model="namer"))


def named(served: LiveServer) -> None:
    """Wait until nothing is being named."""
    titles = served.app.service.titles
    assert titles is not None
    served.wait_until(lambda: not titles.tasks)


def title(served: LiveServer, conversation_key: str) -> tuple[str | None, TitleSource | None]:
    found = served.do(served.chat(conversation_key).info())
    return found.title, found.named_by


@both_ways
def test_title_is_made_by_the_model_after_the_first_turn(serve: Serve, store_url: str, way: Way) -> None:
    gate = Gate()
    served = serve(["It rains."], [gate, '"Weather in Rome."'], ["Still."], store=store_url, settings=TITLED)
    answer = way(served.client("k"), "How is the weather in Rome today?")
    assert answer.text == "It rains."  # complete, before the title model answers
    served.wait_arrived(gate)
    assert title(served, "k") == ("How is the weather in Rome today?", TitleSource.WORDS)
    served.release(gate)
    named(served)
    assert title(served, "k") == ("Weather in Rome", TitleSource.MODEL)
    way(served.client("k"), "And now?")
    named(served)
    models = [each.body["model"] for each in served.upstream.received]
    assert models == ["scripted", "namer", "scripted"]
    shown = served.upstream.received[1].body["messages"][-1]["content"]
    assert "How is the weather in Rome today?" in shown
    assert "It rains." in shown


def test_title_by_the_model_does_not_change_the_revision(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Yes."], [gate, "By a model"], settings=TITLED)
    send_whole(served.client("k"), "Hello")
    served.wait_arrived(gate)
    before = served.do(served.chat("k").info())
    served.release(gate)
    named(served)
    assert served.do(served.chat("k").info()).revision == before.revision
    served.do(served.chat("k").update(title="Mine", revision=before.revision))
    assert title(served, "k") == ("Mine", TitleSource.PERSON)


def test_title_by_a_person_wins_over_a_pending_model_title(serve: Serve, store_url: str) -> None:
    gate = Gate()
    served = serve(["Yes."], [gate, "By a model"], store=store_url, settings=TITLED)
    send_whole(served.client("k"), "Hello")
    served.wait_arrived(gate)
    served.do(served.chat("k").update(title="Mine"))
    served.release(gate)
    named(served)
    assert title(served, "k") == ("Mine", TitleSource.PERSON)


def test_title_by_a_person_prevents_a_model_title(serve: Serve) -> None:
    served = serve(["Yes."], settings=TITLED)
    chat = served.do(served.ledger.conversation(title="Mine"))
    send_whole(served.client(chat.id), "Hello")
    named(served)
    assert len(served.upstream.received) == 1
    assert served.do(chat.info()).title == "Mine"


@pytest.mark.parametrize(
    "script",
    [
        [Status(500)],
        [Status(429)],
        ["Half", CUT],
        [Data(b"no completion")],
        [Data(b'{"choices": []}')],
        ['"<think>"'],
    ],
)
def test_title_failure_leaves_the_first_words(serve: Serve, script: list[Any]) -> None:
    served = serve(["Yes."], script, ["Again."], settings=TITLED)
    send_whole(served.client("k"), "Hello there")
    named(served)
    assert title(served, "k") == ("Hello there", TitleSource.WORDS)
    assert send_whole(served.client("k"), "Hello").text == "Again."
    assert len(served.upstream.received) == 3


def test_title_is_not_made_for_a_failed_first_turn(serve: Serve) -> None:
    served = serve([Status(500)], ["Kept."], ["Its name"], settings=TITLED)
    with pytest.raises(openai.APIError):
        send_whole(served.client("k"), "Hello")
    assert len(served.upstream.received) == 1
    send_whole(served.client("k"), "Hello")  # the first that is committed
    named(served)
    assert title(served, "k") == ("Its name", TitleSource.MODEL)


def test_title_is_not_made_for_unkept_chats(serve: Serve) -> None:
    off = {"": ScopeSettings(keep=False)}
    served = serve(
        ["Yes."], settings=Settings(port=0, grace=0.0, chats=ChatSettings(title_model="namer", scopes=off))
    )
    send_whole(served.client("k"), "Hello")
    named(served)
    assert len(served.upstream.received) == 1


def test_title_for_a_chat_deleted_meanwhile_is_dropped(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Yes."], [gate, "By a model"], settings=TITLED)
    send_whole(served.client("k"), "Hello")
    served.wait_arrived(gate)
    served.do(served.chat("k").delete())
    served.release(gate)
    named(served)


def test_title_is_not_made_again_for_an_edited_first_turn(serve: Serve) -> None:
    served = serve(["One."], ["A name"], ["Other."], settings=TITLED)
    send_whole(served.client("k"), "Hello")
    named(served)
    again = send_streamed(served.client("k", X_Conversation_Messages="full"), [user("Hallo")])
    assert again.state == "branched"
    assert len(served.upstream.received) == 3
    assert title(served, "k") == ("A name", TitleSource.MODEL)
    assert assistant("Other.")["content"] == again.text


def test_title_is_made_for_native_turns(serve: Serve) -> None:
    served = serve(["It rains."], ["Weather"], settings=TITLED)
    body = {"model": "scripted", "input": "How is the weather?", "conversation_key": "k"}
    assert served.http.post("/api/turns", json=body).status_code == 200
    named(served)
    assert title(served, "k") == ("Weather", TitleSource.MODEL)


def test_title_is_made_by_the_answering_model_without_a_setting(serve: Serve) -> None:
    gate = Gate()
    served = serve(["It rains."], [gate, "Weather"])
    body = {"model": "scripted", "input": "How is the weather?", "conversation_key": "k"}
    assert served.http.post("/api/turns", json=body).status_code == 200
    served.wait_arrived(gate)  # the answer did not wait
    served.release(gate)
    named(served)
    assert title(served, "k") == ("Weather", TitleSource.MODEL)
    assert [each.body["model"] for each in served.upstream.received] == ["scripted", "scripted"]


def test_title_without_a_setting_is_not_made_by_the_demo_model_or_for_completions(serve: Serve) -> None:
    served = serve(["Yes."])
    body = {"model": "demo", "input": "Hello demo", "conversation_key": "k"}
    assert served.http.post("/api/turns", json=body).status_code == 200
    send_whole(served.client("other"), "Hello there")
    named(served)
    assert title(served, "k") == ("Hello demo", TitleSource.WORDS)
    assert title(served, "other") == ("Hello there", TitleSource.WORDS)
    assert len(served.upstream.received) == 1


def test_title_is_not_made_if_the_setting_is_empty(serve: Serve) -> None:
    served = serve(["Yes."], settings=Settings(port=0, grace=0.0, chats=ChatSettings(title_model="")))
    body = {"model": "scripted", "input": "Hello", "conversation_key": "k"}
    assert served.http.post("/api/turns", json=body).status_code == 200
    assert served.app.service.titles is None
    assert title(served, "k") == ("Hello", TitleSource.WORDS)


def test_title_is_made_after_the_client_disconnects(serve: Serve) -> None:
    gate = Gate()
    served = serve(["It ", gate, "rains."], ["Weather"], settings=TITLED)
    with served.raw_completion({"messages": [user("How is the weather?")], "stream": True}, "k"):
        served.wait_arrived(gate)
    served.release(gate)
    served.wait_until(lambda: len(served.upstream.received) == 2)
    named(served)
    assert title(served, "k") == ("Weather", TitleSource.MODEL)
