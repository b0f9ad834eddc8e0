"""Create a conversation: under an idempotency_key, or for a conversation_key that is reset.

Repeating a request makes no second conversation, and concurrent resets agree on one.
"""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.engine.admission import check_admitted
from turnledger.engine.attempt.idempotency import IdempotencyKey, claim_of, live_conversation_of
from turnledger.engine.conversations.resolve import (
    Target,
    check_live,
    hand_over_key,
    insert,
    keys_of,
    resolve,
)
from turnledger.engine.limits import UNLIMITED, Quota
from turnledger.engine.ports import Tables
from turnledger.errors import ConversationExpired, ConversationNotFound, IdempotencyMismatch, InvalidInput
from turnledger.model.conversation import EVERYWHERE, Conversation, Within
from turnledger.model.ids import ConversationId


@dataclass(frozen=True)
class CreateChatRequest:
    target: Target
    key: IdempotencyKey
    now: int
    due: int
    quota: Quota = UNLIMITED


async def create_chat(tables: Tables, request: CreateChatRequest) -> Conversation:
    """Return the conversation that was made or found under the same idempotency_key, else resolve the target
    and claim it. A deleted one is not made again. Raises IdempotencyMismatch, and as `resolve`."""
    earlier = await made_under(tables, request.key, request.due)
    if earlier is not None:
        return earlier
    made = await resolve(tables, request.target, request.due, quota=request.quota)
    await tables.save_claim(claim_of(request.key, made, made.branch, request.now))
    return made


async def made_under(tables: Tables, key: IdempotencyKey, due: int) -> Conversation | None:
    """Return the conversation that an earlier request with this key made, if there was one."""
    claim = await tables.claim(key.text)
    if claim is None:
        return None
    if claim.fingerprint != key.fingerprint:
        raise IdempotencyMismatch
    return await check_live(tables, await live_conversation_of(tables, claim), due)


@dataclass(frozen=True)
class KeyRequest:
    scope: str
    conversation_key: str


async def find_by_key(tables: Tables, request: KeyRequest) -> ConversationId | None:
    """Return the conversation that a key currently names, in any state."""
    found = await tables.conversation_by_key(request.scope, request.conversation_key)
    return found.id if found else None


@dataclass(frozen=True)
class ResetRequest:
    """Give the conversation_key to the fresh conversation, if it still names the one in `replaces`. Without
    that condition, concurrent or repeated resets would each create one."""

    scope: str
    conversation_key: str
    replaces: ConversationId | None
    """None if the key named none."""
    fresh: Conversation
    now: int
    within: Within = EVERYWHERE
    quota: Quota = UNLIMITED
    admitted: int | None = None


async def reset(tables: Tables, request: ResetRequest) -> Conversation:
    """Return the conversation that the key now names: the fresh one, or that of a faster reset. An expired
    one is always replaced. Running and queued turns stay on the old one.

    Raises AdmissionMoved, and ConversationNotFound or InvalidInput if `replaces` never had this key.
    """
    again = await tables.conversation(request.fresh.id)
    if again is None:
        await check_admitted(tables, request.admitted)
    if request.replaces is not None:
        await _check_had_key(tables, request, request.replaces)
    found = await tables.conversation_by_key(request.scope, request.conversation_key)
    if found is None:
        return await insert(tables, request.fresh, request.quota)
    if found.id == request.replaces or await _has_expired(tables, found, request.now):
        return await hand_over_key(tables, found, request.fresh, found.reset_policy, request.quota)
    return found


async def _check_had_key(tables: Tables, request: ResetRequest, id: ConversationId) -> None:
    """Raise if the reset never could succeed, so that it does not look like one that came second."""
    named = await tables.conversation(id)
    if named is None or not request.within.sees(named):
        raise ConversationNotFound
    # A deleted conversation no longer shows its key.
    shows_key = not named.is_deleted
    if named.scope != request.scope or (shows_key and request.conversation_key not in keys_of(named)):
        raise InvalidInput(f"{id} never had the conversation_key {request.conversation_key!r}. Check both.")


async def _has_expired(tables: Tables, found: Conversation, now: int) -> bool:
    try:
        await check_live(tables, found, now)
    except ConversationExpired:
        return True
    return False
