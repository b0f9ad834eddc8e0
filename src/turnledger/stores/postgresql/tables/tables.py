"""The rows of one owner inside one transaction: the statements under the engine's names."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from random import getrandbits
from struct import Struct
from struct import error as StructError
from typing import NamedTuple

from msgspec.structs import replace

from turnledger.engine.tables.lanes import Lane
from turnledger.errors import StoreCorrupt, StoreError, StoreUnavailable
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
    TitleSource,
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
from turnledger.stores.postgresql.tables.catalogue import PostgresCatalogueRows
from turnledger.stores.postgresql.tables.queries import OwnedQueries, StoreQueries, Transaction
from turnledger.stores.postgresql.tables.search import PostgresSearchRows
from turnledger.stores.row_codec import Row

ATTEMPT_COLUMNS = 23
BRANCH_COLUMNS = slice(2, 17)
"""The columns of a branch that `row_codec` knows, behind owner and id."""
LANE_BRANCH, LANE_CONVERSATION = slice(5, 20), 20
"""The same in the row of a lane, and the first column of its conversation."""
MOST_TURNS = 2**31 - 1


# Positions: the epoch, the number of a transaction, the place of a change within it, the mark of the epoch.

_POSITION = re.compile(r"[0-9a-f]{6}-[0-9a-f]{15}-[0-9a-f]{6}-[0-9a-f]{8}")
MARK = 4
"""Random bytes in a position."""
_BEFORE_ALL = -1


class EpochOver(StoreUnavailable):
    """The database was restarted or restored. Try again."""  # begin a new epoch before


class Epoch(NamedTuple):
    number: int
    mark: bytes
    purged: tuple[int, int]
    """The position of the last change that was removed."""
    horizon: int
    """The first transaction that may still run."""

    def position_at(self, xid: int, place: int) -> Position:
        return Position(f"{self.number:06x}-{xid + 1:015x}-{place + 1:06x}-{self.mark.hex()}")

    @decoder
    def change_of(self, row: Row) -> LiveChange:
        return row_codec.change_of(row[1:], self.position_at(row[0], row[1]))


def place_of(position: Position) -> tuple[int, int]:
    _, xid, place, _ = position.split("-")
    return int(xid, 16) - 1, int(place, 16) - 1


# The packed stretches of an origin.

_STRETCH = Struct(">16sqq")


@lru_cache(maxsize=256)
@decoder
def line_of(raw: bytes | None) -> tuple[Stretch, ...]:
    """Decode the stretches of an origin. Cached: many branches share a long line, which never changes."""
    try:
        parts = tuple(_STRETCH.iter_unpack(raw or b""))
    except StructError as problem:
        raise StoreCorrupt(
            f"A stored line of turns cannot be read: {problem}. Restore the store from a backup."
        ) from None
    return tuple(Stretch(BranchId.trusted(branch), after, through) for branch, after, through in parts)


def pack_line(line: Sequence[Stretch]) -> bytes | None:
    return b"".join(_STRETCH.pack(each.branch.raw, each.after, each.through) for each in line) or None


def branch_in(row: Row) -> Branch:
    return row_codec.branch_of(BranchId.trusted(row[1]), row[BRANCH_COLUMNS])


class PostgresSharedRows(StoreQueries):
    """Rows that one owner and the whole store have in common: leases, positions, and what is purged."""

    async def lease(self, id: LeaseId) -> Lease | None:
        row = await self._fetch_row("lease", id.raw)
        return None if row is None else Lease(id, row[0])

    async def beat(self, id: LeaseId) -> None:
        await self._fetch("beat", id.raw)

    @decoder
    async def newest_position(self) -> Position:
        rows = await self._fetch("newest_change")
        epoch = await self._epoch()
        xid, place = rows[0] if rows else (_BEFORE_ALL, _BEFORE_ALL)
        return epoch.position_at(xid, place)

    @decoder
    async def is_kept(self, position: Position) -> bool:
        if _POSITION.fullmatch(position) is None:
            return False
        epoch, place = await self._epoch(), place_of(position)
        return epoch.purged <= place and place[0] < epoch.horizon and position == epoch.position_at(*place)

    @decoder
    async def _epoch(self) -> Epoch:
        row = await self._fetch_row("epoch")
        if row is None:
            raise EpochOver
        number, mark, xid, place, horizon = row
        return Epoch(number, mark, (xid, place), horizon)

    async def _purge_ended(self, limit: int, owners: Sequence[str]) -> int:
        """Remove rows of ended conversations of these owners."""
        removed = 0
        for owner in owners:
            await self._lock(owner)
            for (id,) in await self._fetch("unswept_conversations", owner, limit):
                await self._fetch("drop_previews", owner, id)
                removed += await self._purge_branches(owner, id, limit - removed)
                attempts = await self._fetch("ended_attempts", owner, id, limit - removed)
                removed += await self._remove_attempts(owner, attempts)
                if removed >= limit:
                    return removed
                await self._fetch("mark_swept", owner, id)
        return removed

    @decoder
    async def _purge_branches(self, owner: str, conversation: bytes, limit: int) -> int:
        """Remove the turns of an ended conversation that no branch elsewhere needs. When a branch is empty,
        the one it was made from may have more turns to remove."""
        removed = 0
        for id, stored in await self._fetch("uncleared_branches", owner, conversation):
            [(needed,)] = await self._fetch("needed_through", owner, id)
            sizes = await self._drop_turns(owner, id, needed or 0, limit - removed)
            if sizes:
                left = stored - sum(sizes)
                await self._fetch("shrink_branch", owner, id, left)
                await self._count(owner, branch_bytes(left) - branch_bytes(stored))
                stored = left
            removed += len(sizes)
            if removed >= limit:
                break
            if needed is None:
                await self._fetch("clear_branch", owner, id)
                await self._count(owner, -branch_bytes(stored))
                removed += await self._drop_origin(owner, id)
        return removed

    async def _drop_origin(self, owner: str, branch: bytes) -> int:
        sources = await self._fetch("drop_origin", owner, branch)
        for (source,) in sources:
            await self._fetch("sweep_again", owner, source)
        return len(sources)

    async def _drop_turns(self, owner: str, branch: bytes, after: int, limit: int) -> list[int]:
        """Remove the last `limit` turns of a branch with a higher number; return the size of each."""
        return [size for (size,) in await self._fetch("purge_turns", owner, branch, after, limit)]

    async def _remove_attempts(self, owner: str, rows: Sequence[Row]) -> int:
        for id, counted in rows:
            await self._count(owner, -counted)
            for query in ("drop_attempt", "drop_journal", "drop_log"):
                await self._fetch(query, owner, id)
        return len(rows)

    async def _count(self, owner: str, more: int, chats: int = 0) -> None:
        await self._transaction.write("count_stored", owner, more, chats)
        link = link_of(owner)
        if link is not None:
            await self._transaction.write("count_stored_by_visitors", link.raw, more, chats)


class PostgresTables(PostgresCatalogueRows, PostgresSearchRows, PostgresSharedRows, OwnedQueries):
    """The engine's `Tables`. Every query names the owner, whose row is locked before the first one."""

    def __init__(self, transaction: Transaction, owner: str) -> None:
        super().__init__(transaction, owner)
        self._known: set[ConversationId | BranchId] = set()
        """Conversations and branches that were found to be of this owner."""
        # A failover may lose a begin. What follows must not get a version that its holder remembers.
        self._step = getrandbits(31) + 1

    async def conversation(self, id: ConversationId) -> Conversation | None:
        row = await self._own_row("conversation", id.raw)
        if row is None:
            return None
        self._known.add(id)
        return row_codec.conversation_of(row)

    async def conversation_by_key(self, scope: str, conversation_key: str) -> Conversation | None:
        row = await self._own_row("conversation_by_key", scope, conversation_key)
        return None if row is None else row_codec.conversation_of(row)

    async def add_conversation(self, conversation: Conversation) -> None:
        if conversation.owner != self.owner:
            raise StoreError(f"{conversation.id} is of another owner.")
        columns = row_codec.columns_of_conversation(conversation)
        id = conversation.id.raw
        await self._transaction.lock(self.owner)
        await self._fetch("add_conversation", id, conversation.owner, conversation.scope, *columns)
        if conversation.title is not None and conversation.named_by is not TitleSource.WORDS:
            await self._own("note_due", id, 1)
        await self._add_tags(conversation)
        await self._count(self.owner, details_bytes(conversation), chat_count(conversation))

    async def save_conversation(self, conversation: Conversation) -> None:
        had = await self.conversation(conversation.id)
        if had is None:
            raise StoreError(f"There is no {conversation.id}.")
        more = details_bytes(conversation) - details_bytes(had)
        chats = chat_count(conversation) - chat_count(had)
        if more or chats:
            await self._count(self.owner, more, chats)
        await self._tag(conversation.id, had.tags, conversation.tags)
        columns = row_codec.columns_of_conversation(conversation)
        await self._transaction.write("save_conversation", *columns, conversation.id.raw, self.owner)
        is_renamed = (had.title, had.named_by) != (conversation.title, conversation.named_by)
        # A title made of the first words is not indexed: they are indexed with their turn.
        if is_renamed and (conversation.named_by is not TitleSource.WORDS or had.title is not None):
            await self._own("note_due", conversation.id.raw, 1)

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        await self._change("touch_conversation", id.raw, at)

    async def move_conversation(self, id: ConversationId, old: BranchId, new: BranchId) -> bool:
        await self._check_branch(new)
        return bool(await self._own("move_conversation", id.raw, old.raw, new.raw))

    async def _check_not_foreign(self, id: ConversationId | None) -> None:
        if id is None or id in self._known:
            return
        if await self._own("is_foreign", id.raw):
            raise StoreError(f"There is no {id}.")

    async def _check_conversation(self, id: ConversationId) -> None:
        if id not in self._known and await self._own_row("conversation", id.raw) is None:
            raise StoreError(f"There is no {id}.")

    async def _check_branch(self, id: BranchId) -> None:
        if id not in self._known and await self._own_row("branch", id.raw) is None:
            raise StoreError(f"There is no {id}.")

    # Branches.

    async def branch(self, id: BranchId) -> Branch | None:
        row = await self._own_row("branch", id.raw)
        return None if row is None else self._note(branch_in(row))

    def _note(self, branch: Branch) -> Branch:
        self._known |= {branch.id, branch.conversation}
        return branch

    async def add_branch(self, branch: Branch) -> None:
        await self._check_conversation(branch.conversation)
        columns = row_codec.columns_of_branch(branch)
        await self._own("add_branch", branch.id.raw, branch.conversation.raw, branch.start, *columns)
        await self._count(self.owner, branch_bytes(branch.bytes))

    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        conversation = made[0].branch.conversation
        await self._check_conversation(conversation)
        await self._transaction.lock(self.owner)
        await self._transaction.flush()
        copy = self._transaction.connection.copy_records_to_table
        [(first,)] = await self._own("next_branch", conversation.raw)
        rows = [self._columns_of_branch(each.branch, number) for number, each in enumerate(made, first)]
        await copy("branch", records=rows, columns=BRANCH_NAMES)
        await self._count(self.owner, sum(branch_bytes(each.branch.bytes) for each in made))
        for each in made:
            if each.origin is not None:
                await self.add_origin(each.origin)
        await self._transaction.flush()
        await copy("turn", records=self._rows_of_turns(made), columns=TURN_NAMES)
        due = ((self.owner, turn.id.raw, 0) for each in made for turn, _ in each.turns)
        await copy("unindexed", records=due, columns=("owner", "id", "title"))

    def _columns_of_branch(self, branch: Branch, number: int) -> Row:
        columns = row_codec.columns_of_branch(branch)
        return self.owner, branch.id.raw, number, branch.conversation.raw, branch.start, *columns

    def _rows_of_turns(self, made: Sequence[NewBranch]) -> Iterator[Row]:
        return (self._columns_of_turn(turn, log) for each in made for turn, log in each.turns)

    async def save_branch(self, branch: Branch) -> None:
        await self._check_branch(branch.id)
        columns = row_codec.columns_of_branch(branch)
        await self._change("save_branch", branch.id.raw, *columns, self._step)

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        row = await self._own_row("first_branch", conversation.raw)
        return None if row is None else branch_in(row)

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        last = row_codec.raw_or_none(before)
        return [branch_in(row) for row in await self._own("branches", conversation.raw, last, limit)]

    async def add_origin(self, origin: Origin) -> None:
        await self._check_not_foreign(origin.conversation)
        for branch in {origin.branch, *(each.branch for each in origin.line)}:
            await self._check_branch(branch)
        source = origin.line[0] if origin.line else None
        await self._own(
            "add_origin",
            origin.branch.raw,
            origin.conversation.raw,
            row_codec.raw_or_none(origin.base),
            source.branch.raw if source else None,
            source.through if source else 0,
            pack_line(origin.line),
        )

    async def origin(self, branch: BranchId) -> Origin | None:
        row = await self._own_row("origin", branch.raw)
        if row is None:
            return None
        conversation, base, line = row
        return Origin(
            branch=branch,
            conversation=ConversationId.trusted(conversation),
            base=row_codec.id_or_none(TurnId, base),
            line=line_of(line),
        )

    def _line_of(self, raw: bytes | None) -> tuple[Stretch, ...]:
        return line_of(raw)

    async def has_offshoots(self, branch: BranchId) -> bool:
        return bool(await self._own("has_offshoots", branch.raw))

    async def drop_turns(self, branch: BranchId, after: int) -> int:
        await self._transaction.lock(self.owner)
        return sum(await self._drop_turns(self.owner, branch.raw, after, MOST_TURNS))

    async def drop_branch(self, id: BranchId) -> None:
        found = await self.branch(id)
        if found is None:
            return
        attempts = await self._own("attempts_on_branch", found.conversation.raw, id.raw)
        await self._remove_attempts(self.owner, attempts)
        await self._drop_origin(self.owner, id.raw)
        for (size,) in await self._own("drop_branch", id.raw):
            await self._count(self.owner, -branch_bytes(size))
        self._known.discard(id)

    async def empty_branches_at(self, turn: Turn, limit: int) -> list[BranchId]:
        rows = await self._own("ends_at", turn.branch.raw, turn.id.raw, limit)
        return [BranchId.trusted(id) for (id,) in rows]

    async def lane(self, id: ConversationId, lease: LeaseId) -> Lane | None:
        query = "held_lane" if self._transaction.writes else "lane"
        row = await self._own_row(query, id.raw, lease.raw)
        if row is None:
            return None
        lane = lane_in(row)
        self._note(lane.branch)
        return lane

    async def admission(self) -> int:
        row = await self._own_row("owner")
        return row[1] if row else 0

    # Turns.

    async def turn(self, id: TurnId) -> Turn | None:
        row = await self._own_row("turn", id.raw)
        return None if row is None else row_codec.turn_of(id, BranchId.trusted(row[0]), row[1:])

    async def turns(self, branch: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        rows = await self._own("turns", branch.raw, after, through, limit)
        return [row_codec.turn_of(TurnId.trusted(row[0]), branch, row[1:]) for row in reversed(rows)]

    async def turns_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        return _turns(await self._own("turns_in", *_arrays(stretches)))

    async def effects_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        turns = _turns(await self._own("turns_with_effects", *_arrays(stretches)))
        return [turn for turn in turns if turn.is_carried]

    async def add_turn(self, turn: Turn, log: bytes = b"") -> None:
        await self._check_branch(turn.branch)
        await self._transaction.write("add_turn", *self._columns_of_turn(turn, log))
        await self._change("note_due", turn.id.raw, 0)

    def _columns_of_turn(self, turn: Turn, log: bytes) -> Row:
        return (
            self.owner,
            turn.id.raw,
            turn.branch.raw,
            turn.number,
            row_codec.raw_or_none(turn.parent),
            row_codec.number_of(turn),
            turn.created_at,
            turn.committed_at,
            turn.body,
            log or None,
            row_codec.checksum_of(turn, log),
        )

    async def turn_log(self, id: TurnId) -> bytes:
        row = await self._own_row("turn_log", id.raw)
        return row_codec.log_of(id, *row) if row else b""

    async def count_bytes(self, more: int) -> None:
        await self._transaction.lock(self.owner)
        await self._count(self.owner, more)

    async def usage(self) -> Usage:
        row = await self._own_row("owner")
        return Usage(bytes=row[2], chats=row[3]) if row else Usage(bytes=0)

    async def link(self) -> Share | None:
        link = link_of(self.owner)
        if link is None:
            return None
        # Its visitors share a quota: one of them at a time decides by it.
        query = "locked_share" if self._transaction.writes else "share"
        row = await self._fetch_row(query, link.raw, None)
        return None if row is None else row_codec.share_of(row)

    async def flags(self, turns: Sequence[TurnId]) -> FlagsByTurn:
        return _flags(await self._own("flags", [turn.raw for turn in turns]))

    async def flags_in(self, stretches: Sequence[Stretch]) -> FlagsByTurn:
        return _flags(await self._own("flags_in", *_arrays(stretches)))

    async def save_flags(self, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        place = await self._own_row("place_of_turn", turn.raw)
        if place is None:
            raise StoreError(f"There is no {turn}.")
        await self._own("drop_flags", turn.raw)
        for number, each in flags.items():
            shown = int(each.to_model), int(each.to_user)
            await self._own("add_flags", turn.raw, number, *shown, *place)
        await self._own("note_due", turn.raw, 0)
        await self._own("raise_flag_version")

    async def flag_version(self) -> int:
        row = await self._own_row("owner")
        return row[0] if row else 0

    # Attempts.

    async def attempt(self, id: TurnId) -> Attempt | None:
        row = await self._own_row("attempt", id.raw)
        return None if row is None else row_codec.attempt_of(row)

    async def add_attempt(self, attempt: Attempt) -> None:
        if attempt.owner != self.owner:
            raise StoreError(f"{attempt.id} is of another owner.")
        await self._check_not_foreign(attempt.conversation)
        await self._check_branch(attempt.branch)
        await self._transaction.write(
            "add_attempt", *row_codec.columns_of_attempt(attempt, attempt.request_body)
        )

    async def save_attempt(self, attempt: Attempt) -> None:
        columns = row_codec.changes_of_attempt(attempt)
        await self._change("save_attempt", attempt.id.raw, *columns, self._step)

    async def drop_attempt(self, id: TurnId) -> None:
        await self._change("drop_attempt", id.raw)

    async def journal(self, attempt: TurnId) -> list[bytes]:
        return [record for (record,) in await self._own("journal", attempt.raw)]

    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        await self._change("add_records", attempt.raw, first, list(records))

    async def drop_journal(self, attempt: TurnId) -> None:
        await self._change("drop_journal", attempt.raw)

    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        return [chunk for (chunk,) in await self._own("log_chunks", attempt.raw, first, limit)]

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        await self._change("add_log_chunk", attempt.raw, number, chunk)

    async def drop_log(self, attempt: TurnId) -> None:
        await self._change("drop_log", attempt.raw)

    # Tickets, jobs and claims.

    async def ticket_for(self, idempotency_key: str) -> Ticket | None:
        row = await self._own_row("ticket_for", idempotency_key)
        return None if row is None else row_codec.ticket_of(row)

    async def add_ticket(self, ticket: Ticket) -> Ticket:
        await self._check_conversation(ticket.conversation)
        row = await self._own_row("next_ticket", ticket.branch.raw)
        if row is None:
            raise StoreError(f"There is no {ticket.branch}.")
        numbered = replace(ticket, number=row[0])
        await self._fetch("add_ticket", *row_codec.columns_of_ticket(numbered), self.owner)
        return numbered

    async def move_tickets(self, old: BranchId, new: BranchId) -> None:
        await self._check_branch(old)
        await self._check_branch(new)
        if await self._own("move_tickets", old.raw, new.raw):
            await self._own("go_on_numbering", old.raw, new.raw)

    async def drop_ticket(self, attempt: TurnId) -> None:
        await self._change("drop_ticket", attempt.raw)

    async def claim(self, idempotency_key: str) -> Claim | None:
        row = await self._own_row("claim", idempotency_key)
        return None if row is None else row_codec.claim_of(self.owner, idempotency_key, row)

    async def save_claim(self, claim: Claim) -> None:
        if claim.owner != self.owner:
            raise StoreError(f"The claim of {claim.idempotency_key!r} is of another owner.")
        await self._transaction.lock(self.owner)
        await self._transaction.write("save_claim", *row_codec.columns_of_claim(claim))

    async def drop_claim(self, idempotency_key: str) -> None:
        await self._change("drop_claim", idempotency_key)

    async def purge_ended(self, limit: int) -> int:
        return await self._purge_ended(limit, [self.owner])

    # Changes.

    async def add_change(self, change: LiveChange) -> None:
        if change.owner != self.owner:
            raise StoreError(f"The change of {change.conversation} is of another owner.")
        await self._check_not_foreign(change.conversation)
        columns = row_codec.columns_of_change(change)
        await self._transaction.write("add_change", *columns, self._transaction.changes)
        self._transaction.changes += 1

    async def changes(self, after: Position | None, limit: int) -> list[LiveChange]:
        place = (_BEFORE_ALL, _BEFORE_ALL) if after is None else place_of(after)
        rows = await self._own("changes", *place, limit)
        epoch = await self._epoch()
        return [epoch.change_of(row) for row in rows]


BRANCH_NAMES = (
    "owner",
    "id",
    "number",
    "conversation",
    "start",
    "fence",
    "head",
    "length",
    "running",
    "unsettled",
    "pending",
    "settled",
    "instructed",
    "bytes",
    "preview",
    "used_at",
)
TURN_NAMES = (
    "owner",
    "id",
    "branch",
    "number",
    "parent",
    "kind",
    "created_at",
    "committed_at",
    "body",
    "log",
    "checksum",
)


def lane_in(row: Row) -> Lane:
    has_lease, flag_version, admission, _, branch = row[:5]
    conversation = row_codec.conversation_of(row[LANE_CONVERSATION:])
    return Lane(
        conversation,
        row_codec.branch_of(BranchId.trusted(branch), row[LANE_BRANCH], conversation.id),
        bool(has_lease),
        flag_version or 0,
        admission or 0,
    )


def _arrays(stretches: Sequence[Stretch]) -> tuple[list[bytes], list[int], list[int]]:
    return (
        [each.branch.raw for each in stretches],
        [each.after for each in stretches],
        [each.through for each in stretches],
    )


def _turns(rows: Sequence[Row]) -> list[Turn]:
    return [row_codec.turn_of(TurnId.trusted(row[0]), BranchId.trusted(row[1]), row[2:]) for row in rows]


@decoder
def _flags(rows: Sequence[Row]) -> FlagsByTurn:
    found: dict[TurnId, list[Row]] = {}
    for turn, *flags in rows:
        found.setdefault(TurnId.trusted(turn), []).append(tuple(flags))
    return {turn: row_codec.flags_of(each) for turn, each in found.items()}
