"""The worker: takes jobs as lanes become free, and runs each in a task of its own.

It asks the store for jobs that are ready when a lane may have become free here, when another process has
written, and on a timer. It holds no queue of its own: the store decides who takes what.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import NamedTuple, TypeAlias

from msgspec.structs import replace as replace_struct

from turnledger.engine.admission import readmitted
from turnledger.engine.attempt.end import Outcome, log_job_end
from turnledger.engine.attempt.idempotency import SharedOutcome
from turnledger.engine.attempt.interrupted_job import UNCOUNTED, UNHELD
from turnledger.engine.history.context import ALL, Context
from turnledger.engine.lane.shield import is_cancelled, uninterrupted
from turnledger.engine.process import Process, flush
from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.turn.begin import AcquireRequest, Begun, begin
from turnledger.engine.turn.commit import abandon_block, end_as_failed, failure_of, leave
from turnledger.engine.turn.jobs import (
    Admitted,
    FailJobRequest,
    PrincipalRequest,
    TakeRequest,
    check_principal,
    fail_job,
    read_job,
    ready_jobs,
    take,
)
from turnledger.engine.turn.queue import Enqueued
from turnledger.engine.turn.running_turn import OpenTurn, RunningTurn
from turnledger.engine.turn.snapshot import snapshot
from turnledger.errors import (
    AdmissionMoved,
    LedgerClosed,
    StoreCorrupt,
    StoreError,
    TurnFailed,
    TurnledgerError,
)
from turnledger.model.access.token import Token
from turnledger.model.ids import TurnId
from turnledger.model.job import TurnJob
from turnledger.model.turn import AttemptState, Failure

log = logging.getLogger("turnledger")

BREATH = 0.02
"""Seconds between two looks for work: the bell rings at the end of every turn in this process."""


async def enqueue(process: Process, asked: AcquireRequest) -> tuple[TurnId, bool]:
    """Store a job; return the id of its turn, or of the one that answers its idempotency_key, and whether it
    is new. Repeated until its outcome is known; when this returns, the job survives the process and power
    loss."""
    request = asked.begin
    if process.is_closed:
        raise LedgerClosed
    while True:
        # The first may have succeeded; only a repeated one, which reads more, recognizes that.
        again = replace_struct(request, round=replace_struct(request.round, is_repeated=True))
        try:
            answer = await process.persist(begin, request, request.target.owner, again=again)
        except AdmissionMoved:
            version = await readmitted(asked.authorization, request.admitted)
            request = replace_struct(again, admitted=version)
        else:
            assert isinstance(answer, Enqueued | SharedOutcome)  # noqa: S101 - it asks for a job
            process.waiters.notify(answer.conversation)
            return answer.attempt, answer.attempt == request.attempt


JobRunner: TypeAlias = Callable[[RunningTurn, Token | None], Awaitable[None]]
"""A runner that is also given the token that requested the job."""


OnEnd: TypeAlias = Callable[[Outcome, RunningTurn | None], None]


class TakenJob(NamedTuple):
    job: TurnJob
    turn: OpenTurn
    token: Token | None


class JobWorker:
    """`on_end` is called for each job that this worker ended, with its turn if that ran here; not for one
    that is left to be resumed."""

    def __init__(
        self,
        process: Process,
        runner: JobRunner,
        slots: int,
        on_end: OnEnd = lambda *_: None,
    ) -> None:
        self._process = process
        self._runner = runner
        self._slots = slots
        self._on_end = on_end
        self._bell = asyncio.Event()
        self._tasks: dict[asyncio.Task[None], TurnId] = {}
        self._damaged: set[TurnId] = set()
        """Jobs that cannot be read: trying them again and again would keep others waiting."""

    async def run(self) -> None:
        """Run jobs until cancelled, or until the ledger is closed. Then leave those that run to be resumed:
        here by another worker, or in another process."""
        process, clock = self._process, self._process.clock
        pause = process.limits.lease_time / 4
        checked_at = clock.monotonic()
        process.waiters.workers.append(self._bell.set)
        try:
            while not process.is_closed:
                self._bell.clear()
                await self._start_ready()
                if clock.monotonic() - checked_at >= pause:
                    await self._check_principals()
                    checked_at = clock.monotonic()
                await asyncio.sleep(BREATH)
                await self._wait(pause)
        finally:
            process.waiters.workers.remove(self._bell.set)
            await uninterrupted(self._leave())

    async def _wait(self, pause: float) -> None:
        try:
            async with asyncio.timeout(pause):
                await self._bell.wait()
        except TimeoutError:
            return

    async def _start_ready(self) -> None:
        process, free = self._process, self._slots - len(self._tasks)
        if free <= 0:
            return
        try:
            # Jobs that other tasks here are about to take may be among the first.
            limit = free + len(process.attempts) + len(self._damaged)
            ready = await process.store.read_whole(ready_jobs, limit)
        except StoreError as error:
            process.outage.note(error, "background_turns_postponed")
            return
        taken = process.attempts.keys() | self._damaged
        for job in [job for job in ready if job.id not in taken][:free]:
            process.attempts[job.id] = False
            task = asyncio.create_task(self._run_job(job), name=f"turnledger job {job.id}")
            self._tasks[task] = job.id
            task.add_done_callback(self._drop_task)

    def _drop_task(self, task: asyncio.Task[None]) -> None:
        id = self._tasks.pop(task)
        self._bell.set()
        if task.cancelled():
            self._process.release(id)  # before its first step: it took nothing
        elif task.exception() is not None:
            log.error("internal_error", exc_info=task.exception(), extra={"turn": id})

    async def _run_job(self, ready: ReadyJob) -> None:
        process = self._process
        taken: TakenJob | None = None
        try:
            taken = await self._open(ready)
        except (TurnledgerError, asyncio.CancelledError) as error:
            # Recovery leaves what was taken, and is not known to be, to be resumed.
            if isinstance(error, StoreCorrupt):
                self._damaged.add(ready.id)
            extra = {"turn": ready.id, "code": failure_of(error).code}
            log.warning("background_turn_postponed", extra=extra)
        finally:
            if taken is None and ready.id not in process.unfinished:
                process.release(ready.id)
        if taken is None:
            return
        running = taken.turn
        problem: BaseException | None = None
        turn = RunningTurn(running)
        try:
            if running.stop_requested is None:  # no stop came while it was taken
                await self._runner(turn, taken.token)
        except BaseException as raised:
            problem = raised
        left_by = problem
        try:
            if (
                problem is not None
                and is_cancelled()
                and not (running.has_lost_lane or running.stop_requested)
            ):
                # Its loop ends, or its runner has cancelled the task itself: this is counted.
                await abandon_block(process, running, TurnFailed(UNHELD.message), UNHELD)
            await leave(process, running, problem)
        except (TurnledgerError, asyncio.CancelledError) as error:
            left_by = error
        if running.state is AttemptState.RUNNING:
            _log_left(taken.job, running.ended_by or left_by)
        else:
            self._ended(taken.job, Outcome(running.state, running.turn, running.failure), turn)
        if problem is not None and not isinstance(problem, Exception | asyncio.CancelledError):
            raise problem

    async def _open(self, ready: ReadyJob) -> TakenJob | None:
        """Take the job, and make the turn that runs it. None if it cannot be taken, or has failed."""
        process = self._process
        job = await process.store.read(read_job, ready.id, ready.owner)
        if job is None:
            return None
        begun, token = await self._take(job)
        if begun is None:
            return None
        try:
            asked = job.request
            context = ALL if asked.turns is asked.tokens is None else Context(asked.turns, asked.tokens)
            shown = await snapshot(process, begun, context, asked.primer_items)
            running = OpenTurn(process, begun, shown, None, has_created=False, is_resent=False)
            await self._void(running)
        except BaseException as problem:
            # No runner has begun, so that only the end of the worker cancels it.
            await end_as_failed(process, begun, LedgerClosed() if is_cancelled() else problem)
            raise
        process.register(running)
        if begun.chunks is not None:
            ids = {"turn": job.id, "conversation": job.conversation}
            log.info("background_turn_resumed", extra={**ids, "resumes": job.resumes})
        return TakenJob(job, running, token)

    async def _void(self, running: OpenTurn) -> None:
        """Store that a resume has made text void, before more is recorded. If this process died, too, that
        text would otherwise count as emitted here."""
        request = running.to_flush()
        if request is not None:
            await self._process.persist(flush, request, running.attempt.owner)
            running.was_flushed(request)
            self._process.wake_readers(running.id)

    async def _take(self, job: TurnJob) -> tuple[Begun | None, Token | None]:
        process = self._process
        clock = process.clock
        request = TakeRequest(job.id, process.lease, clock.now_ms(), clock.due_ms())
        while True:
            admitted = await self._admission(job)
            if isinstance(admitted, Failure):
                await self._fail(job, admitted)
                return None, None
            try:
                taking = process.persist(take, replace(request, admitted=admitted.version), job.owner)
                return await uninterrupted(taking), admitted.token
            except AdmissionMoved:
                continue
            except StoreError:
                raise
            except TurnledgerError as problem:
                await self._fail(job, failure_of(problem))
                return None, None

    async def _admission(self, job: TurnJob) -> Admitted | Failure:
        token = job.request.token
        if token is None:
            return Admitted()
        request = PrincipalRequest(token, job.owner, self._process.clock.now_ms())
        return await self._process.store.read_whole(check_principal, request)

    async def _fail(self, job: TurnJob, failure: Failure) -> None:
        request = FailJobRequest(job.id, failure, self._process.clock.now_ms())
        await self._process.persist(fail_job, request, job.owner)
        self._ended(job, Outcome(AttemptState.FAILED, failure=failure), None)
        self._process.waiters.notify(job.conversation)

    def _ended(self, job: TurnJob, ended: Outcome, turn: RunningTurn | None) -> None:
        log_job_end(job.id, job.conversation, ended, job.resumes)
        self._on_end(ended, turn)

    async def _check_principals(self) -> None:
        """End running jobs whose token was revoked or has expired since they began."""
        process = self._process
        for task, id in list(self._tasks.items()):
            running = process.running.get(id)
            if running is None:
                continue
            try:
                job = await process.store.read(read_job, id, running.attempt.owner)
                refused = await self._admission(job) if job is not None else None
            except StoreError:
                return  # the next round asks again
            if isinstance(refused, Failure):
                await abandon_block(process, running, TurnledgerError(refused.message), refused)
                task.cancel()

    async def _leave(self) -> None:
        for task, id in list(self._tasks.items()):
            running = self._process.running.get(id)
            if running is not None:
                await abandon_block(self._process, running, LedgerClosed())
            task.cancel()
        if self._tasks:
            await asyncio.wait(list(self._tasks))


def _log_left(job: TurnJob, reason: BaseException | None) -> None:
    """Log that a job is left to be resumed, or that its end is left to be recorded."""
    code = failure_of(reason).code if reason is not None else None
    level = logging.INFO if code in UNCOUNTED else logging.WARNING
    ids = {"turn": job.id, "conversation": job.conversation}
    log.log(level, "background_turn_left", extra={**ids, "code": code})
