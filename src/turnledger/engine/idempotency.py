"""Retries happen once: what a request finds under its idempotency_key, decided inside begin."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TypeAlias

from turnledger.engine.conversations import Target
from turnledger.engine.ending import STATE_OF, Ended
from turnledger.engine.ports import Tables
from turnledger.errors import ConversationDeleted, ConversationExpired, IdempotencyMismatch, TurnStopped
from turnledger.model.attempt import Attempt, AttemptState
from turnledger.model.conversation import Claim, ConversationState, Ticket
from turnledger.model.ids import TurnId
from turnledger.model.item import Item


@dataclass(frozen=True)
class Key:
    """An idempotency_key, and what its body amounts to."""

    text: str
    fingerprint: bytes


@dataclass(frozen=True)
class Fresh:
    """Nothing there: begin, and claim it. `earlier` is a failed attempt whose journal may be resumed."""

    claim: Claim | None = None
    earlier: Attempt | None = None


@dataclass(frozen=True)
class Share:
    """The outcome of another attempt is this request's outcome, now or when it ends."""

    attempt: TurnId
    ended: Ended | None
    has_ticket: bool = False
    """Whether the request has a ticket left to withdraw."""


Verdict: TypeAlias = Fresh | Share

NOTHING_CLAIMED = Fresh()


def fingerprint(input: Iterable[Item], *place: object) -> bytes:
    """What must be equal for two requests to the same conversation to be the same request: what they say,
    and where in the history, if not behind the head."""
    digest = hashlib.sha256()
    for item in input:
        digest.update(len(item.raw).to_bytes(8) + item.raw)
    if place:
        digest.update(repr(place).encode())
    return digest.digest()


async def look_up(tables: Tables, target: Target, key: Key, ticket: Ticket | None) -> Verdict:
    """Decide what a request with this key does, which waits with this ticket or has just arrived. Raises
    IdempotencyMismatch, TurnStopped, ConversationDeleted or ConversationExpired; claims nothing."""
    owner = target.owner
    claim = await tables.claim(owner, key.text)
    if claim is None:
        return NOTHING_CLAIMED
    if claim.fingerprint != key.fingerprint:
        raise IdempotencyMismatch
    conversation = await tables.conversation(owner, claim.conversation)
    if conversation is None or conversation.state is ConversationState.DELETED:
        raise ConversationDeleted
    if conversation.state is ConversationState.EXPIRED:
        raise ConversationExpired
    if not target.may_mean(conversation):
        raise IdempotencyMismatch
    turn = await tables.turn(owner, claim.attempt)
    if turn is not None:
        return Share(turn.id, Ended(STATE_OF[turn.kind], turn))
    attempt = await tables.attempt(owner, claim.attempt)
    if attempt is None:
        return Fresh(claim)
    if attempt.state is AttemptState.RUNNING:
        return Share(attempt.id, None)
    if attempt.state is AttemptState.DISCARDED:
        raise TurnStopped
    if began_while_waiting(ticket, claim):
        return Share(attempt.id, Ended(attempt.state, failure=attempt.failure))
    return Fresh(claim, attempt)


def began_while_waiting(ticket: Ticket | None, claim: Claim) -> bool:
    """Whether the claimed attempt began when this request was waiting already: then it shares its outcome,
    failure included. Only a request that arrives after the failure is a retry."""
    return ticket is not None and claim.attempt != ticket.claimed
