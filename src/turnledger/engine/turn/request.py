"""The request and the results of begin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct

from turnledger.engine.admission import Authorization
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.attempt.divergence import CommitPlace, Divergence
from turnledger.engine.attempt.idempotency import IdempotencyKey, SharedOutcome
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.history.context import ALL, Context
from turnledger.engine.lane.queue import Dead
from turnledger.engine.lifecycle.moves import Move, MoveResult
from turnledger.engine.limits import UNLIMITED, Quota
from turnledger.model.conversation import Branch, Conversation, Ticket
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, Instructions, OnBusy, OnFailure, OnStop

if TYPE_CHECKING:
    from turnledger.engine.turn.resend import ResentRequest


class ExpectedHead(Struct, frozen=True):
    """The line that a request was made for: a branch, its head, the attempt to be settled after it, and the
    flag version of its owner."""

    branch: BranchId
    head: TurnId | None
    unsettled: TurnId | None = None
    flag_version: int = 0
    conversation: ConversationId | None = None
    """Its conversation; begin looks there first for a conversation_key."""
    is_instructed: bool = False
    """Whether the request's instructions are in force after that head anyway."""

    def is_still(self, branch: Branch) -> bool:
        return self.branch == branch.id and self.head == branch.head and self.unsettled == branch.unsettled


class HistoryMoved(Exception):
    """The line is not the one that the request was made for; make the request again."""

    def __init__(self, conversation: ConversationId) -> None:
        super().__init__()
        self.conversation = conversation


@dataclass(frozen=True)
class Freed:
    """The lane was taken from a dead process and its turn ended; make the request again. Not an exception,
    which would roll back the takeover, so that the next begin finds the same."""

    conversation: ConversationId


class MustReachDisk(Exception):
    """This begin does more than take the lane: others may learn of it, so it must survive power loss."""


class TurnContent(Struct, frozen=True):
    """What a turn says, and where. A resent history is read again whenever its line has moved."""

    input: tuple[Item, ...] = ()
    instructions: Instructions | None = None
    diverge: Divergence | None = None
    """Its place, if not behind the head."""
    seen: ExpectedHead | None = None
    """The line that a resent history was read against."""


class TurnPolicy(Struct, frozen=True):
    """What to do when the turn cannot run undisturbed."""

    on_busy: OnBusy = OnBusy.QUEUE
    on_stop: OnStop = OnStop.KEEP
    on_failure: OnFailure = OnFailure.SETTLE
    is_interaction: bool = True


class BeginBounds(Struct, frozen=True):
    """How long the turn may wait, behind how many others, and how much its owner may store."""

    wait_until: int
    queue_limit: int
    quota: Quota = UNLIMITED


class Round(Struct, frozen=True):
    """What changes between two tries to begin."""

    now: int
    due: int
    """The time that has certainly come; see clock."""
    is_repeated: bool = False
    """Whether a begin of this attempt was sent before, and may have succeeded."""
    is_durable: bool = False
    """Whether it must survive power loss."""
    ticket: Ticket | None = None
    """Its ticket from an earlier round."""
    dead: Dead = {}


SHORT_INPUT = 64_000
"""Bytes of an input that are written within a moment."""


class BeginRequest(Struct, frozen=True, kw_only=True):
    """The input of the begin transaction. The caller chooses `attempt`, so that begin can be repeated."""

    target: Target
    admitted: int | None = None
    """The admission version under which the caller was authorized; None: not checked."""
    attempt: TurnId
    lease: LeaseId
    key: IdempotencyKey | None = None
    retry: Retry | None = None
    """The number of the try of a request without a key."""
    content: TurnContent = TurnContent()
    is_resent: bool = False
    """Whether the content depends on the line, so that begin compares it with the one it was read for."""
    move: Move | None = None
    """A move to make instead of running a turn."""
    policy: TurnPolicy = TurnPolicy()
    bounds: BeginBounds
    round: Round

    @property
    def near(self) -> ConversationId | None:
        """The conversation, as far as it is known before begin; None if begin may need many rows or long
        ones: for a move, an edit, a retry that may resume a journal, or a long input."""
        if self.move is not None or self.content.diverge is not None or self.key is not None:
            return None
        if sum(len(item.raw) for item in self.content.input) > SHORT_INPUT:
            return None
        return self.target.id or (self.content.seen.conversation if self.content.seen else None)


class AcquireRequest(Struct, frozen=True):
    """A caller's request: the begin that the store runs, and what this process does around it."""

    begin: BeginRequest
    context: Context = ALL
    primer: tuple[Item, ...] = ()
    resent: ResentRequest | None = None
    """The whole history that the client sent; read again whenever the line has moved."""
    attaches: bool = False
    """Whether to follow a running attempt that answers the request, instead of waiting for its outcome."""
    authorization: Authorization | None = None


class Begun(Struct, frozen=True):
    """The lane is held: the attempt, and the branch as its snapshot must show it."""

    conversation: Conversation
    branch: Branch
    """The one whose lane is held."""
    attempt: Attempt
    journal: Journal
    place: CommitPlace | None = None
    """The place of the turn, if not behind the head."""
    flag_version: int = 0
    """The owner's flag version when the lane was taken."""


@dataclass(frozen=True)
class Queued:
    """Others go first. `in_the_way` are the leases whose death would change that."""

    ticket: Ticket
    in_the_way: tuple[tuple[LeaseId, int | None], ...]
    interrupted: TurnId | None


Beginning: TypeAlias = Begun | Queued | SharedOutcome | MoveResult
