"""The lane of a branch: one attempt at a time, and an orderly queue behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from turnledger.engine.ports import Tables
from turnledger.model.conversation import Branch, Ticket
from turnledger.model.ids import ConversationId, LeaseId, TurnId

Dead = Mapping[LeaseId, int | None]
"""Leases found dead, with the beat at which they were: one that beats again is alive."""


def holds_lane(branch: Branch | None, attempt: TurnId, fence: int) -> bool:
    """Whether this attempt may still write: the fence decides, not a clock."""
    return branch is not None and branch.running == attempt and branch.fence == fence


async def is_dead(tables: Tables, lease: LeaseId, dead: Dead) -> bool:
    """Whether the lease still shows the beat at which it was found dead."""
    return lease in dead and await beat_of(tables, lease) == dead[lease]


async def beat_of(tables: Tables, lease: LeaseId) -> int | None:
    """The beat of a lease; None if there is none."""
    found = await tables.lease(lease)
    return found.beat if found else None


async def queue_before(
    tables: Tables, branch: Branch, attempt: TurnId, *, front: bool, dead: Dead, now: int
) -> tuple[list[Ticket], Ticket | None]:
    """Return the live tickets that go before this attempt, and its own ticket if it has one.

    Skips tickets of dead processes and those past their wait's deadline. A front request passes all
    tickets but earlier front ones.
    """
    before: list[Ticket] = []
    if branch.last_ticket == 0:
        return before, None  # nobody ever had to wait here
    for ticket in await tables.tickets(branch.id):
        if ticket.attempt == attempt:
            return before, ticket
        if ticket.deadline <= now or await is_dead(tables, ticket.lease, dead):
            continue
        if ticket.front or not front:
            before.append(ticket)
    return before, None


class Waiter:
    """Somebody in this process who waits for a conversation. A bell that rang stays rung until it is heard,
    so that what happens between looking at the store and waiting is never missed."""

    def __init__(
        self,
        conversation: ConversationId,
        place: tuple[bool, int] | None,
        attempt: TurnId | None = None,
    ) -> None:
        self.conversation = conversation
        self.place = place
        self.attempt = attempt
        self._bell = asyncio.Event()

    def wake(self) -> None:
        self._bell.set()

    async def wait(self, timeout: float) -> None:
        """Wait for the bell, at most so many seconds."""
        try:
            async with asyncio.timeout(timeout):
                await self._bell.wait()
        except TimeoutError:
            return
        self._bell.clear()


class Bells:
    """Wakes what waits in this process: the first in each lane, and everyone who waits for an outcome.

    Waking is a hint. Who is woken looks at the store again; who is not, looks again after a while.
    """

    def __init__(self) -> None:
        self._waiters: dict[ConversationId, list[Waiter]] = {}
        self._queued: dict[TurnId, ConversationId] = {}

    @contextmanager
    def enlist(
        self,
        conversation: ConversationId,
        place: tuple[bool, int] | None = None,
        attempt: TurnId | None = None,
    ) -> Iterator[Waiter]:
        """Listen to a conversation: with a place in the lane of its branch, whichever that is, or for every
        outcome."""
        waiter = Waiter(conversation, place, attempt)
        self._waiters.setdefault(conversation, []).append(waiter)
        if attempt is not None:
            self._queued[attempt] = conversation
        try:
            yield waiter
        finally:
            if attempt is not None:
                self._queued.pop(attempt, None)
            self._waiters[conversation].remove(waiter)
            if not self._waiters[conversation]:
                del self._waiters[conversation]

    def ring(self, conversation: ConversationId) -> None:
        """Something ended on this conversation, or somebody left its queue."""
        first: Waiter | None = None
        for waiter in self._waiters.get(conversation, ()):
            if waiter.place is None:
                waiter.wake()
            elif first is None or first.place is None or waiter.place < first.place:
                first = waiter
        if first is not None:
            first.wake()

    def ring_all(self) -> None:
        """Another process may have changed anything."""
        for conversation in list(self._waiters):
            self.ring(conversation)

    def queued(self) -> list[TurnId]:
        """The attempts that wait in a lane."""
        return list(self._queued)

    def lane_of(self, attempt: TurnId) -> ConversationId | None:
        """The conversation in whose lane an attempt waits; None if it does not."""
        return self._queued.get(attempt)

    def wake(self, attempt: TurnId | None) -> None:
        """The place of this one is gone, whoever is before it: somebody stopped it."""
        for waiter in self._all():
            if attempt is not None and waiter.attempt == attempt:
                waiter.wake()

    def _all(self) -> Iterator[Waiter]:
        for waiters in list(self._waiters.values()):
            yield from waiters

    def wake_everyone(self) -> None:
        """Nobody need wait any longer."""
        for waiter in self._all():
            waiter.wake()
