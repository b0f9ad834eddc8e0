"""Idempotency keys: what a request finds under its key, decided inside begin."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from turnledger.engine.attempt.end import CLAIM_KEPT_MS, STATE_OF, Outcome
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.ports import Tables
from turnledger.errors import (
    ConversationDeleted,
    ConversationExpired,
    IdempotencyMismatch,
    TurnledgerError,
    TurnStopped,
)
from turnledger.model.conversation import Claim, Conversation, ConversationState, Ticket, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, calls_left_open
from turnledger.model.turn import Attempt, AttemptState, Instructions


@dataclass(frozen=True)
class IdempotencyKey:
    text: str
    """The name of its claim; see claimed_as."""
    fingerprint: bytes
    answers: frozenset[str | None] = frozenset()
    """The calls whose results the request brings."""


@dataclass(frozen=True)
class NewAttempt:
    """No outcome yet: begin, and claim the key. `earlier` is a failed attempt that may be resumed."""

    claim: Claim | None = None
    earlier: Attempt | None = None


@dataclass(frozen=True)
class SharedOutcome:
    """The outcome of another attempt is this request's outcome, now or when it ends."""

    attempt: TurnId
    outcome: Outcome | None
    conversation: ConversationId
    """Where it began."""
    has_ticket: bool = False
    """Whether the request still has a ticket to withdraw."""
    was_waiting: bool = False
    """Whether the request was already waiting when that attempt began: then it shares its failure, too."""

    def with_ticket(self, *, is_there: bool) -> SharedOutcome:
        return replace(self, has_ticket=is_there)


Verdict: TypeAlias = NewAttempt | SharedOutcome

NOTHING_CLAIMED = NewAttempt()


def fingerprint(
    input: Iterable[Item],
    *place: object,
    instructions: Instructions | None = None,
    primer: Sequence[Item] = (),
) -> bytes:
    """Digest what must be equal for two requests to the same conversation to be the same request: the input,
    the instructions, and the place in the history, if not behind the head."""
    digest = hashlib.sha256()
    _digest(digest.update, input)
    if instructions is not None:
        digest.update(LASTING if instructions.is_lasting else ONCE)
        _digest(digest.update, instructions.items)
    if primer:
        digest.update(PRIMING)
        _digest(digest.update, primer)
    if place:
        digest.update(repr(place).encode())
    return digest.digest()


NARROWED = "\x02"
"""Encloses the label of a narrowed caller in a claim's name; occurs in no idempotency_key or label."""


def claim_name(idempotency_key: str, within: Within) -> str:
    """Return the name under which a key is claimed. Narrowed callers have keys of their own, so their answers
    do not depend on other callers of the same owner."""
    label = within.label
    return idempotency_key if label is None else f"{NARROWED}{label}{NARROWED}{idempotency_key}"


def claim_restriction(name: str) -> Within:
    """Return how the caller is narrowed that claims under this name."""
    return Within.from_label(name.split(NARROWED, 2)[1] if name.startswith(NARROWED) else None)


LASTING, ONCE, PRIMING = b"\xff" * 7 + b"\x01", b"\xff" * 7 + b"\x02", b"\xff" * 7 + b"\x03"
"""Markers in place of an item's length; no item can be that long."""


def _digest(update: Callable[[bytes], None], items: Iterable[Item]) -> None:
    for item in items:
        update(len(item.raw).to_bytes(8) + item.raw)


