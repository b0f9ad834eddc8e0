"""The rows of the store inside one transaction: the statements under the engine's names; and the lanes that
stay in memory between transactions."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import NamedTuple

import apsw
import msgspec
from msgspec.structs import replace

from turnledger.engine.tables.lanes import Lane
from turnledger.errors import StoreError
from turnledger.model.access.share import Share
from turnledger.model.change import LiveChange, Position
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
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
from turnledger.model.turn import Attempt, Turn
from turnledger.stores import row_codec
from turnledger.stores.damage import decoder
from turnledger.stores.row_codec import Row, share_of
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.catalogue import SqliteCatalogueRows
from turnledger.stores.sqlite.tables.records import START
from turnledger.stores.sqlite.tables.search import SqliteIndexRows, SqliteSearchRows

MOST_LANES = 64
"""Lanes kept in memory: those of turns at work, at a kilobyte or two each."""

LONG_INPUT = 700
"""Bytes from which an attempt's input gets a row of its own. Below, the attempt fits into a quarter of a
page; beyond, SQLite would use an overflow page anyway."""


LONG_STRETCH = 8
"""Consecutive turns of one branch from which a separate query pays off."""


RUNNING, ENDED = 0, 1
"""The two halves of the attempt table."""


END_OF_TIME = 2**63 - 1


_POSITION = re.compile(r"[0-9a-f]{15}-[0-9a-f]{8}")


CONVERSATION_COLUMNS = 21
"""Columns of a conversation's row."""


class CachedLane(NamedTuple):
    lane: Lane
    ref: int
    """The number of the branch in its turns."""
    owner: str
    lease: LeaseId


class LaneCache:
    """The lanes that a process used last, so that a turn need not read them again.

    They are as in the store while no other connection has written, which SQLite counts, and this one has
    written nothing of them but what is noted here. Any doubt empties the cache.
    """

    def __init__(self) -> None:
        self._lanes: dict[ConversationId, CachedLane] = {}
        self._by_branch: dict[BranchId, ConversationId] = {}
        self.version: int | None = None
        """The number of SQLite that changes when another connection writes, as these lanes were read."""

    def clear(self) -> None:
        self._lanes.clear()
        self._by_branch.clear()

    def holds(self, id: ConversationId) -> bool:
        return id in self._lanes

    def lane(self, owner: str, id: ConversationId, lease: LeaseId) -> CachedLane | None:
        found = self._lanes.get(id)
        return found if found is not None and (found.owner, found.lease) == (owner, lease) else None

    def branch(self, owner: str, id: BranchId) -> CachedLane | None:
        found = self._lanes.get(self._by_branch[id]) if id in self._by_branch else None
        return found if found is not None and found.owner == owner else None

    def keep(self, lane: Lane, ref: int, owner: str, lease: LeaseId) -> None:
        if not lane.has_lease or lane.branch.pending:  # rare, and pending calls may be large
            return
        self.drop(lane.conversation.id)
        if len(self._lanes) >= MOST_LANES:
            self.drop(next(iter(self._lanes)))
        self._lanes[lane.conversation.id] = CachedLane(lane, ref, owner, lease)
        self._by_branch[lane.branch.id] = lane.conversation.id

    def note_branch(self, branch: Branch) -> None:
        """Note a saved branch. The store counts tickets itself."""
        id = self._by_branch.get(branch.id)
        if id is None:
            return
        if branch.pending:
            self.drop(id)
            return
        cached = self._lanes[id]
        saved = replace(branch, last_ticket=cached.lane.branch.last_ticket)
        self._lanes[id] = cached._replace(lane=replace(cached.lane, branch=saved))

    def note_touch(self, owner: str, id: ConversationId, at: int) -> None:
        cached = self._lanes.get(id)
        if cached is not None and cached.owner == owner:
            conversation = cached.lane.conversation
            touched = replace(conversation, touched_at=max(conversation.touched_at, at))
            self._lanes[id] = cached._replace(lane=replace(cached.lane, conversation=touched))

    def drop(self, id: ConversationId) -> None:
        cached = self._lanes.pop(id, None)
        if cached is not None:
            del self._by_branch[cached.lane.branch.id]


