"""Checks of every answer."""

from __future__ import annotations

import msgspec

from tests.unit.server.asgi import Reply


def check_reply(reply: Reply, *, method: str = "POST") -> None:
    """Check that an answer is whole, no server error, and if an error, in the shape of the OpenAI API."""
    assert reply.is_whole, reply.summary
    assert 200 <= reply.status < 600, reply.summary
    assert reply.status not in (500, 503), reply.summary
    kinds = [value for name, value in reply.headers if name == b"content-type"]
    for name, value in reply.headers:
        assert not {10, 13, 0} & {*name, *value}, (name, value)
    if reply.status >= 400 and method != "HEAD":
        assert kinds == [b"application/json"], reply.summary
        check_error(msgspec.json.decode(reply.body))
    elif kinds and kinds[0].startswith(b"text/event-stream"):
        check_stream(reply.body)


def check_error(body: object) -> None:
    assert isinstance(body, dict)
    error = body["error"]
    # A revision conflict also has the current chat.
    more = {"chat"} if error["code"] == "revision_conflict" else set()
    assert body.keys() == {"error", *more}
    assert error.keys() == {"message", "type", "param", "code"}
    assert isinstance(error["message"], str)
    assert error["message"]
    assert isinstance(error["type"], str)
    assert isinstance(error["code"], str)
    assert error["code"] != "internal_error"
    assert len(error["message"]) < 2_000


def check_stream(body: bytes) -> None:
    """Check that a stream ends with [DONE] or an error."""
    *_, last, nothing = body.split(b"\n\n")
    assert nothing == b""
    if b"turn.finished" in last or last == b"data: [DONE]":
        return
    check_error(msgspec.json.decode(last.partition(b"data: ")[2]))
