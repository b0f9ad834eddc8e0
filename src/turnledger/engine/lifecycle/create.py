"""Making a conversation under an idempotency_key: one, however often the request is made."""

from __future__ import annotations

from dataclasses import dataclass

from turnledger.engine.attempt.idempotency import Key, claim_of, live_conversation_of
from turnledger.engine.conversations.resolve import Target, check_live, resolve
from turnledger.engine.limits import BOUNDLESS, Room
from turnledger.engine.ports import Tables
from turnledger.errors import IdempotencyMismatch
from turnledger.model.conversation import Conversation


@dataclass(frozen=True)
class MakeRequest:
    """Ask for the conversation that the target names, or for a new one, under a key of the request."""

    target: Target
    key: Key
    now: int
    due: int
    """What is over by then is over; see clock."""
    room: Room = BOUNDLESS
    """What the owner may store."""


async def make(tables: Tables, request: MakeRequest) -> Conversation:
    """Return the conversation that was made, or found, under the same idempotency_key, or resolve the target
    and claim it. Raises IdempotencyMismatch, and what resolving does; what was made and is deleted since is
    not made again."""
    target, key = request.target, request.key
    claim = await tables.claim(target.owner, key.text)
    if claim is not None:
        if claim.fingerprint != key.fingerprint:
            raise IdempotencyMismatch
        return await check_live(tables, await live_conversation_of(tables, claim), request.due)
    made = await resolve(tables, target, request.due, room=request.room)
    await tables.save_claim(claim_of(key, made, made.branch, request.now))
    return made
