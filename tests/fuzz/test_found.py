"""What the fuzz has found, one test each."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tests.fuzz.asking import HOST, JSON, Application, Reply

HI = '{"role": "user", "content": "Hi"}'


@pytest.fixture(scope="module")
def application() -> Iterator[Application]:
    application = Application()
    yield application
    application.close()


def asked(application: Application, key: str, body: str) -> Reply:
    headers = [HOST, JSON, (b"x-conversation-id", key.encode())]
    return application.ask("POST", "/v1/chat/completions", headers, body.encode())


@pytest.mark.parametrize("value", ["1e400", "[" * 978 + "]" * 978])
@pytest.mark.parametrize("field", ["tools", "stream_options", "metadata"])
@pytest.mark.parametrize("stream", ["true", "false"])
def test_a_field_that_is_passed_on_unread_harms_nobody(
    application: Application, field: str, value: str, stream: str
) -> None:
    given = f'{{"x": {value}}}' if field == "stream_options" else value
    body = f'{{"model": "demo", "messages": [{HI}], "stream": {stream}, "{field}": {given}}}'
    reply = asked(application, "passed-on", body)
    assert reply.status in (200, 400), reply.told
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
def test_no_message_makes_a_conversation_unreadable(
    application: Application, depth: int, message: str
) -> None:
    """A message that could just be read was kept, and made every later turn fail, where the stack was deeper
    by a few calls."""
    nested = "[" * depth + "]" * depth
    body = f'{{"model": "demo", "messages": [{message.replace("NESTED", nested)}, {HI}]}}'
    assert asked(application, "nested", body).status == (200 if depth < 100 else 400)
    reply = asked(application, "nested", f'{{"model": "demo", "messages": [{HI}]}}')
    assert reply.status == 200, reply.told


def test_a_request_that_names_two_conversations_is_in_neither(application: Application) -> None:
    before = application.everything()
    twice = [(b"x-conversation-id", b"this"), (b"x-conversation-id", b"that")]
    body = f'{{"model": "demo", "messages": [{HI}]}}'.encode()
    reply = application.ask("POST", "/v1/chat/completions", [HOST, JSON, *twice], body)
    assert (reply.status, application.everything()) == (400, before)
    assert b"x-conversation-id: given more than once" in reply.body


@pytest.mark.parametrize(
    "body",
    [
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi\x80"}]}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi", "\x80": 1}]}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "\x80": 1}',
        b'{"model": "demo", "messages": [{"role": "user", "content": "Hi"}], "tools": ["\xed\xa0\x80"]}',
    ],
)
def test_a_body_is_text_wherever_one_looks(application: Application, body: bytes) -> None:
    for named in ([], [(b"x-conversation-id", b"text")]):
        reply = application.ask("POST", "/v1/chat/completions", [HOST, JSON, *named], body)
        assert (reply.status, b"not UTF-8" in reply.body) == (400, True), reply.told


@pytest.mark.parametrize(
    "body",
    [
        f'{{"model": "none", "messages": [{HI}]}}',
        f'{{"model": "demo", "messages": [{HI}], "n": 2}}',
        '{"model": "demo", "messages": []}',
        "{",
    ],
)
def test_who_is_not_let_in_any_more_learns_nothing_else(body: str) -> None:
    """Turns are let in from memory, and their begin finds out: one that was refused before its begin was told
    why, and which models there are."""
    with closing(Application()) as application:
        application.new_token()
        for named in ([], [(b"x-conversation-id", b"text")]):
            reply = application.ask("POST", "/v1/chat/completions", [HOST, JSON, *named], body.encode())
            assert (reply.status, b"missing_token" in reply.body) == (401, True), reply.told


def test_a_revoked_token_is_told_so_whatever_it_lacks() -> None:
    """It was remembered what the token may do, and it was told that this is not enough."""
    with closing(Application()) as application:
        _, text = application.new_token(scopes=["chats:read"])
        headers = [HOST, JSON, (b"authorization", b"Bearer " + text.encode())]
        body = f'{{"model": "demo", "messages": [{HI}]}}'.encode()
        assert application.ask("POST", "/v1/chat/completions", headers, body).status == 403
        assert application.ask("DELETE", "/api/tokens/self", headers, b"").status == 200
        assert application.ask("POST", "/v1/chat/completions", headers, body).status == 401


def test_a_page_of_nothing_is_refused(application: Application) -> None:
    reply = application.ask("GET", f"/api/chats/{application.chat}", [HOST], b"", b"limit=0")
    assert (reply.status, b"limit must be 1" in reply.body) == (400, True), reply.told
