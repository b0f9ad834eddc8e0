"""The blocking edge on a real socket: connections are used again, let go of, and woken from."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.unit.client.loopback import loopback
from tests.unit.client.scripted import CHAT, finished, started, text
from turnledger import errors
from turnledger.client import Client, Stream, TurnStream
from turnledger.client.core.steps import Give, Steps

WHOLE = (started(), text(2, "Hello"), finished(3))
WAIT = 30


def test_a_connection_is_used_for_one_stream_after_the_other() -> None:
    with loopback(*WHOLE) as server, Client(server.url, model="demo") as client:
        for _ in range(5):
            assert len(list(client.chats.open(CHAT).send("Hi", stream=True))) == 3
        assert server.connections == 1


def test_a_stream_that_is_left_lets_go_of_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server, Client(server.url, model="demo") as client:
        for _ in client.chats.open(CHAT).send("Hi", stream=True):
            break
        assert server.left.wait(WAIT)


@pytest.mark.parametrize(
    ("end", "kind"),
    [
        (lambda client, stream: stream.close(), None),
        (lambda client, stream: client.close(), errors.RequestFailed),
    ],
    ids=["stream", "client"],
)
def test_a_reader_is_woken_from_another_thread(
    end: Callable[[Client, TurnStream], None], kind: type[Exception] | None
) -> None:
    with loopback(*WHOLE[:2], holds=True) as server, Client(server.url, model="demo") as client:
        stream = client.chats.open(CHAT).send("Hi", stream=True)
        heard: list[Any] = []
        has_heard = threading.Event()

        def read() -> None:
            try:
                for event in stream:
                    heard.append(event.number)  # type: ignore[union-attr]
                    if len(heard) == 2:
                        has_heard.set()
                heard.append("over")
            except errors.TurnledgerError as problem:
                heard.append(type(problem))

        reading = threading.Thread(target=read)
        reading.start()
        assert has_heard.wait(WAIT)
        end(client, stream)
        reading.join(WAIT)
        assert heard == [1, 2, kind or "over"]
        assert server.left.wait(WAIT)


def test_a_stream_that_nobody_read_and_nobody_has_any_more_lets_go_of_its_connection() -> None:
    with loopback(*WHOLE[:2], holds=True) as server, Client(server.url, model="demo") as client:
        client.chats.open(CHAT).send("Hi", stream=True)
        assert server.left.wait(WAIT)
        client.chats.open(CHAT).send("Hi", stream=True).close()
        assert not client._wire._http._transport._pool.connections  # type: ignore[attr-defined]


def test_a_stream_may_be_closed_while_another_thread_decides_what_comes_next() -> None:
    decides, is_closed = threading.Event(), threading.Event()

    def steps() -> Steps[None]:
        yield Give((1,))
        decides.set()
        assert is_closed.wait(WAIT)
        yield Give((2,))

    with Client("http://127.0.0.1:9") as client, ThreadPoolExecutor(1) as pool:
        stream = Stream[int](client._wire, steps())
        reading = pool.submit(list, stream)
        assert decides.wait(WAIT)
        stream.close()
        is_closed.set()
        assert reading.result(WAIT) == []


def test_a_stream_may_be_closed_before_what_was_heard_is_taken() -> None:
    class Emptied(deque[int]):
        """Closed by another thread between the look and the taking."""

        def __bool__(self) -> bool:
            is_full = len(self) > 0
            if is_full:
                stream.close()
            return is_full

    with Client("http://127.0.0.1:9") as client:
        stream = Stream[int](client._wire, iter_of(Give((1, 2))))
        stream._given = Emptied()
        assert list(stream) == []


def test_threads_that_read_one_stream_get_each_event_once() -> None:
    with Client("http://127.0.0.1:9") as client, ThreadPoolExecutor(4) as pool:
        stream = Stream[int](client._wire, iter_of(*(Give((number,)) for number in range(2000))))
        heard = [
            each for reading in [pool.submit(list, stream) for _ in range(4)] for each in reading.result(WAIT)
        ]
        assert sorted(heard) == list(range(2000))


def iter_of(*steps: Give) -> Steps[None]:
    yield from steps
