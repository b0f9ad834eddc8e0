"""All rows of a memory store, and whether its dictionaries agree. For checks only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TypeVar

from turnledger.engine.tables.inspection import Owned
from turnledger.model.conversation import (
    Claim,
    ConversationState,
    Ticket,
    Usage,
    branch_bytes,
    chat_count,
    details_bytes,
    link_of,
    set_aside_bytes,
)
from turnledger.model.ids import BranchId, ConversationId, ShareId, TokenId, TurnId
from turnledger.model.job import TurnJob
from turnledger.model.turn import AttemptState
from turnledger.stores.memory.database import Database, MemoryRows

Name = TypeVar("Name")

NONE = "the first turn"


class MemoryInspectionRows(MemoryRows):
    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[Owned[ConversationId]]:
        rows = self._db.conversations
        return [Owned(rows[id].owner, id) for id in _page(rows, after, limit)]

    async def all_branches(self, after: BranchId | None, limit: int) -> list[Owned[BranchId]]:
        rows = self._db.branches
        return [Owned(self._owner_of(rows[id].conversation), id) for id in _page(rows, after, limit)]

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[Owned[TurnId]]:
        return [Owned(self._db.attempts[id].owner, id) for id in _page(self._db.attempts, after, limit)]

    async def all_tickets(self, after: TurnId | None, limit: int) -> list[Owned[Ticket]]:
        rows = self._db.tickets
        return [Owned(self._owner_of(rows[id].conversation), rows[id]) for id in _page(rows, after, limit)]

    async def all_jobs(self, after: TurnId | None, limit: int) -> list[Owned[TurnJob]]:
        jobs = sorted(self._db.jobs.values(), key=lambda job: job.id)
        later = [job for job in jobs if after is None or job.id > after]
        return [Owned(self._owner_of(job.conversation), job) for job in later[:limit]]

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]:
        name = (after.owner, after.idempotency_key) if after else None
        return [self._db.claims[each] for each in _page(self._db.claims, name, limit)]

    async def all_tokens(self, after: TokenId | None, limit: int) -> list[Owned[TokenId]]:
        rows = self._db.tokens
        return [Owned(rows[id].owner, id) for id in sorted(rows) if after is None or id > after][:limit]

    async def needed_through(self, branch: BranchId) -> int:
        return max(made_from(self._db, branch), default=0)

    async def miscounts(self, limit: int) -> list[str]:
        return list(islice(_miscounts(self._db), limit))

    async def turns_without_checksum(self) -> int:
        return 0

    async def inconsistencies(self, limit: int) -> list[str]:
        return list(islice(_oddities(self._db), limit))


def made_from(db: Database, branch: BranchId) -> list[int]:
    """Return the numbers of the turns of this branch that others were made from."""
    return [
        origin.line[0].through
        for origin in db.origins.values()
        if origin.line and origin.line[0].branch == branch
    ]


def _page(rows: Mapping[Name, object], after: Name | None, limit: int) -> list[Name]:
    """Return the names after this one, in order of creation."""
    names = iter(rows)
    if after is not None:
        next((name for name in names if name == after), None)
    return list(islice(names, limit))


def _oddities(db: Database) -> Iterator[str]:
    for turn in db.turns.values():
        if turn.branch not in db.branches:
            yield f"{turn.id} is on a missing branch."
        elif turn.number <= db.branches[turn.branch].start:
            yield f"{turn.id} has a number before the start of its branch."
        if db.lines.get(turn.branch, {}).get(turn.number) is not turn:
            yield f"{turn.id} is not turn {turn.number} of its branch."
    for branch, line in db.lines.items():
        for number, turn in line.items():
            if db.turns.get(turn.id) is not turn:
                yield f"Turn {number} of {branch} is {turn.id}, which is missing."
    for origin in db.origins.values():
        if origin.branch not in db.branches:
            yield f"An origin at {origin.base or NONE} refers to a missing branch."
    for attempt in db.journals:
        if attempt not in db.attempts:
            yield f"A journal refers to missing attempt {attempt}."
    for attempt in db.logs:
        if attempt not in db.attempts:
            yield f"An event log refers to missing attempt {attempt}."
    for turn_id in db.turn_logs:
        if turn_id not in db.turns:
            yield f"An event log refers to missing turn {turn_id}."
    for _, turn_id in db.flags:
        if turn_id not in db.turns:
            yield f"Flags of {turn_id} match no stored turn."
    for (owner, scope, conversation_key), id in db.by_key.items():
        found = db.conversations.get(id)
        name = (found.owner, found.scope, found.conversation_key) if found is not None else None
        if name != (owner, scope, conversation_key):
            yield f"The conversation_key {conversation_key!r} of {owner!r} refers to {id}, which lacks it."
    for digest, token in db.by_digest.items():
        if token not in db.tokens or db.tokens[token].digest != digest:
            yield f"A token digest refers to {token}, which is missing or has another digest."
    for conversation in db.conversations.values():
        is_whole = conversation.state in (ConversationState.LIVE, ConversationState.DELETED)
        if is_whole is (conversation.id in db.ended):
            yield f"{conversation.id} is {conversation.state}, but the purge index differs; it is not purged."


def _miscounts(db: Database) -> Iterator[str]:
    size: Counter[str] = Counter()
    chats: Counter[str] = Counter()
    for branch in db.branches.values():
        turns = db.lines.get(branch.id, {}).values()
        if branch.bytes != sum(len(turn.body) + len(db.turn_logs.get(turn.id, b"")) for turn in turns):
            yield f"{branch.id} has a wrong byte count; the usage of its owner is wrong."
        found = db.conversations.get(branch.conversation)
        if found is not None and branch.id not in db.cleared:
            size[found.owner] += branch_bytes(branch.bytes)
    for conversation in db.conversations.values():
        size[conversation.owner] += details_bytes(conversation)
        chats[conversation.owner] += chat_count(conversation)
    for attempt in db.attempts.values():
        kept = list(db.journals.get(attempt.id, {}).values()), list(db.logs.get(attempt.id, {}).values())
        if attempt.bytes != (0 if attempt.state is AttemptState.RUNNING else set_aside_bytes(attempt, *kept)):
            yield f"{attempt.id} has a wrong byte count; the usage of its owner is wrong."
        size[attempt.owner] += attempt.bytes
    for job in db.jobs.values():
        size[job.owner] += job.bytes
    visitors: Counter[ShareId | None] = Counter()
    for owner in {**size, **db.stored}:
        counted, due = db.stored.get(owner, Usage(bytes=0)), Usage(bytes=size[owner], chats=chats[owner])
        visitors[link_of(owner)] += due.bytes
        if counted != due:
            kept_as = f"{counted.bytes} bytes in {counted.chats} chats"
            yield f"The usage of {owner!r} is recorded as {kept_as}, not {due.bytes} in {due.chats}."
    for share in db.shares.values():
        if share.bytes != visitors[share.id]:
            yield f"{share.id} has a wrong count of the bytes or chats of its visitors."
