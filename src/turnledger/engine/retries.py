"""Retries without a key: what a client's own retry finds of an earlier try whose answer it was not given.

A client that retries by itself says which try it is, and sends no idempotency_key. What it asks for stands
for one: while the answer may still be undelivered, its claim is there, and a later try takes it up. Once it
is delivered, the claim goes, since the same words may come again and mean a second message.
"""

from __future__ import annotations

from hashlib import sha256

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.conversations import Target
from turnledger.engine.ending import CLAIM_KEPT_MS, DIED, STATE_OF, Ended
from turnledger.engine.idempotency import NOTHING_CLAIMED, Fresh, Share, Verdict, live_conversation_of
from turnledger.engine.ports import Tables
from turnledger.errors import InvalidInput
from turnledger.model.attempt import Attempt, AttemptState
from turnledger.model.conversation import Claim
from turnledger.model.ids import TurnId
from turnledger.model.within import Within

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


async def look_up(tables: Tables, target: Target, retry: Retry, sender: TurnId) -> Verdict:
    """Decide what this try of a request does: take up an earlier one, whose answer is this one's then, or
    begin. Repeating it decides the same. Raises ConversationDeleted or ConversationExpired."""
    if retry.count == 0:
        return NOTHING_CLAIMED
    owner = target.owner
    claim = await tables.claim(owner, retry.name)
    if claim is None or not comes_later(claim, retry, sender):
        return NOTHING_CLAIMED
    if not target.may_mean(await live_conversation_of(tables, claim)):
        return NOTHING_CLAIMED
    turn = await tables.turn(owner, claim.attempt)
    attempt = await tables.attempt(owner, claim.attempt) if turn is None else None
    if turn is None and (attempt is None or not is_undelivered(claim, attempt, sender)):
        return NOTHING_CLAIMED
    if attempt is not None and attempt.state is not AttemptState.RUNNING:
        return Fresh(claim, attempt)
    await tables.save_claim(replace(claim, retries=retry.count, is_lost=False, sender=sender))
    ended = Ended(STATE_OF[turn.kind], turn) if turn is not None else None
    return Share(claim.attempt, ended, claim.conversation)


def comes_later(claim: Claim, retry: Retry, sender: TurnId) -> bool:
    """Whether what is claimed is an earlier try, or was taken up by this very one."""
    return claim.retries is not None and (claim.retries < retry.count or claim.sender == sender)


def is_undelivered(claim: Claim, attempt: Attempt, sender: TurnId) -> bool:
    """Whether an attempt that did not commit has left its client without an answer. While it runs with
    somebody there to hear it, the same words from elsewhere are another message."""
    is_waited_for = not claim.is_lost and claim.sender != sender
    if attempt.state is AttemptState.FAILED:
        return not is_waited_for or (attempt.failure is not None and attempt.failure.code == DIED.code)
    return attempt.state is AttemptState.RUNNING and not is_waited_for
