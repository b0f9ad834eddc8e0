"""A client that stops reading: its turn is committed as if it read, and the next one need not wait for it."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec

from tests.crash.served import Heard, completion, exchange, request, served
from turnledger.model.messages.messages import checked_messages
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.server.config.settings import ServerLimits, Settings
from turnledger.server.wire.client_stream import BACKLOG

PIECE = "x" * 8_000
SMALL = 4_096
TCP_REPAIR = 19
"""A socket option of Linux: what is closed in this state is closed without a word."""


class Talker(DemoModel):
    """Says as many long words as it is asked for, as fast as it can."""

    @asynccontextmanager
    async def stream(self, asked: ModelRequest) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        yield self._pieces(int(checked_messages(asked.messages)[-1]["content"]))

    async def _pieces(self, count: int) -> AsyncIterator[list[bytes]]:
        for _ in range(count):
            await asyncio.sleep(0)  # others have their turn
            yield [chunk({"content": PIECE})]
        yield [chunk({}, "stop")]


def chunk(delta: dict[str, str], finish_reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    whole = {"id": "talk", "object": "chat.completion.chunk", "created": 0, "model": "demo"}
    return msgspec.json.encode({**whole, "choices": [choice]})


def settings(send_wait: float) -> Settings:
    return Settings(limits=ServerLimits(send_wait=send_wait))


class SlowClient:
    """Sends its request, and reads nothing until it is told to."""

    def __init__(self) -> None:
        self._socket = socket.socket()
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, SMALL)
        self._socket.setblocking(False)
        self._loop = asyncio.get_running_loop()

    async def ask(self, port: int, asked: bytes) -> None:
        await self._loop.sock_connect(self._socket, ("127.0.0.1", port))
        await self._loop.sock_sendall(self._socket, asked)

    async def read_all(self) -> Heard:
        heard = Heard()
        while piece := await self._loop.sock_recv(self._socket, 65_536):
            heard.take(piece)
        self._socket.close()
        return heard

    async def read_until(self, told: bytes) -> None:
        heard = b""
        while told not in heard:
            heard += await self._loop.sock_recv(self._socket, 65_536)

    def leave(self) -> None:
        self._socket.close()

    def vanish(self) -> None:
        """As when the machine loses its power: nobody is told."""
        self._socket.setsockopt(socket.IPPROTO_TCP, TCP_REPAIR, 1)
        self._socket.close()


async def lane_is_free(port: int) -> None:
    """Wait in line behind the slow client's turn."""
    heard = await exchange(port, completion("1", X_Conversation_Id="one"))
    assert heard.payloads[-1] == b"[DONE]"


async def test_the_turn_is_committed_while_its_client_has_read_nothing_of_it() -> None:
    count = BACKLOG // 2 // len(PIECE)
    async with served(Talker(), settings(60), send_buffer=SMALL) as serving:
        client = SlowClient()
        await client.ask(serving.port, completion(str(count), X_Conversation_Id="one"))
        await serving.running()
        await lane_is_free(serving.port)
        chat = await serving.ledger.conversation(conversation_key="one")
        assert [len(turn.text) for turn in await chat.turns()] == [count * len(PIECE), len(PIECE)]
        heard = await client.read_all()
        assert heard.is_whole
        assert (len(heard.text), heard.payloads[-1]) == (count * len(PIECE), b"[DONE]")


async def test_the_same_words_while_the_first_answer_is_being_sent_are_a_second_message() -> None:
    """Even as a later try of their client, whose first try never arrived."""
    count = str(BACKLOG // 2 // len(PIECE))
    headers = {"X_Conversation_Id": "one", "X_Conversation_Messages": "new"}
    tries = [completion(count, X_Stainless_Retry_Count=each, **headers) for each in "01"]
    async with served(Talker(), settings(60), send_buffer=SMALL) as serving:
        client = SlowClient()
        await client.ask(serving.port, tries[0])
        await serving.running()
        second = await exchange(serving.port, tries[1])
        first = await client.read_all()
        assert (first.payloads[-1], second.payloads[-1]) == (b"[DONE]", b"[DONE]")
        chat = await serving.ledger.conversation(conversation_key="one")
        told = [heard.headers["x-turn-id"] for heard in (first, second)]
        assert [str(turn.id) for turn in await chat.turns()] == told


async def test_beyond_the_backlog_the_client_is_cut_off_and_can_read_the_turn_again() -> None:
    count = 2 * BACKLOG // len(PIECE)
    async with served(Talker(), settings(60), send_buffer=SMALL) as serving:
        client = SlowClient()
        await client.ask(serving.port, completion(str(count), X_Conversation_Id="one"))
        await serving.running()
        await lane_is_free(serving.port)
        await serving.answered()  # nobody waits for the one that was cut off
        heard = await client.read_all()
        assert not heard.is_whole
        assert b"[DONE]" not in heard.raw
        chat = await serving.ledger.conversation(conversation_key="one")
        turn, _ = await chat.turns()
        assert len(turn.text) == count * len(PIECE)
        follow = request(f"/api/turns/{heard.headers['x-turn-id']}/events", method="GET")
        events = await exchange(serving.port, follow)
        assert events.is_whole
        assert events.body.count(PIECE.encode()) >= count


async def test_without_a_conversation_the_model_waits_for_its_client() -> None:
    count = 2 * BACKLOG // len(PIECE)
    async with served(Talker(), settings(60), send_buffer=SMALL) as serving:
        client = SlowClient()
        await client.ask(serving.port, completion(str(count)))
        await exchange(serving.port, completion(str(count)))  # who reads need not wait
        heard = await client.read_all()
        assert heard.is_whole
        assert (len(heard.text), heard.payloads[-1]) == (count * len(PIECE), b"[DONE]")


async def test_a_client_that_never_reads_the_end_is_not_waited_for_without_end() -> None:
    count = BACKLOG // 2 // len(PIECE)
    async with served(Talker(), settings(0), send_buffer=SMALL) as serving:
        client = SlowClient()
        await client.ask(serving.port, completion(str(count), X_Conversation_Id="one"))
        await serving.running()
        await lane_is_free(serving.port)
        await serving.answered()
        client.leave()
        await serving.all_lost(2)


async def test_a_reader_of_events_that_stops_reading_is_in_nobodys_way() -> None:
    count = 2 * BACKLOG // len(PIECE)
    async with served(Talker(), settings(60), send_buffer=SMALL) as serving:
        asking = asyncio.create_task(
            exchange(serving.port, completion(str(count), X_Conversation_Id="one"), asked := Heard())
        )
        await asked.until(lambda heard: "x-turn-id" in heard.headers)
        client = SlowClient()
        follow = request(f"/api/turns/{asked.headers['x-turn-id']}/events", method="GET")
        await client.ask(serving.port, follow)
        assert (await asking).payloads[-1] == b"[DONE]"
        await lane_is_free(serving.port)
        heard = await client.read_all()
        assert heard.is_whole
        assert b"turn.finished" in heard.payloads[-1]
