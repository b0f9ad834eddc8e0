"""Beginning: what a turn brings along to begin, and what becomes of it there.

The line that a request was made for, and what begin says when it is another by then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from turnledger.engine.admission import Readmit
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.attempt.divergence import CommitPlace, Divergence
from turnledger.engine.attempt.idempotency import Key, SharedOutcome
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.history.context import ALL, Context
from turnledger.engine.lane.queue import Dead
from turnledger.engine.lifecycle.moves import Move, Moved
from turnledger.engine.limits import BOUNDLESS, Room
from turnledger.model.conversation import Branch, Conversation, Ticket
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, Instructions, OnBusy, OnFailure, OnStop

if TYPE_CHECKING:
    from turnledger.engine.turn.resend import ResentRequest


class ExpectedHead(Struct, frozen=True):
    """The line that a request was made for: a branch, its head, what waits to be settled behind it, and how
    often its owner had changed flags."""

    branch: BranchId
    head: TurnId | None
    unsettled: TurnId | None = None
    flagged: int = 0
    conversation: ConversationId | None = None
    """Whose branch it was; begin looks there first for what a conversation_key names."""
    is_instructed: bool = False
    """Whether the instructions that the request brings are in force behind that head anyway."""

    def is_still(self, branch: Branch) -> bool:
        return self.branch == branch.id and self.head == branch.head and self.unsettled == branch.unsettled


class HistoryMoved(Exception):
    """The line is not the one that the request was made for: it has to be made anew."""

    def __init__(self, conversation: ConversationId) -> None:
        super().__init__()
        self.conversation = conversation


@dataclass(frozen=True)
class Freed:
    """The lane was taken from a dead process, and what became of its turn is written: the request has to be
    made anew. An exception would undo it, and it would be found dead again for ever."""

    conversation: ConversationId


class MustReachDisk(Exception):
    """This begin does more than take the lane: others may be told of it, so it has to survive power loss."""


class TurnContent(Struct, frozen=True):
    """What a turn says, and where. A resent history is read anew into this whenever its line has moved."""

    input: tuple[Item, ...] = ()
    instructions: Instructions | None = None
    diverge: Divergence | None = None
    """Where the turn goes, if not behind the head."""
    seen: ExpectedHead | None = None
    """The line that a resent history was read against."""


class TurnPolicy(Struct, frozen=True):
    """What the caller wants when the turn cannot run undisturbed."""

    on_busy: OnBusy = OnBusy.QUEUE
    on_stop: OnStop = OnStop.KEEP
    on_failure: OnFailure = OnFailure.SETTLE
    is_interaction: bool = True


class BeginBounds(Struct, frozen=True):
    """How long the turn may wait, behind how many others, and how much its owner may store."""

    wait_until: int
    queue_limit: int
    room: Room = BOUNDLESS


class Round(Struct, frozen=True):
    """What one try to begin knows, and the one before it did not."""

    now: int
    due: int
    """What is over by then is over; see clock."""
    is_repeated: bool = False
    """Whether a begin of this attempt was sent before, and may have succeeded."""
    is_durable: bool = False
    """Whether it is run so that it survives power loss."""
    ticket: Ticket | None = None
    """The ticket that it was given before."""
    dead: Dead = {}


class BeginRequest(Struct, frozen=True, kw_only=True):
    """What the begin transaction reads. `attempt` is made by the caller, so that begin can be repeated."""

    target: Target
    admitted: int | None = None
    """The admission version under which the caller was authorized; None: not checked."""
    attempt: TurnId
    lease: LeaseId
    key: Key | None = None
    retry: Retry | None = None
    """Which try of a request without a key it is."""
    content: TurnContent = TurnContent()
    is_resent: bool = False
    """Whether the content depends on the line, and begin has to compare that with the one it was read for."""
    move: Move | None = None
    """What it does instead of running a turn."""
    policy: TurnPolicy = TurnPolicy()
    bounds: BeginBounds
    round: Round


class AcquireRequest(Struct, frozen=True):
    """What a caller asks for: the begin that the store runs, and what this process does around it."""

    begin: BeginRequest
    context: Context = ALL
    priming: tuple[Item, ...] = ()
    resent: ResentRequest | None = None
    """The history that the client sent whole; read again whenever the line has moved."""
    attaches: bool = False
    """Whether to follow a running attempt that answers the request instead of waiting for its outcome."""
    admitted_until: int | None = None
    """When the caller has to be authorized again in any case."""
    readmit: Readmit | None = None
    """Authorizes the caller again."""


class Begun(Struct, frozen=True):
    """The lane is held: the attempt, and the branch exactly as its snapshot must show it."""

    conversation: Conversation
    branch: Branch
    """The one whose lane is held."""
    attempt: Attempt
    journal: Journal
    place: CommitPlace | None = None
    """Where the turn goes, if not behind the head."""
    flagged: int = 0
    """The number of the owner that rises with each flag, as it was while the lane was taken."""


@dataclass(frozen=True)
class Queued:
    """Somebody else goes first. `in_the_way` are the leases whose death would change that."""

    ticket: Ticket
    in_the_way: tuple[tuple[LeaseId, int | None], ...]
    interrupted: TurnId | None


Beginning: TypeAlias = Begun | Queued | SharedOutcome | Moved
