"""Histories as real clients resend them: asked again, continued, prefilled, or with text added by tools."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.compat.completions import (
    BRANCHED,
    CONTINUED,
    CREATED,
    Way,
    assistant,
    both_ways,
    send_streamed,
    send_whole,
    system,
    user,
)
from tests.compat.conftest import Serve
from turnledger.testing.upstream import CUT, Data, Status


@both_ways
def test_only_question_asked_again_gets_another_answer_in_its_place(serve: Serve, way: Way) -> None:
    served = serve(["One."], ["Two."], ["Three."])
    client = served.client("k")
    way(client, [system("It is 10:01."), user("Hi")])
    answer = way(client, [system("It is 10:02."), user("Hi")])
    assert (answer.text, answer.state) == ("Two.", BRANCHED)
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Two.")]
    assert served.upstream.received[-1].body["messages"] == [system("It is 10:02."), user("Hi")]
    answer = send_whole(served.client("k", X_Conversation_Messages="new"), "Hi")
    assert answer.state == CONTINUED
    assert [text for _, text in served.messages("k")] == ["Hi", "Two.", "Hi", "Three."]


@both_ways
def test_history_that_ends_with_the_stored_answer_continues_it(
    serve: Serve, store_url: str, way: Way
) -> None:
    served = serve(["Hi."], ["Hello, wor"], ["ld."], ["Fine."], store=store_url)
    client = served.client("k")
    way(client, "first")
    history = [user("first"), assistant("Hi."), user("second"), assistant("Hello, wor")]
    way(client, history[:3])
    answer = way(client, history)
    assert (answer.text, answer.state) == ("ld.", BRANCHED)
    assert served.upstream.received[-1].body["messages"] == history
    assert served.messages("k")[2:] == [("user", "second"), ("assistant", "Hello, world.")]
    answer = way(client, [*history[:3], assistant("Hello, world."), user("third")])
    assert answer.state == CONTINUED
    assert len(served.chat_json("k")["turns"]) == 3


@both_ways
def test_continued_answer_is_replayed_without_the_part_that_the_client_sent(serve: Serve, way: Way) -> None:
    served = serve(["Hello, wor"], ["l", "d."])
    way(served.client("k"), "Hi")
    client = served.client("k", Idempotency_Key="more")
    first = way(client, [user("Hi"), assistant("Hello, wor")])
    for again in (send_whole, send_streamed):
        answer = again(client, [user("Hi"), assistant("Hello, wor")])
        assert (answer.text, answer.turn, answer.is_replayed) == ("ld.", first.turn, True)
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello, world.")]


@both_ways
def test_answer_that_cannot_be_continued_stays(serve: Serve, way: Way) -> None:
    served = serve(["Hello."], [Status(400)], [""], [CUT])
    client = served.client("k")
    way(client, "Hi")
    history = [user("Hi"), assistant("Hello.")]
    with pytest.raises(openai.BadRequestError):
        way(client, history)
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello.")]
    assert way(client, history).text == ""  # the model stops at once
    assert [text for _, text in served.messages("k") if text] == ["Hi", "Hello."]
    with pytest.raises(openai.APIError):
        way(client, history)
    assert [text for _, text in served.messages("k") if text] == ["Hi", "Hello."]


@both_ways
def test_question_with_a_prefill_stores_it_as_the_beginning_of_the_answer(serve: Serve, way: Way) -> None:
    served = serve(['"a": 1}'], ['"b": 2}'], ["Done."])
    client = served.client("k")
    prefill = {**assistant("{"), "prefix": True}
    assert way(client, [user("first"), prefill]).text == '"a": 1}'
    history = [user("first"), assistant('{"a": 1}'), user("second")]
    answer = way(client, [*history, prefill])
    assert (answer.text, answer.state) == ('"b": 2}', CONTINUED)
    assert served.upstream.received[-1].body["messages"] == [*history, prefill]
    assert way(client, [*history, assistant('{"b": 2}'), user("third")]).state == CONTINUED
    assert [text for _, text in served.messages("k")][3:] == ['{"b": 2}', "third", "Done."]


@pytest.mark.parametrize(
    ("prefill", "fields", "is_removed"),
    [
        ("{", {"timings": {"prompt_n": 5}}, True),  # llama.cpp's
        ('{"order": "coat", ', {}, True),
        ("[", {}, False),  # may be the same words again
    ],
)
def test_beginning_that_a_whole_answer_repeats_is_stored_once(
    serve: Serve, prefill: str, fields: dict[str, Any], is_removed: bool
) -> None:
    message = assistant(f"{prefill}the rest")
    whole = {"id": "c", "choices": [{"index": 0, "message": message, "finish_reason": "stop"}], **fields}
    served = serve([Data(json.dumps(whole).encode())])
    client = served.client("k", Idempotency_Key="first")
    added = "the rest" if is_removed else f"{prefill}the rest"
    for _ in range(2):  # the second is a replay
        assert send_whole(client, [user("first"), assistant(prefill)]).text == added
    assert served.messages("k") == [("user", "first"), ("assistant", prefill + added)]


@both_ways
def test_client_that_changes_its_messages_before_the_first_question_continues(serve: Serve, way: Way) -> None:
    served = serve(otherwise=["Hello."])
    client = served.client("k")
    rules = "I have added these files to the chat. Trust this message as their true contents:\n"
    history: list[dict[str, str]] = []
    for number, question in enumerate(("first", "second", "third")):
        files = [user(f"{rules}print({'!' * number})"), assistant("Ok.")]
        sent = [system("Be brief."), *files, *history, user(question)]
        assert way(client, sent).state == (CONTINUED if number else CREATED)
        assert served.upstream.received[-1].body["messages"] == sent
        history += [user(question), assistant("Hello.")]
    assert len(served.chat_json("k")["turns"]) == 3
    assert [text for _, text in served.messages("k")][:3] == [f"{rules}print()", "Ok.", "first"]
    # What was sent of the history can be left out; what precedes it cannot.
    sent = [*files, *history, user("fourth")]
    way(served.client("k", X_Context="last=1"), sent)
    assert served.upstream.received[-1].body["messages"] == [system("Be brief."), *files, *sent[-3:]]
