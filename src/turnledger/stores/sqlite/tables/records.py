"""The statements by name, and the conversion between rows and the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache
from importlib.resources import files
from itertools import chain, islice
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar
from zlib import crc32

import apsw
import msgspec

from turnledger.errors import StoreCorrupt, StoreError
from turnledger.model import codec
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
    Stretch,
    Ticket,
    TitleSource,
)
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, Id, LeaseId, TurnId
from turnledger.model.item import Item
from turnledger.model.job import TurnJob
from turnledger.model.retention import NEVER, ResetPolicy
from turnledger.model.turn import (
    Attempt,
    AttemptBody,
    AttemptState,
    Failure,
    Fork,
    OnFailure,
    OnStop,
    Turn,
    TurnKind,
)
from turnledger.stores.sqlite.failures import decoder

if TYPE_CHECKING:
    from turnledger.stores.sqlite.tables.tables import LaneCache

Row: TypeAlias = tuple[Any, ...]

_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)
_COMMENT = re.compile(r"^--.*\n", re.MULTILINE)


def sql_text(name: str) -> str:
    return files("turnledger.stores.sqlite").joinpath(name).read_text("utf-8")


def named_queries(text: str) -> dict[str, str]:
    """Split a file of named queries, each into one line without extra white space: statements are cached by
    their text, and each character costs a nanosecond."""
    _, *parts = _NAME.split(text)
    return {
        name: " ".join(_COMMENT.sub("", query).split())
        for name, query in zip(parts[::2], parts[1::2], strict=True)
    }


FILES = ("tables", "catalogue", "access", "search", "overview")
QUERIES: Mapping[str, str] = {
    name: query for file in FILES for name, query in named_queries(sql_text(f"tables/{file}.sql")).items()
}


_WRITES = re.compile(r"(?:UPDATE|INSERT INTO|DELETE FROM) (?:conversation|branch|owner|lease)\b")
NOTED = frozenset(("save_branch", "touch_conversation", "save_conversation"))
NOT_IN_LANES = frozenset(
    ("add_branch", "add_conversation", "beat", "count_stored", "title_known", "titles_known")
)
"""Queries that write what no cached lane has: new rows, and other columns."""
ON_LANES = frozenset(name for name, query in QUERIES.items() if _WRITES.search(query)) - NOTED - NOT_IN_LANES
"""Queries after which cached lanes are outdated."""
ROWS_AT_ONCE = (200, 20, 1)
"""Rows inserted by one statement: few sizes, since statements are cached."""


class NamedQueries:
    """Runs the queries of a transaction. `lanes` are cached by the writer; readers have none."""

    def __init__(self, cursor: apsw.Cursor, lanes: LaneCache | None = None) -> None:
        self._cursor = cursor
        self._execute = cursor.execute
        self._lanes = lanes

    def _rows(self, query: str, *bindings: Any) -> list[Row]:
        if query in ON_LANES and self._lanes is not None:
            self._lanes.clear()
        return self._execute(QUERIES[query], bindings).fetchall()

    def _row(self, query: str, *bindings: Any) -> Row | None:
        rows = self._rows(query, *bindings)
        return rows[0] if rows else None

    def _run(self, query: str, *bindings: Any) -> None:
        if query in ON_LANES and self._lanes is not None:
            self._lanes.clear()
        self._execute(QUERIES[query], bindings)

    def _insert(self, query: str, rows: Iterable[Row]) -> None:
        """Insert many rows with few statements: each one releases the GIL, and may have to wait for it."""
        statement, left = QUERIES[query], iter(rows)
        values = statement[statement.index("(", statement.index("VALUES")) : statement.rindex(")") + 1]
        while part := list(islice(left, ROWS_AT_ONCE[0])):
            for size in ROWS_AT_ONCE:
                while len(part) >= size:
                    several = statement.replace(values, ", ".join([values] * size))
                    self._execute(several, list(chain.from_iterable(part[:size])))
                    del part[:size]


class OwnedRows(NamedQueries):
    """Rows of one owner. Every query names the owner, or a branch whose owner was checked."""

    def __init__(self, cursor: apsw.Cursor, owner: str, lanes: LaneCache | None = None) -> None:
        super().__init__(cursor, lanes)
        self.owner = owner
        self._refs: dict[BranchId, int] = {}
        self._owned: set[ConversationId] = set()
        """Conversations that were found to be of this owner."""

    def _check_not_foreign(self, id: ConversationId | None) -> None:
        if id is not None and id not in self._owned and self._rows("is_foreign", id.raw, self.owner):
            raise StoreError(f"There is no {id}.")

    def _known_ref(self, id: BranchId) -> int | None:
        """Return the number of a branch in its turns, None if this owner has no such branch; mostly cached,
        since the branch was read before."""
        if id not in self._refs:
            row = self._row("ref_of_branch", id.raw, self.owner)
            if row is None:
                return None
            self._refs[id] = row[0]
        return self._refs[id]

    def _ref(self, id: BranchId) -> int:
        ref = self._known_ref(id)
        if ref is None:
            raise StoreError(f"There is no {id}.")
        return ref


AnyId = TypeVar("AnyId", bound=Id)

ID_BYTES = 16

KINDS = (TurnKind.COMPLETED, TurnKind.INTERRUPTED, TurnKind.SETTLED, TurnKind.INTERRUPTED)
"""Turn kinds by their number in the table. From 2 on, turns may be carried to other branches."""
INTERRUPTED_WITH_EFFECTS = 3
_CONVERSATION_STATES = {state.value: state for state in ConversationState}
_NUMBER_OF = {kind: number for number, kind in enumerate(KINDS[:INTERRUPTED_WITH_EFFECTS])}


class PendingCalls(codec.Document, frozen=True):
    items: tuple[msgspec.Raw, ...]


def raw_or_none(id: Id | None) -> bytes | None:
    return None if id is None else id.raw


def id_or_none(kind: type[AnyId], raw: bytes | None) -> AnyId | None:
    return None if raw is None else kind.trusted(raw)


@decoder
def ids_of(kind: type[AnyId], raw: bytes) -> tuple[AnyId, ...]:
    if len(raw) % ID_BYTES:
        raise StoreCorrupt("A stored list of ids cannot be read.")
    return tuple(kind.trusted(raw[at : at + ID_BYTES]) for at in range(0, len(raw), ID_BYTES))


@decoder
def conversation_of(row: Row) -> Conversation:
    metadata, reset_policy = row[7], row[12]
    return Conversation(
        id=ConversationId.trusted(row[0]),
        owner=row[1],
        branch=BranchId.trusted(row[2]),
        conversation_key=row[3],
        state=_CONVERSATION_STATES[row[4]],
        internal=bool(row[5]),
        title=row[6],
        metadata=msgspec.json.decode(metadata, type=dict[str, str]) if metadata else {},
        revision=row[8],
        created_at=row[9],
        touched_at=row[10],
        expires_after=row[11],
        reset_policy=NEVER if reset_policy is None else codec.decode(ResetPolicy, reset_policy),
        former_conversation_key=row[13],
        scope=row[14],
        tags=tags_of(row[15]),
        pinned=bool(row[16]),
        archived=bool(row[17]),
        named_by=None if row[18] is None else TitleSource(row[18]),
        is_listed=bool(row[19]),
        purge_at=row[20],
    )


@decoder
def tags_of(text: str | None) -> tuple[str, ...]:
    return msgspec.json.decode(text, type=tuple[str, ...]) if text else ()


def columns_of_conversation(conversation: Conversation) -> Row:
    """Return all columns but id, owner and scope, which never change."""
    return (
        conversation.branch.raw,
        None if conversation.is_deleted else conversation.conversation_key,
        conversation.state.value,
        int(conversation.internal),
        conversation.title,
        msgspec.json.encode(conversation.metadata).decode() if conversation.metadata else None,
        conversation.revision,
        conversation.created_at,
        conversation.touched_at,
        conversation.expires_after,
        None if conversation.reset_policy == NEVER else codec.encode(conversation.reset_policy),
        conversation.former_conversation_key,
        msgspec.json.encode(conversation.tags).decode() if conversation.tags else None,
        int(conversation.pinned),
        int(conversation.archived),
        None if conversation.named_by is None else conversation.named_by.value,
        int(conversation.is_listed),
        conversation.purge_at,
    )


@decoder
def counted_conversation(
    conversation: Conversation, state: str, title: str | None, metadata: str | None, tags: str | None
) -> Conversation:
    """Return the conversation with these columns, those that count for the quota."""
    return msgspec.structs.replace(
        conversation,
        state=_CONVERSATION_STATES[state],
        title=title,
        metadata=msgspec.json.decode(metadata, type=dict[str, str]) if metadata else {},
        tags=tags_of(tags),
    )


@decoder
def branch_of(id: BranchId, row: Row, conversation: ConversationId | None = None) -> Branch:
    """Return a branch. `conversation` is the one that shows it, if known: making its id is as slow as reading
    a row. Raises StoreCorrupt if the branch belongs to another: a damaged index leads to wrong rows."""
    _, raw, fence, head, length, running, unsettled, pending, *rest = row
    start, settled, last_ticket, instructed, bytes, preview, used_at = rest
    if conversation is not None and raw != conversation.raw:
        raise StoreCorrupt(f"{id} is damaged: {conversation} shows it. Restore the store from a backup.")
    return Branch(
        id=id,
        conversation=conversation or ConversationId.trusted(raw),
        fence=fence,
        head=None if head is None else TurnId.trusted(head),
        length=length,
        running=None if running is None else TurnId.trusted(running),
        unsettled=None if unsettled is None else TurnId.trusted(unsettled),
        pending=codec.checked_items(codec.decode(PendingCalls, pending).items) if pending else (),
        start=start,
        settled=settled,
        last_ticket=last_ticket,
        instructed=instructed,
        bytes=bytes,
        preview=preview,
        used_at=used_at,
    )


def columns_of_branch(branch: Branch) -> Row:
    """Return all columns but id, conversation and start, which never change."""
    return (
        branch.fence,
        raw_or_none(branch.head),
        branch.length,
        raw_or_none(branch.running),
        raw_or_none(branch.unsettled),
        _pending(branch.pending),
        branch.settled,
        branch.instructed,
        branch.bytes,
        branch.preview,
        branch.used_at,
    )


_STRETCH = Struct(">16sqqq")
"""The branch, its ref, and the numbers `after` and `through`."""


@lru_cache(maxsize=256)
@decoder
def line_of(raw: bytes | None) -> tuple[tuple[Stretch, ...], dict[BranchId, int]]:
    """Decode the stretches of an origin, and the refs of their branches. Cached, since many branches of a
    conversation share a long line, which never changes."""
    try:
        parts = tuple(_STRETCH.iter_unpack(raw or b""))
    except StructError as problem:
        raise StoreCorrupt(f"A stored line of turns cannot be read: {problem}.") from None
    branches = {BranchId.trusted(branch): ref for branch, ref, _, _ in parts}
    stretches = (Stretch(BranchId.trusted(branch), after, through) for branch, _, after, through in parts)
    return tuple(stretches), branches


def pack_line(line: tuple[Stretch, ...], refs: Iterable[int]) -> bytes | None:
    parts = zip(line, refs, strict=True)
    return (
        b"".join(_STRETCH.pack(each.branch.raw, ref, each.after, each.through) for each, ref in parts) or None
    )


class ForkRecord(codec.Document, frozen=True):
    fork: Fork


def _pending(items: tuple[Item, ...]) -> bytes | None:
    return codec.encode(PendingCalls(items=codec.raws(items))) if items else None


def number_of(turn: Turn) -> int:
    """Return the number of a turn's kind in the table."""
    if turn.kind is TurnKind.INTERRUPTED and turn.effects:
        return INTERRUPTED_WITH_EFFECTS
    return _NUMBER_OF[turn.kind]


