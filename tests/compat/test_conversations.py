"""Conversations by header: created, continued, branched and refused, and requests without one."""

from __future__ import annotations

from urllib.parse import quote

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
from tests.compat.live_server import MODEL, LiveServer
from turnledger.testing.upstream import Data, Refusal

UNKNOWN = "conv_01a1e0bc393673fba6a314494b850c72"


def seen(served: LiveServer) -> list[dict[str, str]]:
    """What the model was shown last."""
    messages: list[dict[str, str]] = served.upstream.received[-1].body["messages"]
    return messages


@both_ways
def test_conversation_key_creates_and_then_continues_a_chat(serve: Serve, store_url: str, way: Way) -> None:
    served = serve(["One."], ["Two."], ["Three."], store=store_url)
    first = way(served.client("user-42/support"), "first")
    assert (first.state, first.conversation) == (CREATED, served.id_of("user-42/support"))
    second = way(served.client("user-42/support"), "second")
    assert (second.state, second.conversation) == (CONTINUED, first.conversation)
    by_id = way(served.client(first.conversation), "third")
    assert (by_id.state, by_id.conversation) == (CONTINUED, first.conversation)
    turns = served.chat_json("user-42/support")["turns"]
    assert [turn["id"] for turn in turns] == [each.turn for each in (first, second, by_id)]
    assert [each.id for each in (first, second, by_id)] == [turn["id"] for turn in turns]
    assert first.headers["x-request-id"]


def test_conversation_key_may_be_any_text(serve: Serve) -> None:
    served = serve(otherwise=["Hello."])
    send_whole(served.client(quote("büro/ß €")), "Hi")
    assert served.messages("büro/ß €") == [("user", "Hi"), ("assistant", "Hello.")]


def test_unknown_conversation_id_is_not_found_without_a_model_call(serve: Serve) -> None:
    served = serve()
    with pytest.raises(openai.NotFoundError) as problem:
        send_whole(served.client(UNKNOWN), "Hi")
    assert problem.value.code == "conversation_not_found"
    assert served.upstream.received == []
    assert served.http.get(f"/api/chats/{UNKNOWN}").status_code == 404


@both_ways
def test_deleted_conversation_is_gone_and_its_key_is_free(serve: Serve, store_url: str, way: Way) -> None:
    served = serve(otherwise=["Hello."], store=store_url)
    answer = way(served.client("k"), "Hi")
    served.do(served.chat("k").delete())
    with pytest.raises(openai.APIStatusError) as problem:
        way(served.client(answer.conversation), "again")
    assert (problem.value.status_code, problem.value.code) == (410, "conversation_deleted")
    assert served.http.get(f"/api/chats/{answer.conversation}").status_code == 410
    assert way(served.client("k"), "Hi").state == CREATED


def test_expired_conversation_is_answered_410_by_id_and_by_key(serve: Serve, store_url: str) -> None:
    served = serve(otherwise=["Hello."], store=store_url)
    chat = served.do(served.ledger.conversation(conversation_key="k", expires_after=60))
    served.clock.ahead_ms = 61_000
    for name in (chat.id, "k"):
        with pytest.raises(openai.APIStatusError) as problem:
            send_whole(served.client(name), "Hi")
        assert (problem.value.status_code, problem.value.code) == (410, "conversation_expired")
    assert served.upstream.received == []


def test_expect_continued_does_not_create_a_conversation(serve: Serve) -> None:
    served = serve(otherwise=["Hello."])
    expecting = served.client("k", X_Conversation_Expect="continued")
    with pytest.raises(openai.NotFoundError) as problem:
        send_whole(expecting, "Hi")
    assert problem.value.code == "conversation_not_found"
    assert served.do(served.ledger.list()).chats == ()
    send_whole(served.client("k"), "Hi")
    assert send_whole(expecting, "again").state == CONTINUED
    with pytest.raises(openai.BadRequestError, match="continued"):
        send_whole(served.client("k", X_Conversation_Expect="created"), "Hi")


