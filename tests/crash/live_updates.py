"""Live updates against the truth: `python -m tests.crash.live_updates --seconds 60 --workers 4 --seed 7`.

Clients run, stop, abandon, rename, edit, fork, undo, switch and delete at random while workers are killed.
Followers read the event stream over HTTP, disconnect at random or by the kills, and resume from the last id.
At the end the events of each are compared with the stored changes, and these with conversations, turns and
attempts."""

from __future__ import annotations

import argparse
import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import aiohttp
import msgspec

from tests.crash.processes import kill_a_worker
from tests.crash.several_workers import SeveralWorkers, several_workers
from turnledger import Chat, Ledger, Limits, RunningTurn
from turnledger.engine.ports import WholeStore
from turnledger.errors import TurnledgerError
from turnledger.hosting import Host
from turnledger.ledger import OWNER
from turnledger.model.ids import ConversationId
from turnledger.server.access.cursors import Seal
from turnledger.server.routes.events import POSITION
from turnledger.testing.change_audit import StoredState, find_mismatches, load_all

LANES = [f"lane-{number}" for number in range(6)]
INPUTS = ("Hi", "Tell me more", "/fail", "/fail after 2", "/cut", "/slow one two")
BUSY = ("queue", "queue", "interrupt", "rollback", "reject")
CLIENTS, FOLLOWERS = 8, 3
PATIENCE = 60.0
"""Seconds until all turns have ended and all changes arrived."""
USUAL = {"chat.created", "turn.running", "turn.committed", "turn.failed"}
"""Changes that every follower must receive."""


class ReceivedEvent(NamedTuple):
    id: str
    kind: str
    data: dict[str, Any]


class Follower:
    """Follows over HTTP, and disconnects at random."""

    def __init__(self, url: str, dice: Random, seal: Seal) -> None:
        self._url = url
        self._seal = seal
        self._dice = dice
        self.received: list[ReceivedEvent] = []
        self.last = ""
        self.gaps = self.connections = self.cut = 0
        self.began = asyncio.Event()

    async def follow(self, session: aiohttp.ClientSession) -> None:
        while True:
            try:
                await self._connect(session)
            except (aiohttp.ClientError, ConnectionError, TimeoutError):
                self.cut += 1
                await asyncio.sleep(0.01)

    async def _connect(self, session: aiohttp.ClientSession) -> None:
        headers = {"Last-Event-ID": self.last} if self.last else {}
        left = self._dice.randint(1, 400)
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=5)
        async with session.get(f"{self._url}/api/events", headers=headers, timeout=timeout) as answer:
            answer.raise_for_status()
            self.connections += 1
            unread = b""
            async for piece in answer.content.iter_any():
                *events, unread = (unread + piece).split(b"\n\n")
                for event in events:
                    self._receive(event)
                left -= len(events)
                if left < 0:
                    return

    def _receive(self, event: bytes) -> None:
        fields = dict(line.split(b": ", 1) for line in event.split(b"\n"))
        if fields.get(b"event") == b"error":
            return  # the last event, without an id
        self.last = fields[b"id"].decode()
        kind = fields.get(b"event", b"").decode()
        self.began.set()
        if kind == "gap":
            self.gaps += 1
        elif kind and kind != "start":
            self.received.append(ReceivedEvent(self._opened, kind, msgspec.json.decode(fields[b"data"])))

    @property
    def _opened(self) -> str:
        """Return the position sealed in the last id."""
        opened = self._seal.unseal(POSITION, self.last)
        assert opened is not None, self.last
        return opened

    @property
    def reached(self) -> str:
        return self._opened if self.last else ""


