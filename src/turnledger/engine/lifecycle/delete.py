"""Deletion: a conversation can be restored for a while, then it is gone for good. Expiry ends it at once.

    live ── delete ──► deleted ── its time is over, or purge ──► purged ──► swept, a batch at a time
      ▲                   │                                        ▲
      └───── restore ─────┘            live, expired ── purge ─────┘

Each arrow but the last is one transaction. A conversation that can be restored is whole: only purged and
expired ones are swept, and neither ever comes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.attempt.end import DELETED, end_running, expire_claim
from turnledger.engine.attempt.interrupted_job import drop_job
from turnledger.engine.conversations.resolve import is_in_use, tickets_beside
from turnledger.engine.feed import record_change
from turnledger.engine.ports import Tables, WholeStore
from turnledger.engine.process import Process
from turnledger.errors import ConversationDeleted, ConversationExpired, ConversationNotFound
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import (
    EVERYWHERE,
    NOBODY,
    Conversation,
    ConversationState,
    Within,
)
from turnledger.model.ids import ConversationId

TRIED = 100
"""Attempts of a conversation without a committed turn that are checked for a recent one."""
REQUESTED, FOR_GOOD, EXPIRED = "deleted", "purged", "expired"
"""The reasons in the feed for a deleted chat; see model.retention for automatic ones."""


@dataclass(frozen=True)
class DeleteRequest:
    id: ConversationId
    now: int
    purge_at: int | None = None
    """The end of the time to restore it; None: purge at once."""
    within: Within = EVERYWHERE


async def delete(tables: Tables, request: DeleteRequest) -> Conversation:
    """Delete the conversation and return it. Frees its conversation_key, raises its fence, ends its running
    attempts on all branches and drops its queue. Repeating it changes nothing, unless the repetition purges.
    An expired one is always purged, since parts of it may be gone. Raises ConversationNotFound."""
    found = await _find(tables, request.id, request.within)
    if found.state is ConversationState.PURGED:
        return found
    if request.purge_at is None or found.state is ConversationState.EXPIRED:
        return await purge(tables, found, request.now)
    if found.state is ConversationState.DELETED:
        return found
    return await soft_delete(tables, found, request.purge_at, request.now)


async def soft_delete(
    tables: Tables, found: Conversation, purge_at: int, now: int, reason: str = REQUESTED
) -> Conversation:
    """Delete a live conversation so that it can be restored, with its conversation_key as the former one."""
    deleted = replace(
        found,
        state=ConversationState.DELETED,
        purge_at=purge_at,
        conversation_key=None,
        former_conversation_key=found.conversation_key,
    )
    await tables.save_conversation(deleted)
    await _close_lanes(tables, found, now, forget=False)
    # Read again: a turn kept on the way may be its first, or an edit, and has changed the row.
    deleted = await tables.conversation(found.id) or deleted
    await _record_deletion(tables, deleted, now, reason)
    return deleted


async def purge(tables: Tables, found: Conversation, now: int, reason: str = FOR_GOOD) -> Conversation:
    """End a conversation for good. Its details are removed now, its unreadable turns swept later."""
    purged = replace(
        _without_details(found),
        state=ConversationState.PURGED,
        purge_at=None,
        conversation_key=None,
        former_conversation_key=None,
    )
    await tables.save_conversation(purged)
    await _close_lanes(tables, found, now, forget=True)
    await _record_deletion(tables, found, now, reason)
    return purged


async def _record_deletion(tables: Tables, found: Conversation, now: int, reason: str) -> None:
    if found.is_listed:  # else the feed has not reported it
        await record_change(tables, ChangeKind.CHAT_DELETED, found, now, detail=reason)


def _without_details(found: Conversation) -> Conversation:
    return replace(found, title=None, named_by=None, metadata={}, tags=(), pinned=False, archived=False)


async def _close_lanes(tables: Tables, conversation: Conversation, now: int, *, forget: bool) -> None:
    """End the running turns of all branches and drop the queue. Unless `forget`, effects are kept: after a
    restore the model must learn of them. A draft is dropped, unless its turn had been stopped before."""
    branch = await tables.branch(conversation.branch)
    if branch is None:
        return
    await tables.save_branch(replace(branch, fence=branch.fence + 1))
    for running in await tables.running_in(conversation.id):
        lane = await tables.branch(running.branch)
        if lane is not None:
            raised, drop = replace(lane, fence=lane.fence + 1), running.stop is None
            await end_running(tables, raised, running, DELETED, now, forget=forget, drop=drop)
    # Read again: an edit kept on the way has moved the queue.
    ended = await tables.conversation(conversation.id) or conversation
    for ticket in (*await tables.tickets(ended.branch), *await tickets_beside(tables, ended)):
        await tables.drop_ticket(ticket.attempt)
        if ticket.lease == NOBODY:
            await drop_job(tables, ticket.attempt)
            await expire_claim(tables, ticket.idempotency_key, ticket.attempt, now, ticket.claimed)
        await record_change(tables, ChangeKind.TURN_WITHDRAWN, conversation, now, turn=ticket.attempt)


@dataclass(frozen=True)
class RestoreRequest:
    id: ConversationId
    now: int
    due: int
    within: Within = EVERYWHERE
    retain_ms: int | None = None
    """The age without use at which a conversation is deleted automatically."""


async def restore(tables: Tables, request: RestoreRequest) -> Conversation:
    """Bring a deleted conversation back and return it; a live one is returned unchanged. It gets its
    conversation_key back if that is free; otherwise the key stays its former one.

    Raises ConversationNotFound, ConversationExpired, and ConversationDeleted if it was purged or its time is
    over.
    """
    found = await _find(tables, request.id, request.within)
    if found.state is ConversationState.LIVE:
        return found
    if found.state is ConversationState.EXPIRED:
        raise ConversationExpired
    if found.state is ConversationState.PURGED or found.purge_at is None or found.purge_at <= request.due:
        raise ConversationDeleted("This conversation was purged and cannot be restored. Start a new one.")
    restored = replace(found, state=ConversationState.LIVE, purge_at=None)
    key = found.former_conversation_key
    if key is not None and await tables.conversation_by_key(found.scope, key) is None:
        restored = replace(restored, conversation_key=key, former_conversation_key=None)
    if _would_end_again(restored, request):
        restored = replace(restored, touched_at=request.now)
    await tables.save_conversation(restored)
    if restored.is_listed:
        await record_change(tables, ChangeKind.CHAT_RESTORED, restored, request.now)
    return restored


def _would_end_again(restored: Conversation, request: RestoreRequest) -> bool:
    """Return whether it was unused for so long that retention would end it again at once."""
    is_old = request.retain_ms is not None and restored.touched_at + request.retain_ms <= request.due
    return is_old or restored.is_expired(request.due)


async def _find(tables: Tables, id: ConversationId, within: Within) -> Conversation:
    found = await tables.conversation(id)
    if found is None or not within.sees(found):
        raise ConversationNotFound
    return found


@dataclass(frozen=True)
class FindDueRequest:
    due: int
    unlisted_by: int
    """When a conversation without a committed turn must have been used last to be purged."""
    limit: int


async def find_due(whole: WholeStore, request: FindDueRequest) -> dict[str, list[ConversationId]]:
    """Return conversations whose time seems over, up to `limit` of each kind, by owner."""
    by_owner: dict[str, list[ConversationId]] = {}
    for each in await whole.due_conversations(request.due, request.unlisted_by, request.limit):
        by_owner.setdefault(each.owner, []).append(each.id)
    return by_owner


@dataclass(frozen=True)
class EndDueRequest:
    ids: Sequence[ConversationId]
    now: int
    due: int
    unlisted_by: int


async def end_due(tables: Tables, request: EndDueRequest) -> int:
    """End those of these conversations whose time is over; return how many. Lapsed ones expire. Purged are
    those deleted long enough ago, and those in which no turn was ever committed."""
    ended = 0
    for id in request.ids:
        found = await tables.conversation(id)
        if found is None or not await _is_over(tables, found, request):
            continue
        ended += 1
        if found.state is ConversationState.LIVE and found.is_expired(request.due):
            await tables.save_conversation(replace(_without_details(found), state=ConversationState.EXPIRED))
            await _close_lanes(tables, found, request.now, forget=True)
            await _record_deletion(tables, found, request.now, EXPIRED)
        else:
            await purge(tables, found, request.now)
    return ended


async def _is_over(tables: Tables, found: Conversation, request: EndDueRequest) -> bool:
    """Decide again, in the transaction that ends it: it may have been used since."""
    if found.state is ConversationState.DELETED:
        return found.purge_at is not None and found.purge_at <= request.due
    if found.state is not ConversationState.LIVE or await is_in_use(tables, found):
        return False
    if found.is_expired(request.due):
        return True
    if found.is_listed or found.touched_at > request.unlisted_by:
        return False
    branch = await tables.branch(found.branch)
    tried = await tables.attempts(found.id, TRIED)
    is_recent = any((each.ended_at or 0) > request.unlisted_by for each in tried)
    return branch is not None and branch.unsettled is None and not is_recent


async def delete_for(
    process: Process, owner: str, id: ConversationId, within: Within, *, purge: bool
) -> Conversation:
    """Delete or purge the conversation and return it; repeatable. Raises ConversationNotFound."""
    now = process.clock.now_ms()
    purge_at = None if purge else purge_time(process, now)
    deleted = await process.persist(delete, DeleteRequest(id, now, purge_at, within), owner)
    process.forget_deleted(deleted)
    return deleted


async def restore_for(process: Process, owner: str, id: ConversationId, within: Within) -> Conversation:
    kept = process.limits.retain_for
    retain_ms = None if kept is None else round(kept * 1000)
    now, due = process.clock.now_ms(), process.clock.due_ms()
    request = RestoreRequest(id, now, due, within, retain_ms)
    return await process.persist(restore, request, owner)


def purge_time(process: Process, now: int) -> int:
    return now + round(process.limits.restore_time * 1000)
