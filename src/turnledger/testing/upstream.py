"""An HTTP server on the loopback that answers by scripts and can misbehave at any point.

async with ScriptedUpstream(
    ["Hel", "lo"],                              # the first request: two chunks, then a proper end
    [Status(503)],                              # the second
    ["Hel", CUT],                               # the third: the connection is cut after a chunk
) as upstream:
    model = Upstream(upstream.url)
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, TypeAlias

import msgspec

from turnledger.testing.gates import Gate

MODEL = "scripted"


@dataclass(frozen=True)
class Status:
    """Answer with this status and body, and end the script."""

    code: int
    body: bytes = b'{"error": {"message": "As the script says.", "type": "scripted", "code": "scripted"}}'
    headers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Head:
    """Send status 200 and the headers now. Without `chunked`, closing the connection ends the body."""

    content_type: str = "text/event-stream"
    chunked: bool = True


@dataclass(frozen=True)
class Call:
    """Call a tool: id and name first, then the arguments in pieces."""

    name: str
    arguments: str = "{}"
    call_id: str = "call_0"
    index: int = 0
    piece: int = 4


@dataclass(frozen=True)
class Refusal:
    text: str


@dataclass(frozen=True)
class Data:
    """Send an event with any payload."""

    payload: bytes


@dataclass(frozen=True)
class End:
    """End the answer, with or without finish_reason and [DONE]. A script without one ends properly."""

    finish_reason: str | None = "stop"
    done: bool = True


class _Cut(Enum):
    CUT = "cut"


CUT = _Cut.CUT
"""Cuts the connection after flushing it."""
Step: TypeAlias = "str | bytes | Gate | Status | Head | Call | Refusal | Data | End | _Cut"
"""A text is a chunk, bytes are sent unchanged, a gate is waited for."""


@dataclass(frozen=True)
class ReceivedRequest:
    """`headers` have names in lower case; `body` is decoded, if it is JSON."""

    method: str
    path: str
    headers: dict[str, str]
    body: Any


class ScriptedUpstream:
    """Plays one script per request, then always `otherwise`. Chat completions are streamed or whole as
    requested; for other paths, texts and bytes are sent as they are.

    `split` sends pieces of this many bytes, each as one write and one chunk. `/models` lists one model.
    """

    def __init__(
        self,
        *scripts: Sequence[Step],
        otherwise: Sequence[Step] | None = None,
        split: int | None = None,
        max_received: int | None = None,
    ) -> None:
        self.scripts: deque[Sequence[Step]] = deque(scripts)
        self.otherwise = otherwise
        self.received: list[ReceivedRequest] = []
        """Requests in order, except for `/models`, at most `max_received`: each holds a whole history."""
        self.connections = 0
        self._split = split
        self._max_received = max_received
        self._port = 0
        self._server: asyncio.Server | None = None
        self._serving: set[asyncio.Task[None]] = set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/v1"

    async def __aenter__(self) -> ScriptedUpstream:
        await self.listen()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.refuse()

    async def listen(self) -> None:
        """Accept connections, on the same port as before."""
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self._port)
        self._port = self._server.sockets[0].getsockname()[1]

    async def refuse(self) -> None:
        """Refuse new connections and cut existing ones."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            with suppress(asyncio.IncompleteReadError, ConnectionError, _ConnectionEnded):
                while True:
                    await self._answer(await _request(reader), _Wire(writer, self._split))
        except asyncio.CancelledError:
            writer.transport.abort()
        finally:
            self._serving.discard(task)
            writer.close()  # flushes first

    async def _answer(self, request: ReceivedRequest, wire: _Wire) -> None:
        if request.path.endswith("/models"):
            await wire.send_whole(200, msgspec.json.encode({"object": "list", "data": [_model()]}))
            return
        if self._max_received is None or len(self.received) < self._max_received:
            self.received.append(request)
        script = self.scripts.popleft() if self.scripts else self.otherwise
        if script is None:
            script = [Status(500, b'{"error": {"message": "It was asked more often than it has scripts."}}')]
        if not any(isinstance(step, End) for step in script):
            called = any(isinstance(step, Call) for step in script)
            script = [*script, End("tool_calls" if called else "stop")]
        answer = _answer_to(request, wire)
        for step in script:
            if isinstance(step, Gate):
                await step.pass_through()
            elif isinstance(step, Status):
                await wire.send_whole(step.code, step.body, step.headers)
                return
            else:
                await answer.play(step)


