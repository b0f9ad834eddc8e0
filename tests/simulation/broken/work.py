"""Durable work: who begins it, who resumes it and how often, and in which order."""

from __future__ import annotations

import dataclasses
from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken, nothing
from turnledger.engine import recovery
from turnledger.engine.attempt import dead_process, end, interrupted_job, stop, unfinished_output
from turnledger.engine.attempt.end import Outcome
from turnledger.engine.events import reader
from turnledger.engine.ports import Sync
from turnledger.engine.process import Process
from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.turn import begin, commit, jobs, queue, worker
from turnledger.engine.turn.running_turn import Draft
from turnledger.model.conversation import NOBODY
from turnledger.model.turn import AttemptState

# A job is taken once, by the process that finds it free, in its order.


@broken
def begins_work_that_was_stopped_in_the_queue() -> list[Patch]:
    true = stop.end_queued

    async def end_queued(tables: Any, conversation: Any, ticket: Any, *others: Any) -> Any:
        if ticket.lease == NOBODY and len(others) == 1:
            return Outcome(AttemptState.DISCARDED)
        return await true(tables, conversation, ticket, *others)

    return [(stop, "end_queued", end_queued)]


@broken
def takes_work_from_a_process_that_runs_it() -> list[Patch]:
    def is_unheld(attempt: Any, branch: Any, lease: Any) -> bool:
        return attempt.state is AttemptState.RUNNING and branch.running == attempt.id

    async def ready(whole: Any, limit: int) -> Any:
        return [ReadyJob(each.owner, each.row.id) for each in await whole.all_jobs(None, limit)]

    return [(jobs, "is_unheld", is_unheld), (worker, "ready_jobs", ready)]


@broken
def begins_work_before_lower_tickets() -> list[Patch]:
    async def queue_before(*_: Any, **__: Any) -> Any:
        return [], None

    async def ready(whole: Any, limit: int) -> Any:
        return [ReadyJob(each.owner, each.row.id) for each in await whole.all_jobs(None, limit)][::-1]

    return [(jobs, "queue_before", queue_before), (worker, "ready_jobs", ready)]


@broken
def passes_work_that_waits_for_a_process() -> list[Patch]:
    true = queue.queue_before

    async def queue_before(tables: Any, branch: Any, attempt: Any, **how: Any) -> Any:
        before, own = await true(tables, branch, attempt, **how)
        return [ticket for ticket in before if ticket.lease != NOBODY], own

    return [(queue, "queue_before", queue_before)]


@broken
def enqueues_without_sync() -> list[Patch]:
    true = Process.persist

    async def persist(
        self: Any, operation: Any, request: Any, owner: Any, sync: Any = Sync.DISK, **options: Any
    ) -> Any:
        is_job = isinstance(request, begin.BeginRequest) and request.job is not None
        return await true(self, operation, request, owner, Sync.PROCESS if is_job else sync, **options)

    return [(Process, "persist", persist)]


# After a death it is resumed in place, three times.


@broken
def ends_the_work_of_a_dead_process() -> list[Patch]:
    async def leave_to_resume(*_: Any) -> bool:
        return False

    return [(dead_process, "leave_to_resume", leave_to_resume)]


@broken
def fails_work_whose_store_was_out_of_reach() -> list[Patch]:
    return [(end, "INTERRUPTIONS", frozenset())]


@broken
def counts_no_resumes() -> list[Patch]:
    async def leave_to_resume(tables: Any, raised: Any, attempt: Any, cause: Any = None) -> bool:
        if not attempt.is_durable or attempt.stop is not None:
            return False
        await tables.save_branch(raised)
        await tables.save_attempt(replace(attempt, lease=NOBODY, fence=raised.fence))
        return True

    return [(where, "leave_to_resume", leave_to_resume) for where in (dead_process, end)]


@broken
def counts_a_closed_ledger_as_a_death() -> list[Patch]:
    return [(interrupted_job, "UNCOUNTED", frozenset())]


