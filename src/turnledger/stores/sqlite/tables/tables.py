"""The rows of the store inside one transaction: the statements under the engine's names."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter

import apsw
import msgspec
from msgspec.structs import replace

from turnledger.engine.ports import BURIED_KEPT, ClockMark
from turnledger.errors import StoreError
from turnledger.model.change import LiveChange, Position, mark_of
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
from turnledger.stores.sqlite.failures import decoder
from turnledger.stores.sqlite.tables import records
from turnledger.stores.sqlite.tables.access import SqliteAccessRows
from turnledger.stores.sqlite.tables.catalogue import SqliteCatalogueRows
from turnledger.stores.sqlite.tables.overview import SqliteOverview
from turnledger.stores.sqlite.tables.records import QUERIES, Row
from turnledger.stores.sqlite.tables.search import SqliteSearchRows

LONG_INPUT = 700
"""Bytes from which an attempt's input gets a row of its own. Below, the attempt fits into a quarter of a
page; beyond, SQLite would use an overflow page anyway."""


LONG_STRETCH = 8
"""Consecutive turns of one branch from which a separate query pays off."""


RUNNING, ENDED = 0, 1
"""The two halves of the attempt table."""


ROWS_AT_ONCE = 200
"""Rows inserted by one statement, if there are many."""


END_OF_TIME = 2**63 - 1


CONVERSATION_COLUMNS = 21
"""Columns of a conversation's row."""


