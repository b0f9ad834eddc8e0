"""Count the modules that a reader of one turn passes: `python -m tools.walk`.

Runs one `chat.turn()` on a ledger, and streamed chat completions through a real server, each after a warm-up.
Prints the modules of this package in the order in which their code first runs. Timers run beside a completion
now and then: the one with the fewest modules is printed.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
from contextlib import asynccontextmanager, suppress
from http.client import HTTPConnection
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import turnledger
from turnledger import Ledger
from turnledger.server.config.settings import Settings
from turnledger.server.listen.serve import open_app, serve_app
from turnledger.server.listen.socket import bind

PACKAGE = str(Path(turnledger.__file__).parent) + "/"
BODY = b'{"model": "demo", "stream": true, "messages": [{"role": "user", "content": "%b"}]}'
PAUSE = 0.2
"""Seconds in which what follows a turn ends, such as a look for other work."""
WARM_UP, COMPLETIONS = 2, 6
"""The second message of a chat is compared with its first one; those after it are like each other."""


class Walk:
    """Records the modules whose code runs while it is on, by first call, in all threads started after it."""

    def __init__(self) -> None:
        self.calls: dict[str, int] = {}
        self.changes = 0
        self.is_on = False
        self._last = ""
        threading.setprofile(self)
        sys.setprofile(self)

    def __call__(self, frame: FrameType, event: str, _: Any) -> None:
        if not self.is_on or event != "call" or not frame.f_code.co_filename.startswith(PACKAGE):
            return
        module = frame.f_code.co_filename.removeprefix(PACKAGE).removesuffix(".py")
        self.calls[module] = self.calls.get(module, 0) + 1
        self.changes += module != self._last
        self._last = module

    def report(self, title: str) -> None:
        sys.setprofile(None)
        threading.setprofile(None)
        calls = sum(self.calls.values())
        print(f"{title}: {len(self.calls)} modules, {calls} calls, {self.changes} changes of module")
        for number, (module, calls) in enumerate(self.calls.items(), 1):
            print(f"{number:4} {module} ({calls})")


class RequestWalk(Walk):
    """Is on from the first byte of each request after the warm-up until its answer was sent."""

    def __init__(self) -> None:
        super().__init__()
        self._requests = 0
        self._shortest: tuple[dict[str, int], int] | None = None

    def __call__(self, frame: FrameType, event: str, argument: Any) -> None:
        if event == "call" and frame.f_code.co_qualname == "BoundedHttp.data_received":
            self._requests += 1
            self.calls, self.changes = {}, 0
            self.is_on = self._requests > WARM_UP
        elif self.is_on and frame.f_code.co_qualname == "TurnRun.record_delivery":
            self.is_on = False
            if self._shortest is None or len(self.calls) < len(self._shortest[0]):
                self._shortest = self.calls, self.changes
        super().__call__(frame, event, argument)

    def report(self, title: str) -> None:
        if self._shortest is None:
            raise SystemExit("No answer was delivered.")
        self.calls, self.changes = self._shortest
        super().report(title)


async def walk_library(folder: str) -> Walk:
    walk = Walk()
    async with await Ledger.open(f"sqlite:///{folder}/library.db") as ledger:
        chat = await ledger.conversation()
        for walk.is_on in (False, True):
            async with chat.turn("Hello") as turn:
                turn.emit("Hi")
        walk.is_on = False
    return walk


@asynccontextmanager
async def served(settings: Settings) -> Any:
    listening = bind(settings)
    async with open_app(settings, {}, listening) as app:
        started = asyncio.Event()
        serving = asyncio.create_task(serve_app(app, listening, lambda _: started.set()))
        await started.wait()
        try:
            yield listening.getsockname()[1]
        finally:
            serving.cancel()
            with suppress(asyncio.CancelledError):
                await serving


def complete(port: int) -> None:
    connection = HTTPConnection("127.0.0.1", port)
    for number in range(WARM_UP + COMPLETIONS):
        time.sleep(PAUSE)
        headers = {"content-type": "application/json", "x-conversation-id": "walk"}
        connection.request("POST", "/v1/chat/completions", BODY % str(number).encode(), headers)
        answer = connection.getresponse().read()
        if not answer.endswith(b"data: [DONE]\n\n"):
            raise SystemExit(f"The completion failed: {answer!r}")
    connection.close()


async def walk_server(folder: str) -> Walk:
    walk = RequestWalk()
    async with served(Settings(port=0, store=f"sqlite:///{folder}/server.db")) as port:
        await asyncio.to_thread(complete, port)
    return walk


def main() -> None:
    with TemporaryDirectory() as folder:
        asyncio.run(walk_library(folder)).report("chat.turn()")
        asyncio.run(walk_server(folder)).report("streamed chat completion")


if __name__ == "__main__":
    main()
