"""Clocks and use: which clock ends conversations, and what counts as use."""

from __future__ import annotations

from typing import Any

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.attempt import end
from turnledger.engine.clock import TrustedClock
from turnledger.engine.conversations import resolve
from turnledger.model.conversation import Conversation, ConversationState
from turnledger.stores.memory.database import MemoryRows
from turnledger.stores.memory.tables import MemoryTables

TWO_LOOKS = (TrustedClock, "times", lambda clock: (clock.now_ms(), clock.due_ms()))
"""Makes both times follow a patch of one."""


@broken
def expires_by_the_wall_clock() -> list[Patch]:
    return [(TrustedClock, "due_ms", lambda clock: clock._clock.now_ms()), TWO_LOOKS]


@broken
def records_the_untrusted_wall_clock() -> list[Patch]:
    return [(TrustedClock, "now_ms", lambda clock: clock._clock.now_ms()), TWO_LOOKS]


@broken
def trusts_a_clock_as_soon_as_it_stands_still() -> list[Patch]:
    true = TrustedClock.__init__

    def init(clock: Any, wall: Any, tolerance: float, agreement: float, **rest: Any) -> None:
        true(clock, wall, tolerance, 0.0, **rest)

    return [(TrustedClock, "__init__", init)]


@broken
def trusts_the_clock_that_it_starts_with() -> list[Patch]:
    return [(TrustedClock, "compare", lambda clock, mark, newest: None)]


@broken
def trusts_times_written_in_doubt() -> list[Patch]:
    true = TrustedClock.compare

    def compare(clock: Any, mark: Any, newest: int | None) -> None:
        true(clock, mark, newest)
        if not clock._is_trusted and newest is not None:
            clock._due = min(clock._clock.now_ms(), newest)

    return [(TrustedClock, "compare", compare)]


@broken
def counts_only_commits_as_use() -> list[Patch]:
    async def touch(*_: Any) -> None: ...

    return [(end, "_touch", touch)]


@broken
def lets_a_conversation_lapse_while_a_turn_runs() -> list[Patch]:
    """That one that waits is use, too, is a rule of the store contract: schedules rarely show it."""

    async def is_in_use(tables: Any, found: Any) -> bool:
        return bool(await tables.tickets(found.branch))

    def waiting(rows: Any) -> Any:
        return {ticket.conversation for ticket in rows._db.tickets.values()}

    return [(resolve, "is_in_use", is_in_use), (MemoryRows, "_in_use", waiting)]


@broken
def creates_conversations_without_ttl() -> list[Patch]:
    true = MemoryTables.add_conversation

    async def add_conversation(tables: Any, conversation: Any) -> None:
        ttl_ms, tables._db.ttl_ms = tables._db.ttl_ms, None
        try:
            await true(tables, conversation)
        finally:
            tables._db.ttl_ms = ttl_ms

    return [(MemoryTables, "add_conversation", add_conversation)]


@broken
def counts_the_ttl_from_the_creation() -> list[Patch]:
    def is_expired(conversation: Any, now: int) -> bool:
        period = conversation.expires_after
        return period is not None and conversation.created_at + period <= now

    return [(Conversation, "is_expired", is_expired)]


@broken
def serves_a_conversation_after_its_ttl() -> list[Patch]:
    async def has_expired(tables: Any, found: Any, now: int) -> bool:
        return found.state is ConversationState.EXPIRED

    return [(resolve, "has_expired", has_expired)]
