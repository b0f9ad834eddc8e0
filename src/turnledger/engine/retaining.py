"""Retaining, one process's part: a round over all owners, and the time for the next."""

from __future__ import annotations

import logging

from turnledger.engine.ports import Tables
from turnledger.engine.process import Process
from turnledger.engine.removing import purge_time
from turnledger.engine.retention import Bounds, RetireRequest, Shed, beyond, retire_old, retired, shed
from turnledger.model.conversation import Conversation
from turnledger.model.retention import Reason, Retained, Retired

log = logging.getLogger("turnledger")

OWNERS = 200
"""Owners looked at in one go."""


class Retaining:
    """Keeps what Limits.retain_for and Limits.retain_bytes say, and no more."""

    def __init__(self, process: Process) -> None:
        self._process = process
        self._next = 0.0

    async def retain_if_due(self) -> None:
        """Do a round if the last is long enough ago."""
        now = self._process.clock.monotonic()
        if now >= self._next:
            self._next = now + self._process.limits.retain_every
            await self.retain()

    async def retain(self) -> Retained:
        """Do a round, in small transactions, and report what was removed. What fails leaves the rest to the
        next round."""
        process, limits = self._process, self._process.limits
        age_ms = None if limits.retain_for is None else round(limits.retain_for * 1000)
        bounds = Bounds(process.clock.now_ms(), process.clock.due_ms(), age_ms, limits.retain_bytes)
        if bounds.age_ms is None and bounds.bytes is None:
            return Retained()
        gone: list[Retired] = []
        full: list[str] = []
        after: str | None = None
        while owners := await process.store.read(_owners, after):
            for owner in await process.store.read(beyond, (owners, bounds)):
                request = RetireRequest(
                    owner, bounds, purge_time(process, bounds.now), process.limits.purge_rows
                )
                gone += await self._retire_old(request)
                gone += await self._shed(request)
                if bounds.bytes is not None and await process.store.read(_stored, owner) > bounds.bytes:
                    full.append(owner)
            after = owners[-1]
        return Retained(retired=tuple(gone), full=tuple(full))

    async def _retire_old(self, request: RetireRequest) -> list[Retired]:
        gone: list[Retired] = []
        while True:
            batch = await self._process.store.transact(retire_old, request)
            gone += [self._told(each, Reason.AGE) for each in batch]
            if len(batch) < request.limit:
                return gone

    async def _shed(self, request: RetireRequest) -> list[Retired]:
        gone: list[Retired] = []
        step = Shed([], is_done=request.bounds.bytes is None)
        while not step.is_done:
            step = await self._process.store.transact(shed, request)
            gone += [self._told(each, Reason.SIZE) for each in step.purged]
        return gone

    def _told(self, conversation: Conversation, reason: Reason) -> Retired:
        self._process.forget_deleted(conversation)
        what = "deleted" if reason is Reason.AGE else "purged"
        log.info("retention: %s was %s by %s", conversation.id, what, reason)
        return retired(conversation, reason)


async def _owners(tables: Tables, after: str | None) -> list[str]:
    return await tables.owners(after, OWNERS)


async def _stored(tables: Tables, owner: str) -> int:
    return (await tables.stored(owner)).bytes
