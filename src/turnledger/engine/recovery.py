"""Recovery: the timer of a process. It resolves doubts, ends orphans, takes over from dead processes and
purges, so that no lane stays blocked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine, Sequence
from dataclasses import replace
from typing import Any

from msgspec.structs import replace as replace_struct

from turnledger.engine.attempt.commit_in_doubt import DoubtRequest, resolve_doubt
from turnledger.engine.attempt.dead_process import (
    BuryRequest,
    WithdrawRequest,
    bury,
    held_by,
    take_over_from,
    withdraw,
)
from turnledger.engine.attempt.end import CLAIM_KEPT_MS, EndRequest, Outcome, end
from turnledger.engine.attempt.give_way import GiveWayRequest, ReadWatch, find_wanted, give_way
from turnledger.engine.attempt.interrupted_job import NOT_COMMITTED, UNHELD
from turnledger.engine.attempt.stop import updates_for
from turnledger.engine.clock import read_clock_marks, save_mark
from turnledger.engine.conversations.search import RECOVERY_STEPS, index_texts
from turnledger.engine.lane.lease_watch import Dead, all_leases
from turnledger.engine.lifecycle.delete import EndDueRequest, FindDueRequest, end_due, find_due
from turnledger.engine.lifecycle.purge import PurgeRequest, purge
from turnledger.engine.lifecycle.retention import RetentionTimer
from turnledger.engine.ports import Sync
from turnledger.engine.process import FIRST_DELAY, Process
from turnledger.engine.tables.maintenance import ClockMark, UnusedBranch
from turnledger.engine.turn.commit import abandon_block
from turnledger.engine.turn.parallel import (
    FindUnusedRequest,
    RemoveRequest,
    find_unused,
    remove_side_branch,
)
from turnledger.engine.turn.running_turn import OpenTurn
from turnledger.errors import StoreCorrupt, StoreError, TurnFailed, TurnledgerError
from turnledger.model.conversation import Ticket
from turnledger.model.ids import ConversationId, LeaseId, TurnId
from turnledger.model.turn import AttemptState, OnStop

log = logging.getLogger("turnledger")

MARKED_EVERY_MS = 600_000
"""How often the clock mark is stored while only the time has changed."""


class Recovery:
    """Runs the timer, and reacts to hints that another process has written."""

    def __init__(self, process: Process) -> None:
        self._process = process
        process.end_unheld = self._end_unheld
        process.check_stops = self._poll_stops_soon
        self._read_watch = ReadWatch(process)
        self.retention = RetentionTimer(process)
        self._timer: asyncio.Task[None] | None = None
        self._stop_check: asyncio.Task[None] | None = None
        self._may_have_stops = False
        self._marked: ClockMark | None = None
        self._is_index_complete = True
        self.is_behind = False
        """Whether the last round left rows to purge."""

    def start(self) -> None:
        self._process.store.watch(self._on_external_change)
        self._timer = asyncio.create_task(self._run(), name="turnledger recovery")

    async def close(self) -> None:
        for task in (self._timer, self._stop_check):
            if task is not None:
                task.cancel()
                await asyncio.wait((task,))

    async def _run(self) -> None:
        while True:
            pause = self._process.limits.lease_time / 2
            if not self._is_index_complete and not self._process.running:
                pause /= 10
            await asyncio.sleep(0 if self.is_behind else pause)
            await self.run_round()

    async def run_round(self) -> None:
        """Do one round. A failing step is logged, retried in the next round, and does not stop the others."""
        outage = self._process.outage
        failures = outage.failures
        for step in (
            self._resolve_doubts,
            self._finish_ends,
            self._end_unheld_turns,
            self._end_orphans,
            self._take_over_dead,
            self._check_stops,
            self._process.deliveries.flush,
            self._mark_clock,
            self._purge,
            self.retention.retain_if_due,
            self._index,
        ):
            await self._try(step())
        if outage.failures == failures:  # a round reads and writes
            outage.end()

    async def take_over_dead(self) -> int:
        """Take over from dead processes now; return how many of their turns ended. A failure is logged, and
        retried in the next round."""
        before = self._process.taken_over.total()
        await self._try(self._take_over_dead())
        return self._process.taken_over.total() - before

    async def _try(self, work: Coroutine[Any, Any, object]) -> bool:
        try:
            await work
            return True
        except StoreError as error:
            self._process.outage.note(error, "recovery_step_postponed")
        except Exception:
            log.exception("recovery step failed")
        return False

    async def _resolve_doubts(self) -> None:
        for running in list(self._process.doubts.values()):
            await self._try(self._resolve_doubt(running))

    async def _resolve_doubt(self, running: OpenTurn) -> None:
        process = self._process
        failing = running.to_end(NOT_COMMITTED, None)
        doubt = DoubtRequest(failing.branch, failing.attempt, process.lease)
        certainty = await process.store.transact(resolve_doubt, doubt, failing.owner)
        if certainty.turn is not None:
            ended = Outcome(AttemptState.COMPLETED, certainty.turn)
        else:
            # The caller got an unknown outcome and may have retried: a late commit would be a duplicate.
            fence = certainty.fence if certainty.fence is not None else failing.fence
            ended = await process.persist(end, replace(failing, fence=fence), failing.owner)
        del process.doubts[running.id]
        self._close(running, running.id, ended)
        process.waiters.notify(failing.conversation)

    async def _finish_ends(self) -> None:
        for request, running in list(self._process.unfinished.values()):
            await self._try(self._finish_end(request, running))

    async def _finish_end(self, request: EndRequest, running: OpenTurn | None) -> None:
        # With the time of the actual end: its conversation is in use until then.
        request = replace(request, now=self._process.clock.now_ms())
        ended = await self._process.persist(end, request, request.owner)
        del self._process.unfinished[request.attempt]
        self._close(running, request.attempt, ended)
        self._process.waiters.notify(request.conversation)

    def _close(self, running: OpenTurn | None, attempt: TurnId, ended: Outcome) -> None:
        self._process.release(attempt)
        if running is not None:
            running.finish(ended.state, ended.turn, ended.failure)

    async def _end_unheld_turns(self) -> None:
        """End turns that no living task has worked on for a lease time: a task that ends inside an async
        generator leaves its block to another task, or to none."""
        process, now = self._process, self._process.clock.monotonic()
        for running in list(process.running.values()):
            if running.is_held():
                running.unheld_since = None
            elif running.unheld_since is None:
                running.unheld_since = now
            elif now - running.unheld_since >= process.limits.lease_time:
                await self._try(abandon_block(process, running, TurnFailed(UNHELD.message), UNHELD))

    def _end_unheld(self, running: OpenTurn, reason: TurnledgerError) -> None:
        if running.ending is None:
            work = abandon_block(self._process, running, reason)
            running.ending = asyncio.create_task(work, name="turnledger end")

    async def _end_orphans(self) -> None:
        """End this process's attempts without a responsible task: their begin returned late, or never."""
        await self._take_over_from(self._process.lease, None, spare=self._process.attempts)

    async def _take_over_dead(self) -> None:
        process = self._process
        leases = await process.store.read_whole(all_leases, None)
        process.watch.retain({lease.id for lease in leases})
        dead = process.watch.dead_among([(lease.id, lease.beat) for lease in leases])
        before = process.taken_over.total()
        for lease in dead:
            await self._try(self._end_process(lease, dead))
        if turns := process.taken_over.total() - before:
            log.info("recovered", extra={"turns": turns})

    async def _end_process(self, lease: LeaseId, dead: Dead) -> None:
        await self._take_over_from(lease, dead, spare={})
        process = self._process
        await process.persist_whole(bury, BuryRequest(lease, dead))
        process.watch.forget(lease)

    async def _take_over_from(self, lease: LeaseId, dead: Dead | None, spare: dict[TurnId, bool]) -> None:
        process = self._process
        attempts, tickets = await process.store.read_whole(held_by, lease)
        for ref in attempts:
            if ref.attempt not in spare:
                await self._try(take_over_from(process, ref, dead))
        stale: dict[str, list[Ticket]] = {}
        for held in tickets:
            if held.ticket.attempt not in spare:
                stale.setdefault(held.owner, []).append(held.ticket)
        for owner, owned in stale.items():
            waiting = tuple(ticket.attempt for ticket in owned)
            request = WithdrawRequest(lease, waiting, process.clock.now_ms(), dead)
            await self._try(process.persist(withdraw, request, owner))
            for ticket in owned:
                process.waiters.notify(ticket.conversation)

    async def _purge(self) -> None:
        """Remove all that is due, in small transactions between which other writers run, within the time of a
        round. If some is left, the next round begins at once, so that traffic cannot outgrow the purge."""
        process, limits = self._process, self._process.limits
        ends = process.clock.monotonic() + limits.purge_time
        self.is_behind = False
        while await self._purge_some() >= limits.purge_rows:
            if process.clock.monotonic() >= ends:
                self.is_behind = True
                return
            await asyncio.sleep(0)

    async def _purge_some(self) -> int:
        """Do one step; return the number of rows. Fewer than `purge_rows` means that no more is due."""
        process = self._process
        clock, limits = process.clock, process.limits
        due = clock.due_ms()
        ended = await self._end_due(due, due - round(limits.unlisted_kept * 1000))
        attempts_kept, tokens_kept, changes_kept = (
            round(kept * 1000) for kept in (limits.attempts_kept, limits.tokens_kept, limits.changes_kept)
        )
        request = PurgeRequest(
            due, attempts_kept, limits.purge_rows, tokens_kept, changes_kept, limits.changes
        )
        ended += await self._remove_side_branches(due)
        return ended + await process.store.transact_whole(purge, request)

    async def _remove_side_branches(self, due: int) -> int:
        """Remove side branches that were unused for long; return the number of rows, 0 if none could be."""
        process, limit = self._process, self._process.limits.purge_rows
        # A retry must find its turn while the claim of its idempotency_key exists.
        used_by = due - max(round(process.limits.side_branches_kept * 1000), CLAIM_KEPT_MS)
        removed: list[int] = []

        async def remove(each: UnusedBranch) -> None:
            request = RemoveRequest(each.id, used_by, limit)
            removed.append(await process.store.transact(remove_side_branch, request, each.owner))

        found = await process.store.read_whole(find_unused, FindUnusedRequest(used_by, limit))
        await asyncio.gather(*(self._try(remove(each)) for each in found))
        return sum(removed)

    async def _end_due(self, due: int, unlisted_by: int) -> int:
        """End conversations whose time is over; return how many there were, 0 if none could be ended. Owners
        are independent: their writes share a batch, and a damaged row of one does not stop the others."""
        process = self._process
        limit = process.limits.purge_rows
        found = await process.store.read_whole(find_due, FindDueRequest(due, unlisted_by, limit))
        now = process.clock.now_ms()
        ended: list[int] = []

        async def end_for(owner: str, ids: Sequence[ConversationId]) -> None:
            request = EndDueRequest(ids, now, due, unlisted_by)
            ended.append(await process.store.transact(end_due, request, owner))

        await asyncio.gather(*(self._try(end_for(owner, ids)) for owner, ids in found.items()))
        return sum(map(len, found.values())) if any(ended) else 0

    async def compare_clocks(self) -> None:
        """Check the wall clock against the store, and store a mark for the next process. Call it once, before
        time decides anything."""
        process = self._process
        try:
            self._marked, newest = await process.store.read_whole(read_clock_marks, None)
        except StoreCorrupt:
            log.warning("the clock cannot be compared with what the store knows: the store is damaged")
            return
        process.clock.compare(self._marked, newest)
        await self._try(self._mark_clock())

    async def _mark_clock(self) -> None:
        """Store the clock mark, if it has changed or is old."""
        mark, before = self._process.clock.mark(), self._marked
        is_known = before is not None and replace_struct(before, trusted_at=mark.trusted_at) == mark
        if before is not None and is_known and abs(mark.trusted_at - before.trusted_at) < MARKED_EVERY_MS:
            return
        # The first one must survive a failover: a process that starts with a wrong clock would find none.
        sync = Sync.DISK if before is None else Sync.PROCESS
        await self._process.store.transact_whole(save_mark, mark, sync)
        self._marked = mark

    async def _index(self) -> None:
        """Index what is missing: a few steps while turns run, longer while none does."""
        process = self._process
        until = process.clock.monotonic() + process.limits.lease_time / 4
        self._is_index_complete = await index_texts(process.store, RECOVERY_STEPS)
        while not self._is_index_complete and not process.running and process.clock.monotonic() < until:
            self._is_index_complete = await index_texts(process.store, 1)

    # Hints from other processes.

    def _on_external_change(self) -> None:
        self._process.waiters.notify_all()
        self._process.feed.wake()
        self._poll_stops_soon()

    def _poll_stops_soon(self) -> None:
        self._may_have_stops = True
        if self._process.attempts and (self._stop_check is None or self._stop_check.done()):
            self._stop_check = asyncio.create_task(self._poll_stops(), name="turnledger stops")

    async def _poll_stops(self) -> None:
        # A hint during a check, or a failed check, asks for another one.
        while self._may_have_stops and not self._process.is_closed:
            self._may_have_stops = False
            if not await self._try(self._check_stops()):
                self._may_have_stops = True
                await asyncio.sleep(FIRST_DELAY)

    async def _check_stops(self) -> None:
        process = self._process
        before, queued = list(process.running.values()), process.waiters.queued_attempts()
        updates = await process.store.read_whole(updates_for, process.lease)
        for attempt, policy in updates.stops.items():
            if policy is not None:
                process.interrupt_here(attempt, policy)
        for running in before:
            if running.id not in updates.stops:
                # Taken over or deleted: its further work would be lost.
                running.lose_lane()
        for attempt in queued:
            if attempt not in updates.tickets:
                # Stopped in the queue: wake it now, wherever it stands.
                process.waiters.wake(attempt)
        for running in before:
            if running.id in process.unread and running.live not in process.live_readers:
                await self._give_way(running)

    async def _give_way(self, running: OpenTurn) -> None:
        process, owner = self._process, running.attempt.owner
        # A retry that waits is known by the note that its answer was lost.
        await process.deliveries.flush()
        # Most often nobody waits: read before taking part in writing.
        request = GiveWayRequest(running.id, running.branch.fence)
        reads = await process.store.read(find_wanted, request, owner)
        if reads is not None and self._read_watch.is_unread(running.id, reads):
            request = replace(request, reads=reads)
            if await process.persist(give_way, request, owner):
                process.interrupt_here(running.id, OnStop.KEEP)
