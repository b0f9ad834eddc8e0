"""Tending: the timer of a process. It resolves what is in doubt, ends what is orphaned, takes over from the
dead and removes what nobody can reach, so that every lane comes to rest."""

from __future__ import annotations

import asyncio
import logging

from turnledger.engine.commit import DoubtRequest, resolve_doubt
from turnledger.engine.conversations import ExpireRequest, expire_lapsed
from turnledger.engine.ending import EndRequest, end
from turnledger.engine.lease import all_leases
from turnledger.engine.process import Process
from turnledger.engine.recovery import (
    ForgetRequest,
    PurgeRequest,
    TakeOverRequest,
    forget,
    left_by,
    purge,
    take_over,
)
from turnledger.engine.stops import stops_for
from turnledger.errors import StoreError, Superseded
from turnledger.model.attempt import Failure
from turnledger.model.ids import LeaseId, TurnId

log = logging.getLogger("turnledger")

NOT_COMMITTED = Failure("not_committed", "its commit was lost")


class Tending:
    """Runs the timer, and answers hints that another process has written."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._timer: asyncio.Task[None] | None = None
        self._stop_check: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._process.store.watch(self._changed_elsewhere)
        self._timer = asyncio.create_task(self._run(), name="turnledger tending")

    async def close(self) -> None:
        for task in (self._timer, self._stop_check):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._process.limits.lease_time / 2)
            await self.tend()

    async def tend(self) -> None:
        """One round. A step that the store refuses is left to the next round."""
        for step in (
            self._resolve_doubts,
            self._finish_ends,
            self._end_orphans,
            self._bury_dead,
            self._purge,
        ):
            try:
                await step()
            except StoreError as error:
                log.warning("tending is put off: %s", error.code)

    async def _resolve_doubts(self) -> None:
        process = self._process
        for request in list(process.doubts.values()):
            doubt = DoubtRequest(request.owner, request.turn.branch, request.turn.id)
            certainty = await process.store.transact(resolve_doubt, doubt)
            if certainty.fence is not None:
                # Its caller was told "unknown" and may have asked again by now: a late commit would be news.
                failing = EndRequest(
                    owner=request.owner,
                    branch=request.turn.branch,
                    attempt=request.turn.id,
                    fence=certainty.fence,
                    failure=NOT_COMMITTED,
                    on_stop=None,
                    partial="",
                    now=process.clock.now_ms(),
                )
                await process.persist(end, failing)
            del process.doubts[request.turn.id]
            process.mine.pop(request.turn.id, None)
            process.bells.ring(request.turn.branch)

    async def _finish_ends(self) -> None:
        process = self._process
        for request in list(process.unfinished.values()):
            try:
                await process.persist(end, request)
            except Superseded:
                log.info("%s was ended by another process", request.attempt)
            del process.unfinished[request.attempt]
            process.mine.pop(request.attempt, None)
            process.bells.ring(request.branch)

    async def _end_orphans(self) -> None:
        """End what names the own lease and no task answers for: an answer that came too late, or never."""
        await self._take_over_from(self._process.lease, spare=self._process.mine)

    async def _bury_dead(self) -> None:
        process = self._process
        leases = await process.store.read(all_leases, None)
        dead = process.watch.dead_among([(lease.id, lease.beat) for lease in leases])
        for lease in dead:
            await self._take_over_from(lease, spare={})
            await process.persist(forget, ForgetRequest(lease, (), drop_lease=True))
            process.watch.forget(lease)

    async def _take_over_from(self, lease: LeaseId, spare: dict[TurnId, bool]) -> None:
        process = self._process
        attempts, tickets = await process.store.read(left_by, lease)
        for left in attempts:
            if left.attempt not in spare:
                await process.persist(take_over, TakeOverRequest(left, process.clock.now_ms()))
                process.bells.ring(left.branch)
        stale = tuple(ticket.attempt for ticket in tickets if ticket.attempt not in spare)
        if stale:
            await process.persist(forget, ForgetRequest(lease, stale, drop_lease=False))
            for ticket in tickets:
                process.bells.ring(ticket.branch)

    async def _purge(self) -> None:
        process = self._process
        now, limits = process.clock.now_ms(), process.limits
        await process.store.transact(expire_lapsed, ExpireRequest(now, limits.purge_rows))
        request = PurgeRequest(now, round(limits.attempts_kept * 1000), limits.purge_rows)
        await process.store.transact(purge, request)

    # Hints from other processes.

    def _changed_elsewhere(self) -> None:
        self._process.bells.ring_all()
        if self._process.running and (self._stop_check is None or self._stop_check.done()):
            self._stop_check = asyncio.create_task(self._check_stops(), name="turnledger stops")

    async def _check_stops(self) -> None:
        try:
            stops = await self._process.store.read(stops_for, self._process.lease)
        except StoreError as error:
            log.warning("stops could not be read: %s", error.code)
            return
        for attempt, policy in stops:
            self._process.interrupt_here(attempt, policy)
