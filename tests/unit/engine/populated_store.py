"""A store after every operation that leaves rows, and functions that damage it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from random import Random
from typing import Any

from msgspec.structs import replace

from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.engine.check.check import CheckRequest, check
from turnledger.engine.lifecycle.purge import PurgeRequest, purge
from turnledger.engine.ports import Store
from turnledger.model.check import Finding, Rule
from turnledger.model.conversation import Branch
from turnledger.model.ids import TurnId
from turnledger.model.turn import Turn
from turnledger.stores.memory import Database
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Tool


async def run_turn(chat: Chat, text: str, *script: Step, **policies: Any) -> Turn:
    return await chat.run(ScriptedModel(list(script) or ["Yes."]), text, **policies)


async def fail(chat: Chat, text: str, *script: Step, **policies: Any) -> None:
    try:
        await run_turn(chat, text, *script, RuntimeError("the model broke"), **policies)
    except RuntimeError:
        return
    raise AssertionError("it did not fail")


@dataclass(frozen=True)
class PopulatedStore:
    """A ledger, and its conversations by their content."""

    ledger: Ledger
    plain: Chat
    """Three turns."""
    pending: Chat
    """A call waits for its client."""
    edited: Chat
    """Edited, regenerated, undone and switched."""
    forked: Chat
    """Forked from a conversation that was purged since."""
    settled: Chat
    """A settled turn, copied to the branch of an edit."""
    waiting: Chat
    """A failed attempt with unsettled effects."""
    kept: Chat
    """An interrupted turn."""


async def populate(store: Store) -> PopulatedStore:
    ledger = await Ledger.over(store, clock=FakeClock(), random=Random(1))
    names = ("plain", "asking", "edited", "settled", "waiting", "kept", "source")
    plain, pending, edited, settled, waiting, kept, source = [
        await ledger.for_owner("ann").conversation(conversation_key=name) for name in names
    ]
    for text in ("one", "two", "three"):
        await run_turn(plain, text, "Let me see.", Tool("look"), "Yes.", idempotency_key=text)
    await run_turn(pending, "where?", "Wait.", Ask("locate", call_id="c1"))
    await _edit_in_all_ways(edited)
    await run_turn(settled, "hello")
    await fail(settled, "pay", Tool("pay"))
    await run_turn(settled, "go on")
    async with settled.edit((await settled.turns())[0].id, "hello again") as turn:
        turn.emit("Yes.")
    await fail(waiting, "pay", Tool("pay"), idempotency_key="pay")
    await fail(kept, "tell", "Once upon", on_failure="keep")
    await fail(kept, "forget it", Tool("pay"), on_failure="forget")
    for text in ("one", "two", "three"):
        await run_turn(source, text)
    forked = await source.fork((await source.turns())[1].id)
    await run_turn(forked, "another three")
    await source.delete(purge=True)
    while await store.transact_whole(purge, PurgeRequest(1, 1_000, 1)):
        continue
    return PopulatedStore(ledger, plain, pending, edited, forked, settled, waiting, kept)


async def _edit_in_all_ways(chat: Chat) -> None:
    _, second = [await run_turn(chat, text) for text in ("one", "two")]
    async with chat.edit(second.id, "two, but better") as turn:
        turn.emit("Yes.")
    await run_turn(chat, "three")
    async with chat.regenerate() as turn:
        turn.emit("No.")
    await chat.undo()
    two, _ = await chat.siblings((await chat.turns())[-1].id)
    await chat.switch(two.branch)


async def findings(store: Store, *, at_rest: bool = False) -> list[Finding]:
    return (await store.inspect(check, CheckRequest(at_rest=at_rest))).findings


def change_conversation(database: Database, chat: Chat, **changes: Any) -> None:
    database.conversations[chat.id] = replace(database.conversations[chat.id], **changes)


def change_branch(database: Database, branch: Branch, **changes: Any) -> None:
    database.branches[branch.id] = replace(branch, **changes)


def change_shown(database: Database, chat: Chat, **changes: Any) -> None:
    change_branch(database, shown(database, chat), **changes)


def change_turn(database: Database, id: TurnId, **changes: Any) -> None:
    """Change a turn in place, as the engine never does."""
    turn = replace(database.turns[id], **changes)
    database.turns[id] = database.lines[turn.branch][turn.number] = turn


def remove_turn(database: Database, id: TurnId) -> None:
    turn = database.turns.pop(id)
    database.turn_logs.pop(id, None)
    del database.lines[turn.branch][turn.number]


Damages = Mapping[Rule, Mapping[str, Callable[[Database, PopulatedStore], object]]]
"""What is broken, by the rule that the check names and by words of its message."""


@contextmanager
def repaired(database: Database) -> Iterator[None]:
    """Restore the rows after the block."""
    tables = [table for table in vars(database).values() if isinstance(table, dict)]
    rows = [{key: dict(row) if type(row) is dict else row for key, row in table.items()} for table in tables]
    yield
    for table, before in zip(tables, rows, strict=True):
        table.clear()
        table.update(before)


async def expect_found(
    populated: PopulatedStore, database: Database, damages: Damages, owner: str | None = "ann"
) -> None:
    """Apply each damage: the check must find it, and nothing else."""
    assert await populated.ledger.check() == []
    for rule, message, damage in [(rule, *each) for rule, rows in damages.items() for each in rows.items()]:
        with repaired(database):
            damage(database, populated)
            found = await populated.ledger.check()
        assert [(each.rule, each.owner) for each in found] == [(rule, owner)], message
        assert message in found[0].message
    assert await populated.ledger.check() == []


def raw_id(number: int) -> str:
    return f"{number:012x}70008{number:015x}"


def shown(database: Database, chat: Chat) -> Branch:
    return database.branches[database.conversations[chat.id].branch]


def turn_at(database: Database, chat: Chat, number: int) -> TurnId:
    return database.lines[shown(database, chat).id][number].id