def _answer_to(request: ReceivedRequest, wire: _Wire) -> _StreamedAnswer | _WholeAnswer | _RawAnswer:
    if not request.path.partition("?")[0].endswith("/chat/completions"):
        return _RawAnswer(wire)
    return _StreamedAnswer(request, wire) if request.body.get("stream") else _WholeAnswer(request, wire)


class _ConnectionEnded(Exception):
    pass


class _Wire:
    def __init__(self, writer: asyncio.StreamWriter, split: int | None) -> None:
        self._writer = writer
        self._split = split
        self._chunked = True

    async def send_whole(self, status: int, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        fields = {"Content-Type": "application/json", "Content-Length": str(len(body)), **(headers or {})}
        lines = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
        await self._write(f"HTTP/1.1 {status} Scripted\r\n{lines}\r\n".encode() + body)

    async def begin(self, head: Head) -> None:
        self._chunked = head.chunked
        framing = "Transfer-Encoding: chunked" if head.chunked else "Connection: close"
        await self._write(
            f"HTTP/1.1 200 OK\r\nContent-Type: {head.content_type}\r\n{framing}\r\n\r\n".encode()
        )

    async def send(self, body: bytes) -> None:
        size = self._split or len(body)
        for start in range(0, len(body), size):
            piece = body[start : start + size]
            await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if self._chunked else piece)
            if self._split:
                await asyncio.sleep(0)  # lets the reader see the piece alone

    async def end(self) -> None:
        if not self._chunked:
            raise _ConnectionEnded
        await self._write(b"0\r\n\r\n")

    async def cut(self, rest: bytes = b"") -> None:
        if rest:
            await self._write(rest)
        raise _ConnectionEnded

    async def _write(self, piece: bytes) -> None:
        self._writer.write(piece)
        await self._writer.drain()


class _StreamedAnswer:
    def __init__(self, request: ReceivedRequest, wire: _Wire) -> None:
        self._wire = wire
        self._options = request.body.get("stream_options") or {}
        self._usage = _Usage(len(request.body["messages"]))
        self._has_begun = False

    async def play(self, step: str | bytes | Head | Call | Refusal | Data | End | _Cut) -> None:
        if isinstance(step, _Cut):
            await self._wire.cut()
        if not self._has_begun:
            self._has_begun = True
            await self._wire.begin(step if isinstance(step, Head) else Head())
        if isinstance(step, bytes):
            await self._wire.send(step)
        elif isinstance(step, Data):
            await self._event(step.payload)
        elif isinstance(step, End):
            await self._end(step)
        elif isinstance(step, str | Refusal):
            await self._delta({"content": step} if isinstance(step, str) else {"refusal": step.text})
        elif isinstance(step, Call):
            await self._call(step)

    async def _call(self, step: Call) -> None:
        body = {"name": step.name, "arguments": ""}
        first = {"index": step.index, "id": step.call_id, "type": "function", "function": body}
        await self._delta({"tool_calls": [first]})
        for start in range(0, len(step.arguments), step.piece):
            piece = {"arguments": step.arguments[start : start + step.piece]}
            await self._delta({"tool_calls": [{"index": step.index, "function": piece}]})

    async def _delta(self, delta: dict[str, Any], finish_reason: str | None = None) -> None:
        if not self._usage.completion and finish_reason is None:
            delta = {"role": "assistant", **delta}
        self._usage.completion += 1
        await self._chunk([{"index": 0, "delta": delta, "finish_reason": finish_reason}])

    async def _chunk(self, choices: list[dict[str, Any]], **others: Any) -> None:
        chunk = {"id": "chatcmpl-scripted", "object": "chat.completion.chunk", "created": 1, "model": MODEL}
        await self._event(msgspec.json.encode({**chunk, "choices": choices, **others}))

    async def _event(self, payload: bytes) -> None:
        await self._wire.send(b"data: " + payload + b"\n\n")

    async def _end(self, end: End) -> None:
        if end.finish_reason is not None:
            await self._delta({}, end.finish_reason)
            if self._options.get("include_usage"):
                await self._chunk([], usage=self._usage.as_json())
        if end.done:
            await self._event(b"[DONE]")
        await self._wire.end()


