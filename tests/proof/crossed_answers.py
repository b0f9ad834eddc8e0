"""No answer reaches another request, even if an upstream sends unrequested responses.

Two owners share a connection pool to an upstream that repeats each response on the same connection. A
repetition that is readable before the connection is reused must reach no turn. One that arrives later must
reach none when connections are not reused.
"""

from __future__ import annotations

import asyncio
import random
import threading
import time
from collections import defaultdict
from contextlib import suppress

import msgspec
import uvloop

from turnledger import Ledger
from turnledger.runners.chat_runner import ChatRunner
from turnledger.runners.upstream.upstream import Upstream

SECONDS = 300
TURNS = 720
CLIENTS = 8


class Echo:
    """An upstream in another thread that answers with the question, twice."""

    def __init__(self, *, delays: bool) -> None:
        self._dice = random.Random(7)
        self._delays = delays
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(asyncio.start_server(self._serve, "127.0.0.1", 0))
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.connections = 0
        self.is_repeated: dict[str, threading.Event] = defaultdict(threading.Event)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"

    def close(self) -> None:
        self._server.close()
        while any(task.get_coro().__name__ == "_serve" for task in asyncio.all_tasks(self._loop)):
            time.sleep(0.01)  # until its clients disconnect
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).lower()
                length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
                question = msgspec.json.decode(await reader.readexactly(length))["messages"][-1]["content"]
                writer.write(_response(question))
                await asyncio.sleep(self._dice.choice((0, 0.0005, 0.002, 0.005)) if self._delays else 0.0005)
                writer.write(_response(question))
                self.is_repeated[question].set()


def _response(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    body = msgspec.json.encode({"id": "x", "model": "m", "choices": [choice]})
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (
        len(body),
        body,
    )


async def crossed(echo: Echo, *, reuse: bool) -> int:
    """Run the turns; return the number of committed turns with the answer to another question."""
    wrong = 0
    model = Upstream(echo.url, reuse=reuse)
    async with await Ledger.open("memory:") as ledger:

        async def client(number: int) -> None:
            nonlocal wrong
            for each in range(TURNS // CLIENTS):
                question = f"{number}-{each}"
                runner = ChatRunner(model, {"model": "m"}, stream=False)
                owner = f"owner-{number % 2}"
                turn = await ledger.for_owner(owner).run(runner, question, conversation_key=str(number))
                [answer] = [item.text for item in turn.output]
                wrong += answer != question
                if reuse:
                    # Block the loop until the repetition has arrived, so that it cannot be read first.
                    echo.is_repeated[question].wait()

        await asyncio.gather(*map(client, range(CLIENTS)))
    await model.close()
    return wrong


def prove() -> None:
    for delays, reuse in ((False, True), (True, False)):
        echo = Echo(delays=delays)
        wrong = uvloop.run(crossed(echo, reuse=reuse))
        echo.close()
        when = "at any moment" if delays else "before the connection is used again"
        print(f"repeated {when}, reuse {reuse}: {wrong} of {TURNS} crossed, {echo.connections} connections")
        assert wrong == 0
