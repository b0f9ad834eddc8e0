"""Jobs: list them, fail them, and take one: begin durable work that waits, or resume what a process has left.

Taking one is one transaction, so of several processes one takes it. It is begun under the rules of every
turn: the first in the queue, on the current head, with its input checked there. It is resumed in place: under
the same id, on the head it began on, with its journal; a call of unknown outcome has a result that says so.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.attempt import unfinished_output
from turnledger.engine.attempt.dead_process import free_of_dead
from turnledger.engine.attempt.end import end_running
from turnledger.engine.attempt.idempotency import IdempotencyKey, NewAttempt
from turnledger.engine.attempt.sent_log import ALL
from turnledger.engine.attempt.stop import end_queued
from turnledger.engine.conversations.resolve import Target, check_live
from turnledger.engine.ports import Tables, WholeStore
from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.turn.begin import (
    BeginBounds,
    BeginRequest,
    Begun,
    Round,
    TurnContent,
    TurnPolicy,
    take_lane,
)
from turnledger.engine.turn.queue import queue_before
from turnledger.errors import AdmissionMoved, TurnReplayed
from turnledger.model.access.token import Token
from turnledger.model.conversation import NOBODY, Branch, Ticket, Within
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TokenId, TurnId
from turnledger.model.job import LISTED_INPUT, ListedJob, TurnJob
from turnledger.model.journal import Journal, item_record
from turnledger.model.turn import QUEUED, Attempt, AttemptState, Failure, OnBusy


async def ready_jobs(whole: WholeStore, limit: int) -> list[ReadyJob]:
    return await whole.ready_jobs(limit)


async def read_job(tables: Tables, id: TurnId) -> TurnJob | None:
    return await tables.job(id)


@dataclass(frozen=True)
class PrincipalRequest:
    token: TokenId
    owner: str
    now: int


@dataclass(frozen=True)
class Admitted:
    token: Token | None = None
    """None: the job was requested without one."""
    version: int | None = None
    """The admission version under which the token is valid."""


async def check_principal(whole: WholeStore, request: PrincipalRequest) -> Admitted | Failure:
    """Return the token, or why it is not valid."""
    token = await whole.token(None, request.token)
    if token is None or token.revoked_at is not None:
        return Failure("token_revoked", "the token that requested it was revoked")
    if not token.is_valid(request.now):
        return Failure("token_expired", "the token that requested it has expired")
    return Admitted(token, await whole.of(request.owner).admission())


@dataclass(frozen=True)
class TakeRequest:
    id: TurnId
    lease: LeaseId
    now: int
    due: int
    admitted: int | None = None
    """The admission version under which its token was found valid; None: not checked."""


async def take(tables: Tables, request: TakeRequest) -> Begun | None:
    """Begin or resume a job under this lease. Return None if it is not ready: it was taken, stopped or
    removed, or others go first. Repeating it returns the same.

    Raises AdmissionMoved if its token must be checked again, and what makes the turn impossible: then nothing
    has changed, and the job has to be failed.
    """
    job = await tables.job(request.id)
    if job is None:
        return None
    attempt, ticket = await tables.attempt(job.id), await tables.ticket(job.id)
    is_ours = attempt is not None and attempt.lease == request.lease
    if not is_ours and request.admitted is not None and request.admitted != await tables.admission():
        raise AdmissionMoved
    if attempt is not None:
        begun = await _resume(tables, request, attempt)
    else:
        begun = await _begin(tables, request, job, ticket) if ticket is not None else None
    if begun is not None and await tables.lease(request.lease) is None:
        await tables.beat(request.lease)  # recovery finds attempts through their lease
    return begun


async def _begin(tables: Tables, request: TakeRequest, job: TurnJob, ticket: Ticket) -> Begun | None:
    conversation = await tables.conversation(job.conversation)
    branch = await tables.branch(ticket.branch)
    if conversation is None or branch is None or branch.running is not None:
        return None
    before, _ = await queue_before(tables, branch, job.id, front=False, dead={}, now=request.due)
    if before:
        return None
    await check_live(tables, conversation, request.due)
    settled = await tables.turn(ticket.claimed) if ticket.claimed is not None else None
    if settled is not None:
        # While it waited, another turn settled what the failed one had done that it retries.
        raise TurnReplayed(settled, conversation.id)
    earlier = await tables.attempt(ticket.claimed) if ticket.claimed is not None else None
    begin = _begin_request(request, job, ticket)
    begun = await take_lane(tables, conversation, branch, begin, NewAttempt(None, earlier))
    return replace(begun, flag_version=await tables.flag_version())


def _begin_request(request: TakeRequest, job: TurnJob, ticket: Ticket) -> BeginRequest:
    asked, key = job.request, ticket.idempotency_key
    policy = TurnPolicy(OnBusy.QUEUE, asked.on_stop, asked.on_failure, ticket.is_interaction)
    return BeginRequest(
        target=Target(job.owner, job.conversation),
        attempt=job.id,
        lease=request.lease,
        key=IdempotencyKey(key, ticket.fingerprint) if key is not None else None,
        content=TurnContent(asked.input_items, asked.given_instructions),
        raw_details=asked.raw_details,
        job=job.body,
        policy=policy,
        bounds=BeginBounds(0, 0),
        round=Round(request.now, request.due, is_repeated=True, is_durable=True),
    )


async def _resume(tables: Tables, request: TakeRequest, attempt: Attempt) -> Begun | None:
    branch = await tables.branch(attempt.branch)
    conversation = await tables.conversation(attempt.conversation)
    if branch is None or conversation is None or not is_unheld(attempt, branch, request.lease):
        return None
    if attempt.lease == NOBODY and attempt.stop is not None:
        await free_of_dead(tables, branch, attempt, request.now)
        return None
    records = await tables.journal(attempt.id)
    journal = Journal.of(records)
    if attempt.lease == NOBODY:
        branch = replace(branch, fence=branch.fence + 1)
        await tables.save_branch(branch)
        stated = unfinished_output.resume_results(journal)
        if stated:
            await tables.add_records(attempt.id, len(records), [item_record(item) for item in stated])
        journal.items += stated
        journaled = len(records) + len(stated)
        attempt = replace(attempt, lease=request.lease, fence=branch.fence, journaled=journaled)
        await tables.save_attempt(attempt)
    chunks = tuple(await tables.log_chunks(attempt.id, 0, ALL))
    return Begun(conversation, branch, attempt, journal, None, await tables.flag_version(), chunks)


def is_unheld(attempt: Attempt, branch: Branch, lease: LeaseId) -> bool:
    """Return whether a process with this lease may take the attempt: no other has."""
    is_running = attempt.state is AttemptState.RUNNING and branch.running == attempt.id
    return is_running and attempt.lease in (NOBODY, lease)


@dataclass(frozen=True)
class ListJobsRequest:
    conversation: ConversationId | None
    """Only its jobs; None: of all."""
    after: TurnId | None
    limit: int
    within: Within
    now: int


async def list_jobs(tables: Tables, request: ListJobsRequest) -> list[ListedJob]:
    """Return a page of jobs in the conversations that the caller sees, oldest first; as every list, without
    internal ones."""
    listed: list[ListedJob] = []
    lines: dict[BranchId, list[TurnId]] = {}
    after = request.after
    while len(listed) < request.limit and (page := await tables.jobs(after, request.limit)):
        for job in page:
            if request.conversation in (None, job.conversation) and await _is_listed(tables, request, job):
                listed.append(await _show(tables, request, job, lines))
        after = page[-1].id
    return listed[: request.limit]


async def _is_listed(tables: Tables, request: ListJobsRequest, job: TurnJob) -> bool:
    found = await tables.conversation(job.conversation)
    return found is not None and not found.internal and request.within.sees(found)


async def _show(
    tables: Tables, request: ListJobsRequest, job: TurnJob, lines: dict[BranchId, list[TurnId]]
) -> ListedJob:
    """Show a job; `lines` are the lanes seen before."""
    ticket = None if await tables.attempt(job.id) is not None else await tables.ticket(job.id)
    if ticket is not None and ticket.branch not in lines:
        lines[ticket.branch] = await _line(tables, ticket.branch, request.now)
    is_small = len(job.body) <= LISTED_INPUT
    return ListedJob(
        id=job.id,
        conversation=job.conversation,
        state=AttemptState.RUNNING.value if ticket is None else QUEUED,
        created_at=job.created_at,
        resumes=job.resumes,
        details=job.request.details_object,
        input=job.request.input_items if is_small else (),
        before=0 if ticket is None else lines[ticket.branch].index(job.id),
    )


async def _line(tables: Tables, id: BranchId, now: int) -> list[TurnId]:
    """Return the turn that runs on a branch, and those that wait, in their order."""
    branch = await tables.branch(id)
    running = branch.running if branch is not None else None
    waiting = [each.attempt for each in await tables.tickets(id) if each.deadline > now]
    return [*([] if running is None else [running]), *waiting]


@dataclass(frozen=True)
class FailJobRequest:
    id: TurnId
    failure: Failure
    now: int


async def fail_job(tables: Tables, request: FailJobRequest) -> None:
    """Fail a job that cannot be taken: one that waits, or waits to be resumed. Do nothing if it was taken."""
    attempt, ticket = await tables.attempt(request.id), await tables.ticket(request.id)
    if attempt is not None:
        branch = await tables.branch(attempt.branch)
        if branch is not None and attempt.lease == NOBODY and branch.running == attempt.id:
            raised = replace(branch, fence=branch.fence + 1)
            await end_running(tables, raised, attempt, request.failure, request.now)
    elif ticket is not None and await tables.job(request.id) is not None:
        conversation = await tables.conversation(ticket.conversation)
        if conversation is not None:
            await end_queued(tables, conversation, ticket, request.now, request.failure)
