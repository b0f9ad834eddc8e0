"""An empty answer with a finish reason is an answer: a model that stops at once ends its turn."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.compat.completions import CONTINUED, CREATED, Way, assistant, both_ways, send_whole, user
from tests.compat.conftest import Serve
from turnledger.server.config.settings import ChatSettings, Settings
from turnledger.testing.upstream import Call, End, Status

NOTHING = [""]


@both_ways
def test_empty_answer_ends_the_turn_without_error_or_retry(serve: Serve, way: Way) -> None:
    served = serve(NOTHING, ["Two."])
    client = served.client("k", Idempotency_Key="first")
    answer = way(client, "first")
    assert (answer.text, answer.finish_reason, answer.state) == ("", "stop", CREATED)
    assert served.messages("k") == [("user", "first"), ("assistant", "")]
    again = way(client, "first")
    assert (again.text, again.finish_reason, again.turn) == ("", "stop", answer.turn)
    assert again.is_replayed
    assert way(served.client("k"), "second").text == "Two."
    assert [each.body["messages"] for each in served.upstream.received] == [
        [user("first")],
        [user("first"), user("second")],
    ]
    assert served.attempts("k") == []


@pytest.mark.parametrize("empty", [[{"role": "assistant", "content": ""}], [{"role": "assistant"}], []])
def test_client_that_resends_an_empty_answer_or_drops_it_continues(serve: Serve, empty: Any) -> None:
    served = serve(NOTHING, ["Two."], ["Three."])
    client = served.client("k")
    send_whole(client, "first")
    sent = [user("first"), *empty, user("second")]
    answer = send_whole(client, sent)
    assert answer.state == CONTINUED
    send_whole(client, [*sent, answer.message, user("third")])
    assert [text for _, text in served.messages("k")] == ["first", "", "second", "Two.", "third", "Three."]


def test_empty_answer_to_a_tool_result_ends_the_turn(serve: Serve) -> None:
    served = serve([Call("look")], NOTHING, ["Three."])
    client = served.client("k")
    [(call_id, *_)] = send_whole(client, "first").calls
    answer = send_whole(client, [{"role": "tool", "tool_call_id": call_id, "content": "dark"}])
    assert (answer.text, answer.finish_reason) == ("", "stop")
    send_whole(client, "third")
    roles = [each["role"] for each in served.upstream.received[-1].body["messages"]]
    assert roles == ["user", "assistant", "tool", "user"]


@pytest.mark.parametrize("stream", [True, False])
def test_api_turn_with_an_empty_answer_completes(serve: Serve, stream: bool) -> None:
    served = serve(NOTHING, settings=Settings(port=0, grace=0.0, chats=ChatSettings(title_model="")))
    body = {"input": "Hi", "model": "scripted", "conversation_key": "k", "stream": stream}
    for _ in range(2):  # the second is a replay
        answer = served.http.post("/api/turns", json=body, headers={"Idempotency-Key": "first"})
        assert answer.status_code == 200
        if stream:
            assert '"state":"completed","failure":null' in answer.text
        else:
            [message] = answer.json()["turn"]["output"]
            assert (message["role"], message["content"][0]["text"]) == ("assistant", "")
    assert len(served.upstream.received) == 1


ALTERNATE = "After the optional system message, conversation roles must alternate user and assistant roles"


@both_ways
@pytest.mark.parametrize("status", [400, 500])
def test_model_that_refuses_two_questions_in_a_row_receives_them_as_one(
    serve: Serve, way: Way, status: int
) -> None:
    refusal = Status(status, json.dumps({"error": {"message": ALTERNATE}}).encode())
    served = serve([""], [refusal], ["Fine."], [refusal], [refusal])
    client = served.client("k")
    way(client, "first")
    assert way(client, "second").text == "Fine."
    assert served.upstream.received[-1].body["messages"] == [user("first\n\nsecond")]
    assert [text for _, text in served.messages("k")] == ["first", "", "second", "Fine."]
    _, narrow = served.do(served.app.service.host.tokens.create(scopes=["turns:run"], models=["scripted"]))
    with pytest.raises(openai.APIStatusError):  # no third call
        way(served.client("k", Authorization=f"Bearer {narrow}"), "third")
    assert len(served.upstream.received) == 5


def test_model_that_refuses_answers_before_the_first_question_is_not_shown_them(serve: Serve) -> None:
    refusal = Status(400, json.dumps({"error": {"message": ALTERNATE}}).encode())
    served = serve(["One."], ["Two."], [refusal], ["Three."])
    client = served.client("k")
    send_whole(client, "first")
    send_whole(client, "second")
    system = {"role": "system", "content": "Be kind."}
    assert send_whole(client, [system, assistant("Two."), user("third")]).text == "Three."
    assert served.upstream.received[-1].body["messages"] == [system, user("third")]
    assert [text for _, text in served.messages("k")][-3:] == ["Two.", "third", "Three."]


def test_model_that_refuses_a_history_without_the_question_of_its_calls_is_shown_none(serve: Serve) -> None:
    refusal = Status(500, json.dumps({"error": {"message": ALTERNATE}}).encode())
    served = serve([Call("look")], [Call("turn", call_id="call_1")], ["Dark."], [refusal], ["Three."])
    client = served.client("k", X_Context="last=1")
    [(call_id, *_)] = send_whole(client, "first").calls
    for each in (call_id, "call_1"):
        send_whole(client, [{"role": "tool", "tool_call_id": each, "content": "dark"}])
    assert send_whole(client, "third").text == "Three."
    assert served.upstream.received[-1].body["messages"] == [user("third")]


@pytest.mark.parametrize("before", [[], ["One."]])
@pytest.mark.parametrize("thoughts", ["<think>Hm.</think>", "<think>Hm", " <think>Hm.</think>\n<think>Hm"])
@pytest.mark.parametrize("answer", [[assistant("")], []], ids=["empty", "absent"])
def test_answer_that_has_only_thoughts_may_be_resent_without_them(
    serve: Serve, thoughts: str, before: list[str], answer: list[Any]
) -> None:
    served = serve(*([each] for each in before), [thoughts, End("length")], ["Last."])
    client = served.client("k")
    sent: list[Any] = []
    for text in before:
        sent += [user("zeroth"), assistant(text)]
        send_whole(client, sent[:1])
    send_whole(client, [*sent, user("first")])
    sent += [user("first"), *answer, user("second")]
    assert send_whole(client, sent).state == CONTINUED
    asked = [text for role, text in served.messages("k") if role == "user"]
    assert asked == [*("zeroth" for _ in before), "first", "second"]
