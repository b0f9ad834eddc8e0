"""The rows of a memory store in dictionaries, inside one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

from msgspec.structs import replace

from turnledger.engine.tables.lanes import Lane
from turnledger.errors import StoreError
from turnledger.model.access.share import Share
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition, entry_of
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
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
from turnledger.model.job import TurnJob
from turnledger.model.turn import Attempt, AttemptState, Turn
from turnledger.stores.memory.database import Database, UndoLog
from turnledger.stores.memory.inspection_rows import made_from
from turnledger.stores.memory.search_rows import MemorySearchRows
from turnledger.stores.memory.shared_rows import MemorySharedRows, position_at


def _place(conversation: Conversation) -> tuple[int, ConversationId]:
    return conversation.touched_at, conversation.id


SAVED_OF_AN_ATTEMPT = (
    "state",
    "stop",
    "failure",
    "partial",
    "journaled",
    "fence",
    "lease",
    "reads",
    "ended_at",
    "bytes",
)


def is_restorable(conversation: Conversation) -> bool:
    return conversation.state is ConversationState.DELETED


class MemoryTables(MemorySearchRows, MemorySharedRows):
    """The rows of an owner inside one transaction, with a log to roll it back."""

    def __init__(self, database: Database, log: UndoLog, owner: str) -> None:
        super().__init__(database, log)
        self.owner = owner

    def _owns(self, id: ConversationId) -> bool:
        found = self._db.conversations.get(id)
        return found is not None and found.owner == self.owner

    def _is_foreign(self, id: ConversationId) -> bool:
        return self._owner_of(id) not in (None, self.owner)

    def _has_branch(self, id: BranchId) -> bool:
        found = self._db.branches.get(id)
        return found is not None and self._owns(found.conversation)

    def _check_branch(self, id: BranchId) -> None:
        if not self._has_branch(id):
            raise StoreError(f"There is no {id}.")

    def _has_attempt(self, id: TurnId) -> bool:
        """Return whether an attempt is of this owner, or not inserted yet."""
        found = self._db.attempts.get(id)
        return found is None or found.owner == self.owner

    def _check_attempt(self, id: TurnId) -> None:
        if not self._has_attempt(id):
            raise StoreError(f"There is no {id}.")

    async def conversation(self, id: ConversationId) -> Conversation | None:
        return self._db.conversations[id] if self._owns(id) else None

    async def conversation_by_key(self, scope: str, conversation_key: str) -> Conversation | None:
        id = self._db.by_key.get((self.owner, scope, conversation_key))
        return None if id is None else self._db.conversations.get(id)

    async def add_conversation(self, conversation: Conversation) -> None:
        if conversation.id in self._db.conversations or conversation.owner != self.owner:
            raise StoreError(f"{conversation.id} already exists, or is of another owner.")
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
        in_use = self._in_use()
        idle = [
            each
            for each in self._db.conversations.values()
            if each.state is ConversationState.LIVE and each.id != newest.id and each.id not in in_use
        ]
        deleted = [each for each in self._db.conversations.values() if is_restorable(each)]
        for each in (*sorted(deleted, key=_place), *sorted(idle, key=_place))[:excess]:
            state = ConversationState.PURGED if is_restorable(each) else ConversationState.EXPIRED
            self._end(replace(each, state=state, title=None, metadata={}, tags=(), purge_at=None))
            if each.is_listed and not each.internal:
                removal = LiveChange(
                    kind=ChangeKind.CHAT_DELETED,
                    owner=each.owner,
                    conversation=each.id,
                    scope=each.scope,
                    detail=state.value,
                    at=newest.created_at,
                )
                self._add_change(removal)

    async def save_conversation(self, conversation: Conversation) -> None:
        if not self._owns(conversation.id):
            raise StoreError(f"There is no {conversation.id}.")
        before = self._db.conversations[conversation.id]
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
        if self._owns(id):
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
        found = await self.conversation(id)
        self._check_branch(new)
        if found is None or found.branch != old:
            return False
        self._put(self._db.conversations, id, replace(found, branch=new))
        return True

    async def switches(self, id: ConversationId) -> tuple[TurnId, ...]:
        return self._db.switches.get(id, ()) if self._owns(id) else ()

    async def save_switches(self, id: ConversationId, switches: Sequence[TurnId]) -> None:
        if self._owns(id):
            self._put(self._db.switches, id, tuple(switches))

    async def forgotten(self, id: ConversationId) -> tuple[bytes, ...]:
        return self._db.forgotten.get(id, ()) if self._owns(id) else ()

    async def save_forgotten(self, id: ConversationId, effects: Sequence[bytes]) -> None:
        if self._owns(id):
            self._put(self._db.forgotten, id, tuple(effects))

    async def purge_ended(self, limit: int) -> int:
        removed = 0
        for id in [each for each in self._db.ended if self._owns(each)]:
            removed += self.purge_conversation(id, limit - removed)
        return removed

    def purge_conversation(self, id: ConversationId, limit: int) -> int:
        """Remove up to `limit` rows of an ended conversation; return how many."""
        removed = 0
        self._drop_previews(id)
        for branch in [each for each in self._db.branches.values() if each.conversation == id][::-1]:
            removed += self._purge_branch(branch, limit - removed)
        for attempt in [each for each in self._db.attempts.values() if each.conversation == id]:
            if attempt.state is not AttemptState.RUNNING and removed < limit:
                self.remove_attempt(attempt)
                removed += 1
        return removed

    def _drop_previews(self, conversation: ConversationId) -> None:
        for branch in [each for each in self._db.branches.values() if each.preview]:
            if branch.conversation == conversation:
                self._put(self._db.branches, branch.id, replace(branch, preview=""))

    def _purge_branch(self, branch: Branch, limit: int) -> int:
        """Remove the turns of a branch that no other one needs; once empty, the branch needs none itself."""
        made_from_it = made_from(self._db, branch.id)
        line = self._db.lines.get(branch.id, {})
        unneeded = [number for number in reversed(line) if number > max(made_from_it, default=0)][:limit]
        left = branch.bytes - self._remove_turns(line, unneeded)
        if unneeded:
            self._put(self._db.branches, branch.id, replace(branch, bytes=left))
            self._count(self.owner, branch_bytes(left) - branch_bytes(branch.bytes))
        is_done = not made_from_it and not line and branch.id not in self._db.cleared
        if not is_done or len(unneeded) == limit:
            return len(unneeded)
        self._put(self._db.cleared, branch.id, None)
        self._count(self.owner, -branch_bytes(left))
        if branch.id not in self._db.origins:
            return len(unneeded)
        self._remove(self._db.origins, branch.id)
        return len(unneeded) + 1

    async def branch(self, id: BranchId) -> Branch | None:
        found = self._db.branches[id] if self._has_branch(id) else None
        last_ticket = self._db.last_ticket.get(id, 0)
        return replace(found, last_ticket=last_ticket) if found and last_ticket else found

    async def add_branch(self, branch: Branch) -> None:
        if branch.id in self._db.branches or not self._owns(branch.conversation):
            raise StoreError(f"{branch.id} already exists, or is of another owner.")
        self._put(self._db.branches, branch.id, branch)
        self._count(self.owner, branch_bytes(branch.bytes))

    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        for each in made:
            await self.add_branch(each.branch)
            if each.origin is not None:
                await self.add_origin(each.origin)
            for turn, log in each.turns:
                await self.add_turn(turn, log)

    async def save_branch(self, branch: Branch) -> None:
        self._check_branch(branch.id)
        before = self._db.branches[branch.id]
        saved = replace(branch, conversation=before.conversation, start=before.start)
        self._put(self._db.branches, branch.id, saved)

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        made = [each.id for each in self._db.branches.values() if each.conversation == conversation]
        return await self.branch(made[0]) if made else None

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        if before is not None and not self._has_branch(before):
            return []
        earlier = takewhile(lambda id: id != before, self._db.branches)
        made = [id for id in earlier if self._db.branches[id].conversation == conversation]
        found = [await self.branch(id) for id in made[: -limit - 1 : -1]]
        return [each for each in found if each is not None]

    async def add_origin(self, origin: Origin) -> None:
        for branch in (origin.branch, *(each.branch for each in origin.line)):
            self._check_branch(branch)
        if self._is_foreign(origin.conversation):
            raise StoreError(f"There is no {origin.conversation}.")
        self._put(self._db.origins, origin.branch, origin)

    async def origin(self, branch: BranchId) -> Origin | None:
        return self._db.origins.get(branch) if self._has_branch(branch) else None

    async def origins(self, conversation: ConversationId, base: TurnId | None, limit: int) -> list[Origin]:
        made = [
            each
            for each in self._db.origins.values()
            if each.conversation == conversation and each.base == base
            if not self._db.branches[each.branch].is_side
        ]
        return made[:limit] if self._owns(conversation) else []

    async def has_offshoots(self, branch: BranchId) -> bool:
        return self._has_branch(branch) and bool(made_from(self._db, branch))

    async def drop_turns(self, branch: BranchId, after: int) -> int:
        line = self._db.lines.get(branch, {}) if self._has_branch(branch) else {}
        return self._remove_turns(line, [number for number in reversed(line) if number > after])

    def _remove_turns(self, line: dict[int, Turn], numbers: Sequence[int]) -> int:
        """Remove turns, last first, so that a rollback restores the order; return their bytes."""
        size = 0
        for number in numbers:
            size += len(line[number].body) + len(self._db.turn_logs.get(line[number].id, b""))
            self._remove(self._db.turn_logs, line[number].id)
            self._remove(self._db.turns, line[number].id)
            self._remove(self._db.places, line[number].id)
            self._remove(self._db.flags, (self.owner, line[number].id))
            self._remove(line, number)
        return size

    async def drop_branch(self, id: BranchId) -> None:
        if not self._has_branch(id):
            return
        for attempt in [each for each in self._db.attempts.values() if each.branch == id]:
            self.remove_attempt(attempt)
        self._count(self.owner, -branch_bytes(self._db.branches[id].bytes))
        self._remove(self._db.lines, id)
        self._remove(self._db.last_ticket, id)
        self._remove(self._db.origins, id)
        self._remove(self._db.branches, id)

    async def empty_branches_at(self, turn: Turn, limit: int) -> list[BranchId]:
        made = [each.branch for each in self._db.origins.values() if each.base == turn.id]
        empty = [each for each in made if self._db.branches[each].head == turn.id]
        return [each for each in empty if self._has_branch(each)][:limit]

    async def lane(self, id: ConversationId, lease: LeaseId) -> Lane | None:
        conversation = await self.conversation(id)
        branch = await self.branch(conversation.branch) if conversation else None
        if conversation is None or branch is None:
            return None
        flag_version, admission = await self.flag_version(), await self.admission()
        return Lane(conversation, branch, lease in self._db.leases, flag_version, admission)

    async def admission(self) -> int:
        return self._db.admissions.get(self.owner, 0)

    async def turn(self, id: TurnId) -> Turn | None:
        found = self._db.turns.get(id)
        return found if found is not None and self._has_branch(found.branch) else None

    async def turns(self, branch: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        line = self._db.lines.get(branch, {}) if self._has_branch(branch) else {}
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
        self._check_branch(turn.branch)
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

    async def count_bytes(self, more: int) -> None:
        self._count(self.owner, more)

    async def usage(self) -> Usage:
        return self._db.stored.get(self.owner, Usage(bytes=0))

    async def link(self) -> Share | None:
        link = link_of(self.owner)
        return None if link is None else self._db.shares.get(link)

    async def turn_log(self, id: TurnId) -> bytes:
        return self._db.turn_logs.get(id, b"") if await self.turn(id) else b""

    async def flags(self, turns: Sequence[TurnId]) -> FlagsByTurn:
        named = [(self.owner, turn) for turn in turns]
        return {name[1]: self._db.flags[name] for name in named if name in self._db.flags}

    async def flags_in(self, stretches: Sequence[Stretch]) -> FlagsByTurn:
        by_branch = {each.branch: each for each in stretches}
        found: dict[TurnId, Mapping[int, Flags]] = {}
        for (of, id), flags in self._db.flags.items():
            turn = self._db.turns.get(id)
            part = by_branch.get(turn.branch) if turn is not None and of == self.owner else None
            if turn is not None and part is not None and part.after < turn.number <= part.through:
                found[id] = flags
        return found

    async def save_flags(self, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        if await self.turn(turn) is None:
            raise StoreError(f"There is no {turn}.")
        if flags:
            self._put(self._db.flags, (self.owner, turn), dict(flags))
        else:
            self._remove(self._db.flags, (self.owner, turn))
        self._put(self._db.flag_versions, self.owner, await self.flag_version() + 1)

    async def flag_version(self) -> int:
        return self._db.flag_versions.get(self.owner, 0)

    async def attempt(self, id: TurnId) -> Attempt | None:
        return self._db.attempts.get(id) if self._has_attempt(id) else None

    async def attempts(self, conversation: ConversationId, limit: int) -> list[Attempt]:
        found = [
            each
            for each in self._db.attempts.values()
            if each.conversation == conversation and each.owner == self.owner
        ]
        return sorted(found, key=lambda each: each.id, reverse=True)[:limit]

    async def running_in(self, conversation: ConversationId) -> list[Attempt]:
        running = [each for each in self._db.attempts.values() if each.state is AttemptState.RUNNING]
        found = [each for each in running if each.conversation == conversation and each.owner == self.owner]
        return sorted(found, key=lambda each: each.id)

    async def add_attempt(self, attempt: Attempt) -> None:
        if attempt.id in self._db.attempts or attempt.owner != self.owner:
            raise StoreError(f"{attempt.id} already exists, or is of another owner.")
        if self._is_foreign(attempt.conversation):
            raise StoreError(f"There is no {attempt.conversation}.")
        self._check_branch(attempt.branch)
        self._put(self._db.attempts, attempt.id, attempt)

    async def save_attempt(self, attempt: Attempt) -> None:
        before = await self.attempt(attempt.id)
        if before is not None:
            changes = {name: getattr(attempt, name) for name in SAVED_OF_AN_ATTEMPT}
            self._put(self._db.attempts, attempt.id, replace(before, **changes))

    async def drop_attempt(self, id: TurnId) -> None:
        if self._has_attempt(id):
            self._remove(self._db.attempts, id)

    def remove_attempt(self, attempt: Attempt) -> None:
        self._count(attempt.owner, -attempt.bytes)
        self._remove(self._db.journals, attempt.id)
        self._remove(self._db.logs, attempt.id)
        self._remove(self._db.attempts, attempt.id)

    async def journal(self, attempt: TurnId) -> list[bytes]:
        records = self._db.journals.get(attempt, {}) if self._has_attempt(attempt) else {}
        return [record for _, record in sorted(records.items())]

    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        self._append(self._db.journals, attempt, first, records)

    def _append(
        self, table: dict[TurnId, dict[int, bytes]], attempt: TurnId, first: int, records: Sequence[bytes]
    ) -> None:
        self._check_attempt(attempt)
        if attempt not in table:
            self._put(table, attempt, {})
        for number, record in enumerate(records, first):
            if number not in table[attempt]:
                self._put(table[attempt], number, record)

    async def drop_journal(self, attempt: TurnId) -> None:
        if self._has_attempt(attempt):
            self._remove(self._db.journals, attempt)

    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        chunks = sorted(self._db.logs.get(attempt, {}).items()) if self._has_attempt(attempt) else []
        return [chunk for number, chunk in chunks if number >= first][:limit]

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        if number == 0 or number - 1 in self._db.logs.get(attempt, {}):
            self._append(self._db.logs, attempt, number, [chunk])

    async def drop_log(self, attempt: TurnId) -> None:
        if self._has_attempt(attempt):
            self._remove(self._db.logs, attempt)

    async def tickets(self, branch: BranchId) -> list[Ticket]:
        found = [each for each in self._db.tickets.values() if each.branch == branch]
        own = found if self._has_branch(branch) else []
        return sorted(own, key=lambda each: (not each.front, each.number))

    async def ticket(self, attempt: TurnId) -> Ticket | None:
        found = self._db.tickets.get(attempt)
        return found if found is not None and self._owns(found.conversation) else None

    async def ticket_for(self, idempotency_key: str) -> Ticket | None:
        found = [
            each
            for each in self._db.tickets.values()
            if each.idempotency_key == idempotency_key and self._owns(each.conversation)
        ]
        return min(found, key=lambda each: each.attempt, default=None)

    async def add_ticket(self, ticket: Ticket) -> Ticket:
        self._check_branch(ticket.branch)
        if ticket.attempt in self._db.tickets or not self._owns(ticket.conversation):
            raise StoreError(f"The ticket of {ticket.attempt} already exists, or is of another owner.")
        numbered = replace(ticket, number=self._db.last_ticket.get(ticket.branch, 0) + 1)
        self._put(self._db.last_ticket, ticket.branch, numbered.number)
        self._put(self._db.tickets, ticket.attempt, numbered)
        return numbered

    async def move_tickets(self, old: BranchId, new: BranchId) -> None:
        self._check_branch(new)
        moved = await self.tickets(old)
        last = self._db.last_ticket.get(new, 0)
        for ticket in moved:
            self._put(
                self._db.tickets, ticket.attempt, replace(ticket, branch=new, number=last + ticket.number)
            )
        if moved:
            self._put(self._db.last_ticket, new, last + self._db.last_ticket.get(old, 0))

    async def drop_ticket(self, attempt: TurnId) -> None:
        if await self.ticket(attempt) is not None:
            self._remove(self._db.tickets, attempt)

    async def job(self, id: TurnId) -> TurnJob | None:
        found = self._db.jobs.get(id)
        return found if found is not None and found.owner == self.owner else None

    async def jobs(self, after: TurnId | None, limit: int) -> list[TurnJob]:
        own = [each for each in self._db.jobs.values() if each.owner == self.owner]
        return sorted((each for each in own if after is None or each.id > after), key=lambda job: job.id)[
            :limit
        ]

    async def count_jobs(self) -> int:
        return sum(each.owner == self.owner for each in self._db.jobs.values())

    async def add_job(self, job: TurnJob) -> None:
        if job.id in self._db.jobs or job.owner != self.owner or not self._owns(job.conversation):
            raise StoreError(f"{job.id} already exists, or is of another owner.")
        self._put(self._db.jobs, job.id, job)

    async def count_resume(self, id: TurnId) -> None:
        found = await self.job(id)
        if found is not None:
            self._put(self._db.jobs, id, replace(found, resumes=found.resumes + 1))

    async def drop_job(self, id: TurnId) -> None:
        if await self.job(id) is not None:
            self._remove(self._db.jobs, id)

    async def claim(self, idempotency_key: str) -> Claim | None:
        return self._db.claims.get((self.owner, idempotency_key))

    async def save_claim(self, claim: Claim) -> None:
        if claim.owner != self.owner:
            raise StoreError(f"The claim of {claim.idempotency_key!r} is of another owner.")
        self._put(self._db.claims, (claim.owner, claim.idempotency_key), claim)

    async def drop_claim(self, idempotency_key: str) -> None:
        self._remove(self._db.claims, (self.owner, idempotency_key))

    async def add_change(self, change: LiveChange) -> None:
        id = change.conversation
        if change.owner != self.owner or (id is not None and self._is_foreign(id)):
            raise StoreError(f"The change of {change.conversation} is of another owner.")
        self._add_change(change)

    def _add_change(self, change: LiveChange) -> None:
        number = self._newest() + 1
        self._put(self._db.changes, number, replace(change, position=position_at(number)))
        self._put(self._db.last_change, None, number)

    async def changes(self, after: Position | None, limit: int) -> list[LiveChange]:
        behind = self._behind(after or position_at(0), self._newest())
        return [each for each in behind if each.owner == self.owner][:limit]

    # Lists, exports and imports.

    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        found = [
            each
            for each in self._db.conversations.values()
            if each.owner == self.owner and chat_filter.matches(each) and self._has_branch(each.branch)
        ]
        if after is not None:
            found = [each for each in found if _place(each) < (after.at, after.id)]
        found.sort(key=_place, reverse=True)
        return [self._entry_of(each) for each in found[:limit]]

    def _entry_of(self, conversation: Conversation) -> ChatEntry:
        branch = self._db.branches[conversation.branch]
        return entry_of(conversation, branch)

    async def least_recent_conversations(
        self, scope: str | None, after: ListPosition | None, limit: int
    ) -> list[Conversation]:
        found = [
            each
            for each in self._in(ConversationState.LIVE)
            if each.is_listed and not each.internal and scope in (None, each.scope)
            if after is None or _place(each) > (after.at, after.id)
        ]
        return sorted(found, key=_place)[:limit]

    async def is_id_taken(self, id: ConversationId) -> bool:
        return id in self._db.conversations

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        db = self._db
        return {id for id in ids if id in db.turns or id in db.attempts or id in db.tickets}

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        return {id for id in ids if id in self._db.branches}

    # Conversations whose time is over.

    async def oldest_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        used = self._attempted_after(touched_by, is_use=True) | self._in_use()
        idle = [
            each
            for each in self._in(ConversationState.LIVE)
            if each.is_listed and not each.pinned
            if each.touched_at <= touched_by and each.id not in used
        ]
        return sorted(idle, key=_place)[:limit]

    async def oldest_deleted(self, limit: int) -> list[Conversation]:
        return sorted(self._in(ConversationState.DELETED), key=_place)[:limit]

    async def bytes_of(self, conversation: ConversationId) -> int:
        branches = [
            each
            for each in self._db.branches.values()
            if each.conversation == conversation and self._owns(conversation)
        ]
        return sum(branch_bytes(each.bytes) for each in branches if each.id not in self._db.cleared)

    def _in(self, state: ConversationState) -> list[Conversation]:
        own = [each for each in self._db.conversations.values() if each.owner == self.owner]
        return [each for each in own if each.state is state]
