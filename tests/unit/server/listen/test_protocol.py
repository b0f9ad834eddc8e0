"""HTTP protocol limits: unterminated headers cannot fill the memory, and slow readers are distinguished from
stalled ones."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from tests.unit.server.processes import ServerProcess, read_until, request, rest_of, started
from turnledger.server.config.settings import ServerLimits
from turnledger.server.listen.protocol import HEAD_BYTES, HEAD_FIELDS, BoundedHttp, bounded_http

STREAMING = "tests.unit.server.streaming_server"


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    """A server that keeps working whatever these clients send, and logs none of it."""
    with started(STREAMING, "0") as server:
        yield server
        assert server.end(signal.SIGTERM)[0] == 0
        assert "secret" not in server.log


@pytest.mark.parametrize("begin", [b"GET /", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "])
def test_unterminated_headers_close_the_connection(server: ServerProcess, begin: bytes) -> None:
    with server.connect() as connection:
        connection.sendall(begin)
        sent = 0
        try:
            while sent < 100 * HEAD_BYTES:
                connection.sendall(b"x" * 65536)
                sent += 65536
        except ConnectionError:
            pass
        assert sent < 100 * HEAD_BYTES
    server.wait_for("head_too_large")
    assert '{"status":"ok"}' in server.get("/healthz")


def test_large_headers_of_many_requests_on_one_connection_are_accepted(server: ServerProcess) -> None:
    with server.connect() as connection:
        for _ in range(40):
            connection.sendall(request("/healthz", f"X-Long: {'x' * 50_000}"))
            read_until(connection, '{"status":"ok"}')
        connection.sendall(request("/healthz", "Connection: close"))
        assert '{"status":"ok"}' in rest_of(connection)


def test_connect_request_is_refused(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert "400 Bad Request" in rest_of(connection)


def test_answer_does_not_name_the_server_or_repeat_a_header(server: ServerProcess) -> None:
    head = server.get("/healthz").partition("\r\n\r\n")[0].lower().split("\r\n")
    names = [line.partition(":")[0] for line in head[1:]]
    assert "server" not in names
    assert len(set(names)) == len(names)
    assert "403 forbidden" in server.get("/v1/models", "Via: proxy").lower()
    assert "403 forbidden" in server.get("/v1/models", "X-Forwarded-For: 1.2.3.4").lower()


def test_malformed_http_is_refused_and_logged_without_its_text(server: ServerProcess) -> None:
    with server.connect() as connection:
        connection.sendall(b"secret \x1b[2J\r\n\r\n")
        assert rest_of(connection).startswith("HTTP/1.1 400")
    server.wait_for("The request is not valid HTTP")


@pytest.mark.parametrize("chunked", [False, True])
@pytest.mark.parametrize(("kind", "refused"), [("application/json", "413"), ("text/plain", "415")])
def test_client_that_sends_an_oversized_body_still_receives_the_error(
    server: ServerProcess, kind: str, chunked: bool, refused: str
) -> None:
    size = 20_000_000
    length = "Transfer-Encoding: chunked" if chunked else f"Content-Length: {size}"
    head = ["POST /echo HTTP/1.1", "Host: localhost", f"Content-Type: {kind}", length, "", ""]
    with server.connect() as connection:
        connection.sendall("\r\n".join(head).encode())
        if chunked:
            connection.sendall(b"%x\r\n" % size)
        connection.sendall(b"x" * size)  # as clients do that look at the answer only then
        if chunked:
            connection.sendall(b"\r\n0\r\n\r\n")
        assert read_until(connection, "}}").startswith(f"HTTP/1.1 {refused} ")
        connection.sendall(request("/healthz", "Connection: close"))
        assert '{"status":"ok"}' in rest_of(connection)


JAVA = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ")


def test_upgrade_offer_is_answered_in_http_1_1_wherever_the_body_is_split() -> None:
    body = '{"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}'
    head = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
    raw = "\r\n".join(["POST /v1/chat/completions HTTP/1.1", *head, *JAVA, "", body]).encode()
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        for cut in (0, 1, 4):
            with server.connect() as connection:
                connection.sendall(raw[: len(raw) - cut])
                if cut:
                    connection.sendall(raw[-cut:])
                assert "You said" in read_until(connection, "total_tokens"), cut
                # Nor is what follows lost, in one piece or in many.
                connection.sendall(request("/healthz", *JAVA) + request("/nothing", *JAVA))
                assert '{"status":"ok"}' in read_until(connection, "unknown_url"), cut
                connection.sendall(request("/healthz", "Connection: close"))
                assert '{"status":"ok"}' in rest_of(connection), cut
        code, _, log = server.end(signal.SIGTERM)
        assert (code, "WebSocket" in log) == (0, False)


def impatient(folder: Path) -> tuple[str, ...]:
    """A command for a server with short waits."""
    config = folder / "turnledger.toml"
    config.write_text("[server.limits]\nhead_wait = 0.05\nsend_wait = 0.05\nidle_wait = 0.05\n")
    return "turnledger", "serve", "--port", "0", "--store", "memory:", "--config", str(config)


def test_connection_timeouts_of_the_settings_apply_to_a_running_server(tmp_path: Path) -> None:
    with started(*impatient(tmp_path)) as server:
        with server.connect() as connection:
            assert rest_of(connection) == ""
        with server.connect() as connection:
            connection.sendall(b"GET /healthz HTTP/1.1\r\nHost: ")
            assert "408 Request Timeout" in rest_of(connection)
        with server.connect() as connection:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            # More than the kernel buffers for a client that does not read.
            connection.sendall(request("/openapi.json") * 200)
            server.wait_for('"client_does_not_read"')
        assert '{"status":"ok"}' in server.get("/healthz")
        code, _, log = server.end(signal.SIGTERM)
    assert code == 0
    assert "Traceback" not in log


class Wire(asyncio.Transport):
    """A transport that buffers its output until the client reads."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting = 0
        self.is_aborted = False

    def write(self, data: Any) -> None:
        self.waiting += len(data)

    def get_write_buffer_size(self) -> int:
        return self.waiting

    def is_closing(self) -> bool:
        return self.is_aborted

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None: ...


