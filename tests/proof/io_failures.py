"""A failed read, write, sync, truncation or deletion, at any point, breaks no promise of the ledger.

Each I/O call of a scenario fails in turn, in each of several ways, once or again and again until the disk has
recovered. What was acknowledged is there, what was refused is not, what was unknown is either, no tool acts
twice or unrecorded, and every lane takes another turn.
"""

from __future__ import annotations

import asyncio
import shutil
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from random import Random

import apsw

from tests.proof.power_loss import folder
from turnledger.chat import Chat
from turnledger.engine.turn.running_turn import RunningTurn
from turnledger.errors import CommitOutcomeUnknown, OutcomeUnknown, StoreError, TurnledgerError
from turnledger.hosting import Host
from turnledger.ledger import Ledger
from turnledger.model.turn import TurnKind
from turnledger.stores.sqlite import SqliteStore
from turnledger.testing.faulty_disk import FaultyDisk
from turnledger.testing.loop import SimulatedLoop

SECONDS = 900
ERRORS: dict[str, Callable[[], apsw.Error]] = {
    "I/O error": lambda: apsw.IOError("the disk failed"),
    "full": lambda: apsw.FullError("the disk is full"),
    "busy": lambda: apsw.BusyError("somebody else holds the lock"),
}
FOR_LONG = 10_000
"""Failures in a row that last for the rest of the scenario."""
EVERY = 5
"""These begin at every fifth call; a single failure is tried at each."""
UNKNOWN = (OutcomeUnknown, CommitOutcomeUnknown)


@dataclass
class Told:
    """What the client of a scenario was told."""

    done: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    acted: Counter[str] = field(default_factory=Counter)
    """How often each tool has acted."""

    async def of(self, name: str, work: Awaitable[object]) -> None:
        try:
            await work
        except UNKNOWN:
            self.unknown.add(name)
        except (TurnledgerError, ModelFailed):
            self.refused.add(name)
        else:
            self.done.add(name)

    def check(self, name: str, *, is_there: bool) -> None:
        assert is_there or name not in self.done, f"{name} was acknowledged, and is not there"
        assert not is_there or name not in self.refused, f"{name} was refused, and is there"


class ModelFailed(Exception):
    pass


async def _answer(told: Told, name: str, turn: RunningTurn) -> None:
    call = {"type": "function_call", "call_id": "call_0", "name": name, "arguments": "{}"}

    async def act() -> str:
        told.acted[name] += 1
        return "done"

    await turn.call(call, act)
    if name == "fails":
        raise ModelFailed
    turn.emit("answer")


async def _open(store: Path, vfs: str | None = None) -> Ledger:
    return await Ledger.over(await SqliteStore.open(store, inline=True, vfs=vfs), random=Random(1))


async def _made(store: Path) -> None:
    async with await _open(store) as ledger:
        for key in ("spoken", "undone"):
            chat = await ledger.conversation(conversation_key=key)
            await chat.run(partial(_answer, Told(), "before"), "before")


async def _act(ledger: Ledger, told: Told) -> None:
    chat = await ledger.conversation(conversation_key="spoken")
    undone = await ledger.conversation(conversation_key="undone")
    for name in ("first", "fails", "settles"):
        await told.of(name, chat.run(partial(_answer, told, name), name))
    await told.of("title", chat.update(title="title"))
    await told.of("fork", chat.fork(conversation_key="fork"))
    await told.of("undo", undone.undo())
    await told.of("deletion", undone.delete())


async def _check(ledger: Ledger, told: Told) -> None:
    chat = await ledger.conversation(conversation_key="spoken")
    await _lane_is_free(chat)
    turns = await chat.turns()
    asked = {turn.input[-1].text for turn in turns if turn.kind is TurnKind.COMPLETED}
    for name in ("first", "settles"):
        told.check(name, is_there=name in asked)
    assert "fails" not in asked
    recorded = Counter(item.fields["name"] for turn in turns for item in turn.output if item.is_call)
    for name, times in told.acted.items():
        assert times == 1, f"{name} acted {times} times"
        assert recorded[name] == 1, f"{name} acted, and is told {recorded[name]} times"
    told.check("title", is_there=(await chat.info()).title == "title")
    told.check("fork", is_there=await Host(ledger).is_named("fork"))
    is_deleted = not await Host(ledger).is_named("undone")
    told.check("deletion", is_there=is_deleted)
    if not is_deleted:
        undone = await ledger.conversation(conversation_key="undone")
        told.check("undo", is_there="before" not in [turn.input[-1].text for turn in await undone.turns()])
        await _lane_is_free(undone)
    assert await ledger.check() == []


async def _lane_is_free(chat: Chat) -> None:
    async def probe(turn: RunningTurn) -> None:
        turn.emit("here")

    await chat.run(probe, "probe", on_busy="reject")


async def _fail(store: Path, call: int, error: Callable[[], apsw.Error], times: int) -> bool:
    """Let the scenario run on a disk that fails at this call. False if it has not so many."""
    disk, told = FaultyDisk(), Told()
    disk.counts_reads = True
    disk.fail_next(call, error, times=times)
    try:
        ledger = await _open(store, disk.name)
        with suppress(StoreError):  # it may not even be able to find the conversations
            await _act(ledger, told)
    except StoreError:
        has_failed = disk.heal()
        ledger = await _open(store, disk.name)
    else:
        has_failed = disk.heal()
    for _ in range(3):  # doubts and ends that the store could not take
        await ledger._recovery.run_round()
    await _check(ledger, told)
    await ledger.close()
    async with await _open(store) as later:
        await _check(later, told)
    return has_failed


def _failures(made: Path, folder: Path, kind: str, times: int) -> int:
    """Let each call fail in turn; return how many did."""
    tried = 0
    for call in count(1, 1 if times == 1 else EVERY):
        store = folder / "chats.db"
        shutil.copy(made, store)
        loop = SimulatedLoop(0, disorder=0.0)
        try:
            has_failed = loop.run_until_complete(_fail(store, call, ERRORS[kind], times))
        except BaseException as problem:
            problem.add_note(f"{kind}, {times} times from I/O call {call} on")
            raise
        finally:
            loop.close()
        for left in folder.glob("chats.db*"):
            left.unlink()
        if not has_failed:
            break
        tried += 1
    return tried


def prove() -> None:
    with folder() as made, folder() as place:
        asyncio.run(_made(made / "made.db"))
        for kind in ERRORS:
            # A store that stays busy is waited for in real time, when it is opened.
            for times in (1,) if kind == "busy" else (1, FOR_LONG):
                failed = _failures(made / "made.db", place, kind, times)
                print(f"{kind}, {'once' if times == 1 else 'for long'}: {failed} failures", flush=True)
                assert failed > 40
