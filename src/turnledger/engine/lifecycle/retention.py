"""Retention: end old conversations, and those of owners that store too much.

Never ends one that is pinned or in use; the transaction that ends it decides that.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from turnledger.engine.lifecycle.delete import purge, purge_time, soft_delete
from turnledger.engine.limits import usage
from turnledger.engine.ports import Tables, WholeStore
from turnledger.engine.process import Process
from turnledger.model.conversation import Conversation
from turnledger.model.retention import RetentionReason, RetentionReport, RetiredConversation

ANY_TIME = 2**62


@dataclass(frozen=True)
class RetentionBounds:
    now: int
    due: int
    age_ms: int | None
    """Since the last use; None for no limit."""
    bytes: int | None
    """Of all that an owner stores; None for no limit."""

    @property
    def touched_by(self) -> int | None:
        """The time of last use at or before which a conversation is old."""
        return None if self.age_ms is None else self.due - self.age_ms


async def owners_beyond(whole: WholeStore, request: tuple[Sequence[str], RetentionBounds]) -> list[str]:
    """Return the owners that have something old, or too much."""
    owners, bounds = request
    return [owner for owner in owners if await _exceeds_bounds(whole.of(owner), bounds)]


async def _exceeds_bounds(tables: Tables, bounds: RetentionBounds) -> bool:
    if bounds.bytes is not None and (await tables.usage()).bytes > bounds.bytes:
        return True
    by = bounds.touched_by
    return by is not None and bool(await tables.oldest_conversations(by, 1))


@dataclass(frozen=True)
class RetireRequest:
    bounds: RetentionBounds
    purge_at: int
    """Until when old ones can be restored."""
    limit: int


async def retire_old(tables: Tables, request: RetireRequest) -> list[Conversation]:
    """Delete an owner's conversations that were unused for too long, oldest first; they can be restored."""
    by = request.bounds.touched_by
    old = [] if by is None else await tables.oldest_conversations(by, request.limit)
    now, until = request.bounds.now, request.purge_at
    return [await soft_delete(tables, each, until, now, RetentionReason.AGE) for each in old]


@dataclass(frozen=True)
class ShedResult:
    purged: list[Conversation]
    is_done: bool
    """Whether the owner is within bounds, or there is nothing left to purge."""


async def shed_excess(tables: Tables, request: RetireRequest) -> ShedResult:
    """Purge conversations of an owner that stores too much, deleted ones first, then the oldest; as few as
    possible.

    The stored size falls only when purged turns are swept. So nothing is purged while there is something to
    sweep: otherwise two processes at once would both make room, and purge too much.
    """
    bound = request.bounds.bytes
    if await tables.purge_ended(request.limit):
        return ShedResult([], is_done=False)
    excess = 0 if bound is None else (await tables.usage()).bytes - bound
    if excess <= 0:
        return ShedResult([], is_done=True)
    candidates = await tables.oldest_deleted(request.limit)
    if not candidates:
        candidates = await tables.oldest_conversations(ANY_TIME, request.limit)
    purged: list[Conversation] = []
    for each in candidates:
        purged.append(await purge(tables, each, request.bounds.now, RetentionReason.SIZE))
        # Forks may share some of it; the next step then continues.
        excess -= await tables.bytes_of(each.id)
        if excess <= 0:
            break
    return ShedResult(purged, is_done=not purged)


def report_retired(conversation: Conversation, reason: RetentionReason) -> RetiredConversation:
    return RetiredConversation(
        owner=conversation.owner,
        conversation=conversation.id,
        reason=reason,
        touched_at=conversation.touched_at,
        purge_at=conversation.purge_at,
    )


log = logging.getLogger("turnledger")

OWNERS = 200
"""Owners read at once."""


class RetentionTimer:
    """Enforces Limits.retain_for and Limits.retain_bytes."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._next = 0.0

    async def retain_if_due(self) -> None:
        now = self._process.clock.monotonic()
        if now >= self._next:
            self._next = now + self._process.limits.retain_every
            await self.retain()

    async def retain(self) -> RetentionReport:
        """Do a round in small transactions; report what was removed. A failure leaves the rest to the
        next."""
        process, limits = self._process, self._process.limits
        age_ms = None if limits.retain_for is None else round(limits.retain_for * 1000)
        bounds = RetentionBounds(process.clock.now_ms(), process.clock.due_ms(), age_ms, limits.retain_bytes)
        if bounds.age_ms is None and bounds.bytes is None:
            return RetentionReport()
        retired: list[RetiredConversation] = []
        full: list[str] = []
        after: str | None = None
        while owners := await process.store.read_whole(_owners, after):
            for owner in await process.store.read_whole(owners_beyond, (owners, bounds)):
                request = RetireRequest(bounds, purge_time(process, bounds.now), process.limits.purge_rows)
                retired += await self._retire_old(owner, request)
                retired += await self._shed(owner, request)
                stored = await process.store.read(usage, None, owner)
                if bounds.bytes is not None and stored.bytes > bounds.bytes:
                    full.append(owner)
            after = owners[-1]
        return RetentionReport(retired=tuple(retired), full=tuple(full))

    async def _retire_old(self, owner: str, request: RetireRequest) -> list[RetiredConversation]:
        retired: list[RetiredConversation] = []
        while True:
            batch = await self._process.store.transact(retire_old, request, owner)
            retired += [self._report_removal(each, RetentionReason.AGE) for each in batch]
            if len(batch) < request.limit:
                return retired

    async def _shed(self, owner: str, request: RetireRequest) -> list[RetiredConversation]:
        retired: list[RetiredConversation] = []
        step = ShedResult([], is_done=request.bounds.bytes is None)
        while not step.is_done:
            step = await self._process.store.transact(shed_excess, request, owner)
            retired += [self._report_removal(each, RetentionReason.SIZE) for each in step.purged]
        return retired

    def _report_removal(self, conversation: Conversation, reason: RetentionReason) -> RetiredConversation:
        self._process.forget_deleted(conversation)
        extra = {"conversation": conversation.id, "owner": conversation.owner, "reason": reason}
        log.info("chat_retired", extra=extra)
        return report_retired(conversation, reason)


async def _owners(whole: WholeStore, after: str | None) -> list[str]:
    return await whole.owners(after, OWNERS)
