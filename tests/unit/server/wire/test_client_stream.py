"""The stream to a client: writes never block, started work continues, and its end is detected."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.types import Message

from turnledger.server.wire.client_stream import CUT, ClientStream, EagerCoroutine, cut_of


async def answer(ready: asyncio.Event, *, last: asyncio.Event | None = None) -> str:
    await ready.wait()
    if last is not None:
        await last.wait()
    return "done"


def is_set() -> asyncio.Event:
    event = asyncio.Event()
    event.set()
    return event


async def test_started_coroutine_without_waits_is_done_immediately() -> None:
    started = EagerCoroutine(answer(is_set()))
    assert started.is_done
    assert started.result == "done"
    assert await started == "done"


async def test_started_coroutine_raises_exceptions_before_its_first_wait_immediately() -> None:
    async def fail() -> None:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        EagerCoroutine(fail())


async def test_started_coroutine_can_be_awaited_in_another_task() -> None:
    ready = asyncio.Event()
    started = EagerCoroutine(answer(ready, last=is_set()))
    assert not started.is_done

    async def rest() -> str:
        return await started

    waiting = asyncio.create_task(rest())
    await asyncio.sleep(0)
    ready.set()
    assert await waiting == "done"


async def test_started_coroutine_is_cancelled_with_the_task_that_awaits_it() -> None:
    seen: list[type[BaseException]] = []

    async def wait() -> str:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError as problem:
            seen.append(type(problem))
        return "ended well"

    started = EagerCoroutine(wait())

    async def rest() -> str:
        return await started

    waiting = asyncio.create_task(rest())
    await asyncio.sleep(0)
    waiting.cancel()
    assert await waiting == "ended well"
    assert seen == [asyncio.CancelledError]


@pytest.mark.parametrize("is_ready", [False, True])
async def test_started_coroutine_calls_back_on_completion_without_a_task(is_ready: bool) -> None:
    ready, last, notified = asyncio.Event(), asyncio.Event(), asyncio.Event()
    results: list[str] = []
    if is_ready:
        ready.set()
        last.set()
    tasks = asyncio.all_tasks()

    def notify(result: str) -> None:
        results.append(result)
        notified.set()

    EagerCoroutine(answer(ready, last=last)).set_callback(notify)
    assert results == (["done"] if is_ready else [])
    assert asyncio.all_tasks() == tasks
    ready.set()
    await asyncio.sleep(0)
    last.set()
    await notified.wait()
    assert results == ["done"]


async def test_started_coroutine_that_yields_is_resumed() -> None:
    async def polite() -> str:
        await asyncio.sleep(0)
        return "done"

    result: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    EagerCoroutine(polite()).set_callback(result.set_result)
    assert await result == "done"


async def test_closed_started_coroutine_runs_its_cleanup_and_does_not_call_back() -> None:
    left: list[str] = []

    async def wait(ready: asyncio.Event) -> None:
        try:
            await ready.wait()
        finally:
            left.append("left")

    ready = asyncio.Event()
    results: list[None] = []
    started = EagerCoroutine(wait(ready))
    started.set_callback(results.append)
    started.close()
    assert left == ["left"]
    ready.set()
    await asyncio.sleep(0)
    assert results == []


FOR_EVER = 3600.0


class Client:
    """The client of a stream: it takes what is sent while it reads, and may leave."""

    def __init__(self, *, reads: bool = True) -> None:
        self.got: list[Message] = []
        self._reads = asyncio.Event()
        self._left = asyncio.Event()
        self.problem: Exception | None = None
        if reads:
            self._reads.set()

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.got)

    async def send(self, message: Message) -> None:
        if not self._reads.is_set():
            await self._reads.wait()
        if self.problem is not None:
            raise self.problem
        if not self._left.is_set():
            self.got.append(message)

    async def receive(self) -> Message:
        await self._left.wait()
        return {"type": "http.disconnect"}

    def stop_reading(self) -> None:
        self._reads.clear()

    def read_on(self) -> None:
        self._reads.set()

    def leave(self) -> None:
        """As servers do: a pending send returns, and its data is lost."""
        self._left.set()
        self._reads.set()


def stream_to(client: Client, **options: Any) -> ClientStream:
    return ClientStream(client.send, client.receive, **options)


def begun(client: Client, **options: Any) -> ClientStream:
    stream = stream_to(client, **options)
    stream.begin(200, [])
    return stream


async def test_client_stream_sends_writes_immediately_while_the_client_keeps_up() -> None:
    client = Client()
    stream = stream_to(client)
    stream.begin(200, [(b"a", b"b")])
    stream.write(b"one")
    assert [message["type"] for message in client.got] == ["http.response.start", "http.response.body"]
    stream.end(b"two")
    assert client.body == b"onetwo"
    assert [message.get("more_body") for message in client.got] == [None, True, False]
    assert await stream.close(FOR_EVER)


async def test_client_stream_buffers_for_a_client_that_does_not_read_and_keeps_order() -> None:
    client = Client()
    stream = begun(client)
    client.stop_reading()
    for number in range(100):
        stream.write(b"%d " % number)
    stream.end(b"end")
    assert client.body == b""
    client.read_on()
    assert await stream.close(FOR_EVER)
    assert client.body == b"".join(b"%d " % number for number in range(100)) + b"end"
    assert not stream.is_broken


async def test_client_stream_survives_repeated_pauses_of_the_client() -> None:
    client = Client()
    stream = begun(client)
    for number in range(5):
        client.stop_reading()
        stream.write(b"a%d " % number)
        await asyncio.sleep(0)
        stream.write(b"b%d " % number)
        client.read_on()
        await stream.write_at_pace(b"c%d " % number)
    stream.end()
    assert await stream.close(FOR_EVER)
    assert client.body == b"".join(b"a%d b%d c%d " % (number, number, number) for number in range(5))


async def test_client_stream_above_its_backlog_is_cut_off_and_notifies_once() -> None:
    client, notified, cut = Client(reads=False), list[int](), list[int]()
    stream = begun(client, backlog=10, cut=lambda: cut.append(1))
    stream.watch(lambda: notified.append(1))
    stream.write(b"12345")
    stream.write(b"67890")
    assert not stream.is_broken
    stream.write(b"!")
    assert (stream.is_broken, notified) == (True, [1])
    stream.write(b"more")
    stream.end(b"end")
    client.read_on()
    await stream.wait_for_room()
    client.leave()  # as the server reports a cut connection
    await asyncio.sleep(0)
    assert not await stream.close(FOR_EVER)
    assert (client.got, notified, cut) == ([], [1], [1])


async def test_client_stream_backlog_is_freed_by_sent_bytes() -> None:
    client = Client(reads=False)
    stream = stream_to(client, backlog=10)
    for _ in range(3):
        client.stop_reading()
        stream.write(b"it waits")
        stream.write(b"1234567890")
        client.read_on()
        await stream.write_at_pace(b"")
    stream.end()
    assert await stream.close(FOR_EVER)
    assert client.body == b"it waits1234567890" * 3


async def test_client_stream_notifies_its_watcher_once_when_the_client_disconnects() -> None:
    client, notified = Client(), asyncio.Event()
    stream = begun(client)
    stream.watch(notified.set)
    client.leave()
    await notified.wait()
    assert stream.is_broken
    stream.write(b"for nobody")
    stream.end()
    assert not await stream.close(FOR_EVER)
    assert client.body == b""


async def test_client_stream_ignores_the_disconnect_after_a_complete_response() -> None:
    client, notified = Client(), asyncio.Event()
    stream = begun(client)
    stream.watch(notified.set)
    stream.end(b"all")
    client.leave()
    await asyncio.sleep(0)
    assert await stream.close(FOR_EVER)
    assert not notified.is_set()


async def test_client_stream_is_incomplete_if_the_client_disconnects_before_the_end() -> None:
    client, notified = Client(), asyncio.Event()
    stream = begun(client)
    stream.watch(notified.set)
    client.stop_reading()
    stream.end(b"the end")
    await asyncio.sleep(0)
    client.leave()
    assert not await stream.close(FOR_EVER)
    assert client.body == b""


async def test_client_stream_cuts_the_connection_if_the_end_is_not_read() -> None:
    client, cut = Client(reads=False), list[int]()
    stream = begun(client, cut=lambda: cut.append(1))
    stream.end(b"the end")
    assert not await stream.close(0)
    assert (stream.is_broken, cut) == (True, [1])


@pytest.mark.parametrize("reads", [True, False])
async def test_client_stream_treats_a_socket_error_as_a_disconnect(reads: bool) -> None:
    client = Client(reads=reads)
    client.problem = ConnectionResetError()
    stream = begun(client)
    client.read_on()
    stream.end(b"the end")
    assert not await stream.close(FOR_EVER)
    assert stream.is_broken


async def test_client_stream_flow_waits_until_there_is_room() -> None:
    client = Client(reads=False)
    stream = stream_to(client)
    flowing = asyncio.create_task(stream.write_at_pace(b"one"))
    await asyncio.sleep(0)
    assert not flowing.done()
    client.read_on()
    await flowing
    assert client.body == b"one"


async def test_client_stream_until_gone_ends_when_the_client_disconnects() -> None:
    client = Client()
    stream = stream_to(client)
    async with stream.cancel_on_disconnect():
        client.leave()
        await asyncio.Event().wait()
    assert stream.is_broken
    current = asyncio.current_task()
    assert current is not None
    assert current.cancelling() == 0


async def test_client_stream_until_gone_ignores_a_disconnect_after_the_end() -> None:
    client = Client(reads=False)
    stream = stream_to(client)
    async with stream.cancel_on_disconnect():
        stream.begin(200, [])
        stream.end(b"all of it")
    asyncio.get_running_loop().call_soon(client.leave)
    assert not await stream.close(FOR_EVER)


async def test_client_stream_until_gone_propagates_cancellation() -> None:
    client, doing = Client(), asyncio.Event()
    stream = stream_to(client)

    async def do() -> None:
        async with stream.cancel_on_disconnect():
            doing.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(do())
    await doing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert not stream.is_broken
    await stream.close(FOR_EVER)


def test_client_stream_cut_is_optional_for_the_asgi_server() -> None:
    cut_of({"type": "http"})()
    cut = list[int]()
    cut_of({"type": "http", "extensions": {CUT: {"cut": lambda: cut.append(1)}}})()
    assert cut == [1]


@pytest.mark.parametrize("last", [b"", b"the end"])
async def test_client_stream_may_have_arrived_once_its_last_bytes_were_sent(last: bytes) -> None:
    client = Client(reads=False)
    stream = begun(client)
    stream.watch(lambda: None)
    stream.write(b"text")
    stream.end(last)
    assert not stream.may_have_arrived
    client.read_on()
    await stream.wait_for_room()
    assert stream.may_have_arrived
    client.leave()
    assert await stream.close(FOR_EVER)


async def test_client_stream_that_was_cut_off_cannot_have_arrived() -> None:
    client = Client(reads=False)
    stream = begun(client)
    stream.watch(lambda: None)
    stream.write(b"text")
    client.leave()
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    stream.end(b"the end")
    assert not await stream.close(FOR_EVER)
    assert not stream.may_have_arrived
