"""Purge: remove the rows that nothing can reach any more, a bounded number at a time."""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.engine.feed import PURGED_AT_ONCE
from turnledger.engine.ports import WholeStore


@dataclass(frozen=True)
class PurgeRequest:
    due: int
    attempts_kept_ms: int
    limit: int
    tokens_kept_ms: int = 30 * 24 * 3600 * 1000
    changes_kept_ms: int = 3600 * 1000
    changes_kept: int = 100_000


async def purge(whole: WholeStore, request: PurgeRequest) -> int:
    """Remove a bounded number of unreachable rows; return how many."""
    removed = await whole.purge_ended(request.limit)
    removed += await whole.purge_claims(request.due, request.limit)
    removed += await whole.purge_attempts(request.due - request.attempts_kept_ms, request.limit)
    removed += await whole.purge_tokens(request.due - request.tokens_kept_ms, request.limit)
    removed += await whole.purge_shares(request.due - request.tokens_kept_ms, request.limit)
    removed += await whole.purge_changes(
        request.due - request.changes_kept_ms, request.changes_kept, PURGED_AT_ONCE
    )
    return removed
