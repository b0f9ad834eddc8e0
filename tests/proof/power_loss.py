"""A power cut at any write or sync, from the first write of a new file on, loses no acknowledged turn.

A real ledger works on a SQLite file whose disk records what is durable. Before each I/O call the power is cut
in copies of that disk: one has lost everything unsynced, in others writes are missing, out of order and torn.
Each copy is opened: everything acknowledged is there, `check` finds nothing, and a lane takes a turn.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from random import Random

from turnledger.chat import Chat
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import ConversationDeleted
from turnledger.ledger import Ledger
from turnledger.model.turn import TurnKind
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.faulty_disk import FaultyDisk

SECONDS = 900
TORN, TORN_FILE = 2, 12
"""Copies at each I/O call in which a random part of the unsynced writes survives: while only the log is being
written, and while the file itself is."""

Fact = Callable[[Ledger], Awaitable[None]]
"""Checks that an acknowledged change exists."""


class Outage:
    """Cuts the power at every I/O call of a disk, and checks the remaining files."""

    def __init__(self, store: Path, folder: Path) -> None:
        self.disk = FaultyDisk()
        self.disk.before_call = self._cut
        self.facts: dict[str, Fact] = {}
        self.calls: Counter[str] = Counter()
        self.opened = 0
        self.problem: BaseException | None = None
        self._store = store
        self._folder = folder
        self._random = Random(17)
        self._verifier = ThreadPoolExecutor(1)

    def _cut(self, call: str, path: str) -> None:
        self.calls[call] += 1
        file = self.disk.files.get(str(self._store))
        torn = 0 if not self._has_unsynced() else TORN_FILE if file and file.unsynced else TORN
        for random in (None, *[self._random] * torn):
            image = self.disk.lose_power(self._store, self._folder / "image", random)
            try:
                self._verifier.submit(asyncio.run, self._verify(image)).result()
            except BaseException as problem:
                left = "nothing unsynced" if random is None else "a part of the unsynced writes"
                problem.add_note(f"call {sum(self.calls.values())}, {call} of {path}; survived: {left}")
                # Raised here, it would look like a disk error.
                self.problem, self.disk.before_call = problem, None
                return
            shutil.rmtree(image.parent)
            self.opened += 1

    def _has_unsynced(self) -> bool:
        return any(file.unsynced or not file.has_name for file in self.disk.files.values()) or bool(
            self.disk.deleted
        )

    async def _verify(self, image: Path) -> None:
        async with await Ledger.over(await SqliteStore.open(image, inline=True)) as ledger:
            for fact in self.facts.values():
                await fact(ledger)
            await ledger._recovery.take_over_dead()
            await _run_turn(await ledger.conversation(conversation_key="probe"), "are you there?")
            assert await ledger.check() == []


async def _run_turn(chat: Chat, text: str, tool: str | None = None, **options: str) -> str:
    async def answer(turn: RunningTurn) -> None:
        if tool is not None:
            call = {"type": "function_call", "call_id": "call_0", "name": tool, "arguments": "{}"}
            await turn.call(call, lambda: _acted(tool))
        turn.emit("answer to " + text)

    return (await chat.run(answer, text, **options)).id


async def _acted(tool: str) -> str:
    return f"{tool} done"


def has_turns(key: str, ids: list[str]) -> Fact:
    expected = list(ids)

    async def check(ledger: Ledger) -> None:
        chat = await ledger.conversation(conversation_key=key, create=False)
        found = [turn.id for turn in await chat.turns() if turn.kind is TurnKind.COMPLETED]
        assert found[: len(expected)] == expected, f"{key}: acknowledged {expected}, found {found}"

    return check


def is_deleted(id: str) -> Fact:
    async def check(ledger: Ledger) -> None:
        try:
            await ledger.conversation(id)
        except ConversationDeleted:
            return
        raise AssertionError(f"{id} was deleted, and is there again")

    return check


async def _work(ledger: Ledger, outage: Outage, key: str) -> None:
    """Act as clients do; each fact holds from its acknowledgement on."""
    facts = outage.facts
    chat = await ledger.conversation(conversation_key=key)
    facts[key] = has_turns(key, [])
    ids: list[str] = []
    for number in range(4):
        ids.append(
            await _run_turn(
                chat, f"q{number}", "pay" if number % 2 else None, idempotency_key=f"{key} {number}"
            )
        )
        facts[key] = has_turns(key, ids)
    del facts[key]  # uncertain until the undo is acknowledged
    await chat.undo()
    facts[key] = has_turns(key, ids[:-1])
    try:
        async with chat.turn("fails") as turn:
            call = {"type": "function_call", "call_id": "call_0", "name": "pay", "arguments": "{}"}
            await turn.call(call, lambda: _acted("pay"))
            raise RuntimeError("the model broke")
    except RuntimeError:
        ids[-1] = await _run_turn(chat, "settles what failed")
    facts[key] = has_turns(key, ids)
    fork = f"fork of {key}"
    await chat.fork(conversation_key=fork)
    facts[fork] = has_turns(fork, ids)
    doomed = await ledger.conversation()
    await _run_turn(doomed, "secret")
    await doomed.delete(purge=True)
    facts[doomed.id] = is_deleted(doomed.id)


async def _run(outage: Outage, store: Path) -> None:
    for key in ("first", "second"):
        # Opened twice: closing checkpoints the log and deletes it.
        opened = await SqliteStore.open(store, inline=True, vfs=outage.disk.name)
        async with await Ledger.over(opened, random=Random(key)) as ledger:
            await _work(ledger, outage, key)


@contextmanager
def folder() -> Iterator[Path]:
    shared = Path("/dev/shm")
    place = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
    try:
        yield place
    finally:
        shutil.rmtree(place)


def prove() -> None:
    with folder() as place:
        store = place / "chats.db"
        outage = Outage(store, place)
        asyncio.run(_run(outage, store))
    if outage.problem is not None:
        raise outage.problem
    calls = ", ".join(f"{count} {call}s" for call, count in sorted(outage.calls.items()))
    print(f"power cut before each I/O call ({calls}): {outage.opened} disks opened")
    assert outage.calls["sync"] > 30
    assert len(outage.facts) == 6
