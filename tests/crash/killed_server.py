"""kill -9 of the server under load: `python -m tests.crash.killed_server --rounds 100 --seed 7`.

Several clients run turns over HTTP while the server is killed at moments chosen by the seed and restarted on
the same file. At the end the store is compared with the answers that clients received.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import re
import signal
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random

import aiohttp

from tests.crash.place import store_of
from tests.crash.promises import check_chain, check_file, whole_history
from tests.fork_server import ROOT, ForkedProcess
from turnledger import Ledger, Turn
from turnledger.testing.upstream import ScriptedUpstream
from turnledger.types import TurnKind

WORDS = [f"word{number} " for number in range(12)]
ANSWER = "".join(WORDS)
LANES = ("lane-a", "lane-b", "lane-c")
CLIENTS = 6
DIED = b"the process that ran it died"
MOMENTS = ("sent", "streaming", "answered")
"""When a request was sent, part of an answer arrived, or all of it."""


def environment(folder: Path) -> dict[str, str]:
    """Return an environment with our sources, temporary files in the folder and no user configuration."""
    sources = f"{ROOT / 'src'}{os.pathsep}{ROOT}"
    places = dict.fromkeys(("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "TMPDIR"), str(folder))
    return {**os.environ, **places, "PYTHONPATH": sources}


class ServerProcess:
    """`turnledger serve` on a file in a folder."""

    def __init__(
        self, folder: Path, upstream: str | None, *flags: str, command: Sequence[str] = ("turnledger",)
    ) -> None:
        self.store = store_of(folder)
        options = ["--port", "0", "--store", self.store, "--log-level", "warning", *flags]
        if upstream is not None:
            options += ["--upstream", upstream]
        self.errors = folder / "errors"
        with self.errors.open("a") as errors:
            self.process = ForkedProcess(*command, "serve", *options, stderr=errors, env=environment(folder))
        self.url = ""

    async def wait_ready(self) -> str:
        """Wait until it serves; return its URL."""
        address = re.compile(r"http://[\d.]+:\d+")
        found = await asyncio.to_thread(next, filter(None, map(address.search, self.process.stdout)), None)
        assert found is not None, self.errors.read_text()
        self.url = found[0]
        return self.url

    def kill(self) -> None:
        """Kill all its processes."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)

    async def end(self, number: signal.Signals | None = None) -> int:
        """Send the signal, if any, and wait for the end."""
        if number is not None:
            self.process.send_signal(number)
        code = await asyncio.to_thread(self.process.wait)
        self.process.close()
        return code


@dataclass
class Notes:
    """Answers that clients received."""

    acknowledged: dict[str, str] = field(default_factory=dict)
    """Turns by token."""
    sent: set[str] = field(default_factory=set)
    problems: list[str] = field(default_factory=list)
    """Forbidden answers."""
    cut: int = 0
    """How often a kill interrupted a request; one with a key may be answered since."""


def kill_at(dice: Random, kill: Callable[[], None]) -> Callable[[str], None]:
    """Return a function that clients call at each moment; at one that is chosen here, it kills."""
    kind, left = dice.choice(MOMENTS), dice.randint(1, 60)

    def moment(what: str) -> None:
        nonlocal left
        left -= what == kind
        if left == 0:
            kill()

    return moment


async def repeat_until_killed(send: Callable[[], Awaitable[None]]) -> None:
    with suppress(aiohttp.ClientError):
        while True:
            await send()