class SqliteSharedRows(SqliteIndexRows):
    """Rows that one owner and the whole store have in common: leases, positions, and what is purged."""

    @decoder
    async def lease(self, id: LeaseId) -> Lease | None:
        row = self._row("lease", id.raw)
        return None if row is None else Lease(id, row[0])

    async def beat(self, id: LeaseId) -> None:
        self._run("beat", id.raw)

    @decoder
    async def newest_position(self) -> Position:
        rows = self._rows("newest_change")
        return records.position_of(*rows[0]) if rows else START

    @decoder
    async def is_kept(self, position: Position) -> bool:
        if _POSITION.fullmatch(position) is None:
            return False
        if position == START:
            [(oldest,)] = self._rows("oldest_change")
            return oldest in (None, 1)
        rows = self._rows("change", records.number_at(position))
        return bool(rows) and records.position_of(*rows[0]) == position

    def _purge_ended(self, limit: int, only: str | None) -> int:
        """Remove rows of ended conversations, of only one owner or of all."""
        removed = 0
        for ref, id, owner in self._rows("unswept_conversations", limit, only):
            self._run("drop_previews", id)
            removed += self._purge_branches(owner, id, limit - removed)
            attempts = self._rows("ended_attempts", id, limit - removed)
            removed += self._remove_attempts(attempts)
            if removed >= limit:
                break
            self._run("mark_swept", ref)
        return removed

    @decoder
    def _purge_branches(self, owner: str, conversation: bytes, limit: int) -> int:
        """Remove the turns of an ended conversation that no branch elsewhere needs. When a branch is empty,
        the one it was made from may have more turns to remove."""
        removed = 0
        for ref, stored in self._rows("uncleared_branches", conversation):
            ((needed,),) = self._rows("needed_through", ref)
            turns = self._drop_turns(ref, needed or 0, limit - removed)
            if turns:
                left = stored - sum(turns)
                self._run("shrink_branch", left, ref)
                self._count(owner, branch_bytes(left) - branch_bytes(stored))
                stored = left
            removed += len(turns)
            if removed >= limit:
                break
            if needed is None:
                self._run("clear_branch", ref)
                self._count(owner, -branch_bytes(stored))
                for (source,) in self._rows("drop_origin", ref):
                    self._run("sweep_again", source)
                    removed += 1
        return removed

    def _drop_turns(self, ref: int | None, after: int, limit: int) -> list[int]:
        """Remove the last `limit` turns of a branch with a higher number; return the size of each."""
        turns = self._rows("purge_turns", ref, after, limit)
        for turn, *_ in turns:
            self._run("drop_flags", turn)
        if turns:
            self._drop_words([each for *_, each in turns])
        return [size for _, size, _ in turns]

    def _remove_attempts(self, rows: Sequence[Row]) -> int:
        for id, owner, counted in rows:
            self._count(owner, -counted)
            self._drop_attempt(owner, id)
            self._run("drop_journal", id)
            self._run("drop_log", id)
        return len(rows)

    def _drop_attempt(self, owner: str, id: bytes) -> None:
        rows = self._rows("drop_running_attempt", id, owner) or self._rows("drop_ended_attempt", id, owner)
        for (has_long_input,) in rows:
            if has_long_input:
                self._run("drop_attempt_input", id)

    def _count(self, owner: str, more: int, chats: int = 0) -> None:
        self._run("count_stored", owner, more, chats)
        link = link_of(owner)
        if link is not None:
            self._run("count_stored_by_visitors", link.raw, more, chats)