class SqliteTables(
    SqliteCatalogueRows,
    SqliteAccessRows,
    SqliteSearchRows,
    SqliteOverview,
):
    """The engine's `Tables` on a cursor inside one transaction. No method suspends. Raises errors of SQLite,
    which the thread that runs the transaction translates."""

    def __init__(self, cursor: apsw.Cursor) -> None:
        super().__init__(cursor)
        # The last attempt read: a save that changes one column writes that column only.
        self._attempt: Attempt | None = None
        self._refs: dict[BranchId, int] = {}

    async def conversation(self, owner: str, id: ConversationId) -> Conversation | None:
        row = self._row("conversation", id.raw, owner)
        return None if row is None else records.conversation_of(row)

    async def conversation_by_key(self, owner: str, scope: str, conversation_key: str) -> Conversation | None:
        row = self._row("conversation_by_key", owner, scope, conversation_key)
        return None if row is None else records.conversation_of(row)

    async def add_conversation(self, conversation: Conversation) -> None:
        columns = records.columns_of_conversation(conversation)
        self._run("add_conversation", conversation.id.raw, conversation.owner, conversation.scope, *columns)
        self._add_tags(conversation)
        self._count(conversation.owner, details_bytes(conversation), chat_count(conversation))

    async def save_conversation(self, conversation: Conversation) -> None:
        columns = records.columns_of_conversation(conversation)
        for owner, *before in self._rows("counted_details", conversation.id.raw):
            had = records.counted_conversation(conversation, *before)
            more, chats = (
                details_bytes(conversation) - details_bytes(had),
                chat_count(conversation) - chat_count(had),
            )
            if more or chats:
                self._count(owner, more, chats)
        self._tag(conversation.id, conversation.tags)
        self._run("save_conversation", *columns, conversation.id.raw)

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        self._run("touch_conversation", at, id.raw)

    async def move_conversation(self, id: ConversationId, old: BranchId, new: BranchId) -> bool:
        return bool(self._rows("move_conversation", new.raw, id.raw, old.raw))

    async def switches(self, id: ConversationId) -> tuple[TurnId, ...]:
        row = self._row("switches", id.raw)
        return () if row is None else records.ids_of(TurnId, row[0])

    async def save_switches(self, id: ConversationId, switches: Sequence[TurnId]) -> None:
        self._run("save_switches", b"".join(each.raw for each in switches), id.raw)

    async def forgotten(self, id: ConversationId) -> tuple[bytes, ...]:
        row = self._row("forgotten", id.raw)
        return () if row is None else tuple(each.raw for each in records.ids_of(TurnId, row[0]))

    async def save_forgotten(self, id: ConversationId, effects: Sequence[bytes]) -> None:
        self._run("save_forgotten", b"".join(effects), id.raw)

    async def lapsed_conversations(self, now: int, limit: int) -> list[Conversation]:
        return [records.conversation_of(row) for row in self._rows("lapsed_conversations", now, limit)]

    @decoder
    async def purge_ended(self, limit: int) -> int:
        removed = 0
        for ref, id, owner in self._rows("unswept_conversations", limit):
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
            turns = self._rows("purge_turns", ref, needed or 0, limit - removed)
            for turn, *_ in turns:
                self._run("drop_flags", turn)
            if turns:
                self._drop_words(each for *_, each in turns)
                left = stored - sum(size for _, size, _ in turns)
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

    async def branch(self, id: BranchId) -> Branch | None:
        row = self._row("branch", id.raw)
        return None if row is None else self._branch_of(id, row)

    def _branch_of(self, id: BranchId, row: Row, conversation: ConversationId | None = None) -> Branch:
        self._refs[id] = row[0]
        return records.branch_of(id, row, conversation)

    def _ref(self, id: BranchId) -> int:
        """Return the number of the branch in its turns; mostly cached, since the branch was read before."""
        if id not in self._refs:
            row = self._row("ref_of_branch", id.raw)
            if row is None:
                raise StoreError(f"There is no {id}.")
            self._refs[id] = row[0]
        return self._refs[id]

    async def add_branch(self, branch: Branch) -> None:
        columns = records.columns_of_branch(branch)
        self._run("add_branch", branch.id.raw, branch.conversation.raw, branch.start, *columns)
        for owner, *_ in self._rows("counted_details", branch.conversation.raw):
            self._count(owner, branch_bytes(branch.bytes))

    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        rows: list[Row] = []
        for each in made:
            branch = each.branch
            columns = records.columns_of_branch(branch)
            rows.append((branch.id.raw, branch.conversation.raw, branch.start, *columns))
        self._insert(QUERIES["add_branch"], rows)
        chat = made[0].branch.conversation.raw
        self._refs.update((BranchId.trusted(id), ref) for id, ref in self._rows("refs_of_branches", chat))
        for owner, *_ in self._rows("counted_details", chat):
            self._count(owner, sum(branch_bytes(each.branch.bytes) for each in made))
        origins = [self._columns_of_origin(each.origin) for each in made if each.origin is not None]
        self._insert(QUERIES["add_origin"], origins)
        turns = [row for each in made for row in self._rows_of_turns(each)]
        self._insert(QUERIES["add_turns"], turns)

    def _rows_of_turns(self, made: NewBranch) -> Iterator[Row]:
        ref, before = self._ref(made.branch.id), None
        for turn, log in made.turns:
            parent = None if turn.parent == before else records.raw_or_none(turn.parent)
            yield self._columns_of_turn(turn, ref, parent, log)
            before = turn.id

    def _insert(self, query: str, rows: Sequence[Row]) -> None:
        """Insert many rows with few statements: each one releases the GIL, and may have to wait for it."""
        whole = len(rows) - len(rows) % ROWS_AT_ONCE
        if whole:
            values = query[query.index("(", query.index("VALUES")) : query.rindex(")") + 1]
            several = query.replace(values, ", ".join([values] * ROWS_AT_ONCE))
            for at in range(0, whole, ROWS_AT_ONCE):
                self._execute(several, list(chain.from_iterable(rows[at : at + ROWS_AT_ONCE])))
        for row in rows[whole:]:
            self._execute(query, row)

    async def save_branch(self, branch: Branch) -> None:
        self._run("save_branch", *records.columns_of_branch(branch), self._ref(branch.id))

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        row = self._row("first_branch", conversation.raw)
        return None if row is None else self._branch_of(BranchId.trusted(row[0]), row[1:])

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        below = END_OF_TIME if before is None else self._ref(before)
        rows = self._rows("branches", conversation.raw, below, limit)
        return [self._branch_of(BranchId.trusted(row[0]), row[1:]) for row in rows]

    async def add_origin(self, origin: Origin) -> None:
        self._run("add_origin", *self._columns_of_origin(origin))

    def _columns_of_origin(self, origin: Origin) -> Row:
        source = origin.line[0] if origin.line else None
        return (
            self._ref(origin.branch),
            origin.conversation.raw,
            records.raw_or_none(origin.base),
            self._ref(source.branch) if source else None,
            source.through if source else 0,
            records.pack_line(origin.line, [self._ref(stretch.branch) for stretch in origin.line]),
        )

    async def origin(self, branch: BranchId) -> Origin | None:
        row = self._row("origin", branch.raw)
        if row is None:
            return None
        conversation, base, line = row
        return Origin(
            branch=branch,
            conversation=ConversationId.trusted(conversation),
            base=records.id_or_none(TurnId, base),
            line=self._line_of(line),
        )

    def _line_of(self, raw: bytes | None) -> tuple[Stretch, ...]:
        line, refs = records.line_of(raw)
        self._refs.update(refs)
        return line

    async def origins(self, conversation: ConversationId, base: TurnId | None, limit: int) -> list[Origin]:
        return [
            Origin(
                branch=BranchId.trusted(branch),
                conversation=conversation,
                base=base,
                line=self._line_of(line),
            )
            for branch, line in self._rows("origins", conversation.raw, records.raw_or_none(base), limit)
        ]

    async def empty_branches_at(self, turn: Turn, limit: int) -> list[BranchId]:
        rows = self._rows("ends_at", self._ref(turn.branch), turn.id.raw, limit)
        return [BranchId.trusted(id) for (id,) in rows]

    async def lane(
        self, owner: str, id: ConversationId, lease: LeaseId
    ) -> tuple[Conversation, Branch, bool, int, int] | None:
        row = self._row("lane", id.raw, owner, lease.raw)
        if row is None:
            return None
        conversation = records.conversation_of(row)
        branch = self._branch_of(conversation.branch, row[CONVERSATION_COLUMNS:-3], conversation.id)
        return conversation, branch, bool(row[-3]), row[-2] or 0, row[-1] or 0

    async def turn(self, owner: str, id: TurnId) -> Turn | None:
        row = self._row("turn", id.raw, owner)
        return None if row is None else records.turn_of(id, BranchId.trusted(row[0]), row[1:])

    async def turns(self, branch: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        rows = self._rows("turns", branch.raw, after, through, limit)
        rows.reverse()
        return self._turns_of(rows, {rows[0][-1]: branch} if rows else {})

    def _turns_of(self, rows: Sequence[Row], branches: Mapping[int, BranchId]) -> list[Turn]:
        return records.line_of_turns(rows, branches, lambda ref, number: self._row("turn_at", ref, number))

    async def turns_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        # After many edits, a page is many stretches of a turn or two: one query for all of them.
        singles: list[int] = []
        branches: dict[int, BranchId] = {}
        rows: list[Row] = []
        for stretch in stretches:
            branch, after, through = stretch.branch, stretch.after, stretch.through
            ref = self._ref(branch)
            branches[ref] = branch
            if through - after > LONG_STRETCH:
                rows += self._rows("turns", branch.raw, after, through, through)
            else:
                singles += range((ref << 32) + after + 1, (ref << 32) + through + 1)
        if singles:
            rows += self._rows("single_turns", msgspec.json.encode(singles).decode())
        rows.sort(key=itemgetter(1))
        return self._turns_of(rows, branches)

    async def effects_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        branches = {self._ref(each.branch): each.branch for each in stretches}
        ranges = [(self._ref(each.branch), each.after, each.through) for each in stretches]
        rows = self._rows("turns_with_effects", msgspec.json.encode(ranges).decode())
        rows.sort(key=itemgetter(1))
        return [turn for turn in self._turns_of(rows, branches) if turn.is_carried]

    async def add_turn(self, turn: Turn, log: bytes = b"") -> None:
        parent = records.raw_or_none(turn.parent)
        self._run("add_turn", *self._columns_of_turn(turn, self._ref(turn.branch), parent, log))

    def _columns_of_turn(self, turn: Turn, ref: int, parent: bytes | None, log: bytes) -> Row:
        return (
            turn.id.raw,
            ref,
            turn.number,
            parent,
            records.number_of(turn),
            turn.created_at,
            turn.committed_at,
            turn.body,
            log or None,
            records.checksum_of(turn, log),
        )

    async def turn_log(self, id: TurnId) -> bytes:
        row = self._row("turn_log", id.raw)
        return records.log_of(id, *row) if row else b""

    async def count_bytes(self, owner: str, more: int) -> None:
        self._count(owner, more)

    def _count(self, owner: str, more: int, chats: int = 0) -> None:
        self._run("count_stored", owner, more, chats)
        link = link_of(owner)
        if link is not None:
            self._run("count_stored_by_visitors", link.raw, more, chats)

    @decoder
    async def usage(self, owner: str) -> Usage:
        row = self._row("stored", owner)
        return Usage(bytes=row[0], chats=row[1]) if row else Usage(bytes=0)

    async def flags(self, owner: str, turns: Sequence[TurnId]) -> FlagsByTurn:
        found = {turn: self._rows("flags", turn.raw, owner) for turn in turns}
        return {turn: records.flags_of(rows) for turn, rows in found.items() if rows}

    async def flags_in(self, owner: str, stretches: Sequence[Stretch]) -> FlagsByTurn:
        ranges = [(self._ref(each.branch), each.after, each.through) for each in stretches]
        found: dict[TurnId, list[Row]] = {}
        for turn, *flags in self._rows("flags_in", msgspec.json.encode(ranges).decode(), owner):
            found.setdefault(TurnId.trusted(turn), []).append(tuple(flags))
        return {turn: records.flags_of(rows) for turn, rows in found.items()}

    async def save_flags(self, owner: str, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        self._run("drop_flags", turn.raw)
        for place, each in flags.items():
            self._run("add_flags", turn.raw, place, owner, int(each.to_model), int(each.to_user))
        self._note_due(turn)
        self._run("raise_flag_version", owner)

    async def flag_version(self, owner: str) -> int:
        row = self._row("flag_version", owner)
        return row[0] if row else 0

    async def attempt(self, owner: str, id: TurnId) -> Attempt | None:
        row = self._row("attempt", RUNNING, id.raw, owner) or self._row("attempt", ENDED, id.raw, owner)
        if row is None:
            return None
        self._attempt = records.attempt_of(row)
        return self._attempt

    async def attempts(self, conversation: ConversationId, limit: int) -> list[Attempt]:
        return [records.attempt_of(row) for row in self._rows("attempts", conversation.raw, limit)]

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]:
        return [records.attempt_of(row) for row in self._rows("running_attempts", lease.raw)]

    async def add_attempt(self, attempt: Attempt) -> None:
        input = attempt.request_body
        is_long = len(input) >= LONG_INPUT
        self._run("add_attempt", *records.columns_of_attempt(attempt, None if is_long else input))
        if is_long:
            self._run("add_attempt_input", attempt.id.raw, input)

    async def save_attempt(self, attempt: Attempt) -> None:
        seen = self._attempt
        if seen is not None and replace(attempt, journaled=seen.journaled) == seen:
            self._run("record_progress", attempt.journaled, attempt.id.raw)
        else:
            self._run("save_attempt", *records.changes_of_attempt(attempt), attempt.id.raw)
        self._attempt = None

    async def drop_attempt(self, id: TurnId) -> None:
        self._drop_attempt(id.raw)

    def _drop_attempt(self, id: bytes) -> None:
        self._run("drop_running_attempt", id)
        if not self._cursor.connection.changes():
            self._run("drop_ended_attempt", id)
        # Checking first whether there is a long input would cost more than the removal.
        self._run("drop_attempt_input", id)

    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        return self._remove_attempts(self._rows("old_attempts", ended_before, limit))

    def _remove_attempts(self, rows: Sequence[Row]) -> int:
        for id, owner, counted in rows:
            self._count(owner, -counted)
            self._drop_attempt(id)
            self._run("drop_journal", id)
            self._run("drop_log", id)
        return len(rows)

    async def journal(self, attempt: TurnId) -> list[bytes]:
        return [record for (record,) in self._rows("journal", attempt.raw)]

    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        for number, record in enumerate(records, first):
            self._run("add_record", attempt.raw, number, record)

    async def drop_journal(self, attempt: TurnId) -> None:
        self._run("drop_journal", attempt.raw)

    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        return [chunk for (chunk,) in self._rows("log_chunks", attempt.raw, first, limit)]

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        self._run("add_log_chunk", attempt.raw, number, chunk)

    async def drop_log(self, attempt: TurnId) -> None:
        self._run("drop_log", attempt.raw)

    async def tickets(self, branch: BranchId) -> list[Ticket]:
        return [records.ticket_of(row) for row in self._rows("tickets", branch.raw)]

    async def ticket(self, attempt: TurnId) -> Ticket | None:
        row = self._row("ticket", attempt.raw)
        return None if row is None else records.ticket_of(row)

    async def tickets_of(self, lease: LeaseId) -> list[Ticket]:
        return [records.ticket_of(row) for row in self._rows("tickets_of", lease.raw)]

    async def add_ticket(self, ticket: Ticket) -> Ticket:
        ((number,),) = self._rows("next_ticket", ticket.branch.raw)
        numbered = replace(ticket, number=number)
        self._run("add_ticket", *records.columns_of_ticket(numbered))
        return numbered

    async def move_tickets(self, old: BranchId, new: BranchId) -> None:
        self._run("move_tickets", new.raw, old.raw)
        if self._cursor.connection.changes():
            self._run("go_on_numbering", new.raw, old.raw)

    async def drop_ticket(self, attempt: TurnId) -> None:
        self._run("drop_ticket", attempt.raw)

    async def claim(self, owner: str, idempotency_key: str) -> Claim | None:
        row = self._row("claim", owner, idempotency_key)
        return None if row is None else records.claim_of(owner, idempotency_key, row)

    async def save_claim(self, claim: Claim) -> None:
        self._run("save_claim", *records.columns_of_claim(claim))

    async def drop_claim(self, owner: str, idempotency_key: str) -> None:
        self._run("drop_claim", owner, idempotency_key)

    async def purge_claims(self, expired_before: int, limit: int) -> int:
        return len(self._rows("purge_claims", expired_before, limit))

    @decoder
    async def lease(self, id: LeaseId) -> Lease | None:
        row = self._row("lease", id.raw)
        return None if row is None else Lease(id, row[0])

    @decoder
    async def leases(self) -> list[Lease]:
        return [Lease(LeaseId.trusted(id), beat) for id, beat in self._rows("leases")]

    async def beat(self, id: LeaseId) -> None:
        self._run("beat", id.raw)

    async def drop_lease(self, id: LeaseId) -> None:
        self._run("drop_lease", id.raw)

    async def bury_lease(self, id: LeaseId) -> None:
        self._run("bury_lease", id.raw)
        self._run("forget_buried", BURIED_KEPT)

    async def add_change(self, change: LiveChange) -> None:
        self._run("add_change", *records.columns_of_change(change))

    @decoder
    async def changes(
        self, after: int, owners: Collection[str], limit: int
    ) -> tuple[list[LiveChange], Position | None]:
        rows = self._rows("changes", after, limit)
        # Skip changes of owners without followers here, which are most.
        found = [records.change_of(row) for row in rows if row[1] in owners]
        return found, records.position_of(rows[-1]) if rows else None

    async def changes_of(self, owner: str, after: int, limit: int) -> list[LiveChange]:
        rows = self._rows("changes_of", after, owner, limit)
        return [records.change_of(row) for row in rows]

    @decoder
    async def change_position(self, number: int | None) -> Position | None:
        if number == 0:
            [(oldest,)] = self._rows("oldest_change")
            return Position() if oldest in (None, 1) else None
        rows = self._rows("newest_change") if number is None else self._rows("change", number)
        if not rows:
            return Position() if number is None else None
        found, at, conversation, turn = rows[0]
        return Position(found, mark_of(at, conversation, turn))

    @decoder
    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        newest = self._rows("newest_change")
        if not newest:
            return 0
        number = newest[0][0]
        self._rows("purge_changes", limit, number, before, number - keep)
        return self._cursor.connection.changes()

    async def owner_of_ticket(self, attempt: TurnId) -> str | None:
        rows = self._rows("owner_of_ticket", attempt.raw)
        return rows[0][0] if rows else None

    @decoder
    async def clock_mark(self) -> ClockMark | None:
        rows = self._rows("clock_mark")
        return ClockMark(*rows[0]) if rows else None

    async def save_clock_mark(self, mark: ClockMark) -> None:
        self._run("save_clock_mark", mark.boot, mark.boot_at, mark.since, mark.trusted_at)

    @decoder
    async def newest_time(self) -> int | None:
        [(newest,)] = self._rows("newest_time")
        return newest if newest is None else int(newest)
