"""The rows of a memory store that concern all owners."""

from __future__ import annotations

from collections.abc import Collection
from heapq import nsmallest

from turnledger.engine.tables.changes import ChangeTail
from turnledger.engine.tables.jobs import ReadyJob
from turnledger.engine.tables.lanes import BURIED_KEPT, HeldTicket
from turnledger.engine.tables.maintenance import ClockMark, CountedTurn, DueConversation, UnusedBranch
from turnledger.model.change import Position
from turnledger.model.conversation import NOBODY, Conversation, ConversationState, Lease, Ticket
from turnledger.model.ids import BranchId, LeaseId, TurnId
from turnledger.model.turn import Attempt, AttemptState
from turnledger.stores.memory.access_rows import MemoryAccessRows
from turnledger.stores.memory.inspection_rows import MemoryInspectionRows, made_from
from turnledger.stores.memory.shared_rows import MemorySharedRows
from turnledger.stores.memory.tables import MemoryTables

KEPT_TOMBSTONES = 10_000
"""Deleted or expired conversations kept as tombstones; older ones become unknown."""


class MemoryWholeStore(MemoryAccessRows, MemorySharedRows, MemoryInspectionRows):
    @property
    def has_written(self) -> bool:
        return self._log.has_written

    def of(self, owner: str) -> MemoryTables:
        return MemoryTables(self._db, self._log, owner)

    # Leases, and what their processes hold.

    async def leases(self) -> list[Lease]:
        return list(self._db.leases.values())

    async def drop_lease(self, id: LeaseId) -> None:
        self._remove(self._db.leases, id)
        self._remove(self._db.buried, id)

    async def bury_lease(self, id: LeaseId) -> None:
        lease = self._db.leases.get(id)
        if lease is not None:
            self._put(self._db.buried, id, lease)
            self._remove(self._db.leases, id)
        for first in list(self._db.buried)[:-BURIED_KEPT]:
            self._remove(self._db.buried, first)

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]:
        held = [each for each in self._db.attempts.values() if each.lease == lease]
        return [each for each in held if each.state is AttemptState.RUNNING]

    async def held_tickets(self, lease: LeaseId) -> list[HeldTicket]:
        return [
            HeldTicket(self._owner_of(each.conversation) or "", each)
            for each in self._db.tickets.values()
            if each.lease == lease
        ]

    async def drop_orphaned_tickets(self, lease: LeaseId) -> None:
        for each in [each for each in self._db.tickets.values() if each.lease == lease]:
            if each.conversation not in self._db.conversations:
                self._remove(self._db.tickets, each.attempt)

    async def ready_jobs(self, limit: int) -> list[ReadyJob]:
        firsts: dict[BranchId, Ticket] = {}
        for each in sorted(self._db.tickets.values(), key=lambda each: (not each.front, each.number)):
            firsts.setdefault(each.branch, each)
        ready = {each.attempt for each in firsts.values() if self._db.branches[each.branch].running is None}
        ready |= {each.id for each in self._db.attempts.values() if each.lease == NOBODY}
        jobs = sorted((job for id, job in self._db.jobs.items() if id in ready), key=lambda job: job.id)
        return [ReadyJob(job.owner, job.id) for job in jobs[:limit]]

    # Rows to remove.

    async def owners(self, after: str | None, limit: int) -> list[str]:
        stored = [owner for owner, usage in self._db.stored.items() if usage.bytes > 0]
        return sorted(owner for owner in stored if after is None or owner > after)[:limit]

    async def turns_of_all(self, after: TurnId | None, limit: int, max_bytes: int) -> list[CountedTurn]:
        ids = nsmallest(limit, (id for id in self._db.turns if after is None or id > after))
        found: list[CountedTurn] = []
        for turn in map(self._db.turns.__getitem__, ids):
            if max_bytes <= 0:
                break
            home = self._db.conversations[self._db.branches[turn.branch].conversation]
            log = len(self._db.turn_logs.get(turn.id, b""))
            found.append(CountedTurn(home.owner, home.scope, home.id, turn.id, turn.body, log))
            max_bytes -= len(turn.body)
        return found

    async def due_conversations(self, now: int, unlisted_by: int, limit: int) -> list[DueConversation]:
        found, in_use = self._db.conversations.values(), self._in_use()
        lapsed = [
            (each.touched_at + (each.expires_after or 0), each)
            for each in found
            if each.state is ConversationState.LIVE and each.is_expired(now) and each.id not in in_use
        ]
        deleted = [
            (each.purge_at, each)
            for each in found
            if each.state is ConversationState.DELETED and each.purge_at is not None and each.purge_at <= now
        ]
        tried = self._attempted_after(unlisted_by)
        unlisted = [
            (each.touched_at, each)
            for each in found
            if each.state is ConversationState.LIVE and not each.is_listed and each.touched_at <= unlisted_by
            if self._db.branches[each.branch].unsettled is None
            if each.id not in in_use and each.id not in tried
        ]
        kinds = (lapsed, deleted, unlisted)
        in_order = [sorted(kind, key=lambda each: (each[0], each[1].id))[:limit] for kind in kinds]
        return [DueConversation(each.owner, each.id) for kind in in_order for _, each in kind]

    async def purge_ended(self, limit: int) -> int:
        removed = 0
        for id in list(self._db.ended):
            owner = self._db.conversations[id].owner
            removed += self.of(owner).purge_conversation(id, limit - removed)
        # A claim keeps the tombstone, which a retry of its request must find.
        claimed = {claim.conversation for claim in self._db.claims.values()}
        for id in list(self._db.ended)[:-KEPT_TOMBSTONES]:
            if id not in claimed:
                self._drop_tombstone(self._db.conversations[id])
        return removed

    def _drop_tombstone(self, conversation: Conversation) -> None:
        branches = [each.id for each in self._db.branches.values() if each.conversation == conversation.id]
        is_empty = not any(self._db.lines.get(branch) for branch in branches) and not any(
            attempt.conversation == conversation.id for attempt in self._db.attempts.values()
        )
        if not is_empty:
            return
        for branch in branches:
            self._remove(self._db.lines, branch)
            self._remove(self._db.last_ticket, branch)
            self._remove(self._db.cleared, branch)
            self._remove(self._db.branches, branch)
        self._remove(self._db.switches, conversation.id)
        self._remove(self._db.forgotten, conversation.id)
        self._remove(self._db.ended, conversation.id)
        self._remove(self._db.conversations, conversation.id)
        self._remove(self._db.places, conversation.id)
        if conversation.conversation_key is not None:
            name = (conversation.owner, conversation.scope, conversation.conversation_key)
            self._remove(self._db.by_key, name)

    async def unused_side_branches(self, used_by: int, limit: int) -> list[UnusedBranch]:
        old: list[tuple[int, BranchId]] = []
        for each in self._db.branches.values():
            if each.used_at is not None and each.used_at <= used_by and each.running is None:
                is_live = self._db.conversations[each.conversation].state is ConversationState.LIVE
                if is_live and not made_from(self._db, each.id):
                    old.append((each.used_at, each.id))
        ids = [id for _, id in sorted(old)[:limit]]
        owners = [self._owner_of(self._db.branches[id].conversation) or "" for id in ids]
        return [UnusedBranch(owner, id) for owner, id in zip(owners, ids, strict=True)]

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        old = [
            each
            for each in self._db.attempts.values()
            if each.ended_at is not None
            and each.ended_at < ended_before
            and self._db.branches[each.branch].unsettled != each.id
        ][:limit]
        for attempt in old:
            self.of(attempt.owner).remove_attempt(attempt)
        return len(old)

    async def purge_claims(self, expired_before: int, limit: int) -> int:
        old = [
            name
            for name, claim in self._db.claims.items()
            if claim.expires_at is not None and claim.expires_at < expired_before
        ][:limit]
        for name in old:
            self._remove(self._db.claims, name)
        return len(old)

    async def index_texts(self, limit: int) -> int:
        return 0

    async def is_index_complete(self) -> bool:
        return True

    async def clock_mark(self) -> ClockMark | None:
        return self._db.clock_mark.get(None)

    async def save_clock_mark(self, mark: ClockMark) -> None:
        self._put(self._db.clock_mark, None, mark)

    async def newest_time(self) -> int | None:
        last = self._db.last_change.get(None)
        times = [self._db.changes[last].at] if last is not None else []
        times += [turn.committed_at for turn in list(self._db.turns.values())[-1:]]
        return max(times, default=None)

    # Changes.

    async def tail(self, after: Position, owners: Collection[str], limit: int) -> ChangeTail:
        found = self._behind(after, limit)
        through = found[-1].position if found else after
        return ChangeTail([each for each in found if each.owner in owners], through, len(found) == limit)

    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest, removed = self._newest(), 0
        for number in sorted(self._db.changes)[:limit]:
            is_old = self._db.changes[number].at < before or number <= newest - keep
            if not is_old or number == newest:
                break  # all changes after a kept one must stay
            self._remove(self._db.changes, number)
            removed += 1
        return removed

    async def secret(self) -> bytes:
        return self._db.secret