_FIXED = Struct(">16sqBqq")
"""What a checksum covers besides the body: id, number, kind, and the two times."""
_PLACED = -(2**63)
"""Added to a checksum that also covers branch and parent: all but those of older versions."""
_ROW, _LOG = 0xFFFF_FFFF, 0x7FFF_FFFF
"""The bits of the two parts of a checksum: turns are mostly read without their logs."""


def checksum_of(turn: Turn, log: bytes) -> int:
    """Return the checksum that `turn_of` and `log_of` verify."""
    kind = number_of(turn)
    fixed = _FIXED.pack(turn.id.raw, turn.number, kind, turn.created_at, turn.committed_at)
    fixed += _place_of(turn.branch, turn.parent)
    return (crc32(turn.body, crc32(fixed)) | (crc32(log) & _LOG) << 32) + _PLACED


def _place_of(branch: BranchId, parent: TurnId | None) -> bytes:
    return branch.raw if parent is None else branch.raw + parent.raw


@decoder
def turn_of(id: TurnId, branch: BranchId, columns: Row) -> Turn:
    number, before, kind, created_at, committed_at, body, checksum = columns
    parent = id_or_none(TurnId, before)
    if checksum is not None:
        fixed = _FIXED.pack(id.raw, number, kind, created_at, committed_at)
        _check(id, branch, number, parent, fixed, body, checksum)
    return Turn(id, branch, number, parent, KINDS[kind], created_at, committed_at, body)


