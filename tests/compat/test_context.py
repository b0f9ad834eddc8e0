"""A chat never dies of its own length: the model is shown what was chosen, what its client sent, or after a
refusal less; what is stored stays."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.compat.completions import Way, assistant, both_ways, result, send_whole, system, user
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, LiveServer
from turnledger.server.config.settings import Settings
from turnledger.testing.upstream import Call, Data, Status

LONG = "word " * 200
TOO_LONG = {"message": "Your input exceeds the context window.", "code": "context_length_exceeded"}
STATED = "This model's maximum context length is 400 tokens. However, your messages resulted in 1600 tokens"


def refused(error: dict[str, Any] = TOO_LONG, status: int = 400) -> list[Any]:
    return [Status(status, json.dumps({"error": error}).encode())]


def shown(served: LiveServer, request: int = -1) -> list[str]:
    """Return the texts that the upstream received."""
    messages = served.upstream.received[request].body["messages"]
    return [message["content"] or "calls" for message in messages]


def talk(served: LiveServer, way: Way, turns: int, text: str = "") -> None:
    client = served.client("k")
    for number in range(1, turns + 1):
        way(client, f"q{number}{text}")


def grown(serve: Serve, turns: int, *then: Any, way: Way = send_whole, **options: Any) -> LiveServer:
    """Serve a chat with so many long turns; the upstream continues with the other scripts."""
    served = serve(*[["a"]] * turns, *then, **options)
    talk(served, way, turns, LONG)
    return served


def numbered(served: LiveServer, request: int = -1) -> list[str]:
    return [text.split(" ")[0].removesuffix("word") for text in shown(served, request)]


class TestRefusal:
    @both_ways
    def test_model_that_refuses_the_length_is_asked_once_more_with_less(self, serve: Serve, way: Way) -> None:
        served = grown(serve, 6, refused(), ["late"], way=way)
        before = served.messages("k")
        answer = way(served.client("k"), "next")
        assert answer.text == "late"
        assert answer.headers["x-context-reduced"] == "last=2"
        assert numbered(served) == ["q5", "a", "q6", "a", "next"]
        assert served.messages("k") == [*before, ("user", "next"), ("assistant", "late")]

    @both_ways
    def test_answer_says_so_in_the_details_of_its_turn_and_in_its_replay(
        self, serve: Serve, way: Way
    ) -> None:
        served = grown(serve, 4, refused(), ["late"])
        first, again = (way(served.client("k", Idempotency_Key="one"), "next") for _ in range(2))
        assert again.is_replayed
        assert again.headers["x-context-reduced"] == first.headers["x-context-reduced"] == "last=1"
        details = served.chat_json("k")["turns"][-1]["details"]
        assert details["context_reduced"]["turns"] == 1
        assert 500 < details["context_reduced"]["tokens"] < 700

    @both_ways
    def test_chat_beyond_its_limit_goes_on_without_a_refusal_of_each_turn(
        self, serve: Serve, way: Way
    ) -> None:
        served = serve(*[["a"]] * 4, refused(), *[["a"]] * 12)
        talk(served, way, 16, LONG)
        sizes = [len(json.dumps(each.body)) for each in served.upstream.received]
        assert len(sizes) == 17
        assert max(sizes[5:]) <= sizes[3]
        assert [turn["details"].get("context_reduced") for turn in served.chat_json("k")["turns"][4:]] == [
            served.chat_json("k")["turns"][4]["details"]["context_reduced"]
        ] * 12

    @pytest.mark.parametrize("is_streamed", [False, True], ids=["whole", "streamed"])
    def test_unstored_response_that_is_too_long_is_asked_once_more_with_less(
        self, serve: Serve, is_streamed: bool
    ) -> None:
        served = grown(serve, 6, refused(), ["late"], ["again"])
        before, unstored = served.turns("k"), {"model": MODEL, "store": False}
        create = served.client("k").responses.create
        if is_streamed:
            *_, last = create(input="next", stream=True, **unstored)
            answer = last.response
        else:
            answer = create(input="next", **unstored)
        assert (answer.status, answer.output_text) == ("completed", "late")
        assert numbered(served) == ["q5", "a", "q6", "a", "next"]
        assert create(input="more", **unstored).output_text == "again"
        assert numbered(served) == ["q5", "a", "q6", "a", "more"]
        assert served.turns("k") == before

    def test_unstored_response_with_truncation_disabled_reports_the_refusal(self, serve: Serve) -> None:
        served = grown(serve, 6, refused(), ["late"])
        create = served.client("k").responses.create
        with pytest.raises(openai.BadRequestError, match="context window"):
            create(model=MODEL, input="next", store=False, truncation="disabled")

    def test_unstored_response_answers_calls_of_the_history_it_is_shown(self, serve: Serve) -> None:
        served = serve(*[["a"]] * 4, [Call("look", call_id="call_1")], refused(), ["late"])
        talk(served, send_whole, 5, LONG)
        result = {"type": "function_call_output", "call_id": "call_1", "output": "found"}
        answer = served.client("k").responses.create(model=MODEL, input=[result], store=False)
        assert answer.output_text == "late"
        assert numbered(served)[-3:] == ["q5", "calls", "found"]

    def test_refusal_is_remembered_for_its_chat_and_model_only(self, serve: Serve) -> None:
        served = grown(serve, 4, refused(), *[["a"]] * 3)
        send_whole(served.client("k"), "next")
        answer = send_whole(served.client("k"), "next", model="other")
        assert "x-context-reduced" not in answer.headers
        assert len(shown(served)) == 11

    def test_model_is_shown_all_again_after_a_while(self, serve: Serve) -> None:
        served = grown(serve, 4, refused(), *[["a"]] * 3)
        send_whole(served.client("k"), "next")
        served.app.service.context_memory.SECONDS = 0
        served.app.service.context_memory.note(served.id_of("k"), MODEL, 1)
        assert "x-context-reduced" not in send_whole(served.client("k"), "next").headers

    def test_chat_that_is_still_too_long_with_less_goes_on_with_the_next_requests(self, serve: Serve) -> None:
        served = grown(serve, 16)
        client = served.client("k")
        served.upstream.scripts.extend([refused()] * 2)
        with pytest.raises(openai.BadRequestError):
            send_whole(client, "next")
        least = len(shown(served))
        served.upstream.scripts.append(["late"])
        assert send_whole(client, "next").text == "late"
        assert 1 < len(shown(served)) < least

    def test_smaller_model_that_states_no_size_is_shown_an_eighth(self, serve: Serve) -> None:
        served = grown(serve, 16, refused(), ["late"])
        answer = send_whole(served.client("k"), "next", model="smaller")
        assert answer.headers["x-context-reduced"] == "last=1"

    def test_sizes_in_the_refusal_choose_how_much_less_is_shown(self, serve: Serve) -> None:
        served = grown(serve, 8, refused({"message": STATED}), ["late"])
        answer = send_whole(served.client("k"), "next")
        assert answer.headers["x-context-reduced"] == "last=1"

    @both_ways
    def test_second_refusal_is_reported_and_nothing_is_stored(self, serve: Serve, way: Way) -> None:
        served = grown(serve, 4, refused(), refused(), way=way)
        before = served.turns("k")
        with pytest.raises(openai.BadRequestError) as problem:
            way(served.client("k"), "next")
        assert problem.value.code == "context_length_exceeded"
        assert problem.value.response.headers["x-should-retry"] == "false"
        assert len(served.upstream.received) == 6
        assert served.turns("k") == before

    def test_input_that_is_too_long_alone_is_not_sent_again(self, serve: Serve) -> None:
        served = serve(refused())
        with pytest.raises(openai.BadRequestError):
            send_whole(served.client("k"), LONG)
        assert len(served.upstream.received) == 1

    def test_instructions_and_input_are_never_left_out(self, serve: Serve) -> None:
        served = serve(["a"], refused(), ["b"])
        client = served.client("k")
        send_whole(client, [system("Be brief."), user(LONG)])
        send_whole(client, [system("Be brief."), user(LONG), assistant("a"), user("next")])
        assert shown(served) == ["Be brief.", "next"]

    def test_call_is_never_shown_without_its_result(self, serve: Serve) -> None:
        served = serve([LONG], [Call("look")], refused(), ["b"])
        client = served.client("k")
        send_whole(client, LONG)
        calls = send_whole(client, "look")
        mine = [user(LONG), assistant(LONG), user("look"), calls.message]
        send_whole(client, [*mine, result(calls.calls[0][0], "found")])
        assert shown(served) == ["look", "calls", "found"]

    def test_error_in_the_stream_before_any_output_is_healed(self, serve: Serve) -> None:
        served = grown(serve, 4, [Data(json.dumps({"error": TOO_LONG}).encode())], ["late"])
        with served.client("k").chat.completions.create(
            model=MODEL, messages=[user("next")], stream=True
        ) as chunks:  # type: ignore[call-overload]
            assert "".join(each.choices[0].delta.content or "" for each in chunks) == "late"

    def test_error_after_output_is_not_healed(self, serve: Serve) -> None:
        served = grown(serve, 4, ["beg", Data(json.dumps({"error": TOO_LONG}).encode())])
        with (
            pytest.raises(openai.APIError),
            served.client("k").chat.completions.create(
                model=MODEL, messages=[user("next")], stream=True
            ) as chunks,
        ):  # type: ignore[call-overload]
            list(chunks)
        assert len(served.upstream.received) == 5

    def test_whole_and_streamed_turns_of_the_native_api_are_healed(self, serve: Serve) -> None:
        served = grown(serve, 4, refused(), ["late"], refused(), ["later"])
        turn = {"model": MODEL, "chat": served.id_of("k"), "input": "next"}
        answer = served.http.post("/api/turns", json=turn)
        assert answer.headers["x-context-reduced"] == "last=1"
        assert answer.json()["turn"]["details"]["context_reduced"]["turns"] == 1
        served.http.post("/api/turns", json={**turn, "stream": True})
        assert served.messages("k")[-1] == ("assistant", "later")
        assert "context_reduced" in served.chat_json("k")["turns"][-1]["details"]

    def test_background_turn_is_healed(self, serve: Serve) -> None:
        served = grown(serve, 4, refused(), ["late"])
        turn = {"model": MODEL, "chat": served.id_of("k"), "input": "next", "background": True}
        accepted = served.http.post("/api/turns", json=turn)
        events = served.http.get(f"/api/turns/{accepted.json()['id']}/events").text
        assert '"completed"' in events
        assert served.messages("k")[-1] == ("assistant", "late")

    def test_visitor_with_a_narrowed_token_is_healed(self, serve: Serve) -> None:
        served = grown(serve, 4, refused(), ["late"])
        tokens = served.app.service.host.tokens
        _, token = served.do(tokens.create(scopes=["turns:run"], models=[MODEL]))
        answer = send_whole(served.client("k", Authorization=f"Bearer {token}"), "next")
        assert answer.headers["x-context-reduced"] == "last=1"

    def test_other_refusal_is_not_sent_again(self, serve: Serve) -> None:
        served = serve(["a"], refused({"message": "The image was too large."}))
        talk(served, send_whole, 1)
        with pytest.raises(openai.BadRequestError):
            send_whole(served.client("k"), "next")
        assert len(served.upstream.received) == 2


def limited(context_tokens: int, answer_tokens: int | None = None) -> Settings:
    return Settings(port=0, grace=0.0, context_tokens=context_tokens, answer_tokens=answer_tokens)


class TestChoice:
    @both_ways
    @pytest.mark.parametrize(
        ("value", "texts"),
        [
            ("all", ["q1", "a", "q2", "a", "q3", "a", "next"]),
            ("last=1", ["q3", "a", "next"]),
            ("last=0", ["next"]),
            ("budget=70", ["q3", "a", "next"]),
        ],
    )
    def test_header_chooses_what_the_model_is_shown(
        self, serve: Serve, way: Way, value: str, texts: list[str]
    ) -> None:
        served = serve(*[["a"]] * 4)
        talk(served, way, 3)
        answer = way(served.client("k", X_Context=value), "next")
        assert shown(served) == texts
        assert "x-context-reduced" not in answer.headers
        assert len(served.messages("k")) == 8

    @both_ways
    def test_setting_of_the_server_limits_what_the_model_is_shown(self, serve: Serve, way: Way) -> None:
        served = serve(*[["a"]] * 7, settings=limited(1000, 200))
        talk(served, way, 6, LONG)
        way(served.client("k"), "next")
        assert numbered(served) == ["q5", "a", "q6", "a", "next"]
        assert len(served.messages("k")) == 14

    def test_preview_shows_what_the_setting_leaves(self, serve: Serve) -> None:
        served = grown(serve, 3, settings=limited(800, 100))
        path = f"/api/chats/{served.id_of('k')}/context"
        preview = served.http.get(path).json()
        assert (len(preview["items"]), preview["budget"]) == (4, 700)
        assert len(served.http.get(path, params={"last": 3}).json()["items"]) == 6

    def test_header_takes_precedence_over_the_setting(self, serve: Serve) -> None:
        served = serve(*[["a"]] * 4, settings=limited(1000))
        talk(served, send_whole, 3, LONG)
        send_whole(served.client("k", X_Context="all"), "next")
        assert len(shown(served)) == 7

    def test_length_of_the_answer_and_tools_leave_less_for_the_history(self, serve: Serve) -> None:
        served = serve(*[["a"]] * 5, settings=limited(1200, 1))
        talk(served, send_whole, 3, LONG)
        send_whole(served.client("k"), "next")
        assert len(shown(served)) == 7
        send_whole(served.client("k"), "next", max_tokens=300)
        assert len(shown(served)) < 9
        tool = {"type": "function", "function": {"name": "look", "description": LONG * 3}}
        less = len(shown(served))
        served.upstream.scripts.append(["a"])
        send_whole(served.client("k"), "next", max_tokens=300, tools=[tool])
        assert len(shown(served)) < less

    def test_header_and_setting_apply_to_turns_of_the_native_api(self, serve: Serve) -> None:
        served = serve(*[["a"]] * 7, settings=limited(800, 100))
        talk(served, send_whole, 3, LONG)
        turn = {"model": MODEL, "chat": served.id_of("k"), "input": "next"}
        served.http.post("/api/turns", json=turn)
        assert numbered(served) == ["q2", "a", "q3", "a", "next"]
        served.http.post("/api/turns", json=turn, headers={"X-Context": "last=1"})
        assert numbered(served) == ["next", "a", "next"]
        served.http.post("/api/turns", json={**turn, "context": {}})
        assert len(shown(served)) == 11
        both = served.http.post("/api/turns", json={**turn, "context": {}}, headers={"X-Context": "all"})
        assert both.status_code == 400
        headers = {"X-Context": "last=2"}
        accepted = served.http.post("/api/turns", json={**turn, "background": True}, headers=headers)
        served.http.get(f"/api/turns/{accepted.json()['id']}/events")
        assert numbered(served) == ["next", "a", "next", "a", "next"]

    def test_header_and_setting_apply_to_unstored_responses(self, serve: Serve) -> None:
        served = serve(*[["a"]] * 6, settings=limited(800, 100))
        talk(served, send_whole, 3, LONG)
        for headers, seen in (
            ({}, ["q2", "a", "q3", "a", "next"]),
            ({"X_Context": "last=1"}, ["q3", "a", "next"]),
        ):
            client = served.client("k", **headers)
            assert client.responses.create(model=MODEL, input="next", store=False).output_text == "a"
            assert numbered(served) == seen
        assert len(served.messages("k")) == 6

    def test_image_takes_no_more_of_the_context_than_models_count(self, serve: Serve) -> None:
        served = serve(*[["a"]] * 3, settings=limited(16_000))
        client = served.client("k", X_Conversation_Messages="new")
        url = "data:image/png;base64," + "iVBORw0KGgo" * 100_000
        send_whole(client, "first")
        send_whole(client, [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": url}}]}])
        send_whole(client, "What does it show?")
        assert len(served.upstream.received[-1].body["messages"]) == 5


class TestTrimmed:
    @both_ways
    def test_history_that_its_client_trims_is_shown_as_sent(self, serve: Serve, way: Way) -> None:
        served = serve(*[["a"]] * 8)
        client, mine = served.client("k"), [system("Be brief.")]
        for number in range(8):
            mine.append(user(f"q{number}"))
            sent = [mine[0], *mine[1:][-4:]]
            answer = way(client, sent)
            assert served.upstream.received[-1].body["messages"] == sent
            mine.append(assistant(answer.text))
        assert len(served.messages("k")) == 16

    def test_header_all_shows_what_the_client_trimmed(self, serve: Serve) -> None:
        served = serve(*[["a"]] * 4)
        talk(served, send_whole, 3)
        send_whole(served.client("k", X_Context="all"), [assistant("a"), user("next")])
        assert len(shown(served)) == 7
