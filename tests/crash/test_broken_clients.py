"""Clients that stop reading, stall, disconnect at a bad moment or vanish hold no resource beyond its
timeout, and their turns commit."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress

import msgspec
import pytest

from tests.crash.tcp_server import (
    SMALL,
    TCP_REPAIR,
    PartialResponse,
    SlowClient,
    TcpServer,
    completion,
    exchange,
    request,
    reset,
    run_tcp_server,
)
from turnledger.hosting import Host
from turnledger.model.messages.messages import validate_messages
from turnledger.model.turn import AttemptState
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.listen import socket as listening_module
from turnledger.server.listen.socket import bind
from turnledger.server.wire.client_stream import BACKLOG

PIECE = "x" * 8_000


class Talker(DemoModel):
    """Emits the requested number of long words, as fast as it can."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        yield self._pieces(int(validate_messages(request.messages)[-1]["content"]))

    async def _pieces(self, count: int) -> AsyncIterator[list[bytes]]:
        for _ in range(count):
            await asyncio.sleep(0)  # others have their turn
            yield [chunk({"content": PIECE})]
        yield [chunk({}, "stop")]


def limited(**limits: float) -> Settings:
    return Settings(limits=ServerLimits(**limits))  # type: ignore[arg-type]


def talking(send_wait: float = 60, **limits: float) -> AbstractAsyncContextManager[TcpServer]:
    """A server with a talker, whose clients may take so long to read."""
    return run_tcp_server(Talker(), limited(send_wait=send_wait, **limits), send_buffer=SMALL)


