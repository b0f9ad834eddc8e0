"""An upstream failure at any point leaves the history unchanged; the client gets an error and may retry."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import openai
import pytest

from tests.compat.completions import Way, assistant, both_ways, send_streamed, send_whole, user
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, PATIENCE, LiveServer
from turnledger.engine.turn.commit import commit
from turnledger.errors import StoreFull
from turnledger.runners.upstream.upstream import Timeouts
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT, Call, Data, End, Head, Status, Step

SHORT = Timeouts(connect=PATIENCE, first_byte=0.1, between_chunks=0.1)
"""For upstreams that stall: it is the timeout that is waited for."""
LONG = Timeouts(connect=PATIENCE, first_byte=PATIENCE, between_chunks=PATIENCE)
ERROR_OBJECT = b'{"error": {"message": "Overloaded.", "type": "server_error", "code": "overloaded"}}'
SECRET = b'{"error": {"message": "Wrong api_key sk-secret.", "code": "invalid_api_key"}}'


@dataclass
class Failure:
    """A failure of the upstream, and the error that the client receives."""

    name: str
    script: Callable[[], Sequence[Step]]
    code: str
    status: int = 502
    in_band: bool = False
    """Whether a stream has begun by then."""
    timeouts: Timeouts = LONG


FAILURES = [
    Failure("500", lambda: [Status(500)], "model_unavailable"),
    Failure("503", lambda: [Status(503)], "model_unavailable"),
    Failure("401 which is not the client's", lambda: [Status(401, SECRET)], "model_unavailable"),
    Failure("403 which is not the client's", lambda: [Status(403, SECRET)], "model_unavailable"),
    Failure("redirect", lambda: [Status(307, headers={"Location": "/v2"})], "model_unavailable"),
    Failure("400", lambda: [Status(400)], "scripted", 400),
    Failure("404", lambda: [Status(404)], "scripted", 404),
    Failure("422", lambda: [Status(422)], "scripted", 422),
    Failure("429", lambda: [Status(429)], "scripted", 429),
    Failure("cut before the status", lambda: [CUT], "model_unavailable"),
    Failure("cut before the first token", lambda: [Head(), CUT], "model_unavailable"),
    Failure("cut in the middle", lambda: ["Hel", CUT], "model_unavailable", in_band=True),
    Failure("cut before the end", lambda: ["Hello", Data(b""), CUT], "model_unavailable", in_band=True),
    Failure("malformed at once", lambda: [Data(b"{not JSON")], "malformed_answer"),
    Failure("malformed chunk", lambda: ["Hel", Data(b"{not JSON")], "malformed_answer", in_band=True),
    Failure("not a chunk", lambda: ["Hel", Data(b"[1, 2]")], "malformed_answer", in_band=True),
    Failure("error object at once", lambda: [Data(ERROR_OBJECT)], "model_unavailable"),
    Failure("error object", lambda: ["Hel", Data(ERROR_OBJECT)], "model_unavailable", in_band=True),
    Failure("no finish_reason", lambda: ["Hel", End(None)], "malformed_answer", in_band=True),
    Failure("no end at all", lambda: ["Hel", End(None, done=False)], "malformed_answer", in_band=True),
    Failure(
        "call that is no JSON",
        lambda: [Call("f", arguments="{"), End(None)],
        "malformed_answer",
        in_band=True,
    ),
    Failure("stall before the status", lambda: [Gate()], "model_timeout", 504, timeouts=SHORT),
    Failure("stall before the first token", lambda: [Head(), Gate()], "model_timeout", 504, timeouts=SHORT),
    Failure(
        "stall in the middle", lambda: ["Hel", Gate()], "model_timeout", 504, in_band=True, timeouts=SHORT
    ),
]
STATUS_ERRORS: dict[int, type[openai.APIStatusError]] = {
    400: openai.BadRequestError,
    404: openai.NotFoundError,
    422: openai.UnprocessableEntityError,
    429: openai.RateLimitError,
    502: openai.InternalServerError,
    504: openai.InternalServerError,
}
every_failure = pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)


def check_error(error: openai.APIError, failure: Failure, *, in_band: bool) -> None:
    """In-band errors have no status: the stream had begun with a good one."""
    if in_band:
        assert not isinstance(error, openai.APIStatusError)
    else:
        assert type(error) is STATUS_ERRORS[failure.status]
        assert error.status_code == failure.status
    assert error.code == failure.code
    assert "secret" not in str(error.body)


def check_untouched(served: LiveServer, before: bytes) -> None:
    assert served.turns("k") == before
    [attempt] = served.chat_json("k")["attempts"]
    assert attempt["state"] == "failed"
    assert attempt["failure"]["message"]
    [message] = attempt["input"]
    assert message["content"][0]["text"] == "second"


@both_ways
@every_failure
def test_upstream_failure_leaves_the_history_unchanged_and_a_retry_succeeds(
    serve: Serve, failure: Failure, way: Way
) -> None:
    served = serve(["One."], failure.script(), ["Two."], timeouts=failure.timeouts)
    client = served.client("k")
    way(client, "first")
    before = served.turns("k")
    with pytest.raises(openai.APIError) as problem:
        way(client, "second")
    check_error(problem.value, failure, in_band=failure.in_band and way is send_streamed)
    check_untouched(served, before)
    answer = way(client, "second")
    assert (answer.text, answer.state) == ("Two.", "continued")
    seen = served.upstream.received[-1].body["messages"]
    assert seen == [user("first"), assistant("One."), user("second")]
    messages = [("user", "first"), ("assistant", "One."), ("user", "second"), ("assistant", "Two.")]
    assert served.messages("k") == messages


@pytest.mark.parametrize("script", [[Status(500)], ["Hel", CUT]], ids=["status", "cut"])
@both_ways
def test_failed_first_turn_leaves_no_turn(
    serve: Serve, store_url: str, script: Sequence[Step], way: Way
) -> None:
    served = serve(script, ["Hello."], store=store_url)
    client = served.client("k")
    with pytest.raises(openai.APIError):
        way(client, "Hi")
    assert served.turns("k") == b"[]"
    assert way(client, "Hi").text == "Hello."
    assert served.upstream.received[-1].body["messages"] == [user("Hi")]
    assert served.messages("k") == [("user", "Hi"), ("assistant", "Hello.")]


def is_known_by_its_transport(failure: Failure) -> bool:
    """A passed-through answer is not decoded: only its transport can report an error."""
    return not any(isinstance(step, Data | End) for step in failure.script())


@pytest.mark.parametrize("end", [End(None), End(None, done=False)])
def test_stream_without_finish_reason_outside_a_conversation_is_an_error(serve: Serve, end: End) -> None:
    served = serve(['"finish_reason": "stop"', end])  # a text that only looks like it
    with pytest.raises(openai.APIError) as problem:
        send_streamed(served.client(), "Hi")
    assert problem.value.code == "malformed_answer"


def test_finish_reason_cut_off_before_another_chunk_outside_a_conversation_is_an_error(serve: Serve) -> None:
    both = b'{"choices":[{"index":0,"delta":{},"finish_reason":"st\n\ndata: {"id":"x","choices":[]}'
    served = serve(["Hel", Data(both), End(None)])
    body = {"model": MODEL, "stream": True, "messages": [user("Hi")]}
    answer = served.http.post("/v1/chat/completions", json=body).text
    assert '"malformed_answer"' in answer
    assert "[DONE]" not in answer


def test_unknown_finish_reason_is_named_as_sent_also_in_a_chunk_that_repeats_the_role(serve: Serve) -> None:
    chunk = '{"id":"x","choices":[{"index":0,"delta":{"role":"assistant"},"finish_reason":%s}]}'
    served = serve([*(Data((chunk % reason).encode()) for reason in ("null", '"終"')), End(None)])
    with pytest.raises(openai.APIError, match="Unknown finish_reason '終'"):
        send_streamed(served.client("k", X_Conversation_Keep="no"), "Hi")


@pytest.mark.parametrize(
    "failure", [*filter(is_known_by_its_transport, FAILURES)], ids=lambda failure: failure.name
)
@both_ways
def test_upstream_failure_without_conversation_is_reported(serve: Serve, failure: Failure, way: Way) -> None:
    served = serve(failure.script(), timeouts=failure.timeouts)
    with pytest.raises(openai.APIError) as problem:
        way(served.client(), "Hi")
    check_error(problem.value, failure, in_band=failure.in_band and way is send_streamed)


def test_error_event_without_a_conversation_is_passed_through(serve: Serve) -> None:
    served = serve(["Hel", Data(ERROR_OBJECT)])
    with pytest.raises(openai.APIError) as problem:
        send_streamed(served.client(), "Hi")
    assert (problem.value.code, problem.value.message) == ("overloaded", "Overloaded.")


@pytest.mark.parametrize(("reason", "code"), [("error", "model_unavailable"), ("odd", "malformed_answer")])
@both_ways
def test_unkept_turn_with_a_failing_finish_reason_is_an_error(
    serve: Serve, way: Way, reason: str, code: str
) -> None:
    served = serve(["Hel", End(reason)])
    with pytest.raises(openai.APIError) as problem:
        way(served.client(X_Conversation_Keep="no"), "Hi")
    assert problem.value.code == code


def test_upstream_retry_after_is_passed_on(serve: Serve) -> None:
    served = serve([Status(429, headers={"Retry-After": "7"})])
    with pytest.raises(openai.RateLimitError) as problem:
        send_whole(served.client("k"), "Hi")
    assert problem.value.response.headers["retry-after"] == "7"


@both_ways
def test_failed_commit_is_answered_as_an_error(serve: Serve, way: Way) -> None:
    served = serve(["One."], ["Two."], ["Two."])
    client = served.client("k")
    way(client, "first")
    before = served.turns("k")
    served.store.refuse(commit, StoreFull())
    with pytest.raises(openai.APIError) as problem:
        way(client, "second")
    assert isinstance(problem.value, openai.InternalServerError) is (way is send_whole)
    assert problem.value.code == "store_full"
    check_untouched(served, before)
    assert way(client, "second").text == "Two."
    assert len(served.messages("k")) == 4


@pytest.mark.parametrize("policy", ["settle", "keep", "forget"])
def test_on_failure_policy_decides_the_history_after_a_failed_turn(serve: Serve, policy: str) -> None:
    served = serve(["Hel", CUT], ["Next."])
    with pytest.raises(openai.APIError) as problem:
        send_streamed(served.client("k", X_Turn_On_Failure=policy), "Hi")
    assert problem.value.code == "model_unavailable"
    kept = [("user", "Hi"), ("assistant", "Hel")] if policy == "keep" else []
    assert served.messages("k") == kept
    send_whole(served.client("k"), "next")
    assert served.messages("k") == [*kept, ("user", "next"), ("assistant", "Next.")]