class Timers:
    """A loop of which only the timers are used."""

    def __init__(self) -> None:
        self.set: list[tuple[float, Callable[[], object]]] = []

    def call_later(self, seconds: float, act: Callable[..., object], *given: object) -> asyncio.TimerHandle:
        timer = seconds, lambda: act(*given)
        self.set.append(timer)

        class Handle:
            def cancel(_) -> None:
                if timer in self.set:
                    self.set.remove(timer)

        return Handle()  # type: ignore[return-value]

    def run_out(self, seconds: float) -> None:
        """The timer that was set for so long has run out."""
        timer = next(each for each in self.set if each[0] == seconds)
        self.set.remove(timer)
        timer[1]()


def connected() -> tuple[BoundedHttp, Wire, Timers]:
    async def nothing(scope: object, receive: object, send: object) -> None: ...

    config = uvicorn.Config(nothing, ws="none", lifespan="off", log_config=None)
    timers, wire = Timers(), Wire()
    kind = bounded_http(ServerLimits(send_wait=7))
    protocol = kind(config, ServerState(), {}, _loop=timers)  # type: ignore[arg-type]
    protocol.connection_made(wire)
    return protocol, wire, timers


def test_slow_reader_is_kept_while_it_makes_progress_and_then_aborted() -> None:
    protocol, wire, timers = connected()
    wire.write(b"x" * 100_000)
    protocol.pause_writing()
    for left in (90_000, 70_000, 69_999):
        wire.waiting = left
        timers.run_out(7)
        assert not wire.is_aborted
    timers.run_out(7)
    assert wire.is_aborted


def test_unread_rest_of_a_finished_answer_is_aborted_after_the_read_timeout() -> None:
    protocol, wire, timers = connected()
    wire.write(b"x" * 100_000)
    protocol.pause_writing()
    wire.waiting = 10_000
    protocol.resume_writing()  # nothing is being answered
    timers.run_out(7)
    assert wire.is_aborted


def test_reader_that_has_read_everything_is_not_aborted() -> None:
    protocol, wire, timers = connected()
    wire.write(b"x" * 100_000)
    protocol.pause_writing()
    wire.waiting = 0
    protocol.resume_writing()
    assert [seconds for seconds, _ in timers.set] == [ServerLimits().idle_wait]
    protocol.connection_lost(None)
    assert timers.set == []
    assert not wire.is_aborted


class HeaderRecorder:
    """An application that reads each request to its end, and keeps its headers."""

    def __init__(self) -> None:
        self.headers: list[list[tuple[bytes, bytes]]] = []

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        while (message := await receive()).get("more_body"):
            pass
        if message["type"] == "http.disconnect":
            return
        self.headers.append(scope["headers"])
        await send({"type": "http.response.start", "status": 204, "headers": []})
        await send({"type": "http.response.body", "body": b""})


