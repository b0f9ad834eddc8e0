"""A client that never completes its headers cannot fill the memory."""

from __future__ import annotations

import signal

import pytest

from tests.unit.server.processes import read_until, request, rest_of, started
from turnledger.server.bounded_http import HEAD_BYTES

STREAMING = "tests.unit.server.streaming_server"


@pytest.mark.parametrize("begin", [b"GET /", b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: "])
def test_headers_that_do_not_end_are_hung_up_on(begin: bytes) -> None:
    with started(STREAMING, "0") as server:
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
        assert '{"status":"ok"}' in server.get("/healthz")
        assert "too large" in server.end(signal.SIGTERM)[2]


def test_large_headers_and_many_requests_on_a_connection_are_none_of_its_business() -> None:
    with started(STREAMING, "0") as server, server.connect() as connection:
        for _ in range(40):
            connection.sendall(request("/healthz", f"X-Long: {'x' * 50_000}"))
            read_until(connection, '{"status":"ok"}')
        connection.sendall(request("/healthz", "Connection: close"))
        assert '{"status":"ok"}' in rest_of(connection)
        assert server.end(signal.SIGTERM)[0] == 0


JAVA = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMAAABkAAQ")


@pytest.mark.parametrize("cut", [0, 1, 4])
def test_a_client_that_would_rather_speak_another_protocol_is_answered_in_this_one(cut: int) -> None:
    body = '{"model": "demo", "messages": [{"role": "user", "content": "Hello"}]}'
    head = ("Host: localhost", "Content-Type: application/json", f"Content-Length: {len(body)}")
    asked = "\r\n".join(["POST /v1/chat/completions HTTP/1.1", *head, *JAVA, "", body]).encode()
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        with server.connect() as connection:
            connection.sendall(asked[: len(asked) - cut])
            if cut:
                connection.sendall(asked[-cut:])
            assert "You said" in read_until(connection, "total_tokens")
            # Nor is what follows lost, in one piece or in many.
            connection.sendall(request("/healthz", *JAVA) + request("/nothing", *JAVA))
            assert '{"status":"ok"}' in read_until(connection, "unknown_url")
            connection.sendall(request("/healthz", "Connection: close"))
            assert '{"status":"ok"}' in rest_of(connection)
        code, _, log = server.end(signal.SIGTERM)
        assert (code, "WebSocket" in log) == (0, False)


def test_a_request_for_a_tunnel_is_refused() -> None:
    with started(STREAMING, "0") as server, server.connect() as connection:
        connection.sendall(b"CONNECT localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert "400 Bad Request" in rest_of(connection)
