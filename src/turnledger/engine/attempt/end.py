"""The end of an attempt that does not commit: a transaction that applies its policies and frees the lane."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from msgspec.structs import replace

from turnledger.engine.attempt import unfinished_output
from turnledger.engine.attempt.fork import CommitPlace, open_branch, place_of
from turnledger.engine.attempt.interrupted_job import INTERRUPTIONS, drop_job, leave_to_resume
from turnledger.engine.attempt.sent_log import (
    SentLog,
    kept_turn_log,
    load_flushed,
    store_attempt_log,
)
from turnledger.engine.attempt.unfinished_output import unfinished_items, unfinished_text
from turnledger.engine.conversations.list_entry import preview_at, update_entry
from turnledger.engine.conversations.title import hidden_of
from turnledger.engine.feed import record_change, record_commit
from turnledger.engine.limits import count_set_aside, store_turn
from turnledger.engine.ports import Tables
from turnledger.errors import MalformedItems, Superseded
from turnledger.model import event_log
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import Branch, ConversationState, holds_lane, turn_behind
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, open_calls
from turnledger.model.journal import Journal
from turnledger.model.turn import (
    Attempt,
    AttemptState,
    Failure,
    OnFailure,
    OnStop,
    Turn,
    TurnKind,
)

log = logging.getLogger("turnledger")

CLAIM_KEPT_MS = 24 * 60 * 60 * 1000
"""How long an idempotency_key is kept after its turn ended."""

DELETED = Failure("conversation_deleted", "the conversation was deleted")
EXPIRED = Failure("conversation_expired", "the conversation has expired")
DIED = Failure("process_died", "the process that ran it died")


@dataclass(frozen=True)
class Outcome:
    """How an attempt ended, and its turn, if any."""

    state: AttemptState
    turn: Turn | None = None
    failure: Failure | None = None
    id: TurnId | None = field(default=None, compare=False)
    """The attempt, where the request did not name it."""


@dataclass(frozen=True)
class EndRequest:
    """The holder ends its own attempt. `failure` is None for a stop."""

    owner: str
    conversation: ConversationId
    branch: BranchId
    attempt: TurnId
    fence: int
    failure: Failure | None
    on_stop: OnStop | None
    sent: SentLog | None
    """What its readers have received; None: what is flushed."""
    now: int


async def end(tables: Tables, request: EndRequest) -> Outcome:
    """End the caller's attempt by policy. Repeating it returns the first outcome. Durable work that only its
    process ends is left to be resumed, and stays running."""
    branch = await tables.branch(request.branch)
    attempt = await tables.attempt(request.attempt)
    if branch is None or attempt is None or not holds_lane(branch, request.attempt, request.fence):
        return await _outcome_without_lane(tables, request)
    attempt = replace(attempt, stop=attempt.stop or request.on_stop)
    if attempt.is_durable and request.failure is not None and request.failure.code in INTERRUPTIONS:
        raised = replace(branch, fence=branch.fence + 1)
        if await leave_to_resume(tables, raised, attempt, request.failure.code):
            return Outcome(AttemptState.RUNNING)
    _, ended = await end_running(tables, branch, attempt, request.failure, request.now, sent=request.sent)
    return ended


async def _outcome_without_lane(tables: Tables, request: EndRequest) -> Outcome:
    """Return how an attempt ended that lost its lane. If nothing is left of it, or another process took it
    over, and its conversation is gone, report that as the failure."""
    try:
        ended = await read_outcome(tables, request.attempt)
    except Superseded:
        ended = Outcome(AttemptState.FAILED, failure=request.failure)
    else:
        if ended.state is not AttemptState.FAILED or ended.failure != DIED:
            return ended
    removal = await _removal_failure(tables, request)
    return ended if removal is None else Outcome(AttemptState.FAILED, failure=removal)


async def _removal_failure(tables: Tables, request: EndRequest) -> Failure | None:
    found = await tables.conversation(request.conversation)
    if found is None or found.is_deleted:
        return DELETED
    return EXPIRED if found.state is ConversationState.EXPIRED else None


async def end_running(
    tables: Tables,
    branch: Branch,
    attempt: Attempt,
    failure: Failure | None,
    now: int,
    *,
    forget: bool = False,
    drop: bool = False,
    sent: SentLog | None = None,
) -> tuple[Branch, Outcome]:
    """End the running attempt of a branch by its policies; return the branch with its lane free.

    A recorded stop outlives the holder: its policy decides, however the attempt ended. Two flags override
    both: `drop` makes no turn and leaves effects to be settled, `forget` drops the effects, too. `sent` is
    what the holder has sent to readers; without it, the flushed log counts.
    """
    journal = Journal.of(await tables.journal(attempt.id) if attempt.journaled else [])
    sent = sent or await load_flushed(tables, attempt.id, journal)
    attempt = replace(attempt, partial="" if forget else unfinished_text(sent, journal))
    branch = replace(branch, running=None, used_at=branch.used_at and max(branch.used_at, now))
    if attempt.is_durable:
        await drop_job(tables, attempt.id)
    if not (forget or drop) and is_kept(attempt, failure):
        place = await place_of(tables, branch, attempt.fork) if attempt.fork else None
        partial = unfinished_items(sent, journal)
        output = unfinished_output.kept_output(journal, partial)
        if is_well_formed(place.pending if place else branch.pending, attempt, output):
            log = kept_turn_log(sent, journal, output, partial, failure)
            branch, ended = await _keep(tables, branch, place, attempt, journal, output, log, failure, now)
            await _touch(tables, attempt, now)
            return branch, ended
    is_stop = attempt.stop is not None and not (forget or drop)
    state = AttemptState.DISCARDED if is_stop else AttemptState.FAILED
    attempt = attempt.with_state(state, failure=failure, at=now)
    if forget:
        await tables.drop_log(attempt.id)
    else:
        await store_attempt_log(tables, attempt.id, journal, sent)
    if forget or (attempt.on_failure is OnFailure.FORGET and not is_stop):
        await tables.drop_journal(attempt.id)
        attempt = replace(attempt, journaled=0)
    elif journal.has_effects:
        branch = replace(branch, unsettled=attempt.id)
    await tables.save_attempt(await count_set_aside(tables, attempt))
    await tables.save_branch(branch)
    await expire_claim(tables, attempt.idempotency_key, attempt.id, now)
    if not (forget or drop):
        await _touch(tables, attempt, now)
    await _record_end(tables, attempt, now)
    return branch, Outcome(attempt.state, failure=failure)


async def _record_end(tables: Tables, attempt: Attempt, now: int) -> None:
    found = await tables.conversation(attempt.conversation)
    if found is not None:
        kind = ChangeKind.TURN_FAILED if attempt.state is AttemptState.FAILED else ChangeKind.TURN_STOPPED
        code = attempt.failure.code if attempt.failure else None
        await record_change(tables, kind, found, now, turn=attempt.id, detail=code)


def is_kept(attempt: Attempt, failure: Failure | None) -> bool:
    """Return whether policy keeps the partial output of an attempt that ends this way."""
    if attempt.stop is not None or failure is None:
        return attempt.stop is not OnStop.DISCARD
    return attempt.on_failure is OnFailure.KEEP


def is_well_formed(pending: tuple[Item, ...], attempt: Attempt, output: tuple[Item, ...]) -> bool:
    """Return whether the kept output can be history. It always should be. If not, the attempt fails, because
    an error here would block the lane for ever."""
    try:
        open_calls((*pending, *attempt.input, *output))
    except MalformedItems:
        log.exception("turn_not_kept", extra={"turn": attempt.id, "conversation": attempt.conversation})
        return False
    return True


async def _keep(
    tables: Tables,
    branch: Branch,
    place: CommitPlace | None,
    attempt: Attempt,
    journal: Journal,
    output: tuple[Item, ...],
    sent_log: bytes,
    failure: Failure | None,
    now: int,
) -> tuple[Branch, Outcome]:
    if place is not None:
        await tables.save_branch(branch)
        branch = await open_branch(tables, branch, place)
    log = event_log.encode_log(sent_log, output)
    effects = unfinished_output.effect_places(journal, output)
    turn = turn_behind(branch, attempt, TurnKind.INTERRUPTED, output, now, effects=effects)
    branch = await add_turn(tables, branch, turn, log)
    if effects:
        branch = replace(branch, settled=branch.length)
    if place is not None and place.input_flags:
        await tables.save_flags(turn.id, place.input_flags)
    branch = await record_turn(tables, branch, attempt, turn, has_moved=place is not None)
    await tables.drop_log(attempt.id)
    await tables.drop_attempt(attempt.id)
    await tables.drop_journal(attempt.id)
    await tables.save_branch(branch)
    await expire_claim(tables, attempt.idempotency_key, attempt.id, now)
    return branch, Outcome(AttemptState.KEPT, turn, failure)


async def _touch(tables: Tables, attempt: Attempt, now: int) -> None:
    """Count the end of a turn as interaction: the turn may have run longer than the conversation's idle
    limit. For a dead holder the time is that of the takeover."""
    if attempt.is_interaction:
        await tables.touch_conversation(attempt.conversation, now)


async def record_turn(
    tables: Tables, branch: Branch, attempt: Attempt, turn: Turn, *, has_moved: bool
) -> Branch:
    """Update the chat list, record the change in the feed, and return the branch with its preview."""
    hidden = await hidden_of(tables, turn)
    home = await update_entry(tables, attempt.conversation, branch, turn, hidden=hidden)
    await record_commit(tables, home, turn, has_moved=has_moved)
    return replace(branch, preview=await preview_at(tables, turn) or branch.preview)


async def add_turn(tables: Tables, branch: Branch, turn: Turn, log: bytes = b"") -> Branch:
    """Store the turn as the new head; return the changed branch, which the caller saves."""
    stored = await store_turn(tables, branch, turn, log)
    return replace(
        branch,
        head=turn.id,
        length=turn.number,
        pending=open_calls((*branch.pending, *turn.items)),
        instructed=turn.instructed,
        bytes=stored,
    )


async def expire_claim(
    tables: Tables, idempotency_key: str | None, attempt: TurnId, now: int, then: TurnId | None = None
) -> None:
    """Set the time at which the idempotency_key of an attempt expires. With `then`, return the key of a job
    that will not run to the attempt it was to retry, whose effects must not run again."""
    claim = await tables.claim(idempotency_key) if idempotency_key is not None else None
    if claim is not None and claim.attempt == attempt:
        await tables.save_claim(replace(claim, attempt=then or attempt, expires_at=now + CLAIM_KEPT_MS))


async def read_outcome(tables: Tables, id: TurnId) -> Outcome:
    """Return how an attempt ended that no longer runs; raise Superseded if that is no longer known."""
    turn = await tables.turn(id)
    if turn is not None:
        return Outcome(STATE_OF[turn.kind], turn, await failure_of(tables, turn))
    attempt = await tables.attempt(id)
    if attempt is None:
        raise Superseded
    return Outcome(attempt.state, failure=attempt.failure)


async def failure_of(tables: Tables, turn: Turn) -> Failure | None:
    """Return why a committed turn failed, if it did, as far as its log is kept."""
    if turn.kind is TurnKind.COMPLETED:
        return None
    kept = await tables.turn_log(turn.id)
    whole = event_log.decode_whole(kept)
    if whole is not None:
        return whole.failure
    return event_log.failure_of(event_log.decode_log(kept, turn.output))


STATE_OF = {
    TurnKind.COMPLETED: AttemptState.COMPLETED,
    TurnKind.INTERRUPTED: AttemptState.KEPT,
    TurnKind.SETTLED: AttemptState.SETTLED,
}


def log_job_end(turn: TurnId, conversation: ConversationId, ended: Outcome, resumes: int) -> None:
    """Log how durable work ended, with the id of its turn and how often it was resumed after a death."""
    extra = {"turn": turn, "conversation": conversation, "outcome": outcome_name(ended), "resumes": resumes}
    if ended.failure is None:
        log.info("background_turn_ended", extra=extra)
    else:
        log.warning("background_turn_ended", extra={**extra, "code": ended.failure.code})


def outcome_name(ended: Outcome) -> str:
    """Return how a turn ended in the words of the log and the metrics."""
    if ended.failure is not None:
        return "failed"
    return "completed" if ended.state is AttemptState.COMPLETED else "stopped"
