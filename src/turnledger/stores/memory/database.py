"""The dictionaries of a memory store, and the undo log that reverts changes in reverse order.

Several stores may share one `Database`, as several processes share a file; tests and the simulator do.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, MutableMapping
from contextvars import Context
from dataclasses import dataclass, field
from typing import TypeVar

from msgspec.structs import replace

from turnledger.engine.tables.maintenance import ClockMark
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.change import LiveChange
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    Lease,
    Origin,
    Ticket,
    Usage,
    link_of,
)
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, LeaseId, ShareId, TokenId, TurnId
from turnledger.model.job import TurnJob
from turnledger.model.turn import Attempt, AttemptState, Turn


@dataclass
class Database:
    """The rows, in dictionaries. `max_conversations` and `ttl_ms` bound what is kept."""

    max_conversations: int | None = None
    ttl_ms: int | None = None
    conversations: dict[ConversationId, Conversation] = field(default_factory=dict)
    by_key: dict[tuple[str, str, str], ConversationId] = field(default_factory=dict)
    ended: dict[ConversationId, None] = field(default_factory=dict)
    switches: dict[ConversationId, tuple[TurnId, ...]] = field(default_factory=dict)
    forgotten: dict[ConversationId, tuple[bytes, ...]] = field(default_factory=dict)
    branches: dict[BranchId, Branch] = field(default_factory=dict)
    origins: dict[BranchId, Origin] = field(default_factory=dict)
    turns: dict[TurnId, Turn] = field(default_factory=dict)
    turn_logs: dict[TurnId, bytes] = field(default_factory=dict)
    lines: dict[BranchId, dict[int, Turn]] = field(default_factory=dict)
    stored: dict[str, Usage] = field(default_factory=dict)
    cleared: dict[BranchId, None] = field(default_factory=dict)
    flags: dict[tuple[str, TurnId], Mapping[int, Flags]] = field(default_factory=dict)
    flag_versions: dict[str, int] = field(default_factory=dict)
    attempts: dict[TurnId, Attempt] = field(default_factory=dict)
    journals: dict[TurnId, dict[int, bytes]] = field(default_factory=dict)
    logs: dict[TurnId, dict[int, bytes]] = field(default_factory=dict)
    tickets: dict[TurnId, Ticket] = field(default_factory=dict)
    last_ticket: dict[BranchId, int] = field(default_factory=dict)
    jobs: dict[TurnId, TurnJob] = field(default_factory=dict)
    claims: dict[tuple[str, str], Claim] = field(default_factory=dict)
    tokens: dict[TokenId, Token] = field(default_factory=dict)
    by_digest: dict[bytes, TokenId] = field(default_factory=dict)
    shares: dict[ShareId, Share] = field(default_factory=dict)
    admissions: dict[str, int] = field(default_factory=dict)
    places: dict[TurnId | ConversationId, int] = field(default_factory=dict)
    last_place: int = field(default=0, compare=False)  # not a row: a rolled-back place is not reused
    changes: dict[int, LiveChange] = field(default_factory=dict)
    last_change: dict[None, int] = field(default_factory=dict)
    secret: bytes = field(default_factory=lambda: os.urandom(32), repr=False, compare=False)
    clock_mark: dict[None, ClockMark] = field(default_factory=dict)
    leases: dict[LeaseId, Lease] = field(default_factory=dict)
    buried: dict[LeaseId, Lease] = field(default_factory=dict)
    """Leases that were removed, and may come back."""
    watchers: list[tuple[object, Callable[[], None], Context]] = field(default_factory=list)


Name = TypeVar("Name")
Row = TypeVar("Row")


class UndoLog:
    """How to revert the changes of a transaction."""

    def __init__(self) -> None:
        self._undo: list[Callable[[], object]] = []
        self.add = self._undo.append

    @property
    def has_written(self) -> bool:
        return bool(self._undo)

    def undo(self) -> None:
        while self._undo:
            self._undo.pop()()


class MemoryRows:
    """Changes rows, and records how to revert it."""

    def __init__(self, database: Database, log: UndoLog) -> None:
        self._db = database
        self._log = log

    def _put(self, table: MutableMapping[Name, Row], name: Name, row: Row) -> None:
        if name in table:
            before = table[name]
            self._log.add(lambda: table.__setitem__(name, before))
        else:
            self._log.add(lambda: table.pop(name))
        table[name] = row

    def _remove(self, table: MutableMapping[Name, Row], name: Name) -> None:
        if name in table:
            before = table.pop(name)
            self._log.add(lambda: table.__setitem__(name, before))

    def _count(self, owner: str, more: int, chats: int = 0) -> None:
        """Add to what an owner stores, and all visitors of the same link."""
        if not more and not chats:
            return
        before = self._db.stored.get(owner, Usage(bytes=0))
        now = Usage(bytes=before.bytes + more, chats=before.chats + chats)
        self._put(self._db.stored, owner, now)
        link = link_of(owner)
        share = None if link is None else self._db.shares.get(link)
        if share is not None:
            counted = replace(share, bytes=share.bytes + more, chats=share.chats + chats)
            self._put(self._db.shares, share.id, counted)

    def _owner_of(self, id: ConversationId) -> str | None:
        found = self._db.conversations.get(id)
        return found.owner if found else None

    def _attempted_after(self, at: int, *, is_use: bool = False) -> set[ConversationId]:
        """Return those where an attempt, or with `is_use` one that counts as use, ended after that time."""
        ended = [each for each in self._db.attempts.values() if (each.ended_at or 0) > at]
        return {each.conversation for each in ended if each.is_interaction or not is_use}

    def _in_use(self) -> set[ConversationId]:
        """Return those where a turn waits, or runs on any branch."""
        waiting = {ticket.conversation for ticket in self._db.tickets.values()}
        running = [each for each in self._db.attempts.values() if each.state is AttemptState.RUNNING]
        return waiting | {each.conversation for each in running}