async def look_up(tables: Tables, target: Target, key: IdempotencyKey, ticket: Ticket | None) -> Verdict:
    """Decide what a request with this key does; `ticket` is set if it already waits. Claims nothing. Raises
    IdempotencyMismatch, TurnStopped, ConversationDeleted or ConversationExpired."""
    claim = await tables.claim(key.text)
    if claim is None:
        return NOTHING_CLAIMED
    if claim.fingerprint != key.fingerprint and not key.answers:
        raise await _caused_by(claim, IdempotencyMismatch(), tables)
    if not target.may_repeat(await live_conversation_of(tables, claim)):
        raise await _caused_by(claim, IdempotencyMismatch(), tables)
    turn = await tables.turn(claim.attempt)
    if claim.fingerprint != key.fingerprint:
        # Agents name all steps of a turn alike: the results of its calls are the next step.
        if turn is None or key.answers != {call.call_id for call in calls_left_open(turn.output)}:
            raise await _caused_by(claim, IdempotencyMismatch(), tables)
        return NOTHING_CLAIMED
    if turn is not None:
        return SharedOutcome(turn.id, Outcome(STATE_OF[turn.kind], turn), claim.conversation)
    attempt = await tables.attempt(claim.attempt)
    was_waiting = began_while_waiting(ticket, claim)
    if attempt is None:
        if await tables.job(claim.attempt) is not None:
            return SharedOutcome(claim.attempt, None, claim.conversation, was_waiting=was_waiting)
        return NewAttempt(claim)
    if attempt.state is AttemptState.RUNNING:
        return SharedOutcome(attempt.id, None, claim.conversation, was_waiting=was_waiting)
    if attempt.state is AttemptState.DISCARDED:
        raise await _caused_by(claim, TurnStopped(), tables)
    if was_waiting:
        return SharedOutcome(attempt.id, Outcome(attempt.state, failure=attempt.failure), claim.conversation)
    return NewAttempt(claim, attempt)


async def _caused_by(claim: Claim, error: TurnledgerError, tables: Tables) -> TurnledgerError:
    """Return the error with the turn that holds the key, for logs. A move holds it without a turn."""
    id = claim.attempt
    rows = await tables.turn(id) or await tables.attempt(id) or await tables.job(id)
    error.earlier = (id if rows is not None else None, claim.conversation)
    return error


async def find_under_key(tables: Tables, name: str) -> Claim | Ticket | None:
    """Return the claim or the ticket of the attempt that a key names: the one that runs, was committed or
    stopped; or else the first that waits; or else the one that failed."""
    claim = await tables.claim(name)
    if claim is not None:
        attempt = await tables.attempt(claim.attempt)
        has_failed = attempt is not None and attempt.state is AttemptState.FAILED
        if not has_failed and (attempt is not None or await tables.turn(claim.attempt) is not None):
            return claim
    return await tables.ticket_for(name) or claim


def claim_for(key: IdempotencyKey, attempt: Attempt) -> Claim:
    """Return the claim of an attempt that begins under this key; it replaces any earlier one."""
    return Claim(
        owner=attempt.owner,
        idempotency_key=key.text,
        fingerprint=key.fingerprint,
        conversation=attempt.conversation,
        attempt=attempt.id,
    )


def claim_of(key: IdempotencyKey, conversation: Conversation, made: TurnId | BranchId, now: int) -> Claim:
    """Return the claim of a finished operation. Without a turn, the id of the branch it made takes the place
    of an attempt's; ids are unique across kinds."""
    return Claim(
        owner=conversation.owner,
        idempotency_key=key.text,
        fingerprint=key.fingerprint,
        conversation=conversation.id,
        attempt=TurnId.trusted(made.raw),
        expires_at=now + CLAIM_KEPT_MS,
    )


async def live_conversation_of(tables: Tables, claim: Claim) -> Conversation:
    """Return the conversation of a claim; raise ConversationDeleted or ConversationExpired."""
    conversation = await tables.conversation(claim.conversation)
    if conversation is None:
        raise ConversationDeleted
    if conversation.is_deleted:
        raise ConversationDeleted(restorable_until=conversation.purge_at)
    if conversation.state is ConversationState.EXPIRED:
        raise ConversationExpired
    return conversation


def began_while_waiting(ticket: Ticket | None, claim: Claim) -> bool:
    """Return whether the claimed attempt began while this request was already waiting. If so, they share the
    outcome, failure included: only a request that arrives after a failure is a retry."""
    return ticket is not None and claim.attempt != ticket.claimed
