"""A ledger belongs to the process and event loop that opened it; elsewhere it refuses and writes nothing."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnledger import Ledger, RunningTurn
from turnledger.chat import Chat
from turnledger.errors import LedgerElsewhere

GUARD = 60.0
"""Seconds after which a call that should have been refused is given up."""


@pytest.fixture(params=["memory:", "sqlite"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/chats.db" if request.param == "sqlite" else "memory:"


class Home:
    """An event loop that runs in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(GUARD)

    def end(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


@pytest.fixture
def home() -> Iterator[Home]:
    home = Home()
    yield home
    home.end()


async def answer(turn: RunningTurn) -> None:
    turn.emit("yes")


async def close(ledger: Ledger, chat: Chat) -> None:
    await ledger.close()


async def run_turn(ledger: Ledger, chat: Chat) -> None:
    await chat.run(answer, "q")


async def read_turns(ledger: Ledger, chat: Chat) -> None:
    await chat.turns()


async def stop(ledger: Ledger, chat: Chat) -> None:
    await chat.stop()


async def follow(ledger: Ledger, chat: Chat) -> None:
    await anext(ledger.changes())


async def make(ledger: Ledger, chat: Chat) -> None:
    await ledger.conversation()


USES: list[Callable[[Ledger, Chat], Awaitable[None]]] = [run_turn, read_turns, stop, follow, make, close]


@pytest.mark.parametrize("use", USES, ids=[each.__name__ for each in USES])
def test_ledger_used_on_another_loop_refuses_and_writes_nothing(
    url: str, home: Home, use: Callable[[Ledger, Chat], Awaitable[None]]
) -> None:
    ledger = home.run(Ledger.open(url))
    chat = home.run(ledger.conversation())

    async def elsewhere() -> None:
        async with asyncio.timeout(GUARD):
            with pytest.raises(LedgerElsewhere, match="Open one in each loop"):
                await use(ledger, chat)

    asyncio.run(elsewhere())
    home.run(chat.run(answer, "here"))
    assert [turn.input[0].text for turn in home.run(chat.turns())] == ["here"]
    assert home.run(chat.attempts()) == []
    home.run(ledger.close())


def test_events_of_a_turn_that_runs_on_another_loop_are_refused(url: str, home: Home) -> None:
    ledger = home.run(Ledger.open(url))
    chat = home.run(ledger.conversation())
    turn = home.run(begin(chat))

    async def elsewhere() -> None:
        with pytest.raises(LedgerElsewhere):
            await anext(chat.events(turn.id))

    asyncio.run(elsewhere())
    home.run(ledger.close())


async def begin(chat: Chat) -> RunningTurn:
    return await chat.turn("q").__aenter__()


def test_ledger_of_a_closed_loop_refuses_on_the_next_one(url: str) -> None:
    async def open_ledger() -> tuple[Ledger, Chat]:
        ledger = await Ledger.open(url)
        return ledger, await ledger.conversation()

    _open, chat = asyncio.run(open_ledger())

    async def elsewhere() -> None:
        with pytest.raises(LedgerElsewhere):
            await chat.run(answer, "q")

    asyncio.run(elsewhere())


FORKS = """
import asyncio, os, signal, sys
from turnledger import Ledger

async def answer(turn):
    turn.emit("yes")

async def use(work):
    try:
        await work()
    except Exception as problem:
        print(type(problem).__name__, problem, flush=True)
    else:
        print("worked", flush=True)

async def main(url):
    ledger = await Ledger.open(url)
    chat = await ledger.conversation()
    await chat.run(answer, "before")
    child = os.fork()
    if not child:
        signal.alarm(50)  # a child that hangs must not stay
        asyncio._set_running_loop(None)
        asyncio.run(use(lambda: chat.run(answer, "in the child")))
        asyncio.run(use(lambda: chat.turns()))
        asyncio.run(use(ledger.close))
        asyncio.run(use(lambda: Ledger.open(url)))
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)
    await chat.run(answer, "after")
    print([turn.input[0].text for turn in await chat.turns()], flush=True)
    await ledger.close()
    child = os.fork()
    if not child:
        asyncio._set_running_loop(None)
        asyncio.run(use(lambda: Ledger.open(url)))
        os._exit(0)
    await asyncio.to_thread(os.waitpid, child, 0)

asyncio.run(main(sys.argv[1]))
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs os.fork")
def test_ledger_used_after_a_fork_refuses_and_writes_nothing(url: str) -> None:
    script = [sys.executable, "-W", "ignore", "-c", FORKS, url]
    ran = subprocess.run(script, capture_output=True, text=True, timeout=GUARD, check=True)
    refused = "LedgerElsewhere This ledger was opened before os.fork(). Open one in each process"
    lines = ran.stdout.splitlines()
    assert all(line.startswith(refused) for line in lines[:3]), ran.stdout
    if url == "memory:":
        assert lines[3] == "worked"
    else:
        assert lines[3].startswith("LedgerElsewhere")
        assert "Fork first, or use spawn" in lines[3]
    assert lines[4:] == ["['before', 'after']", "worked"]
