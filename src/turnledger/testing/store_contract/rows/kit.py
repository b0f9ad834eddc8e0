"""Rows to store, and calls of the methods of a store."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from msgspec.structs import replace

from turnledger.engine.ports import Store, Tables, WholeStore
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token, TokenScope, digest_of
from turnledger.model.change import ChangeKind, LiveChange
from turnledger.model.conversation import Branch, Claim, Conversation, Origin, Stretch, Ticket
from turnledger.model.ids import (
    BranchId,
    ConversationId,
    IdSource,
    LeaseId,
    ShareId,
    TokenId,
    TurnId,
)
from turnledger.model.item import Item
from turnledger.model.job import TurnJob, job_body
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.turn import Attempt, AttemptState, OnFailure, OnStop, Turn, TurnKind
from turnledger.testing.store_contract.stage import call, soon

IDS = IdSource(lambda: 1_700_000_000_000, Random(1).getrandbits)
TEXT = "né\x00 \U0001f600 'q\" \n"
LATE = 2**52
"""Milliseconds: far in the future, below 2**53."""
TableStep = Callable[[WholeStore], Awaitable[Any]]


def do(method: str, *arguments: Any, owner: str | None = None) -> TableStep:
    """Make a call of the rows of an owner, or else of the whole store, into a step of a transaction. The
    owner is that of the row given, or else ann."""
    is_owned = hasattr(Tables, method)
    named = owner or next((each.owner for each in arguments if hasattr(each, "owner")), "ann")
    return lambda whole: getattr(whole.of(named) if is_owned else whole, method)(*arguments)


def do_whole(method: str, *arguments: Any) -> TableStep:
    """Make a call of the whole store, whose rows of an owner have a method of that name, too."""
    return lambda whole: getattr(whole, method)(*arguments)


async def write(store: Store, *steps: TableStep) -> list[Any]:
    """Run these steps in one transaction and return their results."""
    return await soon(store.transact_whole(_all_of, steps))


async def read(store: Store, step: TableStep) -> Any:
    [found] = await read_together(store, step)
    return found


async def read_together(store: Store, *steps: TableStep) -> list[Any]:
    """Run these steps in one read and return their results."""
    return await soon(store.inspect(_all_of, steps))


async def read_all(store: Store, method: str, *arguments: tuple[Any, ...]) -> list[Any]:
    """Read with each of these arguments."""
    return [await read(store, do(method, *each)) for each in arguments]


async def _all_of(whole: WholeStore, steps: tuple[TableStep, ...]) -> list[Any]:
    return [await step(whole) for step in steps]


def conversation(**changes: Any) -> Conversation:
    made = Conversation(
        id=IDS.new(ConversationId), owner="ann", branch=IDS.new(BranchId), created_at=1, touched_at=2
    )
    return replace(made, **changes)


def full_conversation() -> Conversation:
    return conversation(
        conversation_key=TEXT,
        title=TEXT,
        metadata={TEXT: TEXT},
        internal=True,
        revision=3,
        created_at=LATE,
        touched_at=LATE,
        expires_after=LATE,
        reset_policy=ResetPolicy(idle_after=LATE, daily_at=23, timezone=TEXT),
        former_conversation_key=TEXT,
        scope=TEXT,
        tags=("b", "a"),
        pinned=True,
        archived=True,
        is_listed=False,
        purge_at=LATE,
    )


def full_attempt(found: Conversation, **changes: Any) -> Attempt:
    made = Attempt(
        id=IDS.new(TurnId),
        owner=found.owner,
        conversation=found.id,
        branch=found.branch,
        lease=IDS.new(LeaseId),
        fence=7,
        state=AttemptState.RUNNING,
        base=IDS.new(TurnId),
        input=(Item.of(TEXT), call("look", "c1")),
        on_stop=OnStop.DISCARD,
        on_failure=OnFailure.FORGET,
        is_interaction=False,
        idempotency_key=TEXT,
        reads=0,
        created_at=LATE,
    )
    return replace(made, **changes)


def ended_attempt(found: Conversation, **changes: Any) -> Attempt:
    return full_attempt(found, **{"state": AttemptState.FAILED, "ended_at": 5, **changes})


def turn(branch: BranchId, number: int, parent: TurnId | None = None, text: str = TEXT) -> Turn:
    return Turn.of(
        id=IDS.new(TurnId),
        branch=branch,
        number=number,
        parent=parent,
        kind=TurnKind.COMPLETED,
        created_at=1,
        committed_at=2,
        input=(Item.of(text),),
        output=(),
    )


def job(found: Conversation, **changes: Any) -> TurnJob:
    made = TurnJob(
        id=IDS.new(TurnId),
        owner=found.owner,
        conversation=found.id,
        created_at=LATE,
        resumes=2,
        body=job_body((Item.of(TEXT),), None, b"", token=IDS.new(TokenId)),
    )
    return replace(made, **changes)


def ticket(found: Conversation, **changes: Any) -> Ticket:
    made = Ticket(
        attempt=IDS.new(TurnId),
        conversation=found.id,
        branch=found.branch,
        lease=IDS.new(LeaseId),
        deadline=LATE,
    )
    return replace(made, **changes)


def claim(**changes: Any) -> Claim:
    """Build a claim; its conversation need not exist."""
    made = Claim(
        owner="ann",
        idempotency_key="i",
        fingerprint=b"f",
        conversation=IDS.new(ConversationId),
        attempt=IDS.new(TurnId),
    )
    return replace(made, **changes)


def change(owner: str = "ann", at: int = 1, **details: Any) -> LiveChange:
    """Build a change; its conversation need not exist."""
    return LiveChange(
        kind=ChangeKind.TURN_RUNNING, owner=owner, conversation=IDS.new(ConversationId), at=at, **details
    )


def token(**changes: Any) -> Token:
    id = IDS.new(TokenId)
    made = Token(id=id, owner="ann", scopes=frozenset(TokenScope), created_at=1, digest=digest_of(id))
    return replace(made, **changes)


def link(**changes: Any) -> Share:
    id = IDS.new(ShareId)
    made = Share(id=id, owner="ann", chat_scope="shop", created_at=1, digest=digest_of(id))
    return replace(made, **changes)


async def insert_conversation(store: Store, found: Conversation | None = None) -> Conversation:
    made = found or conversation()
    branch = Branch(id=made.branch, conversation=made.id)
    await write(store, do("add_conversation", made), do("add_branch", branch, owner=made.owner))
    return made


async def insert_all(store: Store, found: list[Conversation]) -> list[Conversation]:
    return [await insert_conversation(store, each) for each in found]


async def grow(store: Store, branch: BranchId, count: int, start: int = 0, owner: str = "ann") -> list[Turn]:
    """Add turns to a branch; every third is settled."""
    turns: list[Turn] = []
    for number in range(start + 1, start + count + 1):
        made = turn(branch, number, turns[-1].id if turns else None)
        turns.append(replace(made, kind=TurnKind.SETTLED) if number % 3 == 0 else made)
    await write(store, *(do("add_turn", each, owner=owner) for each in turns))
    return turns


async def branch_off(
    store: Store, found: Conversation, base: Turn | None, *line: Stretch, count: int = 0
) -> tuple[Branch, list[Turn]]:
    start = base.number if base else 0
    made = Branch(
        id=IDS.new(BranchId), conversation=found.id, start=start, length=start, head=base.id if base else None
    )
    origin = Origin(branch=made.id, conversation=found.id, base=made.head, line=line)
    await write(store, do("add_branch", made, owner=found.owner), do("add_origin", origin, owner=found.owner))
    return made, await grow(store, made.id, count, start, found.owner)


async def add_ticket(store: Store, found: Conversation, **details: Any) -> Ticket:
    """Add a ticket and return it with its number."""
    [added] = await write(store, do("add_ticket", ticket(found, **details), owner=found.owner))
    assert isinstance(added, Ticket)
    return added


async def save_branch(store: Store, found: Conversation, **details: Any) -> Branch:
    """Save the branch of a new conversation with these details."""
    branch = Branch(id=found.branch, conversation=found.id, **details)
    await write(store, do("save_branch", branch, owner=found.owner))
    return branch
