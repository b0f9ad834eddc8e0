"""Tools that the client runs: tool calls commit, and the next request brings their results."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest

from tests.compat.completions import CONTINUED, Way, assistant, both_ways, result, send_whole, user
from tests.compat.conftest import Serve
from turnledger.testing.upstream import Call, End, Status

WEATHER: Any = {
    "type": "function",
    "function": {"name": "weather", "parameters": {"type": "object", "properties": {}}},
}
TWO_CALLS = [
    Call("weather", '{"city": "Rome"}', "call_a", 0),
    Call("weather", '{"city": "Oslo"}', "call_b", 1),
]


@both_ways
@pytest.mark.parametrize("resends", [False, True], ids=["only new", "full history"])
def test_client_tool_calls_commit_and_the_next_request_brings_their_results(
    serve: Serve, store_url: str, way: Way, resends: bool
) -> None:
    served = serve(["Let me look.", *TWO_CALLS], ["Warm and cold."], ["You are welcome."], store=store_url)
    client = served.client("k")
    first = way(client, "Weather?", tools=[WEATHER])
    assert first.finish_reason == "tool_calls"
    assert first.calls == [
        ("call_a", "weather", '{"city": "Rome"}'),
        ("call_b", "weather", '{"city": "Oslo"}'),
    ]
    assert len(served.chat_json("k")["turns"]) == 1
    results = [result("call_a", "30"), result("call_b", "-5")]
    history = [user("Weather?"), first.message] if resends else []
    answer = way(client, [*history, *results], tools=[WEATHER])
    assert (answer.text, answer.state) == ("Warm and cold.", CONTINUED)
    seen = served.upstream.received[-1].body["messages"]
    assert [each["role"] for each in seen] == ["user", "assistant", "tool", "tool"]
    assert [(each["tool_call_id"], each["content"]) for each in seen[2:]] == [
        ("call_a", "30"),
        ("call_b", "-5"),
    ]
    assert [call["id"] for call in seen[1]["tool_calls"]] == ["call_a", "call_b"]
    way(client, [*history, *results, assistant("Warm and cold."), user("Thanks")] if resends else "Thanks")
    assert len(served.chat_json("k")["turns"]) == 3


@both_ways
def test_model_with_a_budget_is_shown_the_question_of_a_long_tool_loop(serve: Serve, way: Way) -> None:
    calls = [[Call("weather", "{}", f"call_{number}")] for number in range(4)]
    served = serve(*calls, ["Warm."])
    client = served.client("k", X_Context="budget=10")
    way(client, "Weather?", tools=[WEATHER])
    for number in range(4):
        answer = way(client, [result(f"call_{number}", "30 " * 40)], tools=[WEATHER])
    assert answer.text == "Warm."
    seen = served.upstream.received[-1].body["messages"]
    assert [each["role"] for each in seen] == ["user", "assistant", "tool"]
    assert (seen[0]["content"], seen[2]["tool_call_id"]) == ("Weather?", "call_3")


@both_ways
def test_client_tool_calls_resent_with_other_ids_and_spacing_continue(serve: Serve, way: Way) -> None:
    served = serve(["Let me look.", *TWO_CALLS], ["Warm and cold."], ["You are welcome."])
    client = served.client("k")
    way(client, "Weather?", tools=[WEATHER])
    calls = [
        {"id": name, "type": "function", "function": {"name": "weather", "arguments": arguments}}
        for name, arguments in (("mine_1", '{ "city":"Rome" }'), ("mine_2", '{"city":\n"Oslo"}'))
    ]
    history = [
        user("Weather?"),
        {"role": "assistant", "content": [{"type": "text", "text": "Let me look."}], "tool_calls": calls},
        {"role": "tool", "tool_call_id": "mine_1", "content": [{"type": "text", "text": "30"}]},
        {"role": "tool", "tool_call_id": "mine_2", "content": "-5"},
    ]
    answer = way(client, history, tools=[WEATHER])
    assert (answer.state, answer.text) == (CONTINUED, "Warm and cold.")
    seen = served.upstream.received[-1].body["messages"]
    assert [call["id"] for call in seen[1]["tool_calls"]] == [each["tool_call_id"] for each in seen[2:]]
    answer = way(client, [*history, assistant("Warm and cold."), user("Thanks")], tools=[WEATHER])
    assert answer.state == CONTINUED
    assert len(served.chat_json("k")["turns"]) == 3


@both_ways
def test_demo_model_calls_client_tools(serve: Serve, way: Way) -> None:
    served = serve()
    client = served.client("k")
    first = way(client, '/call weather {"city": "Rome"}', tools=[WEATHER], model="demo")
    [(call_id, name, arguments)] = first.calls
    assert (name, arguments) == ("weather", '{"city": "Rome"}')
    answer = way(client, [result(call_id, "30 degrees")], tools=[WEATHER], model="demo")
    assert 'The tool returned "30 degrees"' in answer.text


@both_ways
@pytest.mark.parametrize("resends", [False, True], ids=["only new", "full history"])
def test_results_under_the_key_of_their_calls_are_the_next_step(
    serve: Serve, way: Way, resends: bool
) -> None:
    served = serve(["Let me look.", *TWO_CALLS], ["Warm and cold."])
    client = served.client("k", Idempotency_Key="i")
    first = way(client, "Weather?", tools=[WEATHER])
    history = [user("Weather?"), first.message] if resends else []
    step = [*history, result("call_a", "30"), result("call_b", "-5")]
    assert way(client, step, tools=[WEATHER]).text == "Warm and cold."
    assert way(client, step, tools=[WEATHER]).text == "Warm and cold."  # replayed
    assert len(served.chat_json("k")["turns"]) == 2
    assert len(served.upstream.received) == 2


@pytest.mark.parametrize(
    "other", ["More", [result("call_a", "30")], [result("call_a", "30"), result("call_c", "-5")]]
)
def test_other_body_under_the_key_of_open_calls_is_refused(serve: Serve, other: Any) -> None:
    served = serve(["Let me look.", *TWO_CALLS])
    client = served.client("k", Idempotency_Key="i")
    send_whole(client, "Weather?", tools=[WEATHER])
    before = served.turns("k")
    with pytest.raises(openai.UnprocessableEntityError) as refused:
        send_whole(client, other, tools=[WEATHER])
    assert refused.value.code == "idempotency_mismatch"
    assert served.turns("k") == before


@pytest.mark.parametrize("call_id", [[], {}, 5, None])
def test_result_without_a_valid_call_id_under_the_key_of_open_calls_is_refused(
    serve: Serve, call_id: Any
) -> None:
    served = serve([Call("look")])
    client = served.client("k", Idempotency_Key="i")
    asked = send_whole(client, "Hi")
    with pytest.raises(openai.UnprocessableEntityError):
        send_whole(client, [user("Hi"), asked.message, result(call_id, "R")])


@both_ways
@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        ('{"city": "Ro', {"arguments": '{"city": "Ro'}),  # cut by its length
        ('["Rome"]', {"arguments": '["Rome"]'}),
        ('{"n": NaN}', {"arguments": '{"n": NaN}'}),
        ("", {}),
    ],
)
@pytest.mark.parametrize("status", [400, 500])
def test_model_that_refuses_arguments_that_are_no_object_receives_one(
    serve: Serve, way: Way, arguments: str, shown: Any, status: int
) -> None:
    words = {"error": {"message": "Failed to parse tool call arguments as JSON: parse error at line 1"}}
    refusal = Status(status, json.dumps(words).encode())
    call = Call("weather", arguments)
    served = serve([call, End("length")], [refusal], ["Which city?"], [refusal], [refusal])
    client = served.client("k")
    [(call_id, _, received)] = way(client, "Weather?", tools=[WEATHER]).calls
    assert received == arguments
    assert way(client, [result(call_id, "Not JSON.")], tools=[WEATHER]).text == "Which city?"
    first, second = (each.body["messages"][1]["tool_calls"][0] for each in served.upstream.received[-2:])
    assert first["function"]["arguments"] == arguments
    assert json.loads(second["function"]["arguments"]) == shown
    assert second == first | {"function": first["function"] | {"arguments": second["function"]["arguments"]}}
    with pytest.raises(openai.APIError, match="Failed to parse"):
        way(client, "Hello?")
    assert len(served.upstream.received) == 5


@pytest.mark.parametrize(("arguments", "status"), [('{"city": "Ro', 429), ('{"city": "Rome"}', 400)])
def test_model_that_refuses_something_else_is_not_asked_again(
    serve: Serve, arguments: str, status: int
) -> None:
    served = serve([Call("weather", arguments)], [Status(status)])
    client = served.client("k")
    [(call_id, *_)] = send_whole(client, "Weather?").calls
    with pytest.raises(openai.APIStatusError):
        send_whole(client, [result(call_id, "30")])
    assert len(served.upstream.received) == 2
