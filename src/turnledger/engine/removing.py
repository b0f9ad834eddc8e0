"""Removing, one process's part: it deletes conversations for callers, or brings them back, and lets go of
what is here of them."""

from __future__ import annotations

from turnledger.engine.deleting import DeleteRequest, RestoreRequest, delete, restore
from turnledger.engine.process import Process
from turnledger.model.conversation import Conversation
from turnledger.model.ids import ConversationId
from turnledger.model.within import Within


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
