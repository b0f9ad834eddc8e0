"""Titles by a model: made behind the answer, never in its way, never over a name that a person gave."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.compat.conftest import Serve
from tests.compat.served import Served
from tests.compat.talking import Way, assistant, both_ways, streamed, user, whole
from turnledger.model.conversation import NamedBy
from turnledger.server.config.settings import ChatSettings, ScopeSettings, Settings
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Data, Status

TITLED = Settings(port=0, grace=0.0, chats=ChatSettings(title_model="namer"))


def named(served: Served) -> None:
    """Wait until nothing is being named."""
    titles = served.app.service.titles
    assert titles is not None
    served.until(lambda: not titles.making)


def title(served: Served, conversation_key: str) -> tuple[str | None, NamedBy | None]:
    found = served.do(served.chat(conversation_key).info())
    return found.title, found.named_by


@both_ways
def test_a_chat_is_named_by_the_model_once_its_first_turn_is_there(
    serve: Serve, store_url: str, way: Way
) -> None:
    gate = Gate()
    served = serve(["It rains."], [gate, '"Weather in Rome."'], ["Still."], store=store_url, settings=TITLED)
    told = way(served.client("k"), "How is the weather in Rome today?")
    assert told.text == "It rains."  # whole, while the one who names it has not said a word
    served.arrived(gate)
    assert title(served, "k") == ("How is the weather in Rome today?", NamedBy.WORDS)
    served.release(gate)
    named(served)
    assert title(served, "k") == ("Weather in Rome", NamedBy.MODEL)
    way(served.client("k"), "And now?")
    named(served)
    models = [each.body["model"] for each in served.upstream.received]
    assert models == ["scripted", "namer", "scripted"]
    shown = served.upstream.received[1].body["messages"][-1]["content"]
    assert "How is the weather in Rome today?" in shown
    assert "It rains." in shown


def test_the_revision_that_a_person_read_stays_good(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Yes."], [gate, "By a model"], settings=TITLED)
    whole(served.client("k"), "Hello")
    served.arrived(gate)
    before = served.do(served.chat("k").info())
    served.release(gate)
    named(served)
    assert served.do(served.chat("k").info()).revision == before.revision
    served.do(served.chat("k").update(title="Mine", revision=before.revision))
    assert title(served, "k") == ("Mine", NamedBy.PERSON)


def test_a_rename_meanwhile_wins(serve: Serve, store_url: str) -> None:
    gate = Gate()
    served = serve(["Yes."], [gate, "By a model"], store=store_url, settings=TITLED)
    whole(served.client("k"), "Hello")
    served.arrived(gate)
    served.do(served.chat("k").update(title="Mine"))
    served.release(gate)
    named(served)
    assert title(served, "k") == ("Mine", NamedBy.PERSON)


def test_what_has_a_name_is_not_asked_for(serve: Serve) -> None:
    served = serve(["Yes."], settings=TITLED)
    chat = served.do(served.ledger.conversation(title="Mine"))
    whole(served.client(chat.id), "Hello")
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
def test_what_fails_is_left_and_the_first_words_stay(serve: Serve, script: list[Any]) -> None:
    served = serve(["Yes."], script, ["Again."], settings=TITLED)
    whole(served.client("k"), "Hello there")
    named(served)
    assert title(served, "k") == ("Hello there", NamedBy.WORDS)
    assert whole(served.client("k"), "Hello").text == "Again."
    assert len(served.upstream.received) == 3


def test_no_turn_no_title(serve: Serve) -> None:
    served = serve([Status(500)], ["Kept."], ["Its name"], settings=TITLED)
    with pytest.raises(openai.APIError):
        whole(served.client("k"), "Hello")
    assert len(served.upstream.received) == 1
    whole(served.client("k"), "Hello")  # the first that is committed
    named(served)
    assert title(served, "k") == ("Its name", NamedBy.MODEL)


def test_what_is_not_kept_is_not_named(serve: Serve) -> None:
    off = {"": ScopeSettings(keep=False)}
    served = serve(
        ["Yes."], settings=Settings(port=0, grace=0.0, chats=ChatSettings(title_model="namer", scopes=off))
    )
    whole(served.client("k"), "Hello")
    named(served)
    assert len(served.upstream.received) == 1


def test_a_deleted_chat_is_not_named(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Yes."], [gate, "By a model"], settings=TITLED)
    whole(served.client("k"), "Hello")
    served.arrived(gate)
    served.do(served.chat("k").delete())
    served.release(gate)
    named(served)


def test_another_answer_to_the_first_question_is_no_reason_for_another_name(serve: Serve) -> None:
    served = serve(["One."], ["A name"], ["Other."], settings=TITLED)
    whole(served.client("k"), "Hello")
    named(served)
    again = streamed(served.client("k", X_Conversation_Messages="full"), [user("Hallo")])
    assert again.state == "branched"
    assert len(served.upstream.received) == 3
    assert title(served, "k") == ("A name", NamedBy.MODEL)
    assert assistant("Other.")["content"] == again.text


def test_a_turn_that_is_asked_for_over_the_other_api_is_named_as_well(serve: Serve) -> None:
    served = serve(["It rains."], ["Weather"], settings=TITLED)
    body = {"model": "scripted", "input": "How is the weather?", "conversation_key": "k"}
    assert served.http.post("/api/turns", json=body).status_code == 200
    named(served)
    assert title(served, "k") == ("Weather", NamedBy.MODEL)


def test_a_client_that_leaves_has_its_chat_named_all_the_same(serve: Serve) -> None:
    gate = Gate()
    served = serve(["It ", gate, "rains."], ["Weather"], settings=TITLED)
    with served.raw({"messages": [user("How is the weather?")], "stream": True}, "k"):
        served.arrived(gate)
    served.release(gate)
    served.until(lambda: len(served.upstream.received) == 2)
    named(served)
    assert title(served, "k") == ("Weather", NamedBy.MODEL)
