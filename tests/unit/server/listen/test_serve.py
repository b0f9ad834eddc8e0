"""A server process: where it listens, and how it shuts down with open requests."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from pathlib import Path

import pytest

from tests.unit.server.asgi import run_app
from tests.unit.server.processes import ServerProcess, read_until, request, rest_of, started
from turnledger import Ledger
from turnledger.engine.limits import Limits
from turnledger.hosting import Host
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import ChatSettings, ServerLimits, Settings
from turnledger.server.listen import serve
from turnledger.server.listen.serve import RESTART, check_exposure, engine_limits, worker_ceiling
from turnledger.server.listen.socket import bind

STREAMING = "tests.unit.server.streaming_server"
STRAINED = "tests.unit.server.strained_server"


def open_stream(server: ServerProcess, path: str) -> socket.socket:
    """A connection on which a stream has begun."""
    connection = server.connect()
    connection.sendall(request(path))
    read_until(connection, "hello,")
    return connection


@pytest.mark.parametrize("sent_signal", [signal.SIGTERM, signal.SIGINT])
def test_shutdown_lets_open_requests_complete_within_the_grace_period(sent_signal: signal.Signals) -> None:
    with started(STREAMING, "600") as server, server.connect() as idle, server.connect() as half:
        half.sendall(b"GET /healthz HTTP/1.1\r\nHost: loc")  # neither holds it up
        with open_stream(server, "/until-shutdown") as connection:
            server.process.send_signal(sent_signal)
            assert " last words\r\n0\r\n\r\n" in rest_of(connection)
        out, log = server.process.communicate(timeout=60)
        assert (server.process.returncode, out) == (0, "closed\n")
        assert (rest_of(idle), rest_of(half)) == ("", "")
        assert '"shutting_down"' in log


def test_shutdown_cancels_an_open_stream_after_the_grace_period() -> None:
    with started(STREAMING, "0") as server, open_stream(server, "/for-ever") as connection:
        server.process.send_signal(signal.SIGTERM)
        assert " cancelled\r\n0\r\n\r\n" in rest_of(connection)
        out, log = server.process.communicate(timeout=60)
        assert (server.process.returncode, out) == (0, "closed\n")
        assert '"requests_cancelled"' in log


def post(conversation_key: str, text: str) -> bytes:
    fields = {"model": "demo", "stream": True, "messages": [{"role": "user", "content": text}]}
    body = json.dumps(fields).encode()
    head = [
        "POST /v1/chat/completions HTTP/1.1",
        "Host: localhost",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        f"X-Conversation-Id: {conversation_key}",
    ]
    return "\r\n".join([*head, "", ""]).encode() + body


async def test_turn_that_outlasts_the_grace_period_fails_with_shutting_down(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path}/chats.db"
    flags = ("--port", "0", "--grace", "0", "--store", store)
    with started("turnledger", "serve", *flags) as server, server.connect() as connection:
        connection.sendall(post("k", "Hello"))
        read_until(connection, "[DONE]")
        connection.sendall(post("k", "/stall after 2"))
        read_until(connection, " said")
        server.process.send_signal(signal.SIGTERM)
        rest = rest_of(connection)
        log = server.process.communicate(timeout=60)[1]
    assert server.process.returncode == 0
    assert '"code":"shutting_down"' in rest
    assert "[DONE]" not in rest
    assert "internal_error" not in log
    requests = [line for line in map(json.loads, log.splitlines()) if line["event"] == "request"]
    assert [(line["status"], line.get("code")) for line in requests] == [(200, None), (200, "shutting_down")]
    async with await Ledger.open(store) as ledger:
        chat = await ledger.conversation(conversation_key="k", create=False)
        assert len(await chat.turns()) == 1
        assert len(await chat.attempts()) == 1


def test_second_signal_ends_the_server_immediately() -> None:
    with started(STREAMING, "600") as server, open_stream(server, "/for-ever") as connection:
        server.process.send_signal(signal.SIGINT)
        server.wait_for('"shutting_down"')
        server.process.send_signal(signal.SIGINT)
        assert " cancelled\r\n0\r\n\r\n" in rest_of(connection)
        out, log = server.process.communicate(timeout=60)
        assert (server.process.returncode, out) == (0, "closed\n")
        assert '"signalled_again"' in log


def test_single_process_above_its_memory_limit_drains_and_exits_with_the_restart_code(tmp_path: Path) -> None:
    flags = ("--port", "0", "--grace", "600", "--store", f"sqlite:///{tmp_path}/chats.db")
    with started(STRAINED, "serve", *flags) as server, server.connect() as connection:
        connection.sendall(post("k", "Hello"))
        received = read_until(connection, "data:")
        server.process.send_signal(signal.SIGUSR1)
        assert "data: [DONE]" in received + rest_of(connection)
        log = server.process.communicate(timeout=60)[1]
    assert server.process.returncode == RESTART
    assert log.count('"memory_above_limit"') == 1
    assert '"shutting_down"' in log


def test_single_process_with_a_stalled_loop_exits_with_the_restart_code(tmp_path: Path) -> None:
    flags = ("--port", "0", "--store", f"sqlite:///{tmp_path}/chats.db")
    with started(STRAINED, "serve", *flags) as server:
        server.process.send_signal(signal.SIGUSR2)
        log = server.process.communicate(timeout=60)[1]
    assert server.process.returncode == RESTART
    assert "stand_still" in log[log.index('"server_stalled"') - 2000 :]


def test_worker_memory_limit_comes_from_settings_or_the_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Settings(limits=ServerLimits(worker_bytes=1 << 30))
    assert worker_ceiling(given) == 1 << 30
    for memory, workers, ceiling in ((8 << 30, 1, 6 << 30), (8 << 30, 3, 2 << 30), (1 << 28, 1, 1 << 28)):
        monkeypatch.setattr(serve, "machine_bytes", lambda memory=memory: memory)
        assert worker_ceiling(Settings(workers=workers)) == ceiling
    monkeypatch.setattr(serve, "machine_bytes", lambda: None)
    assert worker_ceiling(Settings()) is None


async def test_public_server_does_not_start_until_a_token_exists() -> None:
    settings = Settings(host="0.0.0.0", port=0)
    with bind(settings) as listener:
        async with await Ledger.open() as ledger:
            with pytest.raises(InvalidSettings, match="turnledger tokens create"):
                await check_exposure(ledger, settings, listener)
            await check_exposure(ledger, Settings(host="0.0.0.0", port=0, insecure=True), listener)
            await Host(ledger).tokens.create(owner="ann", scopes=["turns:run"], lifetime=1)
            await check_exposure(ledger, settings, listener)


def test_engine_limits_divide_the_history_cache_between_readers() -> None:
    assert engine_limits(Settings(limits=ServerLimits(streams=9_000, turns=1_000))) == Limits()
    small = engine_limits(Settings(limits=ServerLimits(cached_bytes=10_000_000, streams=7, turns=5)))
    assert (small.cached_bytes, small.page_bytes) == (9_166_666, 833_333)
    assert small.readers == 12


def test_engine_limits_carry_the_retention_settings() -> None:
    chats = ChatSettings(restore_for=1.0, retain_for=2.0, retain_bytes=3, expires_after=4.0)
    limits = engine_limits(Settings(chats=chats))
    assert limits.lifetimes.expires_after == 4.0
    assert (limits.restore_time, limits.retain_for, limits.retain_bytes) == (1.0, 2.0, 3)


async def test_retiring_server_answers_once_more_per_connection_and_accepts_no_new_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(serve, "LINGER_TIME", 3600)
    with bind(Settings(port=0)) as listener:
        address = listener.getsockname()
        async with run_app() as app:
            ready = asyncio.Event()
            server = serve.Server(app, ready.set)
            running = asyncio.create_task(server.serve([listener]))
            await ready.wait()
            reader, writer = await asyncio.open_connection(*address)
            writer.write(request("/healthz"))
            assert b"connection: close" not in await reader.readuntil(b'{"status":"ok"}')
            server.leave()
            server.leave()
            with pytest.raises(ConnectionError):
                while True:
                    (await asyncio.open_connection(*address))[1].close()
            assert not running.done()
            writer.write(request("/healthz"))
            last = await reader.read()
            assert (last.startswith(b"HTTP/1.1 200 "), b"connection: close" in last) == (True, True)
            writer.close()
            await writer.wait_closed()
            await running