class TestMessages:
    """The whole history each time, or only what is new."""

    @both_ways
    def test_resent_history_continues(self, serve: Serve, store_url: str, way: Way) -> None:
        served = serve(["One."], ["Two."], ["Three."], store=store_url)
        client, messages = served.client("k"), [system("Be brief.")]
        for text in ("first", "second", "third"):
            messages.append(user(text))
            answer = way(client, messages)
            assert answer.state == (CREATED if text == "first" else CONTINUED)
            messages.append(answer.message)
        assert seen(served) == messages[:-1]
        assert len(served.chat_json("k")["turns"]) == 3

    @both_ways
    def test_edited_history_branches(self, serve: Serve, store_url: str, way: Way) -> None:
        served = serve(["One."], ["Two."], ["Other."], ["Next."], store=store_url)
        client = served.client("k")
        way(client, "first")
        way(client, "second")
        answer = way(client, [user("first"), assistant("One."), user("edited")])
        assert answer.state == BRANCHED
        assert seen(served) == [user("first"), assistant("One."), user("edited")]
        way(client, "next")
        assert [text for _, text in served.messages("k")] == [
            "first", "One.", "edited", "Other.", "next", "Next."
        ]  # fmt: skip

    def test_blank_input_creates_no_conversation(self, serve: Serve) -> None:
        served = serve()
        with pytest.raises(openai.BadRequestError):
            send_whole(served.client("k"), " ")
        assert served.do(served.ledger.list()).chats == ()


class TestParameters:
    """Request fields beside the messages."""

    @both_ways
    @pytest.mark.parametrize("conversation", ["k", None])
    def test_unknown_request_fields_reach_the_upstream(
        self, serve: Serve, way: Way, conversation: str | None
    ) -> None:
        served = serve(["One."])
        way(served.client(conversation), "Hi", temperature=0.5, extra_body={"made_up": {"deep": [1, None]}})
        body = served.upstream.received[0].body
        assert (body["temperature"], body["made_up"]) == (0.5, {"deep": [1, None]})
        assert "authorization" not in served.upstream.received[0].headers

    @pytest.mark.parametrize("conversation", ["k", None])
    def test_unknown_answer_fields_reach_the_client(self, serve: Serve, conversation: str | None) -> None:
        chunk = (
            b'{"id":"x","object":"chat.completion.chunk","created":1,"model":"m","made_up":{"a":[1]},'
            b'"choices":[{"index":0,"delta":{"role":"assistant","content":"Hi","odd":true},'
            b'"finish_reason":null}]}'
        )
        whole_answer = (
            b'{"id":"x","object":"chat.completion","created":1,"model":"m","made_up":{"a":[1]},"choices":'
            b'[{"index":0,"message":{"role":"assistant","content":"Hi","odd":true},"finish_reason":"stop"}]}'
        )
        served = serve([Data(chunk)], [Data(whole_answer)])
        client = served.client(conversation)
        with client.chat.completions.create(model=MODEL, messages=[user("Hi")], stream=True) as chunks:
            first, *_ = chunks
        assert first.made_up == {"a": [1]}
        assert first.choices[0].delta.odd is True
        answer = client.chat.completions.create(model=MODEL, messages=[user("Hi again")])
        assert answer.made_up == {"a": [1]}
        assert answer.choices[0].message.odd is True

    @pytest.mark.parametrize("conversation", ["k", None])
    def test_usage_is_sent_on_request(self, serve: Serve, conversation: str | None) -> None:
        served = serve(otherwise=["One."])
        client = served.client(conversation)
        assert send_streamed(client, "Hi").usage is None
        answer = send_streamed(client, "Hi again", stream_options={"include_usage": True})
        assert answer.usage.total_tokens == answer.usage.prompt_tokens + answer.usage.completion_tokens > 0
        assert send_whole(client, "Hi once more").usage.total_tokens > 0

    @both_ways
    def test_refusal_is_stored_and_returned_as_a_refusal(self, serve: Serve, way: Way) -> None:
        served = serve([Refusal("I will not.")], ["Well."])
        client = served.client("k")
        assert way(client, "Do it").refusal == "I will not."
        way(client, "Please")
        assert seen(served)[1]["role"] == "assistant"
        assert "I will not." in str(seen(served)[1])

    def test_request_without_a_conversation_stores_no_chat(self, serve: Serve) -> None:
        served = serve(otherwise=["One."])
        for way in (send_whole, send_streamed):
            answer = way(served.client(), "Hi")
            assert answer.id == "chatcmpl-scripted"
            assert "x-conversation-id" not in answer.headers
        assert served.do(served.ledger.list()).chats == ()


class TestModels:
    def test_models_are_listed_and_retrieved(self, serve: Serve) -> None:
        served = serve()
        client = served.client()
        assert [model.id for model in client.models.list()] == ["demo", "scripted"]
        assert client.models.retrieve("scripted").id == "scripted"
        with pytest.raises(openai.NotFoundError) as problem:
            client.models.retrieve("absent")
        assert problem.value.code == "model_not_found"
