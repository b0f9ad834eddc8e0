"""Retries without a key: what a client's own retry finds of an earlier try whose answer it was not given.

A client that retries by itself says which try it is, and sends no idempotency_key. What it asks for stands
for one. The same words may also be a second message, so a later try takes up a claim only while it is certain
that its answer was not delivered. In doubt the turn runs again: a message that is asked twice shows in the
history, one that is swallowed shows nowhere. What became of an answer is noted soon after it was sent.
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

from turnledger.engine.attempt.end import CLAIM_KEPT_MS, DIED, STATE_OF, Ended, failure_of
from turnledger.engine.attempt.idempotency import NOTHING_CLAIMED, Fresh, SharedOutcome, Verdict
from turnledger.engine.conversations.resolve import Target
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import InvalidInput, LedgerClosed, StoreCorrupt, StoreError
from turnledger.model.conversation import Claim, Conversation, ConversationState, Within
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Attempt, AttemptState, Failure, Turn

if TYPE_CHECKING:
    from turnledger.engine.process import Process


LOST_KEPT_MS = 15 * 60 * 1000
"""How long a lost answer is there for a retry. A client may notice the loss later than the server, after its
own timeout (ten minutes in the official clients); after that, the same words are a new message."""
DERIVED = "\x01"
"""What the names of requests begin with, and no idempotency_key does."""
REQUEST_LENGTH = 64
MOST = 2**31


class Retry(Struct, frozen=True):
    """Which try of a request this is, by the count of a client that retries by itself and sends no
    idempotency_key. `request` is a digest of what all tries have in common: path, conversation, body.

    A try that is not the first attaches to an earlier one whose answer was lost, or is given its answer; see
    Ledger.delivered and Ledger.lost.
    """

    request: bytes
    count: int = 0
    """0 for the first try."""

    @property
    def name(self) -> str:
        """What it is claimed under."""
        return DERIVED + self.request.hex()


def check_retry(retry: object) -> Retry:
    """Refuse what says of no request which try it is."""
    if isinstance(retry, Retry) and 0 < len(retry.request) <= REQUEST_LENGTH and 0 <= retry.count < MOST:
        return retry
    raise InvalidInput(
        f"retry is {retry!r}; give Retry(request, count): a digest of 1 to {REQUEST_LENGTH} bytes, and a "
        f"number from 0, for the first try, to below {MOST}."
    )


def retry_within(retry: Retry, within: Within) -> Retry:
    """The try of who is narrowed: they find no request but their own."""
    label = within.label
    if label is None:
        return retry
    name = label.encode()
    return replace(retry, request=sha256(len(name).to_bytes(8) + name + retry.request).digest())


def claim_for(retry: Retry, attempt: Attempt) -> Claim:
    """The claim of a try that begins, in place of any earlier one. It needs no end of the turn to be
    forgotten in time: commit and end are spared the look at it."""
    return Claim(
        owner=attempt.owner,
        idempotency_key=retry.name,
        fingerprint=b"",
        conversation=attempt.conversation,
        attempt=attempt.id,
        expires_at=attempt.created_at + CLAIM_KEPT_MS,
        retries=retry.count,
        sender=attempt.id,
    )


async def look_up(tables: Tables, target: Target, retry: Retry, sender: TurnId, now: int) -> Verdict:
    """Decide what this try of a request does: take up an earlier one, whose answer is this one's then, or
    begin. Repeating it decides the same."""
    if retry.count == 0:
        return NOTHING_CLAIMED
    owner = target.owner
    claim = await tables.claim(owner, retry.name)
    if claim is None or not comes_later(claim, retry, sender):
        return NOTHING_CLAIMED
    conversation = await tables.conversation(owner, claim.conversation)
    if conversation is None or not is_meant(target, conversation):
        return NOTHING_CLAIMED
    turn = await tables.turn(owner, claim.attempt)
    ended: Ended | None = None
    if turn is not None:
        failure = await failure_of(tables, turn)
        if not was_kept_from_all(claim, failure, sender) or not await is_head(tables, conversation, turn):
            return NOTHING_CLAIMED
        if is_over(claim, now):
            return NOTHING_CLAIMED
        if has_died(failure) and claim.sender != sender and turn.committed_at + LOST_KEPT_MS <= now:
            return (
                NOTHING_CLAIMED  # its process died before it could note a loss, so its claim is kept longer
            )
        ended = Ended(STATE_OF[turn.kind], turn)
    else:
        attempt = await tables.attempt(owner, claim.attempt)
        if attempt is None or not is_undelivered(claim, attempt, sender):
            return NOTHING_CLAIMED
        if attempt.state is not AttemptState.RUNNING:
            return Fresh(claim, attempt)
    expires_at = now + CLAIM_KEPT_MS
    await tables.save_claim(
        replace(claim, retries=retry.count, is_lost=False, sender=sender, expires_at=expires_at)
    )
    return SharedOutcome(claim.attempt, ended, claim.conversation)


def is_over(claim: Claim, now: int) -> bool:
    """Whether the claim is kept no longer. It may still be there: nothing is purged while the clocks are in
    doubt, and nothing at all before the first round of a process."""
    return claim.expires_at is not None and claim.expires_at <= now


def comes_later(claim: Claim, retry: Retry, sender: TurnId) -> bool:
    """Whether what is claimed is an earlier try, or was taken up by this very one."""
    return claim.retries is not None and (claim.retries < retry.count or claim.sender == sender)


def is_meant(target: Target, conversation: Conversation) -> bool:
    """Whether the request means this conversation at this moment. After a deletion or a reset, the same words
    under the same conversation_key are for another one."""
    if conversation.state is not ConversationState.LIVE:
        return False
    if target.id is not None:
        return target.id == conversation.id
    is_named = target.conversation_key in (None, conversation.conversation_key)
    return is_named and target.scope == conversation.scope


def was_kept_from_all(claim: Claim, failure: Failure | None, sender: TurnId) -> bool:
    """Whether it is certain that a committed answer was not delivered: its client was seen to leave before
    the last byte, or its process died and others committed what was left. From the commit on until one of
    that is recorded, the last byte may have been sent."""
    if claim.is_lost or claim.sender == sender:
        return True
    return has_died(failure) and claim.sender == claim.attempt


async def is_head(tables: Tables, conversation: Conversation, turn: Turn) -> bool:
    """Whether the conversation still ends with this turn. Once others have built on it, the same words are
    more likely said again than a retry."""
    branch = await tables.branch(conversation.branch)
    return branch is not None and branch.head == turn.id


def is_undelivered(claim: Claim, attempt: Attempt, sender: TurnId) -> bool:
    """Whether an attempt that did not commit has left its client without an answer. While it runs with
    somebody there to hear it, the same words from elsewhere are another message."""
    is_waited_for = not claim.is_lost and claim.sender != sender
    if attempt.state is AttemptState.FAILED:
        return not is_waited_for or has_died(attempt.failure)
    return attempt.state is AttemptState.RUNNING and not is_waited_for


def has_died(failure: Failure | None) -> bool:
    return failure is not None and failure.code == DIED.code


log = logging.getLogger("turnledger")

MOST_NOTES = 10_000
"""Notes that wait while the store takes none. Without one, a later try of the request runs its turn again."""


@dataclass(frozen=True)
class Note:
    """What became of the answer to a request."""

    owner: str
    name: str
    sender: TurnId
    is_delivered: bool
    at: int


async def note(tables: Tables, notes: Sequence[Note]) -> list[ConversationId]:
    """Forget the requests whose answers were delivered, and mark those whose were lost; return where. A
    request that a later try has taken over has no say any more. Repeating it changes nothing."""
    lost: list[ConversationId] = []
    for each in notes:
        claim = await tables.claim(each.owner, each.name)
        if claim is None or claim.sender != each.sender:
            continue
        if each.is_delivered:
            await tables.drop_claim(each.owner, each.name)
        else:
            attempt = await tables.attempt(each.owner, claim.attempt)
            if attempt is None or attempt.state is not AttemptState.RUNNING:  # else its commit notes it again
                claim = replace(claim, expires_at=each.at + LOST_KEPT_MS)
            await tables.save_claim(replace(claim, is_lost=True))
            lost.append(claim.conversation)
    return lost


class Deliveries:
    """What a process has yet to note of its answers. Noted at once, but not waited for; what comes in the
    meantime is noted together."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._notes: list[Note] = []
        self._lock = asyncio.Lock()
        self._writing: asyncio.Task[None] | None = None

    def note(self, note: Note) -> None:
        """Have it written soon."""
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
            log.warning("what became of %d answers is noted later: %s", len(self._notes), error.code)
        except Exception:
            log.exception("what became of %d answers could not be noted", len(self._notes))

    async def flush(self) -> None:
        """Write what there is; what fails is kept. A retry must not go by less than its process knows."""
        async with self._lock:
            notes = tuple(self._notes)
            if not notes:
                return
            try:
                lost = await self._write_down(notes)
            except StoreCorrupt:
                lost = await self._write_readable(notes)
            del self._notes[: len(notes)]
        for conversation in lost:
            self._process.bells.ring(conversation)

    async def _write_down(self, notes: Sequence[Note]) -> list[ConversationId]:
        # Power loss may undo it: it takes the client's connection with it, too.
        return await self._process.persist(note, notes, Sync.PROCESS)

    async def _write_readable(self, notes: Sequence[Note]) -> list[ConversationId]:
        """Write each note alone, and drop those whose rows are damaged: a later try of such a request runs
        its turn again, and those of all others still find theirs."""
        lost: list[ConversationId] = []
        for each in notes:
            try:
                lost += await self._write_down((each,))
            except StoreCorrupt as damage:
                log.error("what became of the answer of %s cannot be noted: %s", each.sender, damage)
        return lost

    async def close(self) -> None:
        """Write what can be written, once."""
        try:
            await self.flush()
        except StoreError as error:
            log.warning("what became of %d answers is not noted: %s", len(self._notes), error.code)
        if self._writing is not None:
            await asyncio.wait((self._writing,))