async def exchange(app: ASGIApp, *pieces: bytes) -> bytes:
    """Send pieces to a server with this application on one connection, and return all that it answers."""
    config = uvicorn.Config(app, ws="none", lifespan="off", log_config=None, access_log=False)
    loop, state = asyncio.get_running_loop(), ServerState()
    kind = bounded_http(ServerLimits(idle_wait=60))
    server = await loop.create_server(lambda: kind(config, state, {}), "127.0.0.1", 0)
    async with server:
        reader, writer = await asyncio.open_connection(*server.sockets[0].getsockname())
        try:
            for piece in pieces:
                writer.write(piece)
                with suppress(ConnectionError):
                    await writer.drain()
            with suppress(ConnectionError):
                return await reader.read()
            return b""
        finally:
            writer.close()


POST = b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
LAST = b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def test_trailers_named_like_headers_are_dropped() -> None:
    app = HeaderRecorder()
    trailers = b"Authorization: Bearer x\r\nHost: elsewhere\r\nUpgrade: h2c\r\nConnection: upgrade\r\n"
    answer = await exchange(app, POST + b"\r\n1\r\nx\r\n0\r\n" + trailers + b"\r\n" + LAST)
    assert answer.count(b"204 No Content") == 2
    assert app.headers[0] == [(b"host", b"localhost"), (b"transfer-encoding", b"chunked")]


@pytest.mark.parametrize(
    "trailers",
    [
        [b"a: b\r\n" * (HEAD_FIELDS + 1)],
        [b"a: " + b"b" * HEAD_BYTES + b"\r\n"],
        [b"a: ", *[b"b" * 65536] * 64],
    ],
    ids=["many", "long", "without end"],
)
async def test_trailers_above_the_size_limit_end_the_request(trailers: list[bytes]) -> None:
    app = HeaderRecorder()
    answer = await exchange(app, POST + b"\r\n1\r\nx\r\n0\r\n", *trailers, b"\r\n", LAST)
    assert answer.startswith(b"HTTP/1.1 431 Request Header Fields Too Large\r\n") or not answer
    assert app.headers == []


@pytest.mark.parametrize(
    "head",
    [
        b"a: b\r\n" * (HEAD_FIELDS - 1),
        b"a: b\r\n" * (HEAD_FIELDS - 2) + b"a: " + b"b" * HEAD_BYTES,
        b"a: " + b"b" * (HEAD_BYTES - 50),
    ],
    ids=["many", "long", "long alone"],
)
async def test_request_head_above_the_size_limit_is_answered_431(head: bytes) -> None:
    app = HeaderRecorder()
    answer = await exchange(app, POST + head + b"\r\n\r\n0\r\n\r\n")
    assert b"431 Request Header" in answer
    assert b'"head_too_large"' in answer
    assert app.headers == []


async def test_request_head_at_the_size_limit_is_accepted() -> None:
    app = HeaderRecorder()
    many = b"".join(b"x-%d: y\r\n" % number for number in range(HEAD_FIELDS - 2))
    await exchange(app, LAST.replace(b"Connection", many + b"Connection"))
    long = b"a: %s\r\n" % (b"b" * (HEAD_BYTES - len(LAST) - 10))
    await exchange(app, LAST.replace(b"Connection", long + b"Connection"))
    assert len(app.headers) == 2


async def test_pipelined_upgrades_are_answered_one_by_one() -> None:
    request = b"GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n\r\n"
    answer = await exchange(HeaderRecorder(), request * 2000 + LAST)
    assert answer.count(b"204 No Content") == 2001


async def test_malformed_pipelined_request_does_not_replace_the_answer_before_it() -> None:
    answer = await exchange(HeaderRecorder(), LAST.replace(b"close", b"keep-alive") + b"nonsense\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 204 No Content\r\n")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("target", [b"*", b"localhost:80", b"/\xff", b"//", b"http://["])
async def test_invalid_request_target_is_answered_400_or_reaches_the_application(target: bytes) -> None:
    answer = await exchange(HeaderRecorder(), LAST.replace(b" / ", b" %s " % target))
    assert answer[:12] in (b"HTTP/1.1 400", b"HTTP/1.1 204")


@pytest.mark.parametrize(
    ("problem", "status", "code"), [(MemoryError, 503, "out_of_memory"), (KeyError, 500, "internal_error")]
)
async def test_parser_failure_is_answered_as_a_server_error_and_not_as_invalid_http(
    problem: type[Exception], status: int, code: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise problem

    monkeypatch.setattr(HttpToolsProtocol, "on_body", fail)
    answer = await exchange(HeaderRecorder(), POST + b"\r\n1\r\nx\r\n0\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 %d " % status)
    assert code.encode() in answer
