"""Branches and flags cost the same in long and often edited conversations.

Counts SQLite statements and virtual machine steps of one operation on a small and on a large conversation.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import apsw
import pytest

from turnledger import Chat, Ledger
from turnledger.errors import TurnNotFound
from turnledger.model.turn import Turn
from turnledger.stores.sqlite.store import SqliteStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.scripted_model import ScriptedModel, Tool

SHORT, LONG = 12, 600
EDITS = 150
LINES = EDITS // 64 + 1
"""Rows that hold the whole line of a conversation with this many edits."""
SLACK = 1.1
"""Of steps: pages of an index are entered by one step more or less."""


@dataclass
class Cost:
    """What SQLite did so far."""

    statements: int = 0
    steps: int = 0

    def watch(self, store: SqliteStore) -> None:
        for connection in (store._writer._connection, store._reader._connection):
            connection.trace_v2(apsw.SQLITE_TRACE_PROFILE, self._note)

    def _note(self, event: dict[str, Any]) -> None:
        self.statements += 1
        self.steps += event["stmt_status"]["SQLITE_STMTSTATUS_VM_STEP"]

    async def of(self, work: Awaitable[object]) -> Cost:
        before = Cost(self.statements, self.steps)
        await work
        return Cost(self.statements - before.statements, self.steps - before.steps)


async def run_turn(chat: Chat) -> None:
    async with chat.turn("q") as running:
        running.emit("a")


async def edit(chat: Chat, turn: Turn) -> None:
    async with chat.edit(turn.id, "other") as running:
        running.emit("a")


async def act_and_fail(chat: Chat) -> None:
    with pytest.raises(RuntimeError):
        await chat.run(ScriptedModel([Tool("pay"), RuntimeError("broken")]), "q")
    await run_turn(chat)


async def from_end(chat: Chat, back: int) -> Turn:
    return (await chat.turns(limit=back))[0]


async def middle(chat: Chat) -> Turn:
    length = (await from_end(chat, 1)).number
    return (await chat.turns(before=length // 2 + 1, limit=1))[0]


async def miss(chat: Chat, turn: Turn) -> None:
    with pytest.raises(TurnNotFound):
        await edit(chat, turn)


async def costs(cost: Cost, chat: Chat, elsewhere: Turn) -> dict[str, Cost]:
    """What each operation costs; the conversation shows the same branch before each."""
    shown = (await chat.info()).branch
    last, third, half = await from_end(chat, 1), await from_end(chat, 3), await middle(chat)
    first = (await chat.turns(before=2, limit=1))[0]
    operations: dict[str, Callable[[], Awaitable[object]]] = {
        "a turn": lambda: run_turn(chat),
        "edit the last": lambda: edit(chat, last),
        "edit the third from the end": lambda: edit(chat, third),
        "edit in the middle": lambda: edit(chat, half),
        "edit the first": lambda: edit(chat, first),
        "edit what is not there": lambda: miss(chat, elsewhere),
        "fork": lambda: chat.fork(),
        "fork in the middle": lambda: chat.fork(half.id),
        "undo": lambda: chat.undo(),
        "the last page": lambda: chat.turns(limit=10),
        "siblings": lambda: chat.siblings(last.id),
    }
    await edit(chat, last)
    other = (await chat.info()).branch
    await chat.switch(shown)
    found = {"switch": await cost.of(chat.switch(other))}
    for name, work in operations.items():
        await chat.switch(shown)
        found[name] = await cost.of(work())
        if name == "a turn":
            await chat.undo()  # so that what follows starts from the same length
            shown = (await chat.info()).branch
    return found


@pytest.fixture
async def scene(tmp_path: Path) -> Any:
    store = await SqliteStore.open(tmp_path / "chats.db", inline=True)
    cost = Cost()
    ledger = await Ledger.over(store, clock=FakeClock(), random=Random(1))
    cost.watch(store)
    yield ledger, cost
    await ledger.close()


async def grown(ledger: Ledger, turns: int) -> Chat:
    chat = await ledger.conversation()
    for _ in range(turns):
        await run_turn(chat)
    return chat


@pytest.mark.parametrize("acted", [False, True])
async def test_branch_operations_cost_the_same_in_a_short_and_a_long_conversation(
    scene: tuple[Ledger, Cost], acted: bool
) -> None:
    """Also where a settled turn at the end is carried over to a branch from an early turn."""
    ledger, cost = scene
    elsewhere = await from_end(await grown(ledger, 1), 1)
    chats = [await grown(ledger, length) for length in (SHORT, LONG)]
    for chat in chats:
        if acted:
            await act_and_fail(chat)
    short, long = [await costs(cost, chat, elsewhere) for chat in chats]
    assert {name: each.statements for name, each in long.items()} == {
        name: each.statements for name, each in short.items()
    }
    assert {name: each.steps for name, each in long.items() if each.steps > SLACK * short[name].steps} == {}


async def test_branch_operations_after_many_edits_cost_at_most_a_few_more_rows(
    scene: tuple[Ledger, Cost],
) -> None:
    ledger, cost = scene
    elsewhere = await from_end(await grown(ledger, 1), 1)
    chats = [await grown(ledger, SHORT), await grown(ledger, SHORT)]
    for _ in range(EDITS):
        await edit(chats[1], await from_end(chats[1], 1))
        await run_turn(chats[1])
    assert (await from_end(chats[1], 1)).number == SHORT + EDITS
    few, many = [await costs(cost, chat, elsewhere) for chat in chats]
    more = {name: each.statements - few[name].statements for name, each in many.items()}
    near = ("a turn", "switch", "undo", "fork", "edit the last", "the last page", "siblings")
    # A chat without edits has no rows about where its branch began.
    assert {name: more[name] for name in near if more[name] > 3} == {}
    # Walking the line to a turn far back, or to the end of it, once to find it and once to branch there.
    assert max(more.values()) <= 2 * LINES
    assert {name: each.steps for name, each in many.items() if each.steps > 2 * few[name].steps} == {}


@pytest.mark.parametrize("hides", [False, True])
async def test_flag_set_elsewhere_costs_a_long_conversation_no_more_than_a_short_one(
    scene: tuple[Ledger, Cost],
    hides: bool,
) -> None:
    """Any flag of its owner makes the next turn of each conversation read its own flags again."""
    ledger, cost = scene
    other = await grown(ledger, 1)
    elsewhere = await from_end(other, 1)
    found: list[Cost] = []
    for length in (SHORT, LONG):
        chat = await grown(ledger, length)
        if hides:
            await chat.flag((await from_end(chat, 3)).id, 0, to_model=False)
        for to_model in (False, True):
            await other.flag(elsewhere.id, to_model=to_model)
            await run_turn(chat)
        known = await cost.of(run_turn(chat))
        await other.flag(elsewhere.id, to_model=False)
        found.append(await cost.of(run_turn(chat)))
        # The lane, no longer cached; a transaction, its check of the version, the branch, its flags.
        assert found[-1].statements <= known.statements + 6
    short, long = found
    assert long.statements == short.statements
    assert long.steps <= SLACK * short.steps
