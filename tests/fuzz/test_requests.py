"""Random requests cause no 500, errors have one shape, and refused requests change nothing.

Each request that once broke the server has a test of its own below.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.fuzz.application import Application
from tests.fuzz.replies import check_reply
from tests.fuzz.requests import BODIES, CONVERSING, HEADERS, METHODS, QUERIES, paths
from tests.unit.server.asgi import HOST, JSON, Reply

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
def test_chat_completion_with_any_body_is_readable_or_refused_without_change(
    application: Application, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    before = application.everything()
    reply = application.fetch("POST", CHAT, headers, body)
    check_reply(reply)
    if reply.status == 200:
        check_can_be_read(application, reply)
    else:
        after = application.everything()
        if reply.status < 500:
            assert after == before, reply.summary
        else:  # the model failed: there may be a conversation, but no turn
            assert with_turns(after) == with_turns(before)


def with_turns(chats: dict[str, list[str]]) -> dict[str, list[str]]:
    return {chat: turns for chat, turns in chats.items() if turns}


def check_can_be_read(application: Application, reply: Reply) -> None:
    """Check that the chat and the events of an accepted turn can be read."""
    named = dict(reply.headers)
    chat, turn = (named[name].decode() for name in (b"x-conversation-id", b"x-turn-id"))
    for path in (f"/api/chats/{chat}", f"/api/turns/{turn}/events"):
        shown = application.fetch("GET", path, [HOST], b"")
        check_reply(shown, method="GET")
        assert shown.status == 200, shown.summary


@fuzzed
@given(headers=HEADERS, body=BODIES)
def test_chat_completion_with_any_headers_gets_a_well_formed_answer(
    application: Application, headers: list[tuple[bytes, bytes]], body: bytes
) -> None:
    check_reply(application.fetch("POST", CHAT, headers, body))


@fuzzed
@given(draw=st.data(), method=METHODS, headers=HEADERS, body=BODIES, query=QUERIES)
def test_request_to_any_path_by_any_method_gets_a_well_formed_answer_and_changes_nothing_else(
    application: Application,
    draw: st.DataObject,
    method: str,
    headers: list[tuple[bytes, bytes]],
    body: bytes,
    query: bytes,
) -> None:
    path = draw.draw(paths(application.chat, application.turn))
    before = application.everything()
    reply = application.fetch(method, path, headers, body, query)
    check_reply(reply, method=method)
    if reply.status < 400 and method == "DELETE":  # of the known chat
        assert application.fetch("POST", f"{path}/restore", [HOST], b"").status == 200
    if reply.status >= 400 or path not in (CHAT, "/api/chats"):
        assert application.everything() == before


HI = '{"role": "user", "content": "Hi"}'


def send_chat(application: Application, key: str, body: str) -> Reply:
    headers = [HOST, JSON, (b"x-conversation-id", key.encode())]
    return application.fetch("POST", CHAT, headers, body.encode())


@pytest.mark.parametrize("value", ["1e400", "[" * 978 + "]" * 978])
@pytest.mark.parametrize("field", ["tools", "stream_options", "metadata"])
@pytest.mark.parametrize("stream", ["true", "false"])
def test_passthrough_field_with_an_extreme_value_causes_no_internal_error(
    application: Application, field: str, value: str, stream: str
) -> None:
    given = f'{{"x": {value}}}' if field == "stream_options" else value
    body = f'{{"model": "demo", "messages": [{HI}], "stream": {stream}, "{field}": {given}}}'
    reply = send_chat(application, "passed-on", body)
    assert reply.status in (200, 400), reply.summary
    assert b"internal_error" not in reply.body


@pytest.mark.parametrize("depth", [90, 101, 500, 960])
@pytest.mark.parametrize(
    "message",
    [
        '{"role": "user", "content": "Hi", "x": NESTED}',
        '{"role": "user", "content": [{"type": "text", "text": "Hi", "x": NESTED}]}',
        '{"role": "system", "content": [{"type": "text", "text": "Hi", "x": NESTED}]}',
    ],
)
def test_deeply_nested_message_is_refused_or_leaves_the_conversation_readable(
    application: Application, depth: int, message: str
) -> None:
    """A message that could just be read was kept, and made every later turn fail, where the stack was deeper
    by a few calls."""
    nested = "[" * depth + "]" * depth
    body = f'{{"model": "demo", "messages": [{message.replace("NESTED", nested)}, {HI}]}}'
    assert send_chat(application, "nested", body).status == (200 if depth < 100 else 400)
    reply = send_chat(application, "nested", f'{{"model": "demo", "messages": [{HI}]}}')
    assert reply.status == 200, reply.summary


def test_request_with_two_conversation_ids_is_refused_and_changes_nothing(application: Application) -> None:
    before = application.everything()
    twice = [(b"x-conversation-id", b"this"), (b"x-conversation-id", b"that")]
    body = f'{{"model": "demo", "messages": [{HI}]}}'.encode()
    reply = application.fetch("POST", CHAT, [HOST, JSON, *twice], body)
    assert (reply.status, application.everything()) == (400, before)
    assert b"x-conversation-id: repeated" in reply.body


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi\x80"}]}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi", "\x80": 1}]}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "\x80": 1}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "tools": ["\xed\xa0\x80"]}',
    ],
)
def test_body_that_is_not_utf8_is_refused_with_400(application: Application, body: bytes) -> None:
    for named in ([], [(b"x-conversation-id", b"text")]):
        reply = application.fetch("POST", CHAT, [HOST, JSON, *named], body)
        assert (reply.status, b"not UTF-8" in reply.body) == (400, True), reply.summary


@pytest.mark.parametrize(
    "body",
    [
        f'{{"model": "none", "messages": [{HI}]}}',
        f'{{"model": "demo", "messages": [{HI}], "n": 2}}',
        '{"model": "demo", "messages": []}',
        "{",
    ],
)
def test_tokenless_caller_receives_only_the_missing_token_error_once_a_token_exists(body: str) -> None:
    """Admission is cached and checked again at begin: an earlier refusal must reveal no reason or models."""
    with closing(Application()) as application:
        application.new_token()
        for named in ([], [(b"x-conversation-id", b"text")]):
            reply = application.fetch("POST", CHAT, [HOST, JSON, *named], body.encode())
            assert (reply.status, b"missing_token" in reply.body) == (401, True), reply.summary


def test_revoked_token_without_the_scope_gets_401_instead_of_403() -> None:
    """The scopes of the token were cached by the refusal with 403."""
    with closing(Application()) as application:
        _, text = application.new_token(scopes=["chats:read"])
        headers = [HOST, JSON, (b"authorization", b"Bearer " + text.encode())]
        body = f'{{"model": "demo", "messages": [{HI}]}}'.encode()
        assert application.fetch("POST", CHAT, headers, body).status == 403
        assert application.fetch("DELETE", "/api/tokens/self", headers, b"").status == 200
        assert application.fetch("POST", CHAT, headers, body).status == 401


def test_page_limit_of_zero_is_refused_with_400(application: Application) -> None:
    reply = application.fetch("GET", f"/api/chats/{application.chat}", [HOST], b"", b"limit=0")
    assert (reply.status, b"limit must be 1" in reply.body) == (400, True), reply.summary
