"""Clients of every kind leave no tasks, timers, descriptors, connections or request objects behind."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

import pytest
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from tests.crash.tcp_server import (
    PartialResponse,
    SlowClient,
    TcpServer,
    completion,
    exchange,
    request,
    reset,
    run_tcp_server,
)
from tests.unit.server.processes import started
from turnledger import Limits
from turnledger.engine.turn.block import TurnBlock
from turnledger.engine.turn.running_turn import OpenTurn, RunningTurn
from turnledger.hosting import Host
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.listen.protocol import BoundedHttp
from turnledger.server.turns.chat_completions import CompletionTurn
from turnledger.server.turns.run import TurnExchange, TurnRun
from turnledger.server.wire.client_stream import ClientStream

EACH = 12
"""Clients of each kind."""
OF_A_REQUEST = (
    BoundedHttp,
    CompletionTurn,
    ClientStream,
    RequestResponseCycle,
    TurnBlock,
    TurnExchange,
    TurnRun,
    OpenTurn,
    RunningTurn,
)
HEAD = "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"

Behaviour = Callable[[int, str], Awaitable[None]]
"""What a client does at a port, with a conversation_key of its own."""


async def hangs_up(port: int, sent: bytes, awaited: bytes = b"", *, rudely: bool = False) -> None:
    """Send a request, wait until these bytes are received, and leave."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(sent)
    await writer.drain()
    if awaited:
        await reader.readuntil(awaited)
    if rudely:
        reset(writer)
    writer.close()


async def reads_all(port: int, key: str) -> None:
    response = await exchange(port, completion("Hello", X_Conversation_Id=key))
    assert response.payloads[-1] == b"[DONE]"


async def reads_a_whole_answer(port: int, key: str) -> None:
    assert (await exchange(port, completion("Hello", stream=False, X_Conversation_Id=key))).is_whole


async def speaks_http_1_0(port: int, key: str) -> None:
    sent = completion("Hello", X_Conversation_Id=key).replace(b"HTTP/1.1", b"HTTP/1.0")
    assert (await exchange(port, sent)).raw.endswith(b"data: [DONE]\n\n")


async def passes_through(port: int, _: str) -> None:
    assert (await exchange(port, completion("Hello"))).payloads[-1] == b"[DONE]"


async def leaves_a_pass_through(port: int, _: str) -> None:
    await hangs_up(port, completion("/stall after 2"), b" said")


async def leaves_and_lets_go_on(port: int, key: str) -> None:
    await hangs_up(port, completion("/count 20", X_Conversation_Id=key), b"200 OK")


async def leaves_and_keeps(port: int, key: str) -> None:
    sent = completion("/stall after 2", X_Conversation_Id=key, X_Turn_On_Disconnect="keep")
    await hangs_up(port, sent, b" said")


async def leaves_rudely_and_discards(port: int, key: str) -> None:
    sent = completion("/stall after 2", X_Conversation_Id=key, X_Turn_On_Disconnect="discard")
    await hangs_up(port, sent, b" said", rudely=True)


async def leaves_before_the_answer(port: int, key: str) -> None:
    headers = {"X_Conversation_Id": key, "X_Turn_On_Disconnect": "discard"}
    await hangs_up(port, completion("/stall", stream=False, **headers))


async def leaves_within_the_head(port: int, _: str) -> None:
    await hangs_up(port, b"GET /healthz HTTP/1.1\r\nHo")


async def leaves_within_the_body(port: int, _: str) -> None:
    await hangs_up(port, f'{HEAD}Content-Length: 100\r\n\r\n{{"model'.encode())


async def sends_nothing(port: int, _: str) -> None:
    await hangs_up(port, b"")


async def never_ends_its_head(port: int, _: str) -> None:
    assert (await exchange(port, b"GET /healthz HTTP/1.1\r\nHo")).status == 408


async def never_ends_its_body(port: int, _: str) -> None:
    assert (await exchange(port, f"{HEAD}Content-Length: 100\r\n\r\n{{".encode())).status == 408


async def talks_nonsense(port: int, _: str) -> None:
    assert (await exchange(port, b"\x16\x03\x01\x02\x00 is this TLS?\r\n\r\n")).status == 400


async def is_refused(port: int, key: str) -> None:
    response = await exchange(port, completion("Hello", X_Conversation_Id=key, X_Turn_On_Busy="perhaps"))
    assert response.status == 400


async def fails(port: int, key: str) -> None:
    assert b"error" in (await exchange(port, completion("/fail after 2", X_Conversation_Id=key))).body


async def pipelines_and_leaves(port: int, key: str) -> None:
    sent = completion("Hello", X_Conversation_Id=key).replace(b"Connection: close\r\n", b"")
    await hangs_up(port, sent * 2, b"200 OK")


async def would_rather_speak_http_2(port: int, _: str) -> None:
    upgrade = {"Upgrade": "h2c", "HTTP2_Settings": "AAMAAABkAAQ"}
    sent = request("/healthz", method="GET", **upgrade)
    sent = sent.replace(b"Connection: close", b"Connection: Upgrade, HTTP2-Settings")
    await hangs_up(port, sent, b'"ok"')


async def never_reads(port: int, key: str) -> None:
    client = SlowClient()
    await client.send(port, completion("/count 20", X_Conversation_Id=key))
    await asyncio.sleep(0)
    client.leave()


