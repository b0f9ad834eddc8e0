"""Retries happen once: what a request finds under its idempotency_key, decided inside begin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from turnledger.engine.attempt.end import CLAIM_KEPT_MS, STATE_OF, Ended
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.ports import Tables
from turnledger.errors import ConversationDeleted, ConversationExpired, IdempotencyMismatch, TurnStopped
from turnledger.model.conversation import Claim, Conversation, ConversationState, Ticket, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.turn import Attempt, AttemptState, Instructions


@dataclass(frozen=True)
class Key:
    """An idempotency_key, and what its body amounts to."""

    text: str
    """As it is claimed; see claimed_as."""
    fingerprint: bytes


@dataclass(frozen=True)
class Fresh:
    """Nothing there: begin, and claim it. `earlier` is a failed attempt whose journal may be resumed."""

    claim: Claim | None = None
    earlier: Attempt | None = None


@dataclass(frozen=True)
class SharedOutcome:
    """The outcome of another attempt is this request's outcome, now or when it ends."""

    attempt: TurnId
    ended: Ended | None
    conversation: ConversationId
    """Where it began."""
    has_ticket: bool = False
    """Whether the request has a ticket left to withdraw."""
    was_waiting: bool = False
    """Whether the request was waiting already when that attempt began: then it shares its death, too."""

    def with_ticket(self, *, is_there: bool) -> SharedOutcome:
        return replace(self, has_ticket=is_there)


Verdict: TypeAlias = Fresh | SharedOutcome

NOTHING_CLAIMED = Fresh()


def fingerprint(
    input: Iterable[Item],
    *place: object,
    instructions: Instructions | None = None,
    priming: Sequence[Item] = (),
) -> bytes:
    """What must be equal for two requests to the same conversation to be the same request: what they say,
    under which instructions, and where in the history, if not behind the head."""
    digest = hashlib.sha256()
    _digest(digest.update, input)
    if instructions is not None:
        digest.update(LASTING if instructions.is_lasting else ONCE)
        _digest(digest.update, instructions.items)
    if priming:
        digest.update(PRIMING)
        _digest(digest.update, priming)
    if place:
        digest.update(repr(place).encode())
    return digest.digest()


NARROWED = "\x02"
"""Stands around the label of narrowed callers in what they claim, and in no idempotency_key or label."""


def claimed_as(idempotency_key: str, within: Within) -> str:
    """What a key is claimed under: who is narrowed has keys of their own, so that no answer to them depends
    on what others of their owner did."""
    label = within.label
    return idempotency_key if label is None else f"{NARROWED}{label}{NARROWED}{idempotency_key}"


def claimed_within(name: str) -> Within:
    """How somebody is narrowed who claims under this name."""
    return Within.labelled(name.split(NARROWED, 2)[1] if name.startswith(NARROWED) else None)


LASTING, ONCE, PRIMING = b"\xff" * 7 + b"\x01", b"\xff" * 7 + b"\x02", b"\xff" * 7 + b"\x03"
"""Stand where the length of an item would, and are no length that an item can have."""


def _digest(update: Callable[[bytes], None], items: Iterable[Item]) -> None:
    for item in items:
        update(len(item.raw).to_bytes(8) + item.raw)


async def look_up(tables: Tables, target: Target, key: Key, ticket: Ticket | None) -> Verdict:
    """Decide what a request with this key does, which waits with this ticket or has just arrived. Raises
    IdempotencyMismatch, TurnStopped, ConversationDeleted or ConversationExpired; claims nothing."""
    owner = target.owner
    claim = await tables.claim(owner, key.text)
    if claim is None:
        return NOTHING_CLAIMED
    if claim.fingerprint != key.fingerprint:
        raise IdempotencyMismatch
    if not target.may_mean(await live_conversation_of(tables, claim)):
        raise IdempotencyMismatch
    turn = await tables.turn(owner, claim.attempt)
    if turn is not None:
        return SharedOutcome(turn.id, Ended(STATE_OF[turn.kind], turn), claim.conversation)
    attempt = await tables.attempt(owner, claim.attempt)
    if attempt is None:
        return Fresh(claim)
    was_waiting = began_while_waiting(ticket, claim)
    if attempt.state is AttemptState.RUNNING:
        return SharedOutcome(attempt.id, None, claim.conversation, was_waiting=was_waiting)
    if attempt.state is AttemptState.DISCARDED:
        raise TurnStopped
    if was_waiting:
        return SharedOutcome(attempt.id, Ended(attempt.state, failure=attempt.failure), claim.conversation)
    return Fresh(claim, attempt)


def claim_for(key: Key, attempt: Attempt) -> Claim:
    """The claim of an attempt that begins under this key, in place of any earlier one."""
    return Claim(
        owner=attempt.owner,
        idempotency_key=key.text,
        fingerprint=key.fingerprint,
        conversation=attempt.conversation,
        attempt=attempt.id,
    )


def claim_of(key: Key, conversation: Conversation, branch: BranchId, now: int) -> Claim:
    """The claim of what runs no turn, and is done: the branch that came of it stands where an attempt would.
    An id is unique, whatever it names."""
    return Claim(
        owner=conversation.owner,
        idempotency_key=key.text,
        fingerprint=key.fingerprint,
        conversation=conversation.id,
        attempt=TurnId.trusted(branch.raw),
        expires_at=now + CLAIM_KEPT_MS,
    )


async def live_conversation_of(tables: Tables, claim: Claim) -> Conversation:
    """The conversation of what was claimed; raises ConversationDeleted or ConversationExpired."""
    conversation = await tables.conversation(claim.owner, claim.conversation)
    if conversation is None:
        raise ConversationDeleted
    if conversation.is_deleted:
        raise ConversationDeleted(restorable_until=conversation.purge_at)
    if conversation.state is ConversationState.EXPIRED:
        raise ConversationExpired
    return conversation


def began_while_waiting(ticket: Ticket | None, claim: Claim) -> bool:
    """Whether the claimed attempt began when this request was waiting already: then it shares its outcome,
    failure included. Only a request that arrives after the failure is a retry."""
    return ticket is not None and claim.attempt != ticket.claimed