@broken
def resumes_without_raising_the_fence() -> list[Patch]:
    true = interrupted_job.leave_to_resume

    async def leave_to_resume(tables: Any, raised: Any, attempt: Any, cause: Any = None) -> bool:
        return await true(tables, replace(raised, fence=raised.fence - 1), attempt, cause)

    async def resume(tables: Any, request: Any, attempt: Any) -> Any:
        branch = await tables.branch(attempt.branch)
        begun = await true_resume(tables, request, attempt)
        if begun is None or branch is None:
            return begun
        await tables.save_branch(branch)
        await tables.save_attempt(replace(begun.attempt, fence=branch.fence))
        return replace(begun, branch=branch, attempt=replace(begun.attempt, fence=branch.fence))

    true_resume = jobs._resume
    return [
        (dead_process, "leave_to_resume", leave_to_resume),
        (end, "leave_to_resume", leave_to_resume),
        (jobs, "_resume", resume),
    ]


@broken
def reruns_started_calls_when_it_resumes() -> list[Patch]:
    true = jobs._resume

    async def resume(tables: Any, request: Any, attempt: Any) -> Any:
        begun = await true(tables, request, attempt)
        if begun is not None:
            await tables.drop_journal(attempt.id)
            await tables.save_attempt(replace(begun.attempt, journaled=0))
            empty = type(begun.journal)()
            return replace(begun, attempt=replace(begun.attempt, journaled=0), journal=empty)
        return begun

    return [(jobs, "_resume", resume)]


@broken
def resumes_without_stating_unknown_outcomes() -> list[Patch]:
    return [(jobs, "unfinished_output", _SilentResume)]


class _SilentResume:
    resume_results = staticmethod(lambda journal: ())
    kept_output = unfinished_output.kept_output


@broken
def resumes_work_that_was_stopped() -> list[Patch]:
    true = interrupted_job.leave_to_resume

    async def leave_to_resume(tables: Any, raised: Any, attempt: Any, cause: Any = None) -> bool:
        return await true(tables, raised, replace(attempt, stop=None), cause)

    return [(where, "leave_to_resume", leave_to_resume) for where in (dead_process, end)]


@broken
def runs_again_what_was_settled_while_work_waited() -> list[Patch]:
    true = jobs._begin

    async def begin_as_new(tables: Any, request: Any, job: Any, ticket: Any) -> Any:
        is_settled = ticket.claimed is not None and await tables.turn(ticket.claimed) is not None
        return await true(tables, request, job, replace(ticket, claimed=None) if is_settled else ticket)

    return [(jobs, "_begin", begin_as_new)]


@broken
def resolves_a_doubt_about_work_that_another_process_runs() -> list[Patch]:
    true = commit.resolve_doubt

    async def resolve_doubt(tables: Any, request: Any) -> Any:
        attempt = await tables.attempt(request.attempt)
        holder = attempt.lease if attempt is not None else request.lease
        return await true(tables, dataclasses.replace(request, lease=holder))

    return [(where, "resolve_doubt", resolve_doubt) for where in (commit, recovery)]


@broken
def leaves_the_job_of_an_ended_turn() -> list[Patch]:
    return [(end, "drop_job", nothing)]


# Events are numbered once, however often the work is resumed.


@broken
def shows_events_of_work_before_they_are_stored() -> list[Patch]:
    return [(reader, "is_shown_live", lambda attempt: True)]


@broken
def resumes_with_a_log_of_its_own() -> list[Patch]:
    true = jobs._resume

    async def resume(tables: Any, request: Any, attempt: Any) -> Any:
        begun = await true(tables, request, attempt)
        if begun is not None:
            await tables.drop_log(attempt.id)
        return begun if begun is None else replace(begun, chunks=())

    return [(jobs, "_resume", resume)]


@broken
def records_before_it_stores_what_a_resume_made_void() -> list[Patch]:
    return [(worker.JobWorker, "_void", nothing)]


@broken
def resumes_without_voiding_the_text() -> list[Patch]:
    return [(Draft, "void", lambda draft: "")]


@broken
def enqueues_work_after_any_turn_behind_the_head() -> list[Patch]:
    true = begin.enqueue

    async def enqueue(tables: Any, conversation: Any, branch: Any, *others: Any) -> Any:
        return await true(tables, conversation, await tables.branch(conversation.branch), *others)

    return [(begin, "enqueue", enqueue)]
