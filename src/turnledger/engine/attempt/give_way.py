"""Turns that nobody reads: they go on, and give way once another request waits for their lane.

The process that runs such a turn decides, in one transaction. It knows whether the client and readers here
have left. Readers in other processes, and retries that are about to attach, count up in the attempt's row
while they read: clocks may differ, so the holder watches for how long that number stays the same, as it does
with the beats of a lease.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnledger.engine.attempt.dead_process import AttemptRef
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import StoreError
from turnledger.model.conversation import Ticket
from turnledger.model.ids import TurnId
from turnledger.model.turn import Attempt, AttemptState, OnStop

if TYPE_CHECKING:
    from turnledger.engine.process import Process


async def note_read(tables: Tables, id: TurnId) -> None:
    """Count that somebody reads a running attempt, if it would give way otherwise."""
    attempt = await tables.attempt(id)
    if attempt is None or attempt.reads is None or attempt.state is not AttemptState.RUNNING:
        return
    if attempt.stop is None:
        await tables.save_attempt(replace(attempt, reads=attempt.reads + 1))


class ReaderSign:
    """The sign of one reader that it follows a turn, repeated while it does."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._again_at = 0.0

    async def give(self, ref: AttemptRef) -> None:
        """Call this at each look at a turn that may run elsewhere. A store that cannot write stops no
        reader."""
        process = self._process
        now = process.clock.monotonic()
        if ref.reads is None or now < self._again_at:
            return
        self._again_at = now + process.limits.lease_time / 8
        try:
            await process.store.transact(note_read, ref.attempt, ref.owner, Sync.PROCESS)
        except StoreError as error:
            process.outage.note(error, "reader_not_counted", turn=ref.attempt)


@dataclass(frozen=True)
class GiveWayRequest:
    """`reads`: the number that has stayed the same for long; None: only look."""

    attempt: TurnId
    fence: int
    reads: int | None = None


async def find_wanted(tables: Tables, request: GiveWayRequest) -> int | None:
    """Return how often an attempt was said to be read, if it may give way and others wait for its lane."""
    attempt = await _wanted(tables, request)
    return attempt.reads if attempt is not None else None


async def give_way(tables: Tables, request: GiveWayRequest) -> bool:
    """Stop the holder's attempt, and keep it, if others wait and nobody has read it since. Return whether it
    is stopped. Repeatable."""
    attempt = await _wanted(tables, request)
    if attempt is None or (attempt.stop is None and attempt.reads != request.reads):
        return False
    if attempt.stop is None:
        await tables.save_attempt(replace(attempt, stop=OnStop.KEEP))
    return True


async def _wanted(tables: Tables, request: GiveWayRequest) -> Attempt | None:
    attempt = await tables.attempt(request.attempt)
    if attempt is None or attempt.reads is None or attempt.state is not AttemptState.RUNNING:
        return None
    branch = await tables.branch(attempt.branch)
    if branch is None or branch.running != attempt.id or branch.fence != request.fence:
        return None
    waiting = await tables.tickets(branch.id)
    is_retried = [await _is_retry(tables, ticket, attempt) for ticket in waiting]
    return attempt if waiting and not any(is_retried) else None


async def _is_retry(tables: Tables, ticket: Ticket, attempt: Attempt) -> bool:
    """Return whether the attempt will answer a waiting request."""
    if ticket.idempotency_key is not None:
        return ticket.idempotency_key == attempt.idempotency_key
    claim = await tables.claim(ticket.fingerprint.decode()) if ticket.fingerprint else None
    return claim is not None and claim.attempt == attempt.id


class ReadWatch:
    """For how long the turns of this process have had no sign of a reader elsewhere."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._seen: dict[TurnId, tuple[int, float]] = {}

    def is_unread(self, turn: TurnId, reads: int) -> bool:
        """Note the number; return whether it has not changed for long. Nobody ever read at 0."""
        now = self._process.clock.monotonic()
        if turn not in self._seen or self._seen[turn][0] != reads:
            self._seen = {each: self._seen[each] for each in self._seen if each in self._process.running}
            self._seen[turn] = reads, now
        return reads == 0 or now - self._seen[turn][1] >= self._process.limits.lease_time / 2
