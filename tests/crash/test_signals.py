"""A server that is signalled or suspended during an answer completes the turn or leaves the history
unchanged."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from tests.crash.killed_server import ServerProcess
from tests.crash.processes import suspend
from tests.crash.promises import check_chain
from tests.crash.tcp_server import PartialResponse, completion, exchange, request
from turnledger import Chat, Ledger
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import ScriptedUpstream
from turnledger.types import AttemptState

SHORT_LEASE = ("tests.tuned_cli", "lease_time=1.2")
"""Long enough for a busy machine to beat within."""


@asynccontextmanager
async def streaming(
    folder: Path, gate: Gate, *flags: str
) -> AsyncIterator[tuple[ServerProcess, PartialResponse, asyncio.Task[PartialResponse]]]:
    """A server in the middle of an answer, which its upstream continues when the gate opens."""
    async with ScriptedUpstream(["Hel", gate, "lo"], otherwise=["Again"]) as upstream:
        server = ServerProcess(folder, upstream.url, *flags)
        try:
            port = port_of(await server.wait_ready())
            response = PartialResponse()
            sent = completion("Hi", X_Conversation_Id="one")
            pending = asyncio.create_task(exchange(port, sent, response))
            await response.until(lambda response: response.text == "Hel")
            yield server, response, pending
        finally:
            server.process.kill()
            server.process.close()


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


async def refuses_more(port: int) -> None:
    """Wait until the server takes no more turns."""
    async with asyncio.timeout(60):
        while True:
            response = await exchange(port, request("/readyz", method="GET"))
            if not response.raw or response.status == 503:
                return


@asynccontextmanager
async def left_behind(server: ServerProcess) -> AsyncIterator[Chat]:
    """The conversation, as the ended server has left it."""
    async with await Ledger.open(server.store) as ledger:
        yield await ledger.conversation(conversation_key="one")


async def test_sigterm_lets_a_running_turn_complete_within_the_grace_period(tmp_path: Path) -> None:
    gate = Gate()
    async with streaming(tmp_path, gate) as (server, response, pending):
        server.process.send_signal(signal.SIGTERM)
        await refuses_more(port_of(server.url))
        assert not pending.done()
        gate.release()
        await pending
        assert await server.end() == 0
    assert (response.text, response.payloads[-1], response.is_whole) == ("Hello", b"[DONE]", True)
    async with left_behind(server) as chat:
        assert [turn.text for turn in await chat.turns()] == ["Hello"]


async def test_repeated_sighup_lets_a_running_turn_complete(tmp_path: Path) -> None:
    gate = Gate()
    async with streaming(tmp_path, gate) as (server, response, pending):
        server.process.send_signal(signal.SIGHUP)
        await refuses_more(port_of(server.url))
        server.process.send_signal(signal.SIGHUP)
        gate.release()
        await pending
        assert await server.end() == 0
    assert (response.text, response.is_whole) == ("Hello", True)


async def test_sigterm_after_the_grace_period_ends_the_stream_and_fails_the_turn(tmp_path: Path) -> None:
    async with streaming(tmp_path, Gate(), "--grace", "0") as (server, response, pending):
        reader = PartialResponse()
        follow = request(f"/api/turns/{response.headers['x-turn-id']}/events", method="GET")
        reading = asyncio.create_task(exchange(port_of(server.url), follow, reader))
        await reader.until(lambda response: b"text.delta" in response.body)
        assert await server.end(signal.SIGTERM) == 0
        await asyncio.gather(pending, reading)
    assert response.is_whole
    error = msgspec.json.decode(response.payloads[-1])["error"]
    assert (error["code"], error["type"]) == ("shutting_down", "server_error")
    assert b"[DONE]" not in response.raw
    # Its reader receives its end, or that of the server.
    assert reader.is_whole
    assert b"turn.finished" in reader.body or b"shutting_down" in reader.body
    async with left_behind(server) as chat:
        assert await chat.turns() == []
        assert [each.attempt.state for each in await chat.attempts()] == [AttemptState.FAILED]


async def test_second_sigterm_ends_the_server_immediately_and_commits_no_turn(tmp_path: Path) -> None:
    async with streaming(tmp_path, Gate()) as (server, response, pending):
        server.process.send_signal(signal.SIGTERM)
        await refuses_more(port_of(server.url))
        assert await server.end(signal.SIGTERM) == 0
        await pending
    assert msgspec.json.decode(response.payloads[-1])["error"]["code"] == "shutting_down"
    async with left_behind(server) as chat:
        assert await chat.turns() == []


async def test_paused_server_that_lost_its_lane_reports_an_error_and_commits_no_turn(
    tmp_path: Path,
) -> None:
    gate = Gate()
    scripts = ["Too", gate, " late"], ["Second"]
    async with ScriptedUpstream(*scripts, otherwise=["Third"]) as upstream:
        paused, other = (ServerProcess(tmp_path, upstream.url, command=SHORT_LEASE) for _ in range(2))
        try:
            port, other_port = [port_of(await each.wait_ready()) for each in (paused, other)]
            response = PartialResponse()
            pending = asyncio.create_task(
                exchange(port, completion("First", X_Conversation_Id="one"), response)
            )
            await response.until(lambda response: response.text == "Too")
            suspend(paused.process, tmp_path / "chats.db")
            answered = await exchange(other_port, completion("Second", X_Conversation_Id="one"))
            assert (answered.status, answered.text) == (200, "Second")

            paused.process.send_signal(signal.SIGCONT)
            gate.release()
            await pending
            assert response.payloads[-1] != b"[DONE]"
            assert msgspec.json.decode(response.payloads[-1])["error"]["code"] == "superseded"

            # It continues as a live process, after the commits of the other.
            assert (await exchange(port, request("/readyz", method="GET"))).status == 200
            third = completion("Third", X_Conversation_Id="one", X_Conversation_Messages="new")
            assert (await exchange(port, third)).text == "Third"
            assert [await each.end(signal.SIGTERM) for each in (paused, other)] == [0, 0]
        finally:
            for each in (paused, other):
                each.process.kill()
                each.process.close()
    async with await Ledger.open(paused.store) as ledger:
        history = await (await ledger.conversation(conversation_key="one")).turns()
    check_chain(history)
    assert [(turn.input[0].text, turn.text) for turn in history] == [("Second", "Second"), ("Third", "Third")]