class LiveStorm:
    """Random actions for some seconds, and longer until enough has happened; then rest, then the checks."""

    def __init__(self, folder: Path, seed: int, workers: int, kill_every: float) -> None:
        self._folder = folder
        self._dice = Random(seed)
        self._workers = workers
        self._kill_every = kill_every
        self.kills = 0
        self.done: Counter[str] = Counter()
        self.followers: list[Follower] = []
        self._deleted: list[str] = []

    async def run(self, seconds: float) -> Counter[str]:
        """Return the number of events by kind; raises AssertionError for a wrong or missing one."""
        async with several_workers(self._folder, None, workers=self._workers) as server:
            url = f"http://127.0.0.1:{server.port}"
            ledger = await Ledger.open(server.store, limits=Limits(lease_time=3.0))
            async with ledger, aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
                seal = Seal(await Host(ledger).tokens.store_secret())
                self.followers = [Follower(url, Random(number), seal) for number in range(FOLLOWERS)]
                following = [asyncio.create_task(each.follow(session)) for each in self.followers]
                try:
                    for each in self.followers:
                        await asyncio.wait_for(each.began.wait(), PATIENCE)
                    await self._storm(server, url, ledger, session, seconds)
                    position = await self._wait_idle(ledger)
                    await self._wait_all_received(position)
                finally:
                    for task in following:
                        task.cancel()
                    await asyncio.wait(following)
                assert [each.gaps for each in self.followers] == [0] * FOLLOWERS
                return await check_received(ledger, [each.received for each in self.followers])

    async def _storm(
        self,
        server: SeveralWorkers,
        url: str,
        ledger: Ledger,
        session: aiohttp.ClientSession,
        seconds: float,
    ) -> None:
        ends_at = asyncio.get_running_loop().time() + seconds

        def is_over() -> bool:
            return asyncio.get_running_loop().time() >= ends_at and self._has_seen_enough()

        async def repeat(act: Callable[[], Awaitable[None]]) -> None:
            while not is_over():
                await act()

        await asyncio.gather(
            repeat(lambda: self._kill_later(server)),
            *(repeat(lambda: self._over_http(session, url)) for _ in range(CLIENTS)),
            *(repeat(lambda: self._act_here(ledger)) for _ in range(CLIENTS // 2)),
        )

    def _has_seen_enough(self) -> bool:
        """Return whether a kill disconnected a follower, and all resumed and received the usual changes."""
        return (
            self.kills > 0
            and any(each.cut for each in self.followers)
            and all(each.connections > 1 for each in self.followers)
            and all({event.kind for event in each.received} >= USUAL for each in self.followers)
        )

    async def _kill_later(self, server: SeveralWorkers) -> None:
        await asyncio.sleep(self._dice.uniform(0.2, 2.0) * self._kill_every)
        self.kills += kill_a_worker(server.process.pid, self._dice)

    async def _over_http(self, session: aiohttp.ClientSession, url: str) -> None:
        dice = self._dice
        headers = {
            "X-Conversation-Id": dice.choice(LANES),
            "X-Conversation-Messages": "new",
            "X-Turn-On-Busy": dice.choice(BUSY),
            "X-Turn-On-Disconnect": dice.choice(("continue", "keep", "discard")),
            "X-Turn-On-Stop": dice.choice(("keep", "discard")),
        }
        body = {
            "model": "demo",
            "stream": True,
            "messages": [{"role": "user", "content": dice.choice(INPUTS)}],
        }
        timeout = aiohttp.ClientTimeout(total=dice.choice((0.1, 0.5, 20.0)))
        self.done["asked"] += 1
        try:
            async with session.post(
                f"{url}/v1/chat/completions", json=body, headers=headers, timeout=timeout
            ) as answer:
                turn = answer.headers.get("X-Turn-Id")
                if turn and dice.random() < 0.3:
                    self.done["stopped"] += 1
                    async with session.post(f"{url}/api/turns/{turn}/stop", timeout=timeout) as stopped:
                        await stopped.read()
                await answer.read()
        except (aiohttp.ClientError, ConnectionError, TimeoutError):
            self.done["cut off"] += 1

    async def _act_here(self, ledger: Ledger) -> None:
        """Act in a process that is not killed."""
        acts: list[Callable[[Chat], Awaitable[Any]]] = [
            self._rename,
            self._rename,
            self._act,
            self._edit,
            self._regenerate,
            self._switch,
            lambda chat: chat.undo(on_busy="interrupt"),
            lambda chat: chat.fork(),
            self._delete,
            lambda chat: self._restore(ledger),
        ]
        act = self._dice.choice(acts)
        try:
            chat = await ledger.conversation(conversation_key=self._dice.choice(LANES))
            await act(chat)
            self.done["done"] += 1
        except TurnledgerError as problem:
            self.done[problem.code] += 1
        except ZeroDivisionError:
            self.done["acted and failed"] += 1
        await asyncio.sleep(self._dice.uniform(0.0, 0.1))

    async def _delete(self, chat: Chat) -> None:
        await chat.delete(purge=self._dice.random() < 0.3)
        self._deleted.append(chat.id)

    async def _restore(self, ledger: Ledger) -> None:
        if self._deleted:
            await ledger.restore(self._dice.choice(self._deleted))

    async def _rename(self, chat: Chat) -> None:
        await chat.update(title=f"Title {self._dice.randint(0, 9)}")

    async def _act(self, chat: Chat) -> None:
        async def act_and_fail(turn: RunningTurn) -> None:
            call = {"type": "function_call", "call_id": "c1", "name": "pay", "arguments": "{}"}
            await turn.add(call)
            await turn.start(call)
            raise ZeroDivisionError

        await chat.run(act_and_fail, "Pay.", on_busy="interrupt")

    async def _edit(self, chat: Chat) -> None:
        turns = await chat.turns(limit=5)
        if turns:
            await chat.edit(self._dice.choice(turns).id, "Otherwise").run(_answer)

    async def _regenerate(self, chat: Chat) -> None:
        await chat.regenerate().run(_answer)

    async def _switch(self, chat: Chat) -> None:
        turns = await chat.turns(limit=1)
        if turns:
            siblings = await chat.siblings(turns[-1].id)
            await chat.switch(self._dice.choice(siblings).branch)

    async def _wait_idle(self, ledger: Ledger) -> str:
        async with asyncio.timeout(PATIENCE):
            while True:
                await Host(ledger).recover()
                position = await ledger.position()
                found = await ledger.check(at_rest=True)
                at_work = await ledger._process.store.read_whole(_at_work, None)
                if not found and not at_work and position == await ledger.position():
                    return position
                await asyncio.sleep(0.2)

    async def _wait_all_received(self, position: str) -> None:
        async with asyncio.timeout(PATIENCE):
            while any(each.reached < position for each in self.followers):
                await asyncio.sleep(0.05)


async def _at_work(whole: WholeStore, _: None) -> bool:
    """Return whether turns run or wait; some continue after their clients left. Reads with the SQLite library
    that has the file open: if another one in the process closed the file, all its locks would be lost."""
    leases = [lease.id for lease in await whole.leases()]
    return any([await whole.running_attempts(id) or await whole.held_tickets(id) for id in leases])


async def _answer(turn: RunningTurn) -> None:
    turn.emit("Yes.")


async def check_received(ledger: Ledger, received: Sequence[Sequence[ReceivedEvent]]) -> Counter[str]:
    """Raise AssertionError for wrong, repeated or missing events; return their number by kind."""
    stored = await ledger._process.store.inspect(load_all, OWNER)
    problems = list(find_mismatches(stored))
    assert problems == [], problems
    changes = {str(change.position): change for change in stored.changes}
    expected = list(changes)
    for each in received:
        ids = [event.id for event in each]
        assert ids == expected[expected.index(ids[0]) :], "not in order, or not all"
        for event in each:
            change = changes[event.id]
            assert (event.kind, event.data["chat"]) == (change.kind, change.conversation)
            assert event.data.get("turn") == change.turn
    whole = max(received, key=len)
    assert len(whole) == len(expected), "no follower received all changes"
    _check_chats(whole, stored)
    return Counter(event.kind for event in whole)


def _check_chats(received: Sequence[ReceivedEvent], stored: StoredState) -> None:
    """Check that the last event of each chat matches its state."""
    shown: dict[str, dict[str, Any]] = {}
    for event in received:
        if "revision" in event.data:
            shown.setdefault(event.data["chat"], {}).update(event.data)
    for id, data in shown.items():
        found = stored.conversations[ConversationId(id)]
        if found.state == "live":
            assert (data["title"], data["revision"], data["branch"]) == (
                found.title,
                found.revision,
                found.branch,
            )


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.crash.live_updates", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--kill-every", type=float, default=1.5, metavar="SECONDS")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        storm = LiveStorm(Path(folder), given.seed, given.workers, given.kill_every)
        counts = asyncio.run(storm.run(given.seconds))
    print(f"{storm.kills} kills of {given.workers} workers; {sum(storm.done.values())} things were tried:")
    print("  " + ", ".join(f"{count} {what}" for what, count in storm.done.most_common()))
    print(f"{sum(counts.values())} changes reached each of {FOLLOWERS}, in order, none missing, none twice:")
    print("  " + ", ".join(f"{count} {kind}" for kind, count in counts.most_common()))
    ways = [f"{each.connections} connections, {each.cut} cut" for each in storm.followers]
    print(f"They came by {'; '.join(ways)}. The events match the store.")


if __name__ == "__main__":
    main()
