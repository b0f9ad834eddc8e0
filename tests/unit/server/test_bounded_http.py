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
