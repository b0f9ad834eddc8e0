"""The blocking edge on a real socket: connections are used again, let go of, and woken from."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from tests.unit.client.loopback import loopback
from tests.unit.client.scripted import CHAT, finished, started, text
from turnledger import errors
from turnledger.client import Client, TurnStream

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
