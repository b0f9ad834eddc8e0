"""A failed read, write, sync, truncation or deletion, at any point, breaks no promise of the ledger.

Each I/O call of a scenario fails in turn, in several ways, once or until the disk recovers. Acknowledged
turns exist, refused ones do not, unknown ones may; no tool acts twice or unrecorded, and every lane takes
another turn.
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
from turnledger.testing.simulated_loop import SimulatedLoop

SECONDS = 900
ERRORS: dict[str, Callable[[], apsw.Error]] = {
    "I/O error": lambda: apsw.IOError("the disk failed"),
    "full": lambda: apsw.FullError("the disk is full"),
    "busy": lambda: apsw.BusyError("somebody else holds the lock"),
}
FOR_LONG = 10_000
"""Failures for the rest of the scenario."""
EVERY = 5
"""Long failures begin at every fifth call, single ones at each."""
UNKNOWN = (OutcomeUnknown, CommitOutcomeUnknown)


@dataclass
class Outcomes:
    """Outcomes that the client received."""

    done: set[str] = field(default_factory=set)
    refused: set[str] = field(default_factory=set)
    unknown: set[str] = field(default_factory=set)
    acted: Counter[str] = field(default_factory=Counter)
    """Effects by tool."""

    async def record(self, name: str, work: Awaitable[object]) -> None:
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


async def _answer(outcomes: Outcomes, name: str, turn: RunningTurn) -> None:
    call = {"type": "function_call", "call_id": "call_0", "name": name, "arguments": "{}"}

    async def act() -> str:
        outcomes.acted[name] += 1
        return "done"

    await turn.call(call, act)
    if name == "fails":
        raise ModelFailed
    turn.emit("answer")


async def _open(store: Path, vfs: str | None = None) -> Ledger:
    return await Ledger.over(await SqliteStore.open(store, inline=True, vfs=vfs), random=Random(1))


async def _create(store: Path) -> None:
    async with await _open(store) as ledger:
        for key in ("spoken", "undone"):
            chat = await ledger.conversation(conversation_key=key)
            await chat.run(partial(_answer, Outcomes(), "before"), "before")


async def _act(ledger: Ledger, outcomes: Outcomes) -> None:
    chat = await ledger.conversation(conversation_key="spoken")
    undone = await ledger.conversation(conversation_key="undone")
    for name in ("first", "fails", "settles"):
        await outcomes.record(name, chat.run(partial(_answer, outcomes, name), name))
    await outcomes.record("title", chat.update(title="title"))
    await outcomes.record("fork", chat.fork(conversation_key="fork"))
    await outcomes.record("undo", undone.undo())
    await outcomes.record("deletion", undone.delete())


async def _check(ledger: Ledger, outcomes: Outcomes) -> None:
    chat = await ledger.conversation(conversation_key="spoken")
    await _lane_is_free(chat)
    turns = await chat.turns()
    completed = {turn.input[-1].text for turn in turns if turn.kind is TurnKind.COMPLETED}
    for name in ("first", "settles"):
        outcomes.check(name, is_there=name in completed)
    assert "fails" not in completed
    recorded = Counter(item.fields["name"] for turn in turns for item in turn.output if item.is_call)
    for name, times in outcomes.acted.items():
        assert times == 1, f"{name} acted {times} times"
        assert recorded[name] == 1, f"{name} acted, and is recorded {recorded[name]} times"
    outcomes.check("title", is_there=(await chat.info()).title == "title")
    outcomes.check("fork", is_there=await Host(ledger).is_named("fork"))
    is_deleted = not await Host(ledger).is_named("undone")
    outcomes.check("deletion", is_there=is_deleted)
    if not is_deleted:
        undone = await ledger.conversation(conversation_key="undone")
        outcomes.check(
            "undo", is_there="before" not in [turn.input[-1].text for turn in await undone.turns()]
        )
        await _lane_is_free(undone)
    assert await ledger.check() == []


async def _lane_is_free(chat: Chat) -> None:
    async def probe(turn: RunningTurn) -> None:
        turn.emit("here")

    await chat.run(probe, "probe", on_busy="reject")


async def _fail(store: Path, call: int, error: Callable[[], apsw.Error], times: int) -> bool:
    """Run the scenario on a disk that fails at this call; return False if there are fewer calls."""
    disk, outcomes = FaultyDisk(), Outcomes()
    disk.counts_reads = True
    disk.fail_next(call, error, times=times)
    try:
        ledger = await _open(store, disk.name)
        with suppress(StoreError):  # conversations may not be readable
            await _act(ledger, outcomes)
    except StoreError:
        has_failed = disk.heal()
        ledger = await _open(store, disk.name)
    else:
        has_failed = disk.heal()
    for _ in range(3):  # for outcomes and ends that the store refused
        await ledger._recovery.run_round()
    await _check(ledger, outcomes)
    await ledger.close()
    async with await _open(store) as later:
        await _check(later, outcomes)
    return has_failed


def _failures(made: Path, folder: Path, kind: str, times: int) -> int:
    """Fail each call in turn; return their number."""
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
        asyncio.run(_create(made / "made.db"))
        for kind in ERRORS:
            # Opening waits in real time for a store that stays busy.
            for times in (1,) if kind == "busy" else (1, FOR_LONG):
                failed = _failures(made / "made.db", place, kind, times)
                print(f"{kind}, {'once' if times == 1 else 'for long'}: {failed} failures", flush=True)
                assert failed > 40
