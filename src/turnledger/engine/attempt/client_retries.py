"""Retries without a key: whether a client's retry finds an earlier try whose answer was lost.

Some clients retry by themselves: they send no idempotency_key, and the number of the try or not even that. A
digest of the request stands in for the key. But the same words may also be a second message, so a retry takes
over an earlier claim only if its answer certainly was not delivered. In doubt the turn runs again: a
duplicate message is visible in the history, a lost one is not. Deliveries and losses are recorded soon after
the answer was sent.

A client that counts claims with each begin, so that its retry finds a turn whose process died. One that does
not count claims nothing until its answer is lost: its turns cost no further writes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt.end import CLAIM_KEPT_MS, DIED, STATE_OF, Outcome, failure_of
from turnledger.engine.attempt.idempotency import NOTHING_CLAIMED, NewAttempt, SharedOutcome, Verdict
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import InvalidInput, LedgerClosed, StoreCorrupt, StoreError
from turnledger.model.conversation import Claim, Conversation, ConversationState, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.turn import Attempt, AttemptState, Failure, Turn, TurnKind

if TYPE_CHECKING:
    from turnledger.engine.process import Process


LOST_KEPT_MS = 15 * 60 * 1000
"""How long a retry can claim a lost answer. A client may notice the loss only after its own timeout (ten
minutes in the official clients); after that, the same words are a new message."""
UNCOUNTED_MS = 30_000
"""How long the same words of a client that does not count its tries are taken for a retry, after the answer
was lost or the turn failed."""
DERIVED = "\x01"
"""Prefix of the claims of requests without a key; no idempotency_key begins with it."""
UNCOUNTED = f"{DERIVED}u"
"""Prefix of the claims of clients that do not count their tries."""
REQUEST_LENGTH = 64
MAX_COUNT = 2**31


class Retry(Struct, frozen=True):
    """The number of this try of a client that retries by itself and sends no idempotency_key. `request` is a
    digest of what all tries have in common: path, conversation, body.

    A try after the first attaches to an earlier one whose answer was lost, or returns its answer; see
    Host.delivered and Host.lost.
    """

    request: bytes
    count: int | None = 0
    """0 for the first try; None if the client does not count: then the same words are a retry for a moment
    after their answer was lost."""

    @property
    def may_be_later(self) -> bool:
        """Whether this may be a try after the first."""
        return self.count is None or self.count > 0

    @property
    def name(self) -> str:
        return (UNCOUNTED if self.count is None else DERIVED) + self.request.hex()


def check_retry(retry: object) -> Retry:
    """Return a valid Retry; raise InvalidInput for anything else."""
    if (
        isinstance(retry, Retry)
        and 0 < len(retry.request) <= REQUEST_LENGTH
        and 0 <= (retry.count or 0) < MAX_COUNT
    ):
        return retry
    raise InvalidInput(
        f"retry is {retry!r}. Pass Retry(request, count) with 1 to {REQUEST_LENGTH} bytes and a count "
        f"below {MAX_COUNT}."
    )


def retry_within(retry: Retry, within: Within) -> Retry:
    """Bind the digest to a narrowed caller, who finds only their own requests."""
    label = within.label
    if label is None:
        return retry
    name = label.encode()
    return replace(retry, request=sha256(len(name).to_bytes(8) + name + retry.request).digest())


def claim_for(retry: Retry, attempt: Attempt) -> Claim:
    """Return the claim of a try that begins; it replaces any earlier one. It expires without regard to the
    end of the turn, so commit and end need not read it."""
    return Claim(
        owner=attempt.owner,
        idempotency_key=retry.name,
        fingerprint=b"",
        conversation=attempt.conversation,
        attempt=attempt.id,
        expires_at=attempt.created_at + CLAIM_KEPT_MS,
        retries=retry.count or 0,
        sender=attempt.id,
    )


async def look_up(
    tables: Tables, target: Target, retry: Retry, sender: TurnId, now: int, *, follows_any: bool = False
) -> Verdict:
    """Decide whether this try takes over an earlier one, or begins. Repeating it decides the same. With
    `follows_any`, the turn follows another one on any branch, and may end a side branch."""
    if not retry.may_be_later:
        return NOTHING_CLAIMED
    claim = await tables.claim(retry.name)
    if claim is None or not is_earlier_try(claim, retry, sender):
        return NOTHING_CLAIMED
    conversation = await tables.conversation(claim.conversation)
    if conversation is None or not is_target(target, conversation):
        return NOTHING_CLAIMED
    turn = await tables.turn(claim.attempt)
    ended: Outcome | None = None
    if turn is not None:
        failure = await failure_of(tables, turn)
        branch = turn.branch if follows_any else conversation.branch
        if not is_answer_lost(claim, failure, sender) or not await is_head(tables, branch, turn):
            return NOTHING_CLAIMED
        if is_over(claim, now):
            return NOTHING_CLAIMED
        is_old = turn.committed_at + LOST_KEPT_MS <= now
        if is_process_death(failure) and is_old and not claim.is_lost and claim.sender != sender:
            return NOTHING_CLAIMED  # a dead process records no loss, so its claim has not expired yet
        # After a stop, the same words more likely ask again than for the part that was kept.
        may_be_retry = turn.kind is TurnKind.COMPLETED and is_recent(claim, turn.committed_at, now)
        if retry.count is None and claim.sender != sender and not may_be_retry:
            return NOTHING_CLAIMED
        ended = Outcome(STATE_OF[turn.kind], turn)
    else:
        attempt = await tables.attempt(claim.attempt)
        if attempt is None or not is_undelivered(claim, attempt, sender):
            return NOTHING_CLAIMED
        if attempt.state is not AttemptState.RUNNING:
            if retry.count is None and not is_recent(claim, attempt.ended_at or 0, now):
                return NOTHING_CLAIMED
            return NewAttempt(claim, attempt)
    expires_at = now + CLAIM_KEPT_MS
    await tables.save_claim(
        replace(
            claim, retries=retry.count or claim.retries, is_lost=False, sender=sender, expires_at=expires_at
        )
    )
    return SharedOutcome(claim.attempt, ended, claim.conversation)


def is_over(claim: Claim, now: int) -> bool:
    """Return whether the claim has expired. Expired claims can still be stored: the purge pauses while clocks
    are in doubt, and runs first some time after the start."""
    return claim.expires_at is not None and claim.expires_at <= now


def is_earlier_try(claim: Claim, retry: Retry, sender: TurnId) -> bool:
    """Return whether the claim is of an earlier try, or was taken over by this one."""
    if claim.retries is None:
        return False
    return retry.count is None or claim.retries < retry.count or claim.sender == sender


def is_recent(claim: Claim, ended_at: int, now: int) -> bool:
    """Return whether the answer was lost, or the turn ended, a moment ago."""
    lost_at = claim.expires_at - LOST_KEPT_MS if claim.is_lost and claim.expires_at is not None else 0
    return max(lost_at, ended_at) + UNCOUNTED_MS > now


def is_target(target: Target, conversation: Conversation) -> bool:
    """Return whether the request refers to this conversation. After a delete or reset, the same
    conversation_key refers to another one."""
    if conversation.state is not ConversationState.LIVE:
        return False
    if target.id is not None:
        return target.id == conversation.id
    is_named = target.conversation_key in (None, conversation.conversation_key)
    return is_named and target.scope == conversation.scope


def is_answer_lost(claim: Claim, failure: Failure | None, sender: TurnId) -> bool:
    """Return whether a committed answer certainly was not delivered: its client disconnected before the last
    byte, or its process died and another process committed the rest. Until one of these is recorded, the last
    byte may have been sent."""
    if claim.is_lost or claim.sender == sender:
        return True
    return is_process_death(failure) and claim.sender == claim.attempt


async def is_head(tables: Tables, branch: BranchId, turn: Turn) -> bool:
    """Return whether the branch still ends with this turn. After later turns, the same words are more likely
    a new message than a retry."""
    found = await tables.branch(branch)
    return found is not None and found.head == turn.id


def is_undelivered(claim: Claim, attempt: Attempt, sender: TurnId) -> bool:
    """Return whether an attempt that did not commit left its client without an answer. While it runs and its
    client is connected, the same words from elsewhere are another message."""
    is_waited_for = not claim.is_lost and claim.sender != sender
    if attempt.state is AttemptState.FAILED:
        return not is_waited_for or is_process_death(attempt.failure)
    return attempt.state is AttemptState.RUNNING and not is_waited_for


def is_process_death(failure: Failure | None) -> bool:
    return failure is not None and failure.code == DIED.code


log = logging.getLogger("turnledger")

MOST_NOTES = 10_000
"""Notes held while the store cannot write. If one is dropped, a retry of its request runs the turn again."""


@dataclass(frozen=True)
class DeliveryNote:
    """Whether the answer to a request was delivered or lost."""

    owner: str
    name: str
    sender: TurnId
    is_delivered: bool
    at: int


async def record_deliveries(tables: Tables, notes: Sequence[DeliveryNote]) -> list[ConversationId]:
    """Drop the claims of delivered answers and mark those of lost ones; return the conversations of the lost.
    A note whose claim a later try has taken over is ignored. Repeating it changes nothing."""
    lost: list[ConversationId] = []
    for each in notes:
        claim = await tables.claim(each.name)
        if claim is None or claim.sender != each.sender:
            claim = await _claim_of_loss(tables, each, claim)
        if claim is None:
            continue
        if each.is_delivered:
            await tables.drop_claim(each.name)
        else:
            attempt = await tables.attempt(claim.attempt)
            if attempt is None or attempt.state is not AttemptState.RUNNING:  # else its commit notes it again
                claim = replace(claim, expires_at=each.at + LOST_KEPT_MS)
            await tables.save_claim(replace(claim, is_lost=True))
            lost.append(claim.conversation)
    return lost


async def _claim_of_loss(tables: Tables, note: DeliveryNote, other: Claim | None) -> Claim | None:
    """Return the claim of a client that does not count: it has none until its answer is lost. None if a try
    has taken over this claim, which then stays, or if there is one of a later attempt."""
    if not note.name.startswith(UNCOUNTED) or (other is not None and other.attempt >= note.sender):
        return None
    turn = await tables.turn(note.sender)
    attempt = await tables.attempt(note.sender) if turn is None else None
    place = await tables.branch(turn.branch) if turn is not None else attempt
    if place is None:
        return None
    return Claim(
        owner=note.owner,
        idempotency_key=note.name,
        fingerprint=b"",
        conversation=place.conversation,
        attempt=note.sender,
        expires_at=note.at + CLAIM_KEPT_MS,
        retries=0,
        sender=note.sender,
    )


class Deliveries:
    """The notes of a process that are not stored yet. Written in the background; notes that arrive during a
    write go into the next one."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._notes: list[DeliveryNote] = []
        self._lock = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    def add(self, note: DeliveryNote) -> None:
        if len(self._notes) < MOST_NOTES:
            self._notes.append(note)
        if self._writing is None or self._writing.done():
            self._writing = asyncio.create_task(self._write(), name="turnledger deliveries")

    async def _write(self) -> None:
        try:
            while self._notes:
                await self.flush()
        except LedgerClosed:
            return
        except StoreError as error:
            self._process.outage.note(error, "delivery_notes_postponed")
        except Exception:
            log.exception("%d delivery notes could not be stored", len(self._notes))

    async def flush(self) -> None:
        """Write all queued notes; keep them on failure. A retry does this first, to see all that is known."""
        if not self._notes:  # also of none that is being written
            return
        async with self._lock:
            notes = tuple(self._notes)
            if not notes:
                return
            try:
                lost = await self._store(notes)
            except StoreCorrupt:
                lost = await self._store_each(notes)
            del self._notes[: len(notes)]
        for conversation in lost:
            self._process.waiters.notify(conversation)

    async def _store(self, notes: Sequence[DeliveryNote]) -> list[ConversationId]:
        by_owner: dict[str, list[DeliveryNote]] = {}
        for each in notes:
            by_owner.setdefault(each.owner, []).append(each)
        # Need not survive power loss, which ends the client's connection, too.
        stored = await asyncio.gather(
            *(
                self._process.persist(record_deliveries, owned, owner, Sync.PROCESS)
                for owner, owned in by_owner.items()
            )
        )
        return [conversation for lost in stored for conversation in lost]

    async def _store_each(self, notes: Sequence[DeliveryNote]) -> list[ConversationId]:
        """Write the notes one by one; drop those whose rows are damaged, whose retries run their turn
        again."""
        lost: list[ConversationId] = []
        for each in notes:
            try:
                lost += await self._store((each,))
            except StoreCorrupt as damage:
                log.error("delivery_note_dropped", extra={"turn": each.sender, "details": str(damage)})
        return lost

    async def close(self) -> None:
        """Try once to write what is queued."""
        try:
            await self.flush()
        except StoreError as error:
            log.warning("%d delivery notes are lost: %s", len(self._notes), error.code)
        if self._writing is not None:
            await asyncio.wait((self._writing,))
