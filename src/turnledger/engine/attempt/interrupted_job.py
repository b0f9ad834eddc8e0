"""Durable work whose process has died or left it: who holds it then, and what becomes of its job.

queued ──► running ──► ended                   the job is dropped with the end, whatever that is
   ▲         │  ▲
   │         ▼  │ taken by any process
 stop      left to be resumed, after a death at most MOST_RESUMES times; it holds its lane all the time
"""

from __future__ import annotations

from msgspec.structs import replace

from turnledger.engine.ports import Tables
from turnledger.errors import LedgerClosed, OutcomeUnknown, StoreUnavailable
from turnledger.model.conversation import NOBODY, Branch
from turnledger.model.ids import TurnId
from turnledger.model.job import MOST_RESUMES, TurnJob
from turnledger.model.turn import Attempt, Failure

NOT_COMMITTED = Failure("not_committed", "its commit was lost")
UNHELD = Failure("task_ended", "The task that ran the turn ended without leaving its block.")
EXHAUSTED = Failure("resumes_exhausted", f"its process died, after it was resumed {MOST_RESUMES} times")

INTERRUPTIONS = frozenset(
    (
        LedgerClosed.code,
        NOT_COMMITTED.code,
        OutcomeUnknown.code,
        StoreUnavailable.code,
        UNHELD.code,
    )
)
"""Failures of a process or of its store, not of the work."""
UNCOUNTED = frozenset((LedgerClosed.code,))
"""Interruptions that are planned: they use up no resume, so deploys never fail work."""


async def add_job(tables: Tables, job: TurnJob) -> None:
    await tables.add_job(job)
    await tables.count_bytes(job.bytes)


async def drop_job(tables: Tables, id: TurnId) -> TurnJob | None:
    """Remove a job and what it counts; return it as it was."""
    job = await tables.job(id)
    if job is not None:
        await tables.drop_job(id)
        await tables.count_bytes(-job.bytes)
    return job


async def leave_to_resume(tables: Tables, raised: Branch, attempt: Attempt, cause: str | None = None) -> bool:
    """Leave a durable attempt to whichever process resumes it, and save its branch with the raised fence.
    Return False, and change nothing, if the attempt has to end: it was stopped, or has no resumes left.
    `cause` is the code of its failure; None: its process died."""
    job = await tables.job(attempt.id) if attempt.is_durable and attempt.stop is None else None
    is_counted = cause not in UNCOUNTED
    if job is None or (is_counted and job.resumes >= MOST_RESUMES):
        return False
    if is_counted:
        await tables.count_resume(job.id)
    await tables.save_branch(raised)
    await tables.save_attempt(replace(attempt, lease=NOBODY, fence=raised.fence))
    return True


def cause_of_death(attempt: Attempt, died: Failure) -> Failure:
    return EXHAUSTED if attempt.is_durable and attempt.stop is None else died
