"""Whatever is sent, nothing breaks: no 500, errors in one shape, and what is refused changes nothing."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.asking import HOST, Application, Reply
from tests.fuzz.replies import check_reply
from tests.fuzz.requests import BODIES, CONVERSING, HEADERS, METHODS, QUERIES, paths

CHAT = "/v1/chat/completions"
EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "60"))
"""More of them, and others each time, for a longer run: FUZZ_EXAMPLES=5000."""
fuzzed = settings(
    derandomize="FUZZ_EXAMPLES" not in os.environ,
    max_examples=EXAMPLES,
    database=None,
    deadline=None,
    suppress_health_check=list(HealthCheck),
    print_blob=True,
)


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    application = Application()
    yield application
    application.close()


@fuzzed
@given(headers=CONVERSING, body=BODIES)
def test_chat_completions_in_a_conversation(
    application: Application, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    before = application.everything()
    reply = application.ask("POST", CHAT, headers, body)
    check_reply(reply)
    if reply.status == 200:
        check_can_be_read(application, reply)
    else:
        after = application.everything()
        if reply.status < 500:
            assert after == before, reply.told
        else:  # the model failed: there may be a conversation, but no turn
            assert with_turns(after) == with_turns(before)


def with_turns(chats: dict[str, list[str]]) -> dict[str, list[str]]:
    return {chat: turns for chat, turns in chats.items() if turns}


def check_can_be_read(application: Application, reply: Reply) -> None:
    """What was let in can be shown again."""
    named = dict(reply.headers)
    chat, turn = (named[name].decode() for name in (b"x-conversation-id", b"x-turn-id"))
    for path in (f"/api/chats/{chat}", f"/api/turns/{turn}/events"):
        shown = application.ask("GET", path, [HOST], b"")
        check_reply(shown, method="GET")
        assert shown.status == 200, shown.told


@fuzzed
@given(headers=HEADERS, body=BODIES)
def test_chat_completions_with_any_headers(
    application: Application, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    check_reply(application.ask("POST", CHAT, headers, body))


@fuzzed
@given(draw=st.data(), method=METHODS, headers=HEADERS, body=BODIES, query=QUERIES)
def test_any_path_by_any_method(
    application: Application,
    draw: st.DataObject,
    method: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    query: bytes,
) -> None:
    path = draw.draw(paths(application.chat, application.turn))
    before = application.everything()
    reply = application.ask(method, path, headers, body, query)
    check_reply(reply, method=method)
    if reply.status >= 400 or path != CHAT:
        assert application.everything() == before
