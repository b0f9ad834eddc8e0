"""Support for engine tests: tables without an event loop, rows with few fields."""

from __future__ import annotations

import os
from collections.abc import Awaitable, Generator, Sequence
from typing import Any, TypeVar, cast

from hypothesis import settings
from msgspec.structs import replace

from tests.unit.model.shapes import (
    BRANCH,
    CONVERSATION,
    assistant,
    conversation,
    repeatable,
    some_id,
    turn,
    user,
)
from turnledger.model.conversation import Branch, Ticket
from turnledger.model.ids import LeaseId, TurnId
from turnledger.model.turn import Attempt, AttemptState, Turn
from turnledger.stores.memory import Database, MemoryTables
from turnledger.stores.memory.database import UndoLog
from turnledger.stores.memory.whole import MemoryWholeStore

Result = TypeVar("Result")
generated = settings(repeatable, max_examples=int(os.environ.get("ENGINE_EXAMPLES", "25")))
"""Number of examples; `ENGINE_EXAMPLES=1000` tries more."""
OWN, OTHER = some_id(LeaseId, 1), some_id(LeaseId, 2)


def drive(work: Awaitable[Result]) -> Result:
    """Run work that awaits only tables in memory; raises if it would wait."""
    steps = cast("Generator[Any, None, Result]", work.__await__())
    try:
        next(steps)
    except StopIteration as end:
        return cast("Result", end.value)
    raise AssertionError("it waited for an event loop")


def memory_tables(database: Database | None = None, owner: str = "ann") -> MemoryTables:
    return memory_whole(database).of(owner)


def lane_tables(**changes: Any) -> MemoryTables:
    """Tables with a conversation and its branch."""
    tables = memory_tables()
    drive(tables.add_conversation(conversation()))
    drive(tables.add_branch(branch(**changes)))
    return tables


def memory_whole(database: Database | None = None) -> MemoryWholeStore:
    return MemoryWholeStore(Database() if database is None else database, UndoLog())


def branch(**changes: Any) -> Branch:
    return Branch(**{"id": BRANCH, "conversation": CONVERSATION, **changes})


def attempt(number: int, state: AttemptState = AttemptState.RUNNING, **changes: Any) -> Attempt:
    fields: dict[str, Any] = {
        "id": some_id(TurnId, number),
        "owner": "ann",
        "conversation": CONVERSATION,
        "branch": BRANCH,
        "lease": OWN,
        "fence": 1,
        "state": state,
        "base": None,
        "input": (user(),),
        "created_at": 1,
    }
    return Attempt(**{**fields, **changes})


def ticket(number: int, **changes: Any) -> Ticket:
    fields: dict[str, Any] = {
        "attempt": some_id(TurnId, number),
        "conversation": CONVERSATION,
        "branch": BRANCH,
        "lease": OWN,
    }
    return Ticket(**{**fields, "deadline": 1_000, **changes})


def chain(*ids: int, after: Sequence[Turn] = ()) -> list[Turn]:
    """Make turns with these ids after others."""
    turns = list(after)
    for id in ids:
        parent = turns[-1].id if turns else None
        turns.append(replace(turn(len(turns) + 1, id=id, output=[assistant(str(id % 10))]), parent=parent))
    return turns[len(after) :]
