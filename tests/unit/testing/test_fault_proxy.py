"""The fault proxy passes, cuts, stalls and duplicates exactly the planned bytes."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from turnledger.testing.fault_proxy import Fault, FaultProxy

ANSWER = b"9876543210"


class Server:
    """Answers each byte with a byte of the answer, and notes what it got until the end."""

    def __init__(self) -> None:
        self.port = 0
        self.got = b""
        self.ended = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while byte := await reader.read(1):
                writer.write(ANSWER[len(self.got) : len(self.got) + 1])
                self.got += byte
        except ConnectionError:
            pass
        finally:
            self.ended.set()
            writer.close()


@asynccontextmanager
async def stage() -> AsyncIterator[tuple[Server, FaultProxy]]:
    server = Server()
    listening = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listening.sockets[0].getsockname()[1]
    async with FaultProxy(server.port) as proxy:
        yield server, proxy
    listening.close()


async def exchange(proxy: FaultProxy, question: bytes = b"0123456789") -> bytes:
    """Send it all, and read until the end."""
    reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
    try:
        writer.write(question)
        return await reader.read()
    finally:
        writer.close()


@pytest.mark.parametrize("count", [0, 1, 7, 10])
async def test_fault_proxy_passes_exactly_the_planned_bytes_to_the_server(count: int) -> None:
    async with stage() as (server, proxy):
        proxy.plan(Fault(sent=count))
        await exchange(proxy)
        await server.ended.wait()
        assert server.got == b"0123456789"[:count]
        assert (proxy.faults, proxy.connections) == (1, 1)


@pytest.mark.parametrize("count", [0, 1, 7, 10])
async def test_fault_proxy_passes_exactly_the_planned_bytes_to_the_client(count: int) -> None:
    async with stage() as (server, proxy):
        proxy.plan(Fault(received=count))
        assert await exchange(proxy) == ANSWER[:count]
        await server.ended.wait()


async def test_fault_proxy_without_a_plan_passes_everything_until_one_side_closes() -> None:
    async with stage() as (server, proxy):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"01")
        assert await reader.readexactly(2) == b"98"
        writer.close()
        await server.ended.wait()
        assert (server.got, proxy.faults) == (b"01", 0)


async def test_fault_proxy_reset_raises_for_the_reader() -> None:
    async with stage() as (_, proxy):
        proxy.plan(Fault(received=3, resets=True))
        with pytest.raises(ConnectionResetError):
            await exchange(proxy)


async def test_fault_proxy_stall_passes_nothing_until_resumed() -> None:
    async with stage() as (_, proxy):
        proxy.plan(Fault(received=4, stalls=True))
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"0123456789")
        assert await reader.readexactly(4) == ANSWER[:4]
        await proxy.wait_for_faults()
        rest = asyncio.create_task(reader.readexactly(6))
        await asyncio.sleep(0)
        assert not rest.done()
        proxy.resume()
        assert await rest == ANSWER[4:]
        writer.close()


async def test_fault_proxy_cut_closes_all_connections() -> None:
    async with stage() as (server, proxy):
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"0")
        await reader.readexactly(1)
        proxy.cut()
        assert await reader.read() == b""
        await server.ended.wait()
        writer.close()


async def test_fault_proxy_without_a_server_resets_the_connection() -> None:
    async with stage() as (server, _):
        gone = server.port
    async with FaultProxy(gone) as proxy:
        with pytest.raises(ConnectionResetError):
            await exchange(proxy)
        assert proxy.connections == 0


async def test_fault_proxy_pause_delays_the_bytes_and_loses_none() -> None:
    async with stage() as (_, proxy):
        proxy.plan(Fault(received=4, pause=0.0))
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"0123456789")
        assert await reader.readexactly(10) == ANSWER
        assert proxy.faults == 1
        writer.close()


class Listener:
    """Answers each complete message with the number of its connection, and records the bytes of each."""

    def __init__(self) -> None:
        self.got: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(self.got)
        self.got.append(b"")
        with suppress(ConnectionError):
            while piece := await reader.read(100):
                self.got[number] += piece
                if piece.endswith(b"."):
                    writer.write(b"answer %d." % number)
        writer.close()


@asynccontextmanager
async def listening(spared: bytes | None = None) -> AsyncIterator[tuple[Listener, FaultProxy]]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    async with FaultProxy(port, by_exchange=True, spared=spared) as proxy:
        yield listener, proxy
    server.close()


@pytest.mark.parametrize("fault", [Fault(received=3, duplicates=True), Fault(sent=2, duplicates=True)])
async def test_fault_proxy_duplicate_sends_the_request_twice_and_returns_one_answer(fault: Fault) -> None:
    async with listening() as (listener, proxy):
        proxy.plan(fault)
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"words.")
        assert await reader.readexactly(9) == b"answer 0."
        while len(listener.got) < 2 or listener.got[1] != b"words.":
            await asyncio.sleep(0)
        writer.write(b"more.")
        assert await reader.readexactly(9) == b"answer 0."
        assert listener.got == [b"words.more.", b"words."]
        writer.close()


async def test_fault_proxy_by_request_applies_one_plan_to_each_request() -> None:
    async with listening() as (listener, proxy):
        proxy.plan(None, Fault(received=3))
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"first.")
        assert await reader.readexactly(9) == b"answer 0."
        writer.write(b"second.")
        assert await reader.read() == b"ans"
        assert [(each.sent, each.received) for each in proxy.exchanges] == [(6, 9), (7, 3)]
        assert listener.got == [b"first.second."]
        writer.close()


async def test_fault_proxy_applies_no_plan_to_spared_requests() -> None:
    async with listening(spared=b"MAY ") as (_, proxy):
        proxy.plan(Fault(received=3))
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"MAY I?.")
        assert await reader.readexactly(9) == b"answer 0."
        writer.write(b"words.")
        assert await reader.read() == b"ans"
        assert len(proxy.exchanges) == 1
        writer.close()


async def test_fault_proxy_cuts_a_request_before_its_first_byte() -> None:
    async with listening() as (listener, proxy):
        proxy.plan(Fault(sent=0))
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"first.")
        assert await reader.read() == b""
        assert listener.got in ([], [b""])
        writer.close()


async def test_fault_proxy_accepts_on_the_same_port_after_refusing() -> None:
    async with listening() as (_, proxy):
        await proxy.refuse()
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection("127.0.0.1", proxy.port)
        await proxy.accept()
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
        writer.write(b"words.")
        assert await reader.readexactly(9) == b"answer 0."
        writer.close()


async def test_fault_proxy_left_at_any_step_after_a_client_closes_all_connections() -> None:
    for steps in range(30):
        async with listening() as (_, proxy):
            proxy.plan(Fault(sent=2, duplicates=True))
            reader, writer = await asyncio.open_connection("127.0.0.1", proxy.port)
            writer.write(b"words.")
            await reader.readexactly(9)
            writer.close()
            for _ in range(steps):
                await asyncio.sleep(0)
        gc.collect()  # reports connections that nobody closed
