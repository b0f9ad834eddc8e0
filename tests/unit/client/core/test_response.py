"""What is taken of an answer that is read whole."""

from __future__ import annotations

import httpx2
import pytest

from tests.unit.client.scripted import CHAT
from turnledger.client import AsyncClient, Client, Retries
from turnledger.client.core import response
from turnledger.client.core.response import Whole
from turnledger.client.core.steps import Broken, Reply
from turnledger.errors import RequestFailed, ServerUnavailable

ROOM = 1000


@pytest.fixture(autouse=True)
def _little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "MOST_BYTES", ROOM)
    monkeypatch.setattr(response, "MOST_OF_A_REFUSAL", ROOM)


class Endless(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that never ends; it remembers how much of it was read, and whether it was closed."""

    def __init__(self) -> None:
        self.read = 0
        self.is_closed = False

    def __iter__(self):  # type: ignore[no-untyped-def]
        while True:
            assert self.read < 100 * ROOM
            self.read += 100
            yield b"x" * 100

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        for piece in self:
            yield piece

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("status", [200, 404, 503])
def test_an_answer_without_end_is_not_read_to_it(status: int) -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, stream=body))
    with (
        httpx2.Client(transport=transport) as http,
        Client(http=http, retries=Retries(times=0)) as client,
        pytest.raises(RequestFailed) as refused,
    ):
        client.chats.open(CHAT).info()
    assert body.read == ROOM + 100
    assert body.is_closed
    assert isinstance(refused.value, ServerUnavailable) == (status != 404)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("status", [200, 404])
async def test_nor_where_it_is_awaited(status: int) -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, stream=body))
    async with httpx2.AsyncClient(transport=transport) as http, AsyncClient(http=http) as client:
        with pytest.raises(RequestFailed):
            await client.chats.open(CHAT).info()
    assert body.read == ROOM + 100
    assert body.is_closed


def test_nor_is_the_refusal_of_a_stream() -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(404, stream=body))
    with (
        httpx2.Client(transport=transport) as http,
        Client(http=http, model="demo") as client,
        pytest.raises(RequestFailed),
    ):
        client.chats.open(CHAT).send("Hi", stream=True)
    assert body.read == ROOM + 100


def test_what_has_room_is_taken_whole() -> None:
    whole = Whole(httpx2.Response(200))
    assert whole.add(b"x" * ROOM)
    assert whole.outcome == Reply(200, httpx2.Headers(), b"x" * ROOM)
    assert not whole.add(b"x")
    assert whole.outcome == Broken("the answer is without end", is_hopeless=True)