def chunk(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    whole = {"id": "talk", "object": "chat.completion.chunk", "created": 0, "model": "demo"}
    return msgspec.json.encode({**whole, "choices": [choice]})


async def lane_is_free(port: int) -> None:
    """Wait in line behind the slow client's turn."""
    response = await exchange(port, completion("1", X_Conversation_Id="one"))
    assert response.payloads[-1] == b"[DONE]"


async def test_turn_is_committed_while_its_client_reads_none_of_it() -> None:
    count = BACKLOG // 2 // len(PIECE)
    async with talking() as serving:
        client = SlowClient()
        await client.send(serving.port, completion(str(count), X_Conversation_Id="one"))
        await serving.wait_running()
        await lane_is_free(serving.port)
        chat = await serving.ledger.conversation(conversation_key="one")
        assert [len(turn.text) for turn in await chat.turns()] == [count * len(PIECE), len(PIECE)]
        response = await client.read_all()
        assert response.is_whole
        assert (len(response.text), response.payloads[-1]) == (count * len(PIECE), b"[DONE]")


async def test_identical_message_during_the_first_answer_is_a_second_turn() -> None:
    """Even as a later try of their client, whose first try never arrived."""
    count = str(BACKLOG // 2 // len(PIECE))
    headers = {"X_Conversation_Id": "one", "X_Conversation_Messages": "new"}
    tries = [completion(count, X_Stainless_Retry_Count=each, **headers) for each in "01"]
    async with talking() as serving:
        client = SlowClient()
        await client.send(serving.port, tries[0])
        await serving.wait_running()
        second = await exchange(serving.port, tries[1])
        first = await client.read_all()
        assert (first.payloads[-1], second.payloads[-1]) == (b"[DONE]", b"[DONE]")
        chat = await serving.ledger.conversation(conversation_key="one")
        ids = [response.headers["x-turn-id"] for response in (first, second)]
        assert [str(turn.id) for turn in await chat.turns()] == ids


async def test_client_beyond_the_backlog_is_cut_off_and_can_read_the_turn_again() -> None:
    count = 2 * BACKLOG // len(PIECE)
    async with talking() as serving:
        client = SlowClient()
        policy = {"X_Turn_On_Disconnect": "continue"}  # it would yield to the one that asks for its lane
        await client.send(serving.port, completion(str(count), X_Conversation_Id="one", **policy))
        await serving.wait_running()
        await lane_is_free(serving.port)
        await serving.wait_answered()  # nobody waits for the one that was cut off
        response = await client.read_all()
        assert not response.is_whole
        assert b"[DONE]" not in response.raw
        chat = await serving.ledger.conversation(conversation_key="one")
        turn, _ = await chat.turns()
        assert len(turn.text) == count * len(PIECE)
        follow = request(f"/api/turns/{response.headers['x-turn-id']}/events", method="GET")
        events = await exchange(serving.port, follow)
        assert events.is_whole
        assert events.body.count(PIECE.encode()) >= count


async def test_model_without_a_conversation_waits_for_its_slow_client() -> None:
    count = 2 * BACKLOG // len(PIECE)
    async with talking() as serving:
        client = SlowClient()
        await client.send(serving.port, completion(str(count)))
        await exchange(serving.port, completion(str(count)))  # a client that reads need not wait
        response = await client.read_all()
        assert response.is_whole
        assert (len(response.text), response.payloads[-1]) == (count * len(PIECE), b"[DONE]")


async def test_client_that_never_reads_the_end_is_dropped() -> None:
    count = BACKLOG // 2 // len(PIECE)
    async with talking(send_wait=0) as serving:
        client = SlowClient()
        await client.send(serving.port, completion(str(count), X_Conversation_Id="one"))
        await serving.wait_running()
        await lane_is_free(serving.port)
        await serving.wait_answered()
        client.leave()
        await serving.wait_all_lost(2)


async def test_event_reader_that_stops_reading_does_not_block_the_turn() -> None:
    count = 2 * BACKLOG // len(PIECE)
    async with talking() as serving:
        pending = asyncio.create_task(
            exchange(
                serving.port, completion(str(count), X_Conversation_Id="one"), streamed := PartialResponse()
            )
        )
        await streamed.until(lambda response: "x-turn-id" in response.headers)
        client = SlowClient()
        follow = request(f"/api/turns/{streamed.headers['x-turn-id']}/events", method="GET")
        await client.send(serving.port, follow)
        assert (await pending).payloads[-1] == b"[DONE]"
        await lane_is_free(serving.port)
        response = await client.read_all()
        assert response.is_whole
        assert b"turn.finished" in response.payloads[-1]


SOON = 0.02
"""Seconds: a limit that a test waits for."""


def quick() -> DemoModel:
    return DemoModel(pace=0, slow_pace=0, patience=3600)


async def trickle(serving: TcpServer, first: bytes, drop: bytes) -> PartialResponse:
    """Send something, and then more of it, drop by drop, for as long as the server takes it."""
    response = PartialResponse()
    # A bare socket: a stream that can no longer send would not read earlier data either.
    with socket.create_connection(("127.0.0.1", serving.port)) as connection:
        connection.setblocking(False)
        connection.send(first)
        with suppress(ConnectionError):
            while not response.is_over:
                with suppress(ConnectionError, BlockingIOError):
                    connection.send(drop)
                await asyncio.sleep(0.001)
                with suppress(BlockingIOError):
                    response.take(connection.recv(65_536))
    return response


async def test_idle_connection_is_closed() -> None:
    async with run_tcp_server(quick(), limited(idle_wait=SOON)) as serving:
        response = await exchange(serving.port, b"")
        assert response.raw == b""
        await serving.wait_at_rest(1)


async def test_headers_sent_too_slowly_are_answered_408() -> None:
    async with run_tcp_server(quick(), limited(head_wait=SOON)) as serving:
        response = await trickle(serving, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Long: ", b"x")
        assert response.status == 408
        assert response.is_whole
        await serving.wait_at_rest(1)


async def test_empty_lines_instead_of_a_request_close_the_connection() -> None:
    async with run_tcp_server(quick(), limited(head_wait=SOON)) as serving:
        assert (await trickle(serving, b"", b"\r\n")).raw == b""
        await serving.wait_at_rest(1)


async def test_refused_body_sent_slowly_is_not_awaited() -> None:
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    settings = Settings(limits=ServerLimits(head_wait=SOON, body_bytes=10))
    async with run_tcp_server(quick(), settings) as serving:
        response = await trickle(serving, f"{head}Content-Length: 100000000\r\n\r\n".encode(), b"x")
        assert response.status == 413
        assert response.is_whole
        await serving.wait_at_rest(1)


async def test_request_sent_byte_by_byte_in_time_is_answered() -> None:
    async with run_tcp_server(quick()) as serving:
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in completion("Hello", X_Conversation_Id="one"):
            writer.write(bytes([byte]))
            await asyncio.sleep(0)
        response = PartialResponse()
        while piece := await reader.read(65_536):
            response.take(piece)
        writer.close()
        assert response.payloads[-1] == b"[DONE]"
        chat = await serving.ledger.conversation(conversation_key="one")
        assert [turn.input[0].text for turn in await chat.turns()] == ["Hello"]


async def test_disconnect_of_a_pipelining_client_ends_its_first_request() -> None:
    async with run_tcp_server(quick()) as serving:
        sent = completion("/stall after 2", X_Conversation_Id="one", X_Turn_On_Disconnect="keep")
        sent = sent.replace(b"Connection: close\r\n", b"")
        reader, writer = await asyncio.open_connection("127.0.0.1", serving.port)
        writer.write(sent)
        await reader.readuntil(b" said")
        writer.write(request("/healthz", method="GET"))
        await writer.drain()
        await until(lambda: any(each.pipeline for each in serving.state.connections))
        reset(writer)
        # The server reads no more while a request waits: it is the writing that meets the closed door.
        for connection in serving.state.connections:
            connection.transport.write(b"x")
            connection.transport.resume_reading()
        await serving.wait_at_rest(1)
        chat = await serving.ledger.conversation(conversation_key="one")
        assert [turn.text for turn in await chat.turns()] == ["You said"]


async def until(is_so: object) -> None:
    assert callable(is_so)
    async with asyncio.timeout(60):
        while not is_so():
            await asyncio.sleep(0)


@pytest.mark.parametrize("policy", ["keep", "discard"])
async def test_client_cut_off_for_its_backlog_counts_as_disconnected_at_once(policy: str) -> None:
    """It does not read, so only the backlog reveals it; and the turn would never end."""
    async with talking(send_wait=3600) as serving:
        client = SlowClient()
        headers = {"X_Conversation_Id": "one", "X_Turn_On_Disconnect": policy}
        await client.send(serving.port, completion(str(10**9), **headers))
        await serving.wait_running()
        await serving.wait_at_rest(1)
        client.leave()
        chat = await serving.ledger.conversation(conversation_key="one")
        turns, asides = await chat.turns(), await chat.attempts()
        if policy == "keep":
            assert len(turns[0].text) >= BACKLOG // 2
        else:
            assert (turns, [each.attempt.state for each in asides]) == ([], [AttemptState.DISCARDED])


async def test_client_cut_off_for_its_backlog_notices_while_the_turn_runs() -> None:
    class Endless(Talker):
        """Emits more than a client may leave unread, and then thinks."""

        async def _pieces(self, count: int):  # type: ignore[no-untyped-def]
            async for piece in super()._pieces(count):
                yield piece
                count -= 1
                if not count:
                    await asyncio.Event().wait()

    count = 3 * BACKLOG // len(PIECE)
    async with run_tcp_server(Endless(), limited(send_wait=3600), send_buffer=SMALL) as serving:
        client = SlowClient()
        await client.send(serving.port, completion(str(count), X_Conversation_Id="one"))
        await serving.wait_all_lost(1)
        assert Host(serving.ledger).at_work().running == 1
        response = await client.read_all()
        assert not response.is_whole
        await serving.stop_everything()


@pytest.mark.parametrize("key", [{}, {"X_Conversation_Id": "one"}])
async def test_client_that_stops_reading_is_cut_off_after_the_send_timeout(key: dict[str, str]) -> None:
    """Without a conversation the model waits for its client, but not without end."""
    count = 2 * BACKLOG // len(PIECE) if not key else BACKLOG // 2 // len(PIECE)
    async with talking(send_wait=SOON) as serving:
        client = SlowClient()
        await client.send(serving.port, completion(str(count), **key))
        await serving.wait_connected(1)
        await serving.wait_at_rest(1)
        client.leave()


async def test_event_reader_that_stops_reading_is_cut_off_after_the_send_timeout() -> None:
    count = 2 * BACKLOG // len(PIECE)
    async with talking(send_wait=SOON) as serving:
        completed = await exchange(serving.port, completion(str(count), X_Conversation_Id="one"))
        client = SlowClient()
        await client.send(
            serving.port, request(f"/api/turns/{completed.headers['x-turn-id']}/events", method="GET")
        )
        await serving.wait_at_rest(2)
        client.leave()


@pytest.mark.parametrize("close", ["Connection: close\r\n", ""])
async def test_unread_rest_of_a_complete_answer_is_dropped_after_the_send_timeout(close: str) -> None:
    """The server is done with it: it waits in the connection alone, too little of it to hold up anything."""
    async with talking(send_wait=SOON, idle_wait=3600) as serving:
        client = SlowClient()
        sent = completion("5", stream=True).replace(b"Connection: close\r\n", close.encode())
        await client.send(serving.port, sent)
        await serving.wait_at_rest(1)
        client.leave()


async def test_http_1_0_answer_is_sent_without_chunked_encoding() -> None:
    async with run_tcp_server(quick(), Settings(insecure=True)) as serving:
        for stream in (True, False):
            sent = completion("Hello", stream=stream).replace(b"HTTP/1.1", b"HTTP/1.0")
            response = await exchange(serving.port, sent)
            assert response.status == 200
            assert "transfer-encoding" not in response.headers
            assert response.headers["connection"] == "close"
            body = response.raw.partition(b"\r\n\r\n")[2]
            assert body.endswith(b"\n\ndata: [DONE]\n\n" if stream else b"}")
            assert body.startswith(b'data: {"' if stream else b'{"')
        found = await exchange(serving.port, b"GET /nothing HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert found.is_whole


async def test_http_1_0_client_is_sent_no_100_continue() -> None:
    async with run_tcp_server(quick(), Settings(insecure=True)) as serving:
        sent = completion("Hello", stream=False, Expect="100-continue")
        assert b"100 Continue" in (await exchange(serving.port, sent)).raw
        sent = sent.replace(b"HTTP/1.1", b"HTTP/1.0")
        assert b"100 Continue" not in (await exchange(serving.port, sent)).raw


def may_vanish() -> bool:
    """Whether this process may close a socket without a packet to the peer: Linux, and the right to."""
    try:
        with socket.socket() as probe:
            probe.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
    except OSError:
        return False
    return hasattr(socket, "TCP_KEEPIDLE")


@pytest.mark.skipif(not may_vanish(), reason="needs the right to drop a connection without a word")
async def test_client_on_a_vanished_machine_is_detected_by_keepalive(monkeypatch: pytest.MonkeyPatch) -> None:
    soon = {"TCP_KEEPIDLE": 1, "TCP_KEEPINTVL": 1, "TCP_KEEPCNT": 1}
    monkeypatch.setattr(listening_module, "KEEPALIVE_OPTIONS", soon)
    with bind(Settings(port=0)) as listening:
        async with run_tcp_server(quick(), listening=listening) as serving:
            client = SlowClient()
            headers = {"X_Conversation_Id": "one", "X_Turn_On_Disconnect": "discard"}
            await client.send(serving.port, completion("/stall after 2", **headers))
            await client.read_until(b" said")  # nothing more is sent to it
            client.vanish()
            await serving.wait_at_rest(1)
            chat = await serving.ledger.conversation(conversation_key="one")
            assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.DISCARDED]
