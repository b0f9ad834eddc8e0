"""Retention: conversations end by themselves when they are old, or when their owner stores too much. Never
one that is pinned or runs: that is decided in the transaction that ends it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from turnledger.engine.deleting import purge, set_aside
from turnledger.engine.ports import Tables
from turnledger.model.conversation import Conversation
from turnledger.model.retention import Reason, Retired

ANY_TIME = 2**62


@dataclass(frozen=True)
class Bounds:
    """How long, and how much of it, each owner keeps."""

    now: int
    due: int
    """What is over by then is over; see trusted_clock."""
    age_ms: int | None
    """Since a conversation was last used; None for no bound."""
    bytes: int | None
    """Of all that is stored for an owner; None for no bound."""

    @property
    def touched_by(self) -> int | None:
        """What was last used then, or earlier, is old."""
        return None if self.age_ms is None else self.due - self.age_ms


async def beyond(tables: Tables, asked: tuple[Sequence[str], Bounds]) -> list[str]:
    """Those of these owners that have something old, or too much."""
    owners, bounds = asked
    return [owner for owner in owners if await _is_beyond(tables, owner, bounds)]


async def _is_beyond(tables: Tables, owner: str, bounds: Bounds) -> bool:
    if bounds.bytes is not None and (await tables.stored(owner)).bytes > bounds.bytes:
        return True
    by = bounds.touched_by
    return by is not None and bool(await tables.oldest_conversations(owner, by, 1))


@dataclass(frozen=True)
class RetireRequest:
    owner: str
    bounds: Bounds
    purge_at: int
    """Until when those can be restored that are old."""
    limit: int


async def retire_old(tables: Tables, request: RetireRequest) -> list[Conversation]:
    """Delete conversations of an owner that nobody used for too long, up to so many, the oldest first. They
    can be restored."""
    by = request.bounds.touched_by
    old = [] if by is None else await tables.oldest_conversations(request.owner, by, request.limit)
    now, until = request.bounds.now, request.purge_at
    return [await set_aside(tables, each, until, now, Reason.AGE) for each in old]


@dataclass(frozen=True)
class Shed:
    """What one step did about an owner that stores too much."""

    purged: list[Conversation]
    is_done: bool
    """Whether there is nothing more to do: he stores no more than may be, or nothing is left to purge."""


async def shed(tables: Tables, request: RetireRequest) -> Shed:
    """Purge conversations of an owner that stores too much, the oldest first, and those that are deleted
    before all others; no more than has to be.

    How much is stored falls when what was purged is swept. So nothing is purged while there is something to
    sweep: two processes that look at once would both make room, and one of them for nothing.
    """
    bound, owner = request.bounds.bytes, request.owner
    if await tables.purge_ended(request.limit):
        return Shed([], is_done=False)
    excess = 0 if bound is None else (await tables.stored(owner)).bytes - bound
    if excess <= 0:
        return Shed([], is_done=True)
    candidates = await tables.oldest_deleted(owner, request.limit)
    if not candidates:
        candidates = await tables.oldest_conversations(owner, ANY_TIME, request.limit)
    purged: list[Conversation] = []
    for each in candidates:
        purged.append(await purge(tables, each, request.bounds.now, Reason.SIZE))
        # Forks may need some of it: then the next step goes on.
        excess -= await tables.bytes_of(each.id)
        if excess <= 0:
            break
    return Shed(purged, is_done=not purged)


def retired(conversation: Conversation, reason: Reason) -> Retired:
    """What is reported of a conversation that was removed."""
    return Retired(
        owner=conversation.owner,
        conversation=conversation.id,
        reason=reason,
        touched_at=conversation.touched_at,
        purge_at=conversation.purge_at,
    )
