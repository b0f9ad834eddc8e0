"""The rows of a memory store in dictionaries, inside one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from turnledger.engine.ports import BURIED_KEPT, ClockMark
from turnledger.errors import StoreError
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
    Lease,
    NewBranch,
    Origin,
    Stretch,
    Ticket,
    Usage,
    branch_bytes,
    chat_count,
    details_bytes,
    link_of,
)
from turnledger.model.flags import Flags, FlagsByTurn
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt, AttemptState, Turn
from turnledger.stores.memory.access_rows import MemoryAccessRows
from turnledger.stores.memory.change_rows import MemoryChangeRows
from turnledger.stores.memory.database import Database
from turnledger.stores.memory.overview import MemoryOverview, made_from
from turnledger.stores.memory.search_rows import MemorySearchRows


def _place(conversation: Conversation) -> tuple[int, ConversationId]:
    return conversation.touched_at, conversation.id


def is_restorable(conversation: Conversation) -> bool:
    return conversation.state is ConversationState.DELETED


KEPT_TOMBSTONES = 10_000
"""Deleted or expired conversations kept as tombstones; older ones become unknown."""


class MemoryTables(
    MemoryAccessRows,
    MemorySearchRows,
    MemoryChangeRows,
    MemoryOverview,
):
    """The rows inside one transaction, with a log to roll it back."""

    def __init__(self, database: Database) -> None:
        super().__init__()
        self._db = database

    async def conversation(self, owner: str, id: ConversationId) -> Conversation | None:
        found = self._db.conversations.get(id)
        return found if found is not None and found.owner == owner else None

    async def conversation_by_key(self, owner: str, scope: str, conversation_key: str) -> Conversation | None:
        id = self._db.by_key.get((owner, scope, conversation_key))
        return None if id is None else self._db.conversations.get(id)

    async def add_conversation(self, conversation: Conversation) -> None:
        if conversation.id in self._db.conversations:
            raise StoreError(f"Conversation {conversation.id} already exists.")
        if conversation.expires_after is None:
            conversation = replace(conversation, expires_after=self._db.ttl_ms)
        self._put(self._db.conversations, conversation.id, conversation)
        self._count(conversation.owner, details_bytes(conversation), chat_count(conversation))
        self._give_place(conversation.id)
        if conversation.conversation_key is not None:
            self._take_key(conversation, conversation.conversation_key)
        await self._make_room(conversation)

    async def _make_room(self, newest: Conversation) -> None:
        """While there are more conversations than allowed, purge deleted ones, then expire others, longest
        idle first; record it in the feed."""
        limit = self._db.max_conversations
        excess = 0 if limit is None else len(self._db.conversations) - len(self._db.ended) - limit
        if excess <= 0:
            return
        idle = [
            each
            for each in self._db.conversations.values()
            if each.state is ConversationState.LIVE and each.id != newest.id and not self._is_in_use(each)
        ]
        deleted = [each for each in self._db.conversations.values() if is_restorable(each)]
        for each in (*sorted(deleted, key=_place), *sorted(idle, key=_place))[:excess]:
            state = ConversationState.PURGED if is_restorable(each) else ConversationState.EXPIRED
            self._end(replace(each, state=state, title=None, metadata={}, tags=(), purge_at=None))
            await self._record_removal(each, state.value, newest.created_at)

    async def save_conversation(self, conversation: Conversation) -> None:
        before = self._db.conversations.get(conversation.id, conversation)
        conversation = replace(conversation, owner=before.owner, scope=before.scope)
        if before.conversation_key is not None and conversation.conversation_key is None:
            self._remove(self._db.by_key, (before.owner, before.scope, before.conversation_key))
        if conversation.state is ConversationState.LIVE:
            self._replace(conversation)
            self._remove(self._db.ended, conversation.id)
            if conversation.conversation_key is not None:
                self._take_key(conversation, conversation.conversation_key)
        else:
            self._end(conversation)

    def _take_key(self, conversation: Conversation, conversation_key: str) -> None:
        name = (conversation.owner, conversation.scope, conversation_key)
        if self._db.by_key.get(name, conversation.id) != conversation.id:
            raise StoreError(f"The conversation_key {conversation_key!r} is taken.")
        self._put(self._db.by_key, name, conversation.id)

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        if id in self._db.conversations:
            found = self._db.conversations[id]
            self._put(self._db.conversations, id, replace(found, touched_at=max(found.touched_at, at)))

    def _end(self, conversation: Conversation) -> None:
        """Keep the row as a tombstone."""
        if conversation.is_deleted and conversation.conversation_key is not None:
            name = (conversation.owner, conversation.scope, conversation.conversation_key)
            self._remove(self._db.by_key, name)
            conversation = replace(conversation, conversation_key=None)
        self._replace(conversation)
        if is_restorable(conversation):
            self._remove(self._db.ended, conversation.id)
        else:
            self._put(self._db.ended, conversation.id, None)

    def _replace(self, conversation: Conversation) -> None:
        """Save a conversation, and count the difference in size."""
        before = self._db.conversations.get(conversation.id, conversation)
        self._put(self._db.conversations, conversation.id, conversation)
        more = details_bytes(conversation) - details_bytes(before)
        self._count(conversation.owner, more, chat_count(conversation) - chat_count(before))

    async def move_conversation(self, id: ConversationId, old: BranchId, new: BranchId) -> bool:
        found = self._db.conversations.get(id)
        if found is None or found.branch != old:
            return False
        self._put(self._db.conversations, id, replace(found, branch=new))
        return True

    async def switches(self, id: ConversationId) -> tuple[TurnId, ...]:
        return self._db.switches.get(id, ())

    async def save_switches(self, id: ConversationId, switches: Sequence[TurnId]) -> None:
        self._put(self._db.switches, id, tuple(switches))

    async def forgotten(self, id: ConversationId) -> tuple[bytes, ...]:
        return self._db.forgotten.get(id, ())

    async def save_forgotten(self, id: ConversationId, effects: Sequence[bytes]) -> None:
        self._put(self._db.forgotten, id, tuple(effects))

    async def lapsed_conversations(self, now: int, limit: int) -> list[Conversation]:
        lapsed = [
            each
            for each in self._db.conversations.values()
            if each.state is ConversationState.LIVE and each.is_expired(now) and not self._is_in_use(each)
        ]
        lapsed.sort(key=lambda each: (each.touched_at + (each.expires_after or 0), each.id))
        return lapsed[:limit]

    async def purge_ended(self, limit: int) -> int:
        removed = 0
        for id in list(self._db.ended):
            self._drop_previews(id)
            for branch in [each for each in self._db.branches.values() if each.conversation == id][::-1]:
                removed += self._purge_branch(branch, limit - removed)
            for attempt in [each for each in self._db.attempts.values() if each.conversation == id]:
                if attempt.state is not AttemptState.RUNNING and removed < limit:
                    self._remove_attempt(attempt)
                    removed += 1
        # A claim keeps the tombstone, which a retry of its request must find.
        claimed = {claim.conversation for claim in self._db.claims.values()}
        for id in list(self._db.ended)[:-KEPT_TOMBSTONES]:
            if id not in claimed:
                self._drop_tombstone(self._db.conversations[id])
        return removed

    def _drop_previews(self, conversation: ConversationId) -> None:
        for branch in [each for each in self._db.branches.values() if each.preview]:
            if branch.conversation == conversation:
                self._put(self._db.branches, branch.id, replace(branch, preview=""))

    def _purge_branch(self, branch: Branch, limit: int) -> int:
        """Remove the turns of a branch that no other one needs; once empty, the branch needs none itself."""
        made_from_it = made_from(self._db, branch.id)
        line = self._db.lines.get(branch.id, {})
        # Last first, so that a rollback restores the order.
        unneeded = [number for number in reversed(line) if number > max(made_from_it, default=0)][:limit]
        owner = self._db.conversations[branch.conversation].owner
        left = branch.bytes
        for number in unneeded:
            left -= len(line[number].body) + len(self._db.turn_logs.get(line[number].id, b""))
            self._remove(self._db.turn_logs, line[number].id)
            self._remove(self._db.turns, line[number].id)
            self._remove(self._db.places, line[number].id)
            self._remove(self._db.flags, (owner, line[number].id))
            self._remove(line, number)
        if unneeded:
            self._put(self._db.branches, branch.id, replace(branch, bytes=left))
            self._count(owner, branch_bytes(left) - branch_bytes(branch.bytes))
        is_done = not made_from_it and not line and branch.id not in self._db.cleared
        if not is_done or len(unneeded) == limit:
            return len(unneeded)
        self._put(self._db.cleared, branch.id, None)
        self._count(owner, -branch_bytes(left))
        if branch.id not in self._db.origins:
            return len(unneeded)
        self._remove(self._db.origins, branch.id)
        return len(unneeded) + 1

    def _drop_tombstone(self, conversation: Conversation) -> None:
        branches = [each.id for each in self._db.branches.values() if each.conversation == conversation.id]
        is_empty = not any(self._db.lines.get(branch) for branch in branches) and not any(
            attempt.conversation == conversation.id for attempt in self._db.attempts.values()
        )
        if not is_empty:
            return
        for branch in branches:
            self._remove(self._db.lines, branch)
            self._remove(self._db.last_ticket, branch)
            self._remove(self._db.cleared, branch)
            self._remove(self._db.branches, branch)
        self._remove(self._db.switches, conversation.id)
        self._remove(self._db.forgotten, conversation.id)
        self._remove(self._db.ended, conversation.id)
        self._remove(self._db.conversations, conversation.id)
        self._remove(self._db.places, conversation.id)
        if conversation.conversation_key is not None:
            name = (conversation.owner, conversation.scope, conversation.conversation_key)
            self._remove(self._db.by_key, name)

    async def branch(self, id: BranchId) -> Branch | None:
        found = self._db.branches.get(id)
        last_ticket = self._db.last_ticket.get(id, 0)
        return replace(found, last_ticket=last_ticket) if found and last_ticket else found

    async def add_branch(self, branch: Branch) -> None:
        self._put(self._db.branches, branch.id, branch)
        if branch.conversation in self._db.conversations:
            self._count(self._db.conversations[branch.conversation].owner, branch_bytes(branch.bytes))

    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        for each in made:
            await self.add_branch(each.branch)
            if each.origin is not None:
                await self.add_origin(each.origin)
            for turn, log in each.turns:
                await self.add_turn(turn, log)

    async def save_branch(self, branch: Branch) -> None:
        self._put(self._db.branches, branch.id, branch)

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        for branch in self._db.branches.values():
            if branch.conversation == conversation:
                return await self.branch(branch.id)
        return None

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        made = [each.id for each in self._db.branches.values() if each.conversation == conversation]
        made = made if before is None else made[: made.index(before)]
        found = [await self.branch(id) for id in made[: -limit - 1 : -1]]
        return [each for each in found if each is not None]

    async def add_origin(self, origin: Origin) -> None:
        self._put(self._db.origins, origin.branch, origin)

    async def origin(self, branch: BranchId) -> Origin | None:
        return self._db.origins.get(branch)

    async def origins(self, conversation: ConversationId, base: TurnId | None, limit: int) -> list[Origin]:
        made = [
            each
            for each in self._db.origins.values()
            if each.conversation == conversation and each.base == base
        ]
        return made[:limit]

    async def empty_branches_at(self, turn: Turn, limit: int) -> list[BranchId]:
        made = [each.branch for each in self._db.origins.values() if each.base == turn.id]
        return [each for each in made if self._db.branches[each].head == turn.id][:limit]

    async def lane(
        self, owner: str, id: ConversationId, lease: LeaseId
    ) -> tuple[Conversation, Branch, bool, int, int] | None:
        conversation = await self.conversation(owner, id)
        branch = await self.branch(conversation.branch) if conversation else None
        if conversation is None or branch is None:
            return None
        flagged, admission = self._db.flag_versions.get(owner, 0), self._db.admissions.get(owner, 0)
        return conversation, branch, lease in self._db.leases, flagged, admission

    async def turn(self, owner: str, id: TurnId) -> Turn | None:
        found = self._db.turns.get(id)
        if found is None:
            return None
        conversation = self._db.conversations[self._db.branches[found.branch].conversation]
        return found if conversation.owner == owner else None

    async def turns(self, branch: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        line = self._db.lines.get(branch, {})
        through = min(through, next(reversed(line), 0))
        numbers = range(max(after + 1, through - limit + 1), through + 1)
        return [line[number] for number in numbers if number in line]

    async def turns_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        found: list[Turn] = []
        for part in reversed(stretches):
            found += await self.turns(part.branch, part.after, part.through, part.through)
        return found

    async def effects_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        return [turn for turn in await self.turns_in(stretches) if turn.is_carried]

    async def add_turn(self, turn: Turn, log: bytes = b"") -> None:
        if turn.branch not in self._db.lines:
            self._put(self._db.lines, turn.branch, {})
        line = self._db.lines[turn.branch]
        if turn.number in line or turn.id in self._db.turns:
            raise StoreError(f"Turn {turn.id}, or turn number {turn.number}, already exists.")
        self._put(self._db.turns, turn.id, turn)
        self._put(line, turn.number, turn)
        self._give_place(turn.id)
        if log:
            self._put(self._db.turn_logs, turn.id, log)

    async def count_bytes(self, owner: str, more: int) -> None:
        self._count(owner, more)

    def _count(self, owner: str, more: int, chats: int = 0) -> None:
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

    async def usage(self, owner: str) -> Usage:
        return self._db.stored.get(owner, Usage(bytes=0))

    async def turn_log(self, id: TurnId) -> bytes:
        return self._db.turn_logs.get(id, b"")

    async def flags(self, owner: str, turns: Sequence[TurnId]) -> FlagsByTurn:
        return {turn: self._db.flags[owner, turn] for turn in turns if (owner, turn) in self._db.flags}

    async def flags_in(self, owner: str, stretches: Sequence[Stretch]) -> FlagsByTurn:
        by_branch = {each.branch: each for each in stretches}
        found: dict[TurnId, Mapping[int, Flags]] = {}
        for (of, id), flags in self._db.flags.items():
            turn = self._db.turns.get(id)
            part = by_branch.get(turn.branch) if turn is not None and of == owner else None
            if turn is not None and part is not None and part.after < turn.number <= part.through:
                found[id] = flags
        return found

    async def save_flags(self, owner: str, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        if flags:
            self._put(self._db.flags, (owner, turn), dict(flags))
        else:
            self._remove(self._db.flags, (owner, turn))
        self._put(self._db.flag_versions, owner, self._db.flag_versions.get(owner, 0) + 1)

    async def flag_version(self, owner: str) -> int:
        return self._db.flag_versions.get(owner, 0)

    async def attempt(self, owner: str, id: TurnId) -> Attempt | None:
        found = self._db.attempts.get(id)
        return found if found is not None and found.owner == owner else None

    async def attempts(self, conversation: ConversationId, limit: int) -> list[Attempt]:
        found = [each for each in self._db.attempts.values() if each.conversation == conversation]
        return sorted(found, key=lambda each: each.id, reverse=True)[:limit]

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]:
        return [
            each
            for each in self._db.attempts.values()
            if each.lease == lease and each.state is AttemptState.RUNNING
        ]

    async def add_attempt(self, attempt: Attempt) -> None:
        if attempt.id in self._db.attempts:
            raise StoreError(f"Attempt {attempt.id} already exists.")
        self._put(self._db.attempts, attempt.id, attempt)

    async def save_attempt(self, attempt: Attempt) -> None:
        self._put(self._db.attempts, attempt.id, attempt)

    async def drop_attempt(self, id: TurnId) -> None:
        self._remove(self._db.attempts, id)

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        old = [
            each
            for each in self._db.attempts.values()
            if each.ended_at is not None
            and each.ended_at < ended_before
            and self._db.branches[each.branch].unsettled != each.id
        ][:limit]
        for attempt in old:
            self._remove_attempt(attempt)
        return len(old)

    def _remove_attempt(self, attempt: Attempt) -> None:
        self._count(attempt.owner, -attempt.bytes)
        self._remove(self._db.journals, attempt.id)
        self._remove(self._db.logs, attempt.id)
        self._remove(self._db.attempts, attempt.id)

    async def journal(self, attempt: TurnId) -> list[bytes]:
        return [record for _, record in sorted(self._db.journals.get(attempt, {}).items())]

    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        self._append(self._db.journals, attempt, first, records)

    def _append(
        self, table: dict[TurnId, dict[int, bytes]], attempt: TurnId, first: int, records: Sequence[bytes]
    ) -> None:
        if attempt not in table:
            self._put(table, attempt, {})
        for number, record in enumerate(records, first):
            if number not in table[attempt]:
                self._put(table[attempt], number, record)

    async def drop_journal(self, attempt: TurnId) -> None:
        self._remove(self._db.journals, attempt)

    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        chunks = sorted(self._db.logs.get(attempt, {}).items())
        return [chunk for number, chunk in chunks if number >= first][:limit]

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        self._append(self._db.logs, attempt, number, [chunk])

    async def drop_log(self, attempt: TurnId) -> None:
        self._remove(self._db.logs, attempt)

    async def tickets(self, branch: BranchId) -> list[Ticket]:
        found = [each for each in self._db.tickets.values() if each.branch == branch]
        return sorted(found, key=lambda each: (not each.front, each.number))

    async def ticket(self, attempt: TurnId) -> Ticket | None:
        return self._db.tickets.get(attempt)

    async def tickets_of(self, lease: LeaseId) -> list[Ticket]:
        return [each for each in self._db.tickets.values() if each.lease == lease]

    async def add_ticket(self, ticket: Ticket) -> Ticket:
        numbered = replace(ticket, number=self._db.last_ticket.get(ticket.branch, 0) + 1)
        self._put(self._db.last_ticket, ticket.branch, numbered.number)
        self._put(self._db.tickets, ticket.attempt, numbered)
        return numbered

    async def move_tickets(self, old: BranchId, new: BranchId) -> None:
        moved = await self.tickets(old)
        last = self._db.last_ticket.get(new, 0)
        for ticket in moved:
            self._put(
                self._db.tickets, ticket.attempt, replace(ticket, branch=new, number=last + ticket.number)
            )
        if moved:
            self._put(self._db.last_ticket, new, last + self._db.last_ticket.get(old, 0))

    async def drop_ticket(self, attempt: TurnId) -> None:
        self._remove(self._db.tickets, attempt)

    async def claim(self, owner: str, idempotency_key: str) -> Claim | None:
        return self._db.claims.get((owner, idempotency_key))

    async def save_claim(self, claim: Claim) -> None:
        self._put(self._db.claims, (claim.owner, claim.idempotency_key), claim)

    async def drop_claim(self, owner: str, idempotency_key: str) -> None:
        self._remove(self._db.claims, (owner, idempotency_key))

    async def purge_claims(self, expired_before: int, limit: int) -> int:
        old = [
            name
            for name, claim in self._db.claims.items()
            if claim.expires_at is not None and claim.expires_at < expired_before
        ][:limit]
        for name in old:
            self._remove(self._db.claims, name)
        return len(old)

    async def lease(self, id: LeaseId) -> Lease | None:
        return self._db.leases.get(id)

    async def leases(self) -> list[Lease]:
        return list(self._db.leases.values())

    async def beat(self, id: LeaseId) -> None:
        last = self._db.leases.get(id) or self._db.buried.get(id)
        self._put(self._db.leases, id, Lease(id, last.beat + 1 if last else 1))
        self._remove(self._db.buried, id)

    async def drop_lease(self, id: LeaseId) -> None:
        self._remove(self._db.leases, id)
        self._remove(self._db.buried, id)

    async def bury_lease(self, id: LeaseId) -> None:
        lease = self._db.leases.get(id)
        if lease is not None:
            self._put(self._db.buried, id, lease)
            self._remove(self._db.leases, id)
        for first in list(self._db.buried)[:-BURIED_KEPT]:
            self._remove(self._db.buried, first)

    # Lists, exports and imports.

    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        found = [
            each
            for each in self._db.conversations.values()
            if chat_filter.matches(each) and each.branch in self._db.branches
        ]
        if after is not None:
            found = [each for each in found if _place(each) < (after.at, after.id)]
        found.sort(key=_place, reverse=True)
        return [self._entry_of(each) for each in found[:limit]]

    def _entry_of(self, conversation: Conversation) -> ChatEntry:
        branch = self._db.branches[conversation.branch]
        return ChatEntry(conversation, branch.length, branch.preview, branch.running is not None)

    async def least_recent_conversations(
        self, owner: str, scope: str | None, after: tuple[int, ConversationId] | None, limit: int
    ) -> list[Conversation]:
        found = sorted(
            (each.touched_at, each.id)
            for each in self._db.conversations.values()
            if each.owner == owner and each.state is ConversationState.LIVE
            if each.is_listed and not each.internal and scope in (None, each.scope)
        )
        return [self._db.conversations[id] for at, id in found if after is None or (at, id) > after][:limit]

    async def is_id_taken(self, id: ConversationId) -> bool:
        return id in self._db.conversations

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        db = self._db
        return {id for id in ids if id in db.turns or id in db.attempts or id in db.tickets}

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        return {id for id in ids if id in self._db.branches}

    # Conversations whose time is over.

    async def conversations_to_purge(self, now: int, limit: int) -> list[Conversation]:
        due = [(each.purge_at or 0, each.id, each) for each in self._in(ConversationState.DELETED)]
        return [each for purge_at, _, each in sorted(due) if purge_at <= now][:limit]

    async def unlisted_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        tried = self._attempted_after(touched_by)
        idle = [
            each
            for each in self._in(ConversationState.LIVE)
            if not each.is_listed and each.touched_at <= touched_by and not self._is_in_use(each)
            if self._db.branches[each.branch].unsettled is None and each.id not in tried
        ]
        return sorted(idle, key=_place)[:limit]

    async def owners(self, after: str | None, limit: int) -> list[str]:
        stored = [owner for owner, usage in self._db.stored.items() if usage.bytes > 0]
        return sorted(owner for owner in stored if after is None or owner > after)[:limit]

    async def oldest_conversations(self, owner: str, touched_by: int, limit: int) -> list[Conversation]:
        tried = self._attempted_after(touched_by, is_use=True)
        idle = [
            each
            for each in self._in(ConversationState.LIVE)
            if each.owner == owner and each.is_listed and not each.pinned
            if each.touched_at <= touched_by and not self._is_in_use(each) and each.id not in tried
        ]
        return sorted(idle, key=_place)[:limit]

    async def oldest_deleted(self, owner: str, limit: int) -> list[Conversation]:
        deleted = [each for each in self._in(ConversationState.DELETED) if each.owner == owner]
        return sorted(deleted, key=_place)[:limit]

    async def bytes_of(self, conversation: ConversationId) -> int:
        branches = [each for each in self._db.branches.values() if each.conversation == conversation]
        return sum(branch_bytes(each.bytes) for each in branches if each.id not in self._db.cleared)

    def _in(self, state: ConversationState) -> list[Conversation]:
        return [each for each in self._db.conversations.values() if each.state is state]

    def _attempted_after(self, at: int, *, is_use: bool = False) -> set[ConversationId]:
        """Return those where an attempt, or with `is_use` one that counts as use, ended after that time."""
        ended = [each for each in self._db.attempts.values() if (each.ended_at or 0) > at]
        return {each.conversation for each in ended if each.is_interaction or not is_use}

    def _is_in_use(self, conversation: Conversation) -> bool:
        branch = conversation.branch
        waits = any(ticket.branch == branch for ticket in self._db.tickets.values())
        return waits or self._db.branches[branch].running is not None

    async def clock_mark(self) -> ClockMark | None:
        return self._db.clock_mark.get(None)

    async def save_clock_mark(self, mark: ClockMark) -> None:
        self._put(self._db.clock_mark, None, mark)

    async def newest_time(self) -> int | None:
        last = self._db.last_change.get(None)
        times = [self._db.changes[last].at] if last is not None else []
        times += [turn.committed_at for turn in list(self._db.turns.values())[-1:]]
        return max(times, default=None)