@decoder
def line_of_turns(
    rows: Iterable[Row], branches: Mapping[int, BranchId], find: Callable[[int, int], Row | None]
) -> list[Turn]:
    """Return turns in order. A row has a parent only if that is not the previous turn on its branch: mostly
    the row before; otherwise `find` it."""
    turns: list[Turn] = []
    before: TurnId | None = None
    last = (0, 0)
    for raw, number, parent_raw, kind, created_at, committed_at, body, checksum, ref in rows:
        id, branch = TurnId.trusted(raw), branches[ref]
        parent: TurnId | None
        if parent_raw is not None:
            parent = TurnId.trusted(parent_raw)
        elif last == (ref, number - 1):
            parent = before
        else:
            found = find(ref, number - 1) if number > 1 else None
            parent = TurnId.trusted(found[0]) if found else None
        if checksum is not None:
            fixed = _FIXED.pack(raw, number, kind, created_at, committed_at)
            _check(id, branch, number, parent, fixed, body, checksum)
        turns.append(Turn(id, branch, number, parent, KINDS[kind], created_at, committed_at, body))
        before, last = id, (ref, number)
    return turns


def _check(
    id: TurnId, branch: BranchId, number: int, parent: TurnId | None, fixed: bytes, body: bytes, checksum: int
) -> None:
    expected = checksum & _ROW
    place = _place_of(branch, parent) if checksum < 0 else b""
    if crc32(body, crc32(fixed + place)) == expected:
        return
    # A turn stored without a parent is read with the one before it.
    if number == 1 or checksum >= 0 or crc32(body, crc32(fixed + branch.raw)) != expected:
        raise _damage_error(id)


