"""Begin: the transaction that takes the lane and fixes what the turn runs on.

In order: the claim of the idempotency_key, the conversation, the lane, the input, effects that wait to be
settled, the new claim, the fence. A turn after any turn takes a lane that is free, or makes one. A refused
request changes nothing; a waiting one leaves a ticket and claims nothing. A retry resumes the journal of a
failed attempt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.admission import Authorization
from turnledger.engine.attempt import client_retries, idempotency, unfinished_output
from turnledger.engine.attempt.client_retries import Retry
from turnledger.engine.attempt.dead_process import free_of_dead
from turnledger.engine.attempt.end import (
    CLAIM_KEPT_MS,
    Outcome,
    add_turn,
    read_outcome,
    record_turn,
)
from turnledger.engine.attempt.fork import (
    CommitPlace,
    Divergence,
    find_replaced,
    fork_at,
    place_of,
    reuse_input,
)
from turnledger.engine.attempt.give_way import note_read
from turnledger.engine.attempt.idempotency import (
    NOTHING_CLAIMED,
    IdempotencyKey,
    NewAttempt,
    SharedOutcome,
    Verdict,
)
from turnledger.engine.attempt.resume import can_resume, take_up
from turnledger.engine.attempt.settle import settle, settled_input
from turnledger.engine.conversations import resolve
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.feed import record_change
from turnledger.engine.history.context import ALL, Context
from turnledger.engine.lane.lease_watch import Dead, is_dead
from turnledger.engine.lifecycle.moves import (
    Move,
    MoveResult,
    Switch,
    check_move,
    find_claimed_move,
    find_earlier_move,
    move,
)
from turnledger.engine.limits import UNLIMITED, Quota, check_quota
from turnledger.engine.ports import Tables
from turnledger.engine.resend.match import Trimmed
from turnledger.engine.tables.lanes import Lane
from turnledger.engine.turn.parallel import branch_after
from turnledger.engine.turn.queue import Enqueued, Queued, ahead_of, check_room, enqueue, wait_behind
from turnledger.errors import AdmissionMoved, ConversationNotFound
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import NOBODY, Branch, Conversation, Ticket, turn_behind
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.item import (
    Item,
    admit,
    answered_from,
    check_resent,
    open_calls,
    without_repeated_answers,
)
from turnledger.model.journal import Journal
from turnledger.model.turn import (
    Attempt,
    AttemptState,
    Instructions,
    OnBusy,
    OnFailure,
    OnStop,
    TurnKind,
    instructions_from,
)

if TYPE_CHECKING:
    from turnledger.engine.turn.resent_request import ResentRequest


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
    after: TurnId | None = None
    """The turn to follow, on any branch, without waiting; see engine/turn/parallel."""
    seen: ExpectedHead | None = None
    """The line that a resent history was read against."""
    is_whole: bool = False
    """Whether the input is the whole turn, which no model answers: begin commits it."""
    trimmed: Trimmed | None = None
    """What the client has left out of a resent history; its model is not shown that."""


class TurnPolicy(Struct, frozen=True):
    """What to do when the turn cannot run undisturbed."""

    on_busy: OnBusy = OnBusy.QUEUE
    on_stop: OnStop = OnStop.KEEP
    on_failure: OnFailure = OnFailure.SETTLE
    is_interaction: bool = True
    gives_way: bool = False
    """Whether it is stopped, and kept, when others wait and nobody reads it."""

    @property
    def goes_first(self) -> bool:
        """Whether it stops the running turn, and passes the queue."""
        return self.on_busy in (OnBusy.INTERRUPT, OnBusy.ROLLBACK)


class BeginBounds(Struct, frozen=True):
    """How long the turn may wait, behind how many others, and how much its owner may store."""

    wait_until: int
    queue_limit: int
    quota: Quota = UNLIMITED
    owner_jobs: int = 0
    """Jobs that its owner may have."""


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
    raw_details: bytes = b""
    """What to record with the attempt: a JSON object, or nothing."""
    job: bytes | None = None
    """The body of its job: the turn is durable work, and waits for a process that runs it."""
    is_resent: bool = False
    """Whether the content depends on the line, so that begin compares it with the one it was read for."""
    move: Move | None = None
    """A move to make instead of running a turn."""
    policy: TurnPolicy = TurnPolicy()
    bounds: BeginBounds
    round: Round

    @property
    def is_final(self) -> bool:
        """Whether begin does all there is to do, so that giving up takes nothing back."""
        return self.move is not None or self.content.is_whole

    @property
    def near(self) -> ConversationId | None:
        """The conversation, as far as it is known before begin; None if begin may need many rows or long
        ones: for a move, an edit, a turn after any turn, a retry that may resume a journal, a long input, or
        one that waits for the disk."""
        content = self.content
        if self.move is not None or self.key is not None or self.round.is_durable:
            return None
        if content.diverge is not None or content.after is not None:
            return None
        if len(self.raw_details) + sum([len(item.raw) for item in content.input]) > SHORT_INPUT:
            return None
        return self.target.id or (content.seen.conversation if content.seen else None)


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
    chunks: tuple[bytes, ...] | None = None
    """The stored log of an attempt that is resumed in place."""
    trimmed: Trimmed | None = None
    """What its model is not shown of the line."""


Beginning: TypeAlias = Begun | Queued | Enqueued | SharedOutcome | MoveResult


async def begin(tables: Tables, request: BeginRequest) -> Beginning | Freed:
    """Take the lane, or a ticket, or find that another attempt answers this request.

    Raises the errors of the input, of the conversation and of the idempotency_key, StorageFull, QueueFull and
    ConversationBusy, and AdmissionMoved if the caller must be authorized again; then nothing has changed.
    Raises MustReachDisk if it must be run again durably, and HistoryMoved if the request must be made again.
    Repeating it with the same attempt returns the same, even if tokens have changed since.
    """
    if request.round.is_repeated:
        before = await _begun_before(tables, request)
        if before is not None:
            return before
    target = request.target
    may_have_ticket = request.round.is_repeated and (
        request.key is not None or request.retry is not None or target.id is None
    )
    stored = await tables.ticket(request.attempt) if may_have_ticket else None
    # The request knows its ticket even if it was dropped as that of a dead process; the store knows it even
    # if the result with it was lost.
    waiting_with = request.round.ticket or stored
    verdict = await _claimed(tables, request, waiting_with)
    if isinstance(verdict, SharedOutcome):
        if request.admitted is not None and request.admitted != await tables.admission():
            raise AdmissionMoved
        if verdict.outcome is None:
            await note_read(tables, verdict.attempt)  # it is about to attach
        elif request.retry is not None:
            # Power loss must not restore the mark of a lost answer that this try is about to receive.
            _demand_disk(request)
        # The ticket stays until the result has arrived: it shows a repeated begin that the request was
        # waiting.
        return verdict.with_ticket(is_there=stored is not None)
    if verdict.claim is not None:
        # A retry belongs to the conversation it first began in, even if the conversation_key has moved.
        target = target.at(verdict.claim.conversation)
    elif waiting_with is not None and target.id is None:
        target = await _where_it_waits(tables, target, waiting_with)
    lane = await _lane(tables, target, request)
    conversation, branch = lane.conversation, lane.branch
    if request.move is not None and request.round.is_repeated:
        moved = await find_earlier_move(tables, branch, request.move, request.attempt)
        if moved is not None:
            return moved
    if request.admitted is not None and request.admitted != lane.admission:
        raise AdmissionMoved
    if request.move is not None and verdict.claim is not None:
        return await find_claimed_move(tables, verdict.claim, request.attempt)
    if not isinstance(request.move, Switch):  # needs room only where it copies effects; see moves
        fresh = target.fresh
        made = conversation if fresh is not None and fresh.id == conversation.id else None
        await check_quota(tables, request.bounds.quota, made=made)
    if request.content.after is not None:
        free = await branch_after(
            tables,
            branch,
            request.content.after,
            request.attempt,
            request.round.now,
            earlier=verdict.earlier,
            demand_disk=lambda: _demand_disk(request),
        )
        if free is None:
            assert verdict.earlier is not None  # noqa: S101 - it was settled
            settled = verdict.earlier.id
            return SharedOutcome(settled, await read_outcome(tables, settled), conversation.id)
        if request.job is not None:
            _demand_disk(request)
            return await enqueue(tables, conversation, free, request, verdict)
        begun = await take_lane(tables, conversation, free, request, verdict)
        return replace(begun, flag_version=lane.flag_version)
    if request.job is not None:
        _demand_disk(request)
        return await enqueue(tables, conversation, branch, request, verdict)
    if branch.running is not None:
        held, branch = branch, await _free_of_dead(tables, branch, request)
        if branch is not held and (request.is_resent or request.retry is not None):
            # The meaning of the request, or the earlier try it finds, depends on how the dead one ended.
            return Freed(conversation.id)
        if branch.id != conversation.branch:
            # The kept turn of the dead one is on a new branch, which is current now.
            conversation = replace(conversation, branch=branch.id)
    if branch.running is not None or branch.last_ticket:
        queued = await _must_wait(tables, conversation, branch, request, verdict)
        if queued is not None:
            return queued
    if request.move is not None:
        return await _move(tables, conversation, branch, request, request.move)
    if request.content.is_whole:
        return await _append(tables, conversation, branch, request)
    seen = request.content.seen
    if seen is not None and seen.flag_version != lane.flag_version:
        raise HistoryMoved(conversation.id)
    begun = await take_lane(tables, conversation, branch, request, verdict)
    return replace(begun, flag_version=lane.flag_version) if lane.flag_version else begun


async def _claimed(tables: Tables, request: BeginRequest, waiting_with: Ticket | None) -> Verdict:
    if request.key is not None:
        return await idempotency.look_up(tables, request.target, request.key, waiting_with)
    if request.retry is not None:
        return await client_retries.look_up(
            tables,
            request.target,
            request.retry,
            request.attempt,
            request.round.now,
            follows_any=request.content.after is not None,
        )
    return NOTHING_CLAIMED


async def _begun_before(tables: Tables, request: BeginRequest) -> Begun | Enqueued | SharedOutcome | None:
    """Return the result of a begin that had succeeded and whose result was lost; None for a new one."""
    attempt = await tables.attempt(request.attempt)
    job = await tables.job(request.attempt) if request.job is not None else None
    if job is not None:
        return Enqueued(job.id, job.conversation)
    if attempt is None:
        turn = await tables.turn(request.attempt)
        home = await tables.branch(turn.branch) if turn else None
        if turn is None or home is None:
            return None
        return SharedOutcome(turn.id, await read_outcome(tables, turn.id), home.conversation)
    if attempt.state is not AttemptState.RUNNING:
        return SharedOutcome(attempt.id, await read_outcome(tables, attempt.id), attempt.conversation)
    conversation = await tables.conversation(attempt.conversation)
    branch = await tables.branch(attempt.branch)
    assert conversation is not None  # noqa: S101 - rows of one transaction
    assert branch is not None  # noqa: S101
    journal = Journal.of(await tables.journal(attempt.id))
    place = await place_of(tables, branch, attempt.fork) if attempt.fork else None
    version = await tables.flag_version()
    return Begun(conversation, branch, attempt, journal, place, version, trimmed=request.content.trimmed)


async def _where_it_waits(tables: Tables, target: Target, ticket: Ticket) -> Target:
    """Return the target of a waiting request: it stays in its queue even if its conversation_key has moved.
    If that conversation was deleted, it goes to the original target."""
    found = await tables.conversation(ticket.conversation)
    if found is None or found.is_deleted:
        return target
    return target.at(found.id)


async def _lane(tables: Tables, target: Target, request: BeginRequest) -> Lane:
    """Return the lane, of a conversation created if allowed. Restores a missing lease."""
    found, seen = None, request.content.seen
    if seen is not None:
        found = await resolve.seen_lane(tables, target, seen.conversation, request.lease)
    if found is None and target.id is None:
        conversation = await resolve.resolve(
            tables, target, request.round.due, is_interaction=request.policy.is_interaction
        )
        if target.fresh is not None and conversation.id == target.fresh.id:
            _demand_disk(request)
        target = target.at(conversation.id)
    if found is None:
        assert target.id is not None  # noqa: S101 - for the type checker
        found = await tables.lane(target.id, request.lease)
    if found is None or not target.sees(found.conversation):
        raise ConversationNotFound
    await resolve.check_live(tables, found.conversation, request.round.due)
    if not found.has_lease:
        # Buried while it was only late: recovery finds rows through their lease.
        await tables.beat(request.lease)
    return found


async def _free_of_dead(tables: Tables, branch: Branch, request: BeginRequest) -> Branch:
    """Raise the fence over the attempt of a holder known to be dead, or of none if it was stopped, and end it
    or leave it to be resumed; otherwise change nothing."""
    running = await tables.attempt(branch.running) if branch.running else None
    if running is None:
        return branch
    is_unheld = running.lease == NOBODY and running.stop is not None
    if not is_unheld and not await is_dead(tables, running.lease, request.round.dead):
        return branch
    _demand_disk(request)
    freed, _ = await free_of_dead(tables, branch, running, request.round.now)
    return freed


def _demand_disk(request: BeginRequest) -> None:
    if not request.round.is_durable:
        raise MustReachDisk


async def _must_wait(
    tables: Tables, conversation: Conversation, branch: Branch, request: BeginRequest, verdict: NewAttempt
) -> Queued | None:
    """Return None if the lane is free for this request; else its ticket, new if it has none."""
    ahead = await ahead_of(tables, branch, request)
    if ahead is None:
        return None
    if ahead.own is None:
        check_room(request, ahead)
        if ahead.running is not None and request.policy.goes_first:
            await _check_before_stopping(tables, branch, ahead.running, request)
    return await wait_behind(tables, ahead, conversation, branch, request, verdict)


async def _check_before_stopping(
    tables: Tables, branch: Branch, running: Attempt, request: BeginRequest
) -> None:
    """Raise now what would be raised later, so that no turn is stopped in vain. An interrupted turn leaves no
    call open, and may be the very one to be replaced."""
    _check_seen(branch, request)
    keeps_running = request.policy.on_busy is OnBusy.INTERRUPT
    if request.is_resent and keeps_running:
        return  # its meaning depends on what will be kept
    divergence = request.content.diverge
    if request.move is not None:
        kept = running.id if keeps_running else None
        await check_move(tables, branch, request.move, kept=kept, quota=request.bounds.quota)
    elif divergence is None:
        _admitted(request, () if keeps_running else branch.pending)
    elif not (keeps_running and divergence.may_replace(running.id)):
        await _find_place(tables, branch, request, divergence)
    elif not divergence.regenerates:
        place = await place_of(tables, branch, running.fork) if running.fork else branch
        admit(place.pending, request.content.input)


async def _move(
    tables: Tables, conversation: Conversation, branch: Branch, request: BeginRequest, wanted: Move
) -> MoveResult:
    """Do the whole move now, while the lane is free."""
    _demand_disk(request)
    branch = await _settled(tables, branch, request)
    moved = await move(tables, branch, wanted, request.attempt, request.round.now, request.bounds.quota)
    await tables.drop_ticket(request.attempt)
    await tables.touch_conversation(conversation.id, request.round.now)
    if request.key is not None:
        claim = idempotency.claim_of(request.key, conversation, moved.branch.id, request.round.now)
        await tables.save_claim(claim)
    if moved.branch.id != branch.id:
        await record_change(
            tables, ChangeKind.CHAT_SWITCHED, conversation, request.round.now, branch=moved.branch.id
        )
    return moved


async def _append(
    tables: Tables, conversation: Conversation, branch: Branch, request: BeginRequest
) -> SharedOutcome:
    """Commit a turn without a model now, while the lane is free. No fence rises: nobody holds the lane."""
    _demand_disk(request)
    now = request.round.now
    branch, items = await _ready(tables, branch, request)
    answer = answered_from(items)
    attempt = new_attempt(conversation, branch, request, items[:answer], None)
    turn = turn_behind(branch, attempt, TurnKind.COMPLETED, items[answer:], now)
    branch = await add_turn(tables, branch, turn)
    await tables.save_branch(await record_turn(tables, branch, attempt, turn, has_moved=False))
    if attempt.is_interaction:
        await tables.touch_conversation(conversation.id, now)
    if request.round.is_repeated:
        await tables.drop_ticket(attempt.id)
    if request.key is not None:
        claim = idempotency.claim_for(request.key, attempt)
        await tables.save_claim(replace(claim, expires_at=now + CLAIM_KEPT_MS))
    return SharedOutcome(turn.id, Outcome(AttemptState.COMPLETED, turn), conversation.id)


def _admitted(request: BeginRequest, pending: tuple[Item, ...]) -> tuple[Item, ...]:
    return admit(pending, request.content.input, is_whole=request.content.is_whole)


async def take_lane(
    tables: Tables, conversation: Conversation, branch: Branch, request: BeginRequest, verdict: NewAttempt
) -> Begun:
    _check_seen(branch, request)
    content = request.content
    resumed = verdict.earlier if verdict.earlier and can_resume(branch, verdict.earlier) else None
    place: CommitPlace | None = None
    instructions = content.instructions
    if resumed is not None:
        # The journal belongs to the place, the input and the instructions it was written under; a resent
        # history may mean another place now.
        input, instructions = resumed.input, resumed.instructions
        place = await place_of(tables, branch, resumed.fork) if resumed.fork else None
    elif content.diverge is None:
        branch, input = await _ready(tables, branch, request)
        if content.seen and content.seen.is_instructed and content.seen.is_still(branch):
            instructions = None
    else:
        # Settled where the lane is taken, before the input is checked at its place: an error rolls back both.
        branch = await _settled(tables, branch, request)
        place, input = await _find_place(tables, branch, request, content.diverge)
        if instructions is None:
            instructions = await _instructions_there(tables, branch, request, content.diverge)
    branch = replace(
        branch,
        fence=branch.fence + 1,
        running=request.attempt,
        used_at=branch.used_at and max(branch.used_at, request.round.now),
    )
    attempt = new_attempt(conversation, branch, request, input, instructions)
    if place is not None:
        attempt = replace(attempt, fork=place.fork)
    journal = Journal()
    if resumed is not None:
        branch, journal, count = await take_up(tables, branch, resumed, attempt.id)
        attempt = replace(attempt, journaled=count)
    await tables.add_attempt(attempt)
    await tables.save_branch(branch)
    await record_change(
        tables,
        ChangeKind.TURN_RUNNING,
        conversation,
        request.round.now,
        turn=attempt.id,
        branch=branch.id if branch.is_side else None,
    )
    if request.policy.is_interaction and conversation.may_lapse:
        # Begin counts as interaction, so that a conversation does not expire during a long turn.
        await tables.touch_conversation(conversation.id, request.round.now)
    if request.round.is_repeated:
        await tables.drop_ticket(attempt.id)
    if request.key is not None:
        await tables.save_claim(idempotency.claim_for(request.key, attempt))
    elif request.retry is not None and (request.retry.count is not None or verdict.claim is not None):
        await tables.save_claim(client_retries.claim_for(request.retry, attempt))
    return Begun(conversation, branch, attempt, journal, place, trimmed=content.trimmed)


def _check_seen(branch: Branch, request: BeginRequest) -> None:
    seen = request.content.seen
    if request.is_resent and (seen is None or not seen.is_still(branch)):
        raise HistoryMoved(branch.conversation)


async def _ready(tables: Tables, branch: Branch, request: BeginRequest) -> tuple[Branch, tuple[Item, ...]]:
    """Check the input against the future head, then settle what waits. In this order, since a refused request
    must not have settled anything."""
    waiting = await tables.attempt(branch.unsettled) if branch.unsettled else None
    if waiting is None:
        return branch, _admitted(request, branch.pending)
    settled = unfinished_output.settled_output(Journal.of(await tables.journal(waiting.id)), waiting.failure)
    asked = settled_input(branch, waiting)
    input = request.content.input
    if request.is_resent:
        # The client has the results that will be settled, but not that turn.
        check_resent(input := without_repeated_answers(asked, input))
    is_whole = request.content.is_whole
    admitted = admit(open_calls((*branch.pending, *asked, *settled)), input, is_whole=is_whole)
    _demand_disk(request)
    return await settle(tables, branch, waiting, request.round.now), admitted


async def _settled(tables: Tables, branch: Branch, request: BeginRequest) -> Branch:
    waiting = await tables.attempt(branch.unsettled) if branch.unsettled else None
    if waiting is None:
        return branch
    _demand_disk(request)
    return await settle(tables, branch, waiting, request.round.now)


async def _find_place(
    tables: Tables, branch: Branch, request: BeginRequest, divergence: Divergence
) -> tuple[CommitPlace, tuple[Item, ...]]:
    instead_of = await find_replaced(tables, branch, divergence)
    place = await place_of(tables, branch, await fork_at(tables, branch, divergence, instead_of))
    input = request.content.input
    if divergence.regenerates and instead_of is not None:
        input = reuse_input(place, instead_of)
    return place, admit(place.pending, input)


async def _instructions_there(
    tables: Tables, branch: Branch, request: BeginRequest, divergence: Divergence
) -> Instructions | None:
    """Return the instructions that the replaced turn set: they stay with its place."""
    instead_of = await find_replaced(tables, branch, divergence)
    return instructions_from(instead_of) if instead_of is not None else None


def new_attempt(
    conversation: Conversation,
    branch: Branch,
    request: BeginRequest,
    input: tuple[Item, ...],
    instructions: Instructions | None,
) -> Attempt:
    attempt = Attempt(
        id=request.attempt,
        owner=conversation.owner,
        conversation=conversation.id,
        branch=branch.id,
        lease=request.lease,
        fence=branch.fence,
        state=AttemptState.RUNNING,
        base=branch.head,
        input=input,
        instructions=instructions,
        on_stop=request.policy.on_stop,
        on_failure=request.policy.on_failure,
        is_interaction=request.policy.is_interaction,
        idempotency_key=request.key.text if request.key else None,
        created_at=request.round.now,
    )
    if not request.raw_details and request.job is None and not request.policy.gives_way:
        return attempt  # with more than 15 keywords, a call makes a dictionary of them
    return replace(
        attempt,
        raw_details=request.raw_details,
        is_durable=request.job is not None,
        reads=0 if request.policy.gives_way else None,
    )