class Client:
    """Sends requests to changing conversations. Every second one has a key and is repeated after a kill until
    it is answered; the others are sent once."""

    def __init__(self, seed: int, number: int, notes: Notes, lanes: Sequence[str] = LANES) -> None:
        self._dice = Random(f"{seed}/{number}")
        self._lanes = lanes
        self._name = f"{seed}.{number}"
        self._notes = notes
        self._count = 0
        self._again: tuple[str, str, bool] | None = None

    @property
    def is_owed(self) -> bool:
        """Whether a request with a key is unanswered."""
        return self._again is not None

    async def send(self, session: aiohttp.ClientSession, url: str, moment: Callable[[str], None]) -> None:
        """Send a request once. Raises errors of aiohttp when the server is killed."""
        keyed, (token, lane, stream) = True, self._again or ("", "", False)
        is_retry = self._again is not None
        if not is_retry:
            self._count += 1
            token, lane = f"{self._name}.{self._count}", self._dice.choice(self._lanes)
            stream, keyed = self._dice.random() < 0.7, self._count % 2 == 0
            self._again = (token, lane, stream) if keyed else None
        headers = {"X-Conversation-Id": lane} | ({"Idempotency-Key": token} if keyed else {})
        body = {"model": "any", "messages": [{"role": "user", "content": token}], "stream": stream}
        self._notes.sent.add(token)
        moment("sent")
        try:
            async with session.post(f"{url}/v1/chat/completions", json=body, headers=headers) as answer:
                received = b""
                async for piece in answer.content.iter_any():
                    received += piece
                    moment("streaming")
        except aiohttp.ClientError as error:
            self._notes.cut += not isinstance(error, aiohttp.ClientConnectorError)
            raise
        if is_retry and DIED in received:
            return  # attached to the attempt that just died, with its end
        self._note(token, answer, received, stream=stream)
        self._again = None
        moment("answered")

    def _note(self, token: str, answer: aiohttp.ClientResponse, received: bytes, *, stream: bool) -> None:
        if answer.status == 200 and (not stream or received.endswith(b"data: [DONE]\n\n")):
            if token in self._notes.acknowledged:
                self._notes.problems.append(f"{token} was answered twice")
            self._notes.acknowledged[token] = answer.headers["X-Turn-Id"]
        else:
            self._notes.problems.append(f"{token}: {answer.status} {received[-300:]!r}")


class Storm:
    """Rounds that end with a kill, a last one that does not, then the checks."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder = folder
        self._dice = Random(seed)
        self.notes = Notes()
        self._clients = [Client(seed, number, self.notes) for number in range(CLIENTS)]

    async def run(self, rounds: int) -> dict[str, list[Turn]]:
        """Return the checked histories; raises AssertionError for a broken promise."""
        async with ScriptedUpstream(otherwise=WORDS, max_received=0) as upstream:
            for _ in range(rounds):
                await self._round(upstream.url)
            await self._last_round(upstream.url)
        return await self._check()

    async def _round(self, upstream: str) -> None:
        server = ServerProcess(self._folder, upstream)
        url = await server.wait_ready()
        moment = kill_at(self._dice, server.process.kill)
        async with aiohttp.ClientSession() as session:
            sends = (partial(client.send, session, url, moment) for client in self._clients)
            await asyncio.gather(*map(repeat_until_killed, sends))
        assert await server.end() == -signal.SIGKILL, server.errors.read_text()

    async def _last_round(self, upstream: str) -> None:
        """Repeat unanswered requests, and send more."""
        server = ServerProcess(self._folder, upstream)
        url = await server.wait_ready()
        async with aiohttp.ClientSession() as session:
            for _ in range(3):
                await asyncio.gather(*(client.send(session, url, lambda _: None) for client in self._clients))
        assert await server.end(signal.SIGTERM) == 0, server.errors.read_text()
        assert self.notes.problems == [], self.notes.problems

    async def _check(self, lanes: Collection[str] = LANES) -> dict[str, list[Turn]]:
        assert self.notes.cut, "no kill cut a request off: this shows nothing"
        return await checked_histories(self._folder, lanes, self.notes)


async def checked_histories(folder: Path, lanes: Collection[str], notes: Notes) -> dict[str, list[Turn]]:
    """Return the histories: whole turns, each once, with all that were acknowledged and none that nobody
    sent."""
    check_file(folder)
    histories = {}
    async with await Ledger.open(store_of(folder)) as ledger:
        assert await ledger.check() == []
        for lane in lanes:
            histories[lane] = await whole_history(await ledger.conversation(conversation_key=lane))
            check_chain(histories[lane])
    turns = [turn for history in histories.values() for turn in history]
    for turn in turns:
        assert (turn.kind, turn.text) == (TurnKind.COMPLETED, ANSWER), "half a turn"
    there = Counter(turn.input[0].text for turn in turns)
    assert [token for token, times in there.items() if times > 1] == []
    assert there.keys() <= notes.sent
    found = {turn.input[0].text: str(turn.id) for turn in turns}
    assert notes.acknowledged, "nothing was acknowledged: this shows nothing"
    assert {token: found.get(token) for token in notes.acknowledged} == notes.acknowledged
    return histories


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.killed_server", description=__doc__)
    parser.add_argument("--rounds", type=int, default=20, help="how often the server is killed")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        storm = Storm(Path(folder), given.seed)
        histories = asyncio.run(storm.run(given.rounds))
    kept = sum(len(history) for history in histories.values())
    sent, received = len(storm.notes.sent), len(storm.notes.acknowledged)
    print(f"{given.rounds} kills: {sent} sent, {received} acknowledged, {kept} kept. All promises were kept.")


if __name__ == "__main__":
    main()
