"""An attempt: one execution of a turn. Many may start, at most one commits."""

from __future__ import annotations

from enum import StrEnum
from typing import TypeAlias

import msgspec

from turnledger.model import codec
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import Instructions

Bytes: TypeAlias = bytes
"""For properties of a class with a field of that name."""


class AttemptState(StrEnum):
    """Where an attempt stands."""

    RUNNING = "running"  # holds the lane
    COMPLETED = "completed"  # committed whole
    KEPT = "kept"  # committed as an interrupted turn
    FAILED = "failed"  # kept aside; its effects, if any, wait to be settled
    DISCARDED = "discarded"  # stopped, and dropped by policy; its effects wait likewise
    SETTLED = "settled"  # failed or discarded, and the truth about its effects is committed
    RESUMED = "resumed"  # failed, and a later attempt took up its journal

    @property
    def is_committed(self) -> bool:
        """Whether there is a turn of this id in the history."""
        return self in (AttemptState.COMPLETED, AttemptState.KEPT, AttemptState.SETTLED)


MOVES: dict[AttemptState, frozenset[AttemptState]] = {
    AttemptState.RUNNING: frozenset(
        {AttemptState.COMPLETED, AttemptState.KEPT, AttemptState.FAILED, AttemptState.DISCARDED}
    ),
    AttemptState.FAILED: frozenset({AttemptState.SETTLED, AttemptState.RESUMED}),
    AttemptState.DISCARDED: frozenset({AttemptState.SETTLED}),
    AttemptState.COMPLETED: frozenset(),
    AttemptState.KEPT: frozenset(),
    AttemptState.SETTLED: frozenset(),
    AttemptState.RESUMED: frozenset(),
}
"""The legal moves of an attempt: all of them."""


QUEUED = "queued"
"""Where a turn stands that is no attempt yet."""


class Began(StrEnum):
    """Where a turn began."""

    CREATED = "created"  # in a conversation that was made with its begin
    CONTINUED = "continued"  # behind the last turn of one that was there
    BRANCHED = "branched"  # in the place of an earlier turn, on a branch of its own


class OnBusy(StrEnum):
    """What a turn does that finds another one running."""

    QUEUE = "queue"  # wait in line, within bounds
    REJECT = "reject"  # raise ConversationBusy
    INTERRUPT = "interrupt"  # stop the running turn, keep it, go first
    ROLLBACK = "rollback"  # stop the running turn, discard it, go first


class OnStop(StrEnum):
    """What becomes of a turn that is stopped."""

    KEEP = "keep"  # it stays, as an interrupted turn
    DISCARD = "discard"  # it goes; what its tools did is settled later


class OnFailure(StrEnum):
    """What becomes of a turn that fails."""

    SETTLE = "settle"  # it goes; what its tools did is settled when the conversation moves on
    KEEP = "keep"  # it stays, as an interrupted turn
    FORGET = "forget"  # it goes, and what its tools did with it; a retry runs them again


class Failure(msgspec.Struct, frozen=True):
    """Why an attempt ended other than well: a stable word, and a sentence for people."""

    code: str
    message: str


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """Where an edit commits: on a branch to be made from an earlier turn. It holds the lane of the branch
    that was current when it began, whose head is its `Attempt.base`."""

    branch: BranchId
    """The one to be made."""
    base: TurnId | None
    """The turn it is made from; None for the very beginning."""
    number: int
    """The number of that turn."""
    forget: bool = False
    """Whether later settled turns are left behind."""
    repeats: TurnId | None = None
    """The turn whose input is asked again there: what is hidden of that stays hidden."""


class AttemptBody(codec.Document, frozen=True):
    """What a store keeps of an attempt as one value."""

    input: tuple[msgspec.Raw, ...]
    partial: str = ""
    instructions: tuple[msgspec.Raw, ...] | msgspec.UnsetType = msgspec.UNSET
    once: bool | msgspec.UnsetType = msgspec.UNSET

    @classmethod
    def of(cls, input: tuple[Item, ...], instructions: Instructions | None, partial: str = "") -> AttemptBody:
        if instructions is None:
            return cls(input=codec.raws(input), partial=partial)
        return cls(
            input=codec.raws(input),
            partial=partial,
            instructions=codec.raws(instructions.items),
            once=msgspec.UNSET if instructions.is_lasting else True,
        )

    @property
    def given(self) -> Instructions | None:
        """The instructions that the attempt was begun with."""
        if isinstance(self.instructions, msgspec.UnsetType):
            return None
        return Instructions(codec.items(self.instructions), is_lasting=self.once is not True)


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """An attempt as the store knows it: the one that runs on a branch, or one kept aside."""

    id: TurnId
    owner: str
    conversation: ConversationId
    branch: BranchId
    lease: LeaseId
    fence: int
    state: AttemptState
    base: TurnId | None
    input: tuple[Item, ...]
    fork: Fork | None = None
    instructions: Instructions | None = None
    """Those it was begun with; None where it goes by those in force."""
    on_stop: OnStop = OnStop.KEEP
    on_failure: OnFailure = OnFailure.SETTLE
    is_interaction: bool = True
    """Whether it counts as use of the conversation, for expiry, resets and the order of lists."""
    idempotency_key: str | None = None
    """As it is claimed: that of a caller who may see one scope only names the scope, too."""
    stop: OnStop | None = None
    failure: Failure | None = None
    partial: str = ""
    journaled: int = 0
    created_at: int
    ended_at: int | None = None
    bytes: int = 0
    """What it counts while it is kept aside; see model.conversation."""

    def moved(self, state: AttemptState, *, failure: Failure | None = None, at: int | None = None) -> Attempt:
        """Return the attempt after a legal move; any other is a bug, and raises ValueError."""
        if state not in MOVES[self.state]:
            raise ValueError(f"an attempt cannot go from {self.state} to {state}")
        changes: dict[str, object] = {"state": state, "ended_at": self.ended_at if at is None else at}
        changes["failure"] = failure or self.failure
        return msgspec.structs.replace(self, **changes)

    @property
    def asked(self) -> Bytes:
        """Input and instructions as one value. The partial text is no part of it: it changes, they do not."""
        return codec.encode(AttemptBody.of(self.input, self.instructions))

    @property
    def body(self) -> Bytes:
        return codec.encode(AttemptBody.of(self.input, self.instructions, self.partial))