class SqliteTables(SqliteCatalogueRows, SqliteSearchRows, SqliteSharedRows):
    """The engine's `Tables` on a cursor inside one transaction. No method suspends. Raises errors of SQLite,
    which the thread that runs the transaction translates."""

    def __init__(self, cursor: apsw.Cursor, owner: str, lanes: LaneCache | None = None) -> None:
        super().__init__(cursor, owner, lanes)
        # The last attempt read: a save that changes one column writes that column only.
        self._attempt: Attempt | None = None

    async def conversation(self, id: ConversationId) -> Conversation | None:
        row = self._row("conversation", id.raw, self.owner)
        if row is None:
            return None
        self._owned.add(id)
        return row_codec.conversation_of(row)

    async def conversation_by_key(self, scope: str, conversation_key: str) -> Conversation | None:
        row = self._row("conversation_by_key", self.owner, scope, conversation_key)
        return None if row is None else row_codec.conversation_of(row)

    async def add_conversation(self, conversation: Conversation) -> None:
        if conversation.owner != self.owner:
            raise StoreError(f"{conversation.id} is of another owner.")
        columns = row_codec.columns_of_conversation(conversation)
        self._run("add_conversation", conversation.id.raw, conversation.owner, conversation.scope, *columns)
        self._owned.add(conversation.id)
        self._add_tags(conversation)
        self._count(self.owner, details_bytes(conversation), chat_count(conversation))

    async def save_conversation(self, conversation: Conversation) -> None:
        columns = row_codec.columns_of_conversation(conversation)
        before = self._row("counted_details", conversation.id.raw, self.owner)
        if before is None:
            raise StoreError(f"There is no {conversation.id}.")
        had = row_codec.counted_conversation(conversation, *before)
        more = details_bytes(conversation) - details_bytes(had)
        chats = chat_count(conversation) - chat_count(had)
        if more or chats:
            self._count(self.owner, more, chats)
        self._tag(conversation.id, conversation.tags)
        self._run("save_conversation", *columns, conversation.id.raw, self.owner)
        if self._lanes is not None:
            self._lanes.drop(conversation.id)

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        self._run("touch_conversation", at, id.raw, self.owner)
        if self._lanes is not None:
            self._lanes.note_touch(self.owner, id, at)

    async def move_conversation(self, id: ConversationId, old: BranchId, new: BranchId) -> bool:
        self._ref(new)  # it must be of this owner
        return bool(self._rows("move_conversation", new.raw, id.raw, old.raw, self.owner))

    async def branch(self, id: BranchId) -> Branch | None:
        cached = None if self._lanes is None else self._lanes.branch(self.owner, id)
        if cached is not None:
            self._refs[id] = cached.ref
            self._owned.add(cached.lane.conversation.id)
            return cached.lane.branch
        row = self._row("branch", id.raw, self.owner)
        return None if row is None else self._branch_of(id, row)

    def _branch_of(self, id: BranchId, row: Row, conversation: ConversationId | None = None) -> Branch:
        self._refs[id] = row[0]
        branch = row_codec.branch_of(id, row, conversation)
        self._owned.add(branch.conversation)
        return branch

    async def add_branch(self, branch: Branch) -> None:
        await self._check_conversation(branch.conversation)
        columns = row_codec.columns_of_branch(branch)
        self._run("add_branch", branch.id.raw, branch.conversation.raw, branch.start, *columns)
        self._count(self.owner, branch_bytes(branch.bytes))

    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        await self._check_conversation(made[0].branch.conversation)
        branches, columns = [each.branch for each in made], row_codec.columns_of_branch
        rows = ((each.id.raw, each.conversation.raw, each.start, *columns(each)) for each in branches)
        self._insert("add_branch", rows)
        # Each ref is the highest plus one. To read 10,000 of them back would release the GIL as often.
        first = self._cursor.connection.last_insert_rowid() - len(branches) + 1
        self._refs.update((each.id, ref) for ref, each in enumerate(branches, first))
        self._count(self.owner, sum(branch_bytes(each.branch.bytes) for each in made))
        origins = [self._columns_of_origin(each.origin) for each in made if each.origin is not None]
        self._insert("add_origin", origins)
        self._insert("add_turns", chain.from_iterable(map(self._rows_of_turns, made)))

    def _rows_of_turns(self, made: NewBranch) -> Iterator[Row]:
        ref, before = self._ref(made.branch.id), None
        for turn, log in made.turns:
            parent = None if turn.parent == before else row_codec.raw_or_none(turn.parent)
            yield self._columns_of_turn(turn, ref, parent, log)
            before = turn.id

    async def save_branch(self, branch: Branch) -> None:
        self._run("save_branch", *row_codec.columns_of_branch(branch), self._ref(branch.id))
        if self._lanes is not None:
            self._lanes.note_branch(branch)

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        row = self._row("first_branch", conversation.raw, self.owner)
        return None if row is None else self._branch_of(BranchId.trusted(row[0]), row[1:])

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        below = END_OF_TIME if before is None else self._known_ref(before)
        rows = self._rows("branches", conversation.raw, self.owner, below, limit)
        return [self._branch_of(BranchId.trusted(row[0]), row[1:]) for row in rows]

    async def add_origin(self, origin: Origin) -> None:
        self._run("add_origin", *self._columns_of_origin(origin))

    def _columns_of_origin(self, origin: Origin) -> Row:
        self._check_not_foreign(origin.conversation)
        source = origin.line[0] if origin.line else None
        return (
            self._ref(origin.branch),
            origin.conversation.raw,
            row_codec.raw_or_none(origin.base),
            self._ref(source.branch) if source else None,
            source.through if source else 0,
            records.pack_line(origin.line, [self._ref(stretch.branch) for stretch in origin.line]),
        )

    async def origin(self, branch: BranchId) -> Origin | None:
        row = self._row("origin", self._known_ref(branch))
        if row is None:
            return None
        conversation, base, line = row
        return Origin(
            branch=branch,
            conversation=ConversationId.trusted(conversation),
            base=row_codec.id_or_none(TurnId, base),
            line=self._line_of(line),
        )

    def _line_of(self, raw: bytes | None) -> tuple[Stretch, ...]:
        line, refs = records.line_of(raw)
        self._refs.update(refs)
        return line

    async def has_offshoots(self, branch: BranchId) -> bool:
        return bool(self._rows("has_offshoots", self._known_ref(branch)))

    async def drop_turns(self, branch: BranchId, after: int) -> int:
        return sum(self._drop_turns(self._known_ref(branch), after, END_OF_TIME))

    async def drop_branch(self, id: BranchId) -> None:
        found, ref = await self.branch(id), self._known_ref(id)
        if found is None:
            return
        self._remove_attempts(self._rows("attempts_on_branch", id.raw, found.conversation.raw))
        for (source,) in self._rows("drop_origin", ref):
            self._run("sweep_again", source)
        for (size,) in self._rows("drop_branch", ref):
            self._count(self.owner, -branch_bytes(size))
        del self._refs[id]

    async def empty_branches_at(self, turn: Turn, limit: int) -> list[BranchId]:
        rows = self._rows("ends_at", self._known_ref(turn.branch), turn.id.raw, limit)
        return [BranchId.trusted(id) for (id,) in rows]

    async def lane(self, id: ConversationId, lease: LeaseId) -> Lane | None:
        cached = None if self._lanes is None else self._lanes.lane(self.owner, id, lease)
        if cached is not None:
            self._refs[cached.lane.branch.id] = cached.ref
            self._owned.add(id)
            return cached.lane
        row = self._row("lane", id.raw, self.owner, lease.raw)
        if row is None:
            return None
        conversation = row_codec.conversation_of(row)
        branch = self._branch_of(conversation.branch, row[CONVERSATION_COLUMNS:-3], conversation.id)
        lane = Lane(conversation, branch, bool(row[-3]), row[-2] or 0, row[-1] or 0)
        if self._lanes is not None:
            self._lanes.keep(lane, self._refs[branch.id], self.owner, lease)
        return lane

    async def admission(self) -> int:
        row = self._row("admission", self.owner)
        return row[0] if row else 0

    async def turn(self, id: TurnId) -> Turn | None:
        row = self._row("turn", id.raw, self.owner)
        return None if row is None else row_codec.turn_of(id, BranchId.trusted(row[0]), row[1:])

    async def turns(self, branch: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        ref = self._known_ref(branch)
        rows = self._rows("turns", ref, after, through, limit)
        rows.reverse()
        return self._turns_of(rows, {} if ref is None else {ref: branch})

    def _turns_of(self, rows: Sequence[Row], branches: Mapping[int, BranchId]) -> list[Turn]:
        return records.line_of_turns(rows, branches, lambda ref, number: self._row("turn_at", ref, number))

    async def turns_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        # After many edits, a page is many stretches of a turn or two: one query for all of them.
        singles: list[int] = []
        branches: dict[int, BranchId] = {}
        rows: list[Row] = []
        for stretch in stretches:
            branch, after, through = stretch.branch, stretch.after, stretch.through
            ref = self._known_ref(branch)
            if ref is None:
                continue
            branches[ref] = branch
            if through - after > LONG_STRETCH:
                rows += self._rows("turns", ref, after, through, through)
            else:
                singles += range((ref << 32) + after + 1, (ref << 32) + through + 1)
        if singles:
            rows += self._rows("single_turns", msgspec.json.encode(singles).decode())
        rows.sort(key=itemgetter(1))
        return self._turns_of(rows, branches)

    async def effects_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        branches = {
            ref: each.branch for each in stretches if (ref := self._known_ref(each.branch)) is not None
        }
        rows = self._rows("turns_with_effects", self._ranges(stretches))
        rows.sort(key=itemgetter(1))
        return [turn for turn in self._turns_of(rows, branches) if turn.is_carried]

    def _ranges(self, stretches: Sequence[Stretch]) -> str:
        """Encode stretches as one value: [[ref, after, through], …]."""
        ranges = [(self._known_ref(each.branch), each.after, each.through) for each in stretches]
        return msgspec.json.encode(ranges).decode()

    async def add_turn(self, turn: Turn, log: bytes = b"") -> None:
        parent = row_codec.raw_or_none(turn.parent)
        self._run("add_turn", *self._columns_of_turn(turn, self._ref(turn.branch), parent, log))

    def _columns_of_turn(self, turn: Turn, ref: int, parent: bytes | None, log: bytes) -> Row:
        return (
            turn.id.raw,
            ref,
            turn.number,
            parent,
            row_codec.number_of(turn),
            turn.created_at,
            turn.committed_at,
            turn.body,
            log or None,
            row_codec.checksum_of(turn, log),
        )

    async def turn_log(self, id: TurnId) -> bytes:
        row = self._row("turn_log", id.raw, self.owner)
        return row_codec.log_of(id, *row) if row else b""

    async def count_bytes(self, more: int) -> None:
        self._count(self.owner, more)

    @decoder
    async def usage(self) -> Usage:
        row = self._row("stored", self.owner)
        return Usage(bytes=row[0], chats=row[1]) if row else Usage(bytes=0)

    async def link(self) -> Share | None:
        link = link_of(self.owner)
        row = None if link is None else self._row("share", link.raw, None)
        return None if row is None else share_of(row)

    async def flags(self, turns: Sequence[TurnId]) -> FlagsByTurn:
        found = {turn: self._rows("flags", turn.raw, self.owner) for turn in turns}
        return {turn: row_codec.flags_of(rows) for turn, rows in found.items() if rows}

    async def flags_in(self, stretches: Sequence[Stretch]) -> FlagsByTurn:
        found: dict[TurnId, list[Row]] = {}
        for turn, *flags in self._rows("flags_in", self._ranges(stretches), self.owner):
            found.setdefault(TurnId.trusted(turn), []).append(tuple(flags))
        return {turn: row_codec.flags_of(rows) for turn, rows in found.items()}

    async def save_flags(self, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        place = self._row("place_of_turn", turn.raw, self.owner)
        if place is None:
            raise StoreError(f"There is no {turn}.")
        self._run("drop_flags", turn.raw)
        for number, each in flags.items():
            shown = int(each.to_model), int(each.to_user)
            self._run("add_flags", turn.raw, number, self.owner, *shown, *place)
        self._note_due(turn)
        self._run("raise_flag_version", self.owner)

    async def flag_version(self) -> int:
        row = self._row("flag_version", self.owner)
        return row[0] if row else 0

    async def attempt(self, id: TurnId) -> Attempt | None:
        owner = self.owner
        row = self._row("attempt", RUNNING, id.raw, owner) or self._row("attempt", ENDED, id.raw, owner)
        if row is None:
            return None
        self._attempt = row_codec.attempt_of(row)
        return self._attempt

    async def add_attempt(self, attempt: Attempt) -> None:
        if attempt.owner != self.owner:
            raise StoreError(f"{attempt.id} is of another owner.")
        self._check_not_foreign(attempt.conversation)
        self._ref(attempt.branch)  # it must be of this owner, too
        input = attempt.request_body
        is_long = len(input) >= LONG_INPUT
        self._run("add_attempt", *row_codec.columns_of_attempt(attempt, None if is_long else input))
        if is_long:
            self._run("add_attempt_input", attempt.id.raw, input)

    async def save_attempt(self, attempt: Attempt) -> None:
        seen = self._attempt
        if seen is not None and replace(attempt, journaled=seen.journaled) == seen:
            self._run("record_progress", attempt.journaled, attempt.id.raw, self.owner)
        else:
            self._run("save_attempt", *row_codec.changes_of_attempt(attempt), attempt.id.raw, self.owner)
        self._attempt = None

    async def drop_attempt(self, id: TurnId) -> None:
        self._drop_attempt(self.owner, id.raw)

    def _has_attempt(self, id: TurnId) -> bool:
        """Return whether an attempt is of this owner, or not inserted yet."""
        return all(owner == self.owner for (owner,) in self._rows("owner_of_attempt", id.raw))

    def _check_attempt(self, id: TurnId) -> None:
        if not self._has_attempt(id):
            raise StoreError(f"There is no {id}.")

    async def journal(self, attempt: TurnId) -> list[bytes]:
        records = self._rows("journal", attempt.raw)
        return [record for (record,) in records] if records and self._has_attempt(attempt) else []

    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        self._check_attempt(attempt)
        for number, record in enumerate(records, first):
            self._run("add_record", attempt.raw, number, record)

    async def drop_journal(self, attempt: TurnId) -> None:
        if self._has_attempt(attempt):
            self._run("drop_journal", attempt.raw)

    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        chunks = self._rows("log_chunks", attempt.raw, first, limit)
        return [chunk for (chunk,) in chunks] if chunks and self._has_attempt(attempt) else []

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        self._check_attempt(attempt)
        self._run("add_log_chunk", attempt.raw, number, chunk)

    async def drop_log(self, attempt: TurnId) -> None:
        if self._has_attempt(attempt):
            self._run("drop_log", attempt.raw)

    async def ticket_for(self, idempotency_key: str) -> Ticket | None:
        row = self._row("ticket_for", idempotency_key, self.owner)
        return None if row is None else row_codec.ticket_of(row)

    async def add_ticket(self, ticket: Ticket) -> Ticket:
        await self._check_conversation(ticket.conversation)
        ((number,),) = self._rows("next_ticket", self._ref(ticket.branch))
        numbered = replace(ticket, number=number)
        self._run("add_ticket", *row_codec.columns_of_ticket(numbered))
        return numbered

    async def move_tickets(self, old: BranchId, new: BranchId) -> None:
        self._ref(old), self._ref(new)  # both must be of this owner
        self._run("move_tickets", new.raw, old.raw)
        if self._cursor.connection.changes():
            self._run("go_on_numbering", new.raw, old.raw)

    async def drop_ticket(self, attempt: TurnId) -> None:
        self._run("drop_ticket", attempt.raw, self.owner)

    async def claim(self, idempotency_key: str) -> Claim | None:
        row = self._row("claim", self.owner, idempotency_key)
        return None if row is None else row_codec.claim_of(self.owner, idempotency_key, row)

    async def save_claim(self, claim: Claim) -> None:
        if claim.owner != self.owner:
            raise StoreError(f"The claim of {claim.idempotency_key!r} is of another owner.")
        self._run("save_claim", *row_codec.columns_of_claim(claim))

    async def drop_claim(self, idempotency_key: str) -> None:
        self._run("drop_claim", self.owner, idempotency_key)

    @decoder
    async def purge_ended(self, limit: int) -> int:
        return self._purge_ended(limit, self.owner)

    async def add_change(self, change: LiveChange) -> None:
        if change.owner != self.owner:
            raise StoreError(f"The change of {change.conversation} is of another owner.")
        self._check_not_foreign(change.conversation)
        self._run("add_change", *row_codec.columns_of_change(change))

    async def changes(self, after: Position | None, limit: int) -> list[LiveChange]:
        number = 0 if after is None else records.number_at(after)
        rows = self._rows("changes", number, self.owner, limit)
        return [row_codec.change_of(row, records.position_in(row)) for row in rows]
