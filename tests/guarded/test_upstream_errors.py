"""What an upstream says of an error may name the operator's organisation: narrowed callers learn its kind."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.compat.served import MODEL, Served, serving
from tests.guarded.test_passed_fields import token, visitor
from turnledger.testing.upstream import Data, Status

SECRET = "org-Zk3VeryPrivate"
TOLD = {"message": f"Rate limit reached in organization {SECRET}.", "type": SECRET, "code": SECRET}
REFUSED = [Status(400, json.dumps({"error": TOLD}).encode())]
IN_BAND = [Data(json.dumps({"error": TOLD}).encode())]


@pytest.fixture
def served() -> Iterator[Served]:
    with serving() as served:
        yield served


def say(served: Served, text: str, script: list[Any], path: str, *, stream: bool, key: str | None) -> str:
    served.upstream.scripts.append(script)
    headers = {"Authorization": f"Bearer {text}"}
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}], "stream": stream}
    if path == "/api/turns":
        body = {"model": MODEL, "input": "Hi", "stream": stream, "conversation_key": key}
    elif key is not None:
        headers["X-Conversation-Id"] = key
    answer = served.http.post(path, json=body, headers=headers)
    return f"{answer.headers} {answer.text}"


@pytest.mark.parametrize("script", [REFUSED, IN_BAND], ids=["refused", "in-band"])
@pytest.mark.parametrize("path", ["/v1/chat/completions", "/api/turns"])
def test_narrowed_caller_is_told_nothing_of_what_the_upstream_said(
    served: Served, path: str, script: list[Any]
) -> None:
    everywhere = token(served)
    for number, text in enumerate((visitor(served), token(served, chat_scope="shop"))):
        for stream in (True, False):
            for key in (f"chat {number} {stream}", None if path.startswith("/v1") else "other"):
                told = say(served, text, script, path, stream=stream, key=key)
                assert SECRET not in told
                assert "model_refused" in told or "model_unavailable" in told, told
    assert SECRET in say(served, everywhere, script, path, stream=True, key="mine")


def test_narrowed_caller_reads_no_upstream_text_in_what_is_kept_of_a_failed_turn(served: Served) -> None:
    everywhere, narrow = token(served), token(served, max_tokens=5)
    told = say(served, everywhere, REFUSED, "/api/turns", stream=False, key="k")
    assert SECRET in told
    chat = served.do(served.ledger.conversation(conversation_key="k", owner="ann"))
    [aside] = served.do(chat.attempts())
    paths = (
        f"/api/chats/{chat.id}",
        f"/api/turns/{aside.attempt.id}",
        f"/api/turns/{aside.attempt.id}/events",
    )
    for path in paths:
        for text, is_told in ((everywhere, True), (narrow, False)):
            answer = served.http.get(path, headers={"Authorization": f"Bearer {text}"})
            assert answer.status_code == 200
            assert (SECRET in answer.text) is is_told, path
            assert "model_refused" in answer.text


def test_upstream_text_goes_to_the_log(served: Served, caplog: pytest.LogCaptureFixture) -> None:
    say(served, visitor(served), REFUSED, "/v1/chat/completions", stream=False, key=None)
    [line] = [each for each in caplog.records if each.message == "model_failed"]
    assert SECRET in line.details  # type: ignore[attr-defined]


def test_upstream_that_knows_no_stream_options_is_asked_again_without(served: Served) -> None:
    served.upstream.scripts.extend(
        [[Status(400, b'{"error":{"message":"Unknown field stream_options"}}')], ["Hello."]]
    )
    told = served.http.post(
        "/api/turns",
        json={"model": MODEL, "input": "Hi", "stream": True},
        headers={"Authorization": f"Bearer {visitor(served)}"},
    )
    assert "Hello." in told.text
