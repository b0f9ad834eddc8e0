"""A storm: `python -m tests.clients.storm [--client python|async|typescript|mixed] --seconds 60 --seed 7`

Long answers are streamed over connections that break at random, from a server that is killed, shut down and
restarted on one SQLite file. Every stream must return each event once and reach its end; at last every
message must be in the history once, as answered.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.clients.drivers.all_drivers import CLIENTS, start_driver
from tests.clients.drivers.driver import ClientError, Command, Driver
from tests.clients.places import ProcessPlace, WorkersPlace, process_place, workers_place
from tests.clients.player import check_numbers
from tests.crash.promises import check_chain, check_file
from turnledger import Ledger, Turn
from turnledger.testing.fault_proxy import Fault

CHATS = 3
RETRIES = {"times": 10_000, "first_pause": 0.01, "max_pause": 0.2, "patience": 300}
PATIENCE = 120.0
"""Seconds after which an unanswered request fails the storm."""


@dataclass(frozen=True)
class Weather:
    workers: int = 6
    words: tuple[int, ...] = (3, 30, 150)
    """Lengths of answers."""
    silence: float = 1.0
    """Seconds after which a client gives up a silent connection."""
    strikes: tuple[str, ...] = (*("break",) * 12, *("cut", "reset", "stall", "kill") * 2, "refuse", "end")
    """Faults, drawn again and again."""
    processes: int = 1
    """Workers of the server; one is killed at a time."""


@dataclass
class Notes:
    """Answers that clients received."""

    sent: dict[str, str] = field(default_factory=dict)
    """By word, the chat."""
    answered: dict[str, tuple[str, str]] = field(default_factory=dict)
    """By word, the turn and its text."""
    discarded: set[str] = field(default_factory=set)
    """Words of turns that other requests rolled back."""
    edits: dict[str, list[str]] = field(default_factory=dict)
    """By chat, the words of its first turn and its edits."""
    forked: set[str] = field(default_factory=set)
    changes: list[dict[str, Any]] = field(default_factory=list)
    """Changes that a follower received."""
    events: int = 0
    restarts: int = 0
    strikes: Counter[str] = field(default_factory=Counter)


class Storm:
    def __init__(
        self, driver: Driver, place: ProcessPlace | WorkersPlace, seed: int, weather: Weather
    ) -> None:
        self._weather = weather
        self._driver = driver
        self._place = place
        self._dice = Random(seed)
        self._seed = seed
        self.notes = Notes()
        self._left = 10
        self._due = asyncio.Event()
        self._commands = 0
        self._words = 0
        self._following: Command
        self._has_event = asyncio.Event()
        self._edited: dict[str, tuple[str, str | None]] = {}
        """Chat and its only turn, by name."""

    async def run(self, is_over: Callable[[Notes], bool]) -> None:
        """Run until it is over, then check the store. Raises AssertionError for a broken promise."""
        await self._place.begin()
        silence = self._weather.silence
        timeouts = {"connect": 5, "silence": silence, "write": silence}
        for name in ("one", "two"):
            options = {"model": "demo", "timeouts": timeouts, "retries": RETRIES}
            await self._do("client", named=name, base_url=self._place.base_url, **options)
        chats = [await self._do("chats.create", "one", f"made-{n}", scope="storm") for n in range(CHATS)]
        ids = [chat["id"] for chat in chats]
        striking = asyncio.create_task(self._strike_on())
        try:
            async with asyncio.TaskGroup() as group:
                following = group.create_task(self._follow())
                async with asyncio.timeout(PATIENCE):
                    # A follower receives changes after its connection only.
                    await self._has_event.wait()
                talking = [
                    group.create_task(self._talk(number, ids, is_over))
                    for number in range(self._weather.workers)
                ]
                await asyncio.wait(talking)
                await self._leave(following)
        finally:
            striking.cancel()
            await asyncio.gather(striking, return_exceptions=True)
        await self._place.begin()
        await self._place.rest()
        await self._check(ids)

    async def _do(self, verb: str, on: str = "client", named: str | None = None, **arguments: Any) -> Any:
        self._commands += 1
        command = Command(self._commands, verb, arguments, on, named)
        async with asyncio.timeout(PATIENCE):
            return await self._driver.do(command, self._receive)

    def _receive(self, event: Any) -> None:
        self.notes.events += 1
        self._left -= 1
        if self._left <= 0:
            self._due.set()

    def _word(self) -> str:
        self._words += 1
        return f"word-{self._seed}-{self._words:05}"

    async def _talk(self, number: int, ids: list[str], is_over: Callable[[Notes], bool]) -> None:
        client = ("one", "two")[number % 2]
        name = f"chat-{number}"
        while not is_over(self.notes):
            id = self._dice.choice(ids)
            await self._do("chats.open", client, name, id=id)
            chosen = self._dice.random()
            if chosen < 0.1:
                await self._fork(name, number)
            elif chosen < 0.2:
                await self._edit(client, number)
            elif chosen < 0.35:
                await self._stop(name, id, number)
            else:
                await self._send(name, id, stream=chosen < 0.85)

    async def _send(self, name: str, id: str, *, stream: bool) -> None:
        word, length = self._word(), self._dice.choice(self._weather.words)
        self.notes.sent[word] = id
        policies = {
            "on_busy": self._dice.choice((*("queue",) * 8, "interrupt", "rollback")),
            "on_failure": self._dice.choice(("settle", "settle", "keep")),
        }
        options = {"input": f"/count {length} {word}", "stream": stream, **policies}
        sending = self._do("chat.send", name, **options)
        await self._outcome(word, sending, " ".join(map(str, range(1, length + 1))))

    async def _outcome(self, word: str, sending: Awaitable[Any], whole: str | None) -> str | None:
        """Record the outcome of a turn: whole, partly kept, or nothing."""
        try:
            result = await sending
        except ClientError as problem:
            if problem.code != "turn_stopped":
                raise
            self.notes.discarded.add(word)
            return None
        answer = result.get("answer", result)
        turn, text = answer["turn"], answer["text"]
        is_whole = turn["kind"] == "completed"
        assert turn["kind"] in ("completed", "interrupted"), turn
        assert whole is None or (text == whole if is_whole else whole.startswith(text)), f"{word}: {text!r}"
        if "events" in result:
            self._check_stream(result["events"], text)
        self.notes.answered[word] = turn["id"], text
        return str(turn["id"])

    async def _follow(self) -> None:
        """Follow all changes until the storm is over."""
        self._commands += 1
        self._following = Command(self._commands, "client.events", {"count": 1_000_000_000}, "one")

        def receive(change: Any) -> None:
            self.notes.changes.append(change)
            self._has_event.set()

        try:
            await self._driver.do(self._following, receive)
        except ClientError as problem:
            if problem.code != "cancelled":
                raise

    async def _leave(self, following: asyncio.Task[None]) -> None:
        """Wait until the follower received all changes, then stop it."""
        last = await self._do("chats.create", "two", "last", scope="last")
        async with asyncio.timeout(PATIENCE):
            while not any(change["chat"] == last["id"] for change in self.notes.changes):
                self._has_event.clear()
                await self._has_event.wait()
        await self._do("cancel", "one", command=self._following.id)
        await following

    async def _edit(self, client: str, number: int) -> None:
        """Edit the only turn of a chat that no other client uses."""
        name, word = f"edited-{number}", self._word()
        if name not in self._edited:
            made = await self._do("chats.create", client, name, scope="edited")
            self._edited[name] = made["id"], None
        id, turn = self._edited[name]
        verb, more = ("chat.send", {}) if turn is None else ("chat.edit", {"turn": turn})
        sending = self._do(verb, name, input=f"/count 5 {word}", stream=True, **more)
        self._edited[name] = id, await self._outcome(word, sending, "1 2 3 4 5")
        self.notes.edits.setdefault(id, []).append(word)

    def _check_stream(self, events: list[Any], text: str) -> None:
        self.notes.restarts += sum(event[0] == "turn.restarted" for event in events)
        part = check_numbers(events)
        assert part[0][0] == "turn.started", events
        assert part[-1][0] == "turn.finished", events
        assert "".join(event[2] for event in part if event[0] == "text.delta") == text, events

    async def _fork(self, name: str, number: int) -> None:
        word = self._word()
        await self._do("chat.fork", name, f"fork-{number}", title=word)
        self.notes.forked.add(word)

    async def _stop(self, name: str, id: str, number: int) -> None:
        """Start an endless answer and stop it by its stream, so that no other turn is meant."""
        word = self._word()
        self.notes.sent[word] = id
        begun = asyncio.Event()
        stream = f"stream-{number}"
        self._commands += 1
        options = {"input": f"/stall after 4 {word}", "stream": True}
        command = Command(self._commands, "chat.send", options, name, stream)

        def receive(event: Any) -> None:
            self._receive(event)
            begun.set()

        sending = asyncio.create_task(self._driver.do(command, receive))
        sending.add_done_callback(lambda _: begun.set())
        async with asyncio.timeout(PATIENCE):
            while not sending.done():
                await begun.wait()
                begun.clear()
                if not sending.done():
                    # The process may die before it receives the stop; then another attempt runs.
                    await self._do("stream.stop", stream)
                    await asyncio.wait([sending], timeout=0.5)
                    begun.set()
            await self._outcome(word, sending, None)

    async def _strike_on(self) -> None:
        coming: list[str] = []
        while True:
            await self._due.wait()
            self._due.clear()
            self._left = self._dice.choice((3, 20, 100))
            if not coming:
                coming = list(self._weather.strikes)
                self._dice.shuffle(coming)
            what = coming.pop()
            await self._strike(what)
            self.notes.strikes[what] += 1

    async def _strike(self, what: str) -> None:
        if what == "break":
            self._place.proxy.plan(*(self._fault() for _ in range(self._dice.randint(1, 4))))
        elif what in ("kill", "end"):
            await (self._place.lose() if what == "kill" else self._place.replace())
        elif what == "refuse":
            await self._place.wire("refuse")
            await self._place.wire("cut")
            await self._place.wire("accept")
        else:
            await self._place.wire(what)

    def _fault(self) -> Fault | None:
        dice = self._dice
        if dice.random() < 0.2:
            return None
        place = {"sent": dice.randint(0, 500)} if dice.random() < 0.3 else {"received": dice.randint(0, 8000)}
        kind = dice.choice(("cut", "reset", "stalls", "pause", "duplicates"))
        if kind in ("cut", "reset"):
            return Fault(**place, resets=kind == "reset")
        return Fault(**place, pause=0.01) if kind == "pause" else Fault(**place, **{kind: True})

    async def _check(self, ids: list[str]) -> None:
        notes = self.notes
        check_file(Path(self._place.store.removeprefix("sqlite:///")).parent)
        async with await Ledger.open(self._place.store) as ledger:
            assert await ledger.check() == []
            turns: dict[str, list[Turn]] = {}
            for id in ids:
                chat = await ledger.conversation(id)
                turns[id] = await chat.turns(limit=1000)
                while turns[id] and turns[id][0].number > 1:
                    earlier = await chat.turns(before=turns[id][0].number, limit=1000)
                    turns[id] = [*earlier, *turns[id]]
                check_chain(turns[id])
            page = await ledger.for_owner("local", scope="storm").list(limit=1000)
            await self._check_edits(ledger)
        found = [(turn.input[0].text.rsplit(" ", 1)[1], id, turn) for id in ids for turn in turns[id]]
        words = Counter(word for word, _, _ in found)
        assert [word for word, times in words.items() if times > 1] == [], "sent twice"
        edits = {word for edited in notes.edits.values() for word in edited}
        assert words.keys() == notes.sent.keys() - notes.discarded == notes.answered.keys() - edits
        for word, id, turn in found:
            assert (notes.sent[word], notes.answered[word]) == (id, (str(turn.id), turn.text)), word
        self._check_changes()
        titles = Counter(each.conversation.title for each in page.chats)
        assert {word: titles[word] for word in notes.forked} == dict.fromkeys(notes.forked, 1)
        assert len(page.chats) == CHATS + len(notes.forked)

    def _check_changes(self) -> None:
        """Check that the follower received each change once."""
        changes = self.notes.changes
        assert [change["type"] for change in changes[:1]] == ["start"]
        assert "gap" not in {change["type"] for change in changes}
        places = Counter(change["position"] for change in changes[1:])
        assert [place for place, times in places.items() if times > 1] == [], "sent twice"
        committed = Counter(change["turn"] for change in changes if change["type"] == "turn.committed")
        assert committed == Counter(turn for turn, _ in self.notes.answered.values())

    async def _check_edits(self, ledger: Ledger) -> None:
        for id, words in self.notes.edits.items():
            chat = await ledger.conversation(id)
            (shown,) = await chat.turns()
            made = [each.turn for each in await chat.siblings(shown.id, limit=1000)]
            assert [turn.input[0].text.rsplit(" ", 1)[1] for turn in made] == words
            assert len(await chat.branches(limit=1000)) == len(words)


async def storm(
    client: str, folder: Path, seed: int, is_over: Callable[[Notes], bool], weather: Weather | None = None
) -> Notes:
    """Run a storm with a client; return its notes."""
    weather = weather or Weather()
    where: AbstractAsyncContextManager[ProcessPlace | WorkersPlace] = (
        process_place(folder) if weather.processes == 1 else workers_place(folder, weather.processes)
    )
    async with where as place, start_driver(client) as driver:
        raging = Storm(driver, place, seed, weather)
        await raging.run(is_over)
        return raging.notes


def _lasts(seconds: float) -> Callable[[Notes], bool]:
    """Return a function that is true this long after its first call, since servers start slowly."""
    ends: list[float] = []

    def is_over(_: Notes) -> bool:
        now = time.monotonic()
        if not ends:
            ends.append(now + seconds)
        return now > ends[0]

    return is_over


async def _main(given: argparse.Namespace) -> None:
    for client in given.client or (*CLIENTS, "mixed"):
        with tempfile.TemporaryDirectory() as folder:
            weather = Weather(processes=given.workers)
            notes = await storm(client, Path(folder), given.seed, _lasts(given.seconds), weather)
        struck = ", ".join(f"{times} {what}" for what, times in sorted(notes.strikes.items()))
        print(
            f"{client}: {len(notes.answered)} turns, {len(notes.discarded)} rolled back, "
            f"{notes.events} events, {len(notes.forked)} forks, {sum(map(len, notes.edits.values()))} edits, "
            f"{notes.restarts} restarts; {struck}. Every turn was answered once, and exists once.",
            flush=True,
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.clients.storm", description=__doc__)
    parser.add_argument("--client", action="append", choices=(*CLIENTS, "mixed"))
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=1, help="processes of the server")
    asyncio.run(_main(parser.parse_args()))


if __name__ == "__main__":
    main()