@decoder
def log_of(id: TurnId, log: bytes | None, checksum: int | None) -> bytes:
    if checksum is not None and checksum >> 32 & _LOG != crc32(log or b"") & _LOG:
        raise _damage_error(id)
    return log or b""


def _damage_error(id: TurnId) -> StoreCorrupt:
    return StoreCorrupt(f"{id} is damaged: it does not match its checksum. Restore the store from a backup.")


@decoder
def flags_of(rows: Iterable[Row]) -> dict[int, Flags]:
    return {place: Flags(bool(to_model), bool(to_user)) for place, to_model, to_user in rows}


@decoder
def attempt_of(row: Row) -> Attempt:
    id, owner, conversation, branch, lease, fence, state, base, fork, input, on_stop, on_failure, *rest = row
    idempotency_key, stop, failure_code, failure_message, partial, journaled, *numbers = rest
    created_at, ended_at, interaction, counted, reads = numbers
    body = codec.decode(AttemptBody, input)
    return Attempt(
        id=TurnId.trusted(id),
        owner=owner,
        conversation=ConversationId.trusted(conversation),
        branch=BranchId.trusted(branch),
        lease=LeaseId.trusted(lease),
        fence=fence,
        state=AttemptState(state),
        base=id_or_none(TurnId, base),
        fork=codec.decode(ForkRecord, fork).fork if fork else None,
        input=codec.checked_items(body.input),
        instructions=body.given_instructions,
        raw_details=body.raw_details,
        is_durable=body.durable is True,
        on_stop=OnStop(on_stop),
        on_failure=OnFailure(on_failure),
        is_interaction=bool(interaction),
        idempotency_key=idempotency_key,
        stop=None if stop is None else OnStop(stop),
        failure=None if failure_code is None else Failure(failure_code, failure_message),
        reads=reads,
        partial=partial or "",
        journaled=journaled,
        created_at=created_at,
        ended_at=ended_at,
        bytes=counted,
    )


def columns_of_attempt(attempt: Attempt, input: bytes | None) -> Row:
    failure = attempt.failure
    return (
        int(attempt.state is not AttemptState.RUNNING),
        attempt.id.raw,
        attempt.owner,
        attempt.conversation.raw,
        attempt.branch.raw,
        attempt.lease.raw,
        attempt.fence,
        attempt.state.value,
        raw_or_none(attempt.base),
        codec.encode(ForkRecord(fork=attempt.fork)) if attempt.fork else None,
        input,
        attempt.on_stop.value,
        attempt.on_failure.value,
        attempt.idempotency_key,
        None if attempt.stop is None else attempt.stop.value,
        failure.code if failure else None,
        failure.message if failure else None,
        attempt.partial or None,
        attempt.journaled,
        attempt.created_at,
        attempt.ended_at,
        int(attempt.is_interaction),
        attempt.bytes,
        attempt.reads,
    )


def changes_of_attempt(attempt: Attempt) -> Row:
    failure = attempt.failure
    return (
        int(attempt.state is not AttemptState.RUNNING),
        attempt.state.value,
        None if attempt.stop is None else attempt.stop.value,
        failure.code if failure else None,
        failure.message if failure else None,
        attempt.partial or None,
        attempt.journaled,
        attempt.fence,
        attempt.lease.raw,
        attempt.ended_at,
        attempt.bytes,
        attempt.reads,
    )