async def follows_events_and_leaves(port: int, key: str) -> None:
    headers = {"X_Conversation_Id": key, "X_Turn_On_Disconnect": "discard"}
    pending = asyncio.create_task(
        exchange(port, completion("/stall after 2", **headers), streamed := PartialResponse()), name="client"
    )
    await streamed.until(lambda response: "x-turn-id" in response.headers)
    turn = streamed.headers["x-turn-id"]
    await hangs_up(port, request(f"/api/turns/{turn}/events", method="GET"), b"turn.started")
    stopped = await exchange(port, request(f"/api/turns/{turn}/stop", {}))
    assert stopped.status == 200
    await pending


BEHAVIOURS: tuple[Behaviour, ...] = (
    reads_all,
    reads_a_whole_answer,
    speaks_http_1_0,
    passes_through,
    leaves_a_pass_through,
    leaves_and_lets_go_on,
    leaves_and_keeps,
    leaves_rudely_and_discards,
    leaves_before_the_answer,
    leaves_within_the_head,
    leaves_within_the_body,
    sends_nothing,
    never_ends_its_head,
    never_ends_its_body,
    talks_nonsense,
    is_refused,
    fails,
    pipelines_and_leaves,
    would_rather_speak_http_2,
    never_reads,
    follows_events_and_leaves,
)


class Held(NamedTuple):
    """What is there at a moment."""

    tasks: int
    timers: int
    descriptors: int
    connections: int
    requests: int
    objects: dict[str, int]


def held(serving: TcpServer) -> Held:
    gc.collect()
    alive = Counter(type(each) for each in gc.get_objects())
    timers = [each for each in asyncio.get_running_loop()._scheduled if not each.cancelled()]  # type: ignore[attr-defined]
    return Held(
        len(asyncio.all_tasks()),
        len(timers),
        len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else 0,
        len(serving.state.connections),
        len(serving.app._open),
        {
            kind.__name__: sum(count for found, count in alive.items() if issubclass(found, kind))
            for kind in OF_A_REQUEST
        },
    )


async def wait_idle(serving: TcpServer) -> None:
    await serving.wait_at_rest(len(serving.connections))
    while any(Host(serving.ledger).at_work()):
        await asyncio.sleep(0)
    while passing := [task for task in asyncio.all_tasks() if task.get_name() in PASSING]:
        await asyncio.wait(passing)
    for _ in range(200):  # what was noted on the side is written by then
        await asyncio.sleep(0)


LIMITS = ServerLimits(head_wait=0.05, body_wait=0.05, send_wait=0.05)
PASSING = ("turnledger deliveries", "turnledger flusher")
"""Tasks that end by themselves, some time after the last turn."""


async def test_clients_of_every_kind_leave_no_objects_in_the_server() -> None:
    gc.collect()
    gc.freeze()  # each look passes by what other tests have imported
    model = DemoModel(pace=0, slow_pace=0, patience=3600)
    settings = Settings(limits=LIMITS, insecure=True)
    async with run_tcp_server(model, settings, limits=Limits(flush_every=0.01)) as serving:
        for behave in BEHAVIOURS:
            name = behave.__name__
            await behave(serving.port, f"{name}-first")  # what is made once is made now
            await wait_idle(serving)
            before = held(serving)
            assert before.connections == before.requests == 0, name
            await asyncio.gather(*(behave(serving.port, f"{name}-{number}") for number in range(EACH)))
            await wait_idle(serving)
            assert held(serving) == before, name
            assert not serving.app.service.audience.turns, name


async def test_lane_is_free_after_clients_of_every_kind() -> None:
    model = DemoModel(pace=0, slow_pace=0, patience=3600)
    async with run_tcp_server(model, Settings(limits=LIMITS, insecure=True)) as serving:
        for behave in BEHAVIOURS:
            await behave(serving.port, "one")
        await reads_all(serving.port, "one")
        await wait_idle(serving)
        assert await serving.ledger.check() == []


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in the way of Linux")
async def test_clients_of_every_kind_leave_no_descriptors_in_a_server_process(tmp_path: Path) -> None:
    config = tmp_path / "turnledger.toml"
    waits = "".join(f"{name} = 0.3\n" for name in ("head_wait", "body_wait", "send_wait", "idle_wait"))
    config.write_text(f"[server.limits]\n{waits}")
    flags = ("--config", str(config), "--store", f"sqlite:///{tmp_path}/chats.db", "--log-level", "error")
    with started("turnledger", "serve", "--insecure", "--port", "0", *flags) as server:
        port, descriptors = server.address[1], f"/proc/{server.process.pid}/fd"

        async def all_of_them(round: str) -> int:
            await asyncio.gather(*(behave(port, f"{round}-{behave.__name__}") for behave in BEHAVIOURS))
            async with asyncio.timeout(60):
                while not counts_are_zero(server.get("/metrics")):
                    await asyncio.sleep(0.02)  # polling without a pause slows down the server
            return len(os.listdir(descriptors))

        before = await all_of_them("first")
        await all_of_them("second")
        assert await all_of_them("last") <= before + 1  # the polling connection may still be there
        assert server.end(signal.SIGTERM)[0] == 0


def counts_are_zero(metrics: str) -> bool:
    gauges = ("running_turns", "queue_length", "event_readers", "open_streams")
    return all(f"turnledger_{name} 0.0" in metrics for name in gauges)
