"""Deleting: a conversation can be restored for a while, and is then gone for good. Expiry ends it at once.

    live ── delete ──► deleted ── its time is over, or purge ──► purged ──► swept, a batch at a time
      ▲                   │                                        ▲
      └───── restore ─────┘            live, expired ── purge ─────┘

Each arrow but the last is one transaction. What can be restored is whole: only what is purged or expired is
swept, and neither ever comes back.

Removing, one process's part: it deletes conversations for callers, or brings them back, and lets go of
what is here of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from msgspec.structs import replace

from turnledger.engine.attempt.end import DELETED, end_running
from turnledger.engine.feed import tell
from turnledger.engine.ports import Tables
from turnledger.engine.process import Process
from turnledger.errors import ConversationDeleted, ConversationExpired, ConversationNotFound
from turnledger.model.change import ChangeKind
from turnledger.model.conversation import EVERYWHERE, Conversation, ConversationState, Within
from turnledger.model.ids import ConversationId

ASKED, FOR_GOOD, EXPIRED = "deleted", "purged", "expired"
"""Why an owner is told that a chat is gone; see model.retention for what goes by itself."""


@dataclass(frozen=True)
class DeleteRequest:
    owner: str
    id: ConversationId
    now: int
    purge_at: int | None = None
    """Until when it can be restored; None: it is purged at once."""
    within: Within = EVERYWHERE


async def delete(tables: Tables, request: DeleteRequest) -> Conversation:
    """Delete the conversation, and return it as it is then: its conversation_key is free, its fence raised,
    its running attempt ended, its queue gone. Deleting a deleted one changes nothing, unless it is to be
    purged now. One that has expired is purged in any case: half of it may be gone. Raises
    ConversationNotFound."""
    found = await _found(tables, request.owner, request.id, request.within)
    if found.state is ConversationState.PURGED:
        return found
    if request.purge_at is None or found.state is ConversationState.EXPIRED:
        return await purge(tables, found, request.now)
    if found.state is ConversationState.DELETED:
        return found
    return await set_aside(tables, found, request.purge_at, request.now)


async def set_aside(
    tables: Tables, found: Conversation, purge_at: int, now: int, reason: str = ASKED
) -> Conversation:
    """Delete a live conversation so that it can be restored. It remembers the conversation_key it had, as
    its former one."""
    deleted = replace(
        found,
        state=ConversationState.DELETED,
        purge_at=purge_at,
        conversation_key=None,
        former_conversation_key=found.conversation_key,
    )
    await tables.save_conversation(deleted)
    await _close_lane(tables, found, now, forget=False)
    # A turn that was to be kept is so, and may be the first, or an edit: read again what it made of the chat.
    deleted = await tables.conversation(found.owner, found.id) or deleted
    await _tell(tables, deleted, now, reason)
    return deleted


async def purge(tables: Tables, found: Conversation, now: int, reason: str = FOR_GOOD) -> Conversation:
    """End a conversation for good. What people said about it goes at once; its turns are swept by and by, and
    nobody can read them any more."""
    purged = replace(
        _without_details(found),
        state=ConversationState.PURGED,
        purge_at=None,
        conversation_key=None,
        former_conversation_key=None,
    )
    await tables.save_conversation(purged)
    await _close_lane(tables, found, now, forget=True)
    await _tell(tables, found, now, reason)
    return purged


async def _tell(tables: Tables, found: Conversation, now: int, reason: str) -> None:
    if found.is_listed:  # else nobody was told that it is there
        await tell(tables, ChangeKind.CHAT_DELETED, found, now, detail=reason)


def _without_details(found: Conversation) -> Conversation:
    return replace(found, title=None, named_by=None, metadata={}, tags=(), pinned=False, archived=False)


async def _close_lane(tables: Tables, conversation: Conversation, now: int, *, forget: bool) -> None:
    """End what runs, and drop what waits. What tools did is kept where the conversation may come back: then
    the model must hear of it. The draft is not: who deletes a conversation does not ask for it, unless
    somebody had stopped the turn before."""
    branch = await tables.branch(conversation.branch)
    if branch is None:
        return
    branch = replace(branch, fence=branch.fence + 1)
    running = await tables.attempt(conversation.owner, branch.running) if branch.running else None
    if running is not None:
        drop = running.stop is None
        branch, _ = await end_running(tables, branch, running, DELETED, now, forget=forget, drop=drop)
    await tables.save_branch(branch)
    for ticket in await tables.tickets(branch.id):
        await tables.drop_ticket(ticket.attempt)
        await tell(tables, ChangeKind.TURN_WITHDRAWN, conversation, now, turn=ticket.attempt)


@dataclass(frozen=True)
class RestoreRequest:
    owner: str
    id: ConversationId
    now: int
    due: int
    within: Within = EVERYWHERE
    retain_ms: int | None = None
    """How old a conversation may become before it is deleted by itself."""


async def restore(tables: Tables, request: RestoreRequest) -> Conversation:
    """Bring a deleted conversation back as it was, and return it; one that is live already is returned as it
    is. It has its conversation_key again if that is free; if not, that is its former one from now on.

    Raises ConversationNotFound, ConversationDeleted if it was purged or its time is over, and
    ConversationExpired.
    """
    found = await _found(tables, request.owner, request.id, request.within)
    if found.state is ConversationState.LIVE:
        return found
    if found.state is ConversationState.EXPIRED:
        raise ConversationExpired
    if found.state is ConversationState.PURGED or found.purge_at is None or found.purge_at <= request.due:
        raise ConversationDeleted("That conversation was deleted for good, and cannot be restored any more.")
    restored = replace(found, state=ConversationState.LIVE, purge_at=None)
    key = found.former_conversation_key
    if key is not None and await tables.conversation_by_key(found.owner, found.scope, key) is None:
        restored = replace(restored, conversation_key=key, former_conversation_key=None)
    if _would_end_again(restored, request):
        restored = replace(restored, touched_at=request.now)
    await tables.save_conversation(restored)
    if restored.is_listed:
        await tell(tables, ChangeKind.CHAT_RESTORED, restored, request.now)
    return restored


def _would_end_again(restored: Conversation, request: RestoreRequest) -> bool:
    """Whether it has been left alone for so long that it would go again at once."""
    is_old = request.retain_ms is not None and restored.touched_at + request.retain_ms <= request.due
    return is_old or restored.is_expired(request.due)


async def _found(tables: Tables, owner: str, id: ConversationId, within: Within) -> Conversation:
    found = await tables.conversation(owner, id)
    if found is None or not within.sees(found):
        raise ConversationNotFound
    return found


@dataclass(frozen=True)
class EndDueRequest:
    now: int
    due: int
    limit: int
    unlisted_kept_ms: int
    """How long a conversation is kept that was begun, and where nothing was ever committed."""


async def end_due(tables: Tables, request: EndDueRequest) -> int:
    """End conversations whose time is over, up to so many of each kind, so that they can be swept: those that
    lapse expire, and those are purged that were deleted long enough ago, or begun and never came to
    anything. Returns how many."""
    now, due, limit = request.now, request.due, request.limit
    lapsed = await tables.lapsed_conversations(due, limit)
    for each in lapsed:
        await tables.save_conversation(replace(_without_details(each), state=ConversationState.EXPIRED))
        await _close_lane(tables, each, now, forget=True)
        await _tell(tables, each, now, EXPIRED)
    deleted = await tables.conversations_to_purge(due, limit)
    empty = await tables.unlisted_conversations(due - request.unlisted_kept_ms, limit)
    for each in (*deleted, *empty):
        await purge(tables, each, now)
    return len(lapsed) + len(deleted) + len(empty)


async def delete_for(
    process: Process, owner: str, id: ConversationId, within: Within, *, purge: bool
) -> Conversation:
    """Delete the conversation, or purge it, and return it as it is then. Repeating it changes nothing. Raises
    ConversationNotFound."""
    now = process.clock.now_ms()
    purge_at = None if purge else purge_time(process, now)
    deleted = await process.persist(delete, DeleteRequest(owner, id, now, purge_at, within))
    process.forget_deleted(deleted)
    return deleted


async def restore_for(process: Process, owner: str, id: ConversationId, within: Within) -> Conversation:
    """Bring a deleted conversation back; see `restore`. Repeating it changes nothing."""
    kept = process.limits.retain_for
    retain_ms = None if kept is None else round(kept * 1000)
    now, due = process.clock.now_ms(), process.clock.due_ms()
    request = RestoreRequest(owner, id, now, due, within, retain_ms)
    return await process.persist(restore, request)


def purge_time(process: Process, now: int) -> int:
    """Until when what is deleted now can be restored."""
    return now + round(process.limits.restore_time * 1000)