@decoder
def claim_of(owner: str, idempotency_key: str, row: Row) -> Claim:
    fingerprint, conversation, attempt, expires_at, retries, lost, sender = row
    return Claim(
        owner=owner,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint,
        conversation=ConversationId.trusted(conversation),
        attempt=TurnId.trusted(attempt),
        expires_at=expires_at,
        retries=retries,
        is_lost=bool(lost),
        sender=id_or_none(TurnId, sender),
    )


def columns_of_claim(claim: Claim) -> Row:
    return (
        claim.owner,
        claim.idempotency_key,
        claim.fingerprint,
        claim.conversation.raw,
        claim.attempt.raw,
        claim.expires_at,
        claim.retries,
        int(claim.is_lost),
        raw_or_none(claim.sender),
    )


@decoder
def job_of(row: Row) -> TurnJob:
    id, owner, conversation, created_at, resumes, body = row
    return TurnJob(
        id=TurnId.trusted(id),
        owner=owner,
        conversation=ConversationId.trusted(conversation),
        created_at=created_at,
        resumes=resumes,
        body=body,
    )


def columns_of_job(job: TurnJob) -> Row:
    return job.id.raw, job.owner, job.conversation.raw, job.created_at, job.resumes, job.body


@decoder
def ticket_of(row: Row) -> Ticket:
    attempt, conversation, branch, number, front, lease, deadline, *claim, interaction = row
    idempotency_key, fingerprint, claimed = claim
    return Ticket(
        attempt=TurnId.trusted(attempt),
        conversation=ConversationId.trusted(conversation),
        branch=BranchId.trusted(branch),
        number=number,
        front=bool(front),
        lease=LeaseId.trusted(lease),
        deadline=deadline,
        idempotency_key=idempotency_key,
        fingerprint=fingerprint,
        claimed=id_or_none(TurnId, claimed),
        is_interaction=bool(interaction),
    )


def columns_of_ticket(ticket: Ticket) -> Row:
    return (
        ticket.attempt.raw,
        ticket.conversation.raw,
        ticket.branch.raw,
        ticket.number,
        int(ticket.front),
        ticket.lease.raw,
        ticket.deadline,
        ticket.idempotency_key,
        ticket.fingerprint,
        raw_or_none(ticket.claimed),
        int(ticket.is_interaction),
    )


CHANGE_KINDS = (
    ChangeKind.CHAT_CREATED,
    ChangeKind.CHAT_CHANGED,
    ChangeKind.CHAT_DELETED,
    ChangeKind.CHAT_RESTORED,
    ChangeKind.CHAT_SWITCHED,
    ChangeKind.TURN_QUEUED,
    ChangeKind.TURN_RUNNING,
    ChangeKind.TURN_COMMITTED,
    ChangeKind.TURN_FAILED,
    ChangeKind.TURN_STOPPED,
    ChangeKind.TURN_WITHDRAWN,
    ChangeKind.TURN_FLAGGED,
)
"""Kinds by their number in the table."""
_NUMBER_OF_CHANGE = {kind: number for number, kind in enumerate(CHANGE_KINDS)}


def position_of(number: int, at: int, conversation: bytes, turn: bytes | None) -> Position:
    """Return the number of a change, with a mark that detects a different change with the same number: after
    power loss, numbers are used again."""
    return Position(f"{number:015x}-{crc32(b'%d' % at + conversation + (turn or b'')):08x}")


START = Position(f"{0:015x}-{0:08x}")
"""Before the first change."""


def number_at(position: Position) -> int:
    return int(position[:15], 16)


def position_in(row: Row) -> Position:
    return position_of(row[0], row[2], row[5], row[6])


@decoder
def change_of(row: Row) -> LiveChange:
    _, owner, at, scope, kind, conversation, turn, branch, detail = row
    return LiveChange(
        kind=CHANGE_KINDS[kind],
        owner=owner,
        conversation=ConversationId.trusted(conversation),
        scope=scope,
        turn=id_or_none(TurnId, turn),
        branch=id_or_none(BranchId, branch),
        detail=detail,
        at=at,
        position=position_in(row),
    )


def columns_of_change(change: LiveChange) -> Row:
    assert change.conversation is not None  # noqa: S101 - only changes of conversations are stored
    return (
        change.at,
        change.owner,
        change.scope,
        _NUMBER_OF_CHANGE[change.kind],
        change.conversation.raw,
        raw_or_none(change.turn),
        raw_or_none(change.branch),
        change.detail,
    )
