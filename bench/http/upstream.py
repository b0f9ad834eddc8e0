"""An upstream that costs as little as possible: canned answers, whole or in chunks sent one by one.

`python -m bench.http.upstream` prints its port. `/v1/chat/completions` answers at once,
`/held/chat/completions` with one chunk, and the rest when the connection is closed. Below `/paced` a stream
begins with one chunk, and has another one for each `+` that any connection sends. Below `/thinking` answers
begin with inline reasoning, and below `/calling` questions are answered with a call; both are not streamed.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any, cast

import uvloop

CHUNKS = 50
_PIECE = b'{"id":"chatcmpl-1","object":"chat.completion.chunk","created":1,"model":"m","choices":[%s]}'
_WORD = _PIECE % b'{"index":0,"delta":{"content":"word "},"finish_reason":null}'
_LAST = _PIECE % b'{"index":0,"delta":{},"finish_reason":"stop"}'
ANSWER = "word " * CHUNKS
THOUGHTS = "<think>" + "thought " * CHUNKS + "</think>\n\n"
CALL = {"id": "call_1", "type": "function", "function": {"name": "find_order", "arguments": '{"number":1}'}}
_STREAM_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def _whole(finish_reason: str, **message: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish_reason}
    usage = {"prompt_tokens": 1, "completion_tokens": 50, "total_tokens": 51}
    head = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "m"}
    body = json.dumps({**head, "choices": [choice], "usage": usage}, separators=(",", ":")).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


_WHOLE_ANSWER = _whole("stop", content=ANSWER)
_THOUGHT_ANSWER = _whole("stop", content=THOUGHTS + ANSWER)
_CALL_ANSWER = _whole("tool_calls", content=None, tool_calls=[CALL])


def _chunk(payload: bytes) -> bytes:
    event = b"data: " + payload + b"\n\n"
    return b"%x\r\n%s\r\n" % (len(event), event)


_WORD_CHUNK = _chunk(_WORD)
_END = _chunk(_LAST) + _chunk(b"[DONE]") + b"0\r\n\r\n"


class Upstream(asyncio.Protocol):
    paced: Upstream | None = None
    """The connection that waits for the next chunk."""

    def __init__(self) -> None:
        self._left = 0
        self._received = b""
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        if data.startswith(b"+"):
            for _ in data:
                if Upstream.paced is not None:
                    Upstream.paced._send_chunk()
            return
        self._received += data
        head, found, body = self._received.partition(b"\r\n\r\n")
        if not found:
            return
        _, _, length = head.lower().partition(b"content-length:")
        if len(body) < int(length.partition(b"\r\n")[0]):
            return
        self._received = b""
        if b"/calling/" in head and body.rfind(b'"role"') == body.rfind(b'"role":"user"'):
            self._transport.write(_CALL_ANSWER)
            return
        if b'"stream":true' not in body.replace(b'": ', b'":'):
            self._transport.write(_THOUGHT_ANSWER if b"/thinking/" in head else _WHOLE_ANSWER)
            return
        self._transport.write(_STREAM_HEAD)
        self._left = CHUNKS
        if b"/held/" in head:
            self._send_chunk()
        elif b"/paced/" in head:
            Upstream.paced = self
            self._send_chunk()
        else:
            self._loop.call_soon(self._send_chunks)

    def _send_chunk(self) -> None:
        self._transport.write(_WORD_CHUNK if self._left else _END)
        self._left -= 1
        if self._left < 0:
            Upstream.paced = None

    def _send_chunks(self) -> None:
        # One write per chunk, like a model's tokens; a busy receiver finds several at once.
        if self._left >= 0 and not self._transport.is_closing():
            self._send_chunk()
            self._loop.call_soon(self._send_chunks)


async def _serve() -> None:
    server = await asyncio.get_running_loop().create_server(Upstream, "127.0.0.1", 0, backlog=4096)
    print(server.sockets[0].getsockname()[1], flush=True)
    await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    uvloop.run(_serve())