class _WholeAnswer:
    """Sends the whole answer at the end of the script. A cut sends part of it."""

    def __init__(self, request: ReceivedRequest, wire: _Wire) -> None:
        self._wire = wire
        self._usage = _Usage(len(request.body["messages"]))
        self._message: dict[str, Any] = {"role": "assistant", "content": None}
        self._raw_body = b""
        self._head: Head | None = None

    async def play(self, step: str | bytes | Head | Call | Refusal | Data | End | _Cut) -> None:
        self._usage.completion += 1
        if isinstance(step, str):
            self._message["content"] = (self._message["content"] or "") + step
        elif isinstance(step, Refusal):
            self._message["refusal"] = step.text
        elif isinstance(step, Call):
            call = {"name": step.name, "arguments": step.arguments}
            calls = self._message.setdefault("tool_calls", [])
            calls.append({"id": step.call_id, "type": "function", "function": call})
        elif isinstance(step, bytes | Data):
            self._raw_body += step if isinstance(step, bytes) else step.payload
        elif isinstance(step, _Cut):
            await self._wire.cut(
                b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n\r\n{"
            )
        elif isinstance(step, Head):
            self._head = step
        else:
            await self._end(self._raw_body or self._completion(step))

    async def _end(self, body: bytes) -> None:
        if self._head is None:
            await self._wire.send_whole(200, body)
            return
        await self._wire.begin(self._head)
        await self._wire.send(body)
        await self._wire.end()

    def _completion(self, end: End) -> bytes:
        choice = {"index": 0, "message": self._message, "finish_reason": end.finish_reason}
        whole = {"id": "chatcmpl-scripted", "object": "chat.completion", "created": 1, "model": MODEL}
        return msgspec.json.encode({**whole, "choices": [choice], "usage": self._usage.as_json()})


class _RawAnswer:
    def __init__(self, wire: _Wire) -> None:
        self._wire = wire
        self._has_begun = False

    async def play(self, step: str | bytes | Head | Call | Refusal | Data | End | _Cut) -> None:
        if not self._has_begun:
            self._has_begun = True
            await self._wire.begin(step if isinstance(step, Head) else Head("application/json"))
        if isinstance(step, _Cut):
            await self._wire.cut()
        elif isinstance(step, str | bytes):
            await self._wire.send(step.encode() if isinstance(step, str) else step)
        elif isinstance(step, End):
            await self._wire.end()


@dataclass
class _Usage:
    """Reports one token per message and per chunk."""

    prompt: int
    completion: int = 0

    def as_json(self) -> dict[str, int]:
        total = self.prompt + self.completion
        return {"prompt_tokens": self.prompt, "completion_tokens": self.completion, "total_tokens": total}


def _model() -> dict[str, Any]:
    return {"id": MODEL, "object": "model", "created": 1, "owned_by": "turnledger"}


async def _request(reader: asyncio.StreamReader) -> ReceivedRequest:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip().split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length", 0)))
    method, path, _ = first.split(" ")
    is_json = headers.get("content-type", "").startswith("application/json")
    return ReceivedRequest(
        method, path, headers, msgspec.json.decode(body) if body and is_json else body or None
    )
