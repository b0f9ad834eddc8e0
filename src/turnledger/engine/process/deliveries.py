"""What became of the answers to requests without an idempotency_key, noted soon. See client_retries."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from turnledger.engine.attempt.client_retries import LOST_KEPT_MS
from turnledger.engine.ports import Sync, Tables
from turnledger.errors import LedgerClosed, StoreCorrupt, StoreError
from turnledger.model.attempt import AttemptState
from turnledger.model.ids import ConversationId, TurnId

if TYPE_CHECKING:
    from turnledger.engine.process.process import Process

log = logging.getLogger("turnledger")

MOST = 10_000
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
        if len(self._notes) < MOST:
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
