"""The queue of a lane: the tickets before an attempt, without those of dead processes."""

from __future__ import annotations

from collections.abc import Mapping

from turnledger.engine.ports import Tables
from turnledger.engine.tables.lanes import LeaseRows
from turnledger.model.conversation import Branch, Ticket
from turnledger.model.ids import LeaseId, TurnId

Dead = Mapping[LeaseId, int | None]
"""Leases found dead, with their beat at that time: one that beats again is alive."""


async def is_dead(tables: LeaseRows, lease: LeaseId, dead: Dead) -> bool:
    """Return whether the lease still has the beat at which it was found dead."""
    return lease in dead and await beat_of(tables, lease) == dead[lease]


async def beat_of(tables: LeaseRows, lease: LeaseId) -> int | None:
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
        return before, None  # no ticket was ever issued here
    for ticket in await tables.tickets(branch.id):
        if ticket.attempt == attempt:
            return before, ticket
        if ticket.deadline <= now or await is_dead(tables, ticket.lease, dead):
            continue
        if ticket.front or not front:
            before.append(ticket)
    return before, None
