"""The conversion between the model and the rows of SQL stores, whose columns hold the same values."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any, TypeAlias, TypeVar
from zlib import crc32

import msgspec

from turnledger.errors import StoreCorrupt
from turnledger.model import codec
from turnledger.model.access.share import Share
from turnledger.model.access.token import UNBOUNDED, Bounds, Token, TokenScope
from turnledger.model.change import ChangeKind, LiveChange, Position
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
    Ticket,
    TitleSource,
)
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, Id, LeaseId, ShareId, TokenId, TurnId
from turnledger.model.item import Item, checked_items, raws
from turnledger.model.job import TurnJob
from turnledger.model.reset_policy import NEVER, ResetPolicy
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
from turnledger.stores.damage import decoder

Row: TypeAlias = tuple[Any, ...]
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
        raise StoreCorrupt("A stored list of ids cannot be read. Restore the store from a backup.")
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
        pending=checked_items(codec.decode(PendingCalls, pending).items) if pending else (),
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


class ForkRecord(codec.Document, frozen=True):
    fork: Fork


def _pending(items: tuple[Item, ...]) -> bytes | None:
    return codec.encode(PendingCalls(items=raws(items))) if items else None


def number_of(turn: Turn) -> int:
    """Return the number of a turn's kind in the table."""
    if turn.kind is TurnKind.INTERRUPTED and turn.effects:
        return INTERRUPTED_WITH_EFFECTS
    return _NUMBER_OF[turn.kind]


FIXED = Struct(">16sqBqq")
"""What a checksum covers besides the body: id, number, kind, and the two times."""
_PLACED = -(2**63)
"""Added to a checksum that also covers branch and parent: all but those of older versions."""
_ROW, _LOG = 0xFFFF_FFFF, 0x7FFF_FFFF
"""The bits of the two parts of a checksum: turns are mostly read without their logs."""


def checksum_of(turn: Turn, log: bytes) -> int:
    """Return the checksum that `turn_of` and `log_of` verify."""
    place = _place_of(turn.branch, turn.parent)
    return row_checksum(
        turn.id.raw, turn.number, number_of(turn), turn.created_at, turn.committed_at, place, turn.body, log
    )


def row_checksum(
    id: bytes,
    number: int,
    kind: int,
    created_at: int,
    committed_at: int,
    place: bytes,
    body: bytes,
    log: bytes,
) -> int:
    """The same of the columns of a row. `place` is the branch, and the parent if there is one."""
    fixed = FIXED.pack(id, number, kind, created_at, committed_at) + place
    return (crc32(body, crc32(fixed)) | (crc32(log) & _LOG) << 32) + _PLACED


def _place_of(branch: BranchId, parent: TurnId | None) -> bytes:
    return branch.raw if parent is None else branch.raw + parent.raw


@decoder
def turn_of(id: TurnId, branch: BranchId, columns: Row) -> Turn:
    number, before, kind, created_at, committed_at, body, checksum = columns
    parent = id_or_none(TurnId, before)
    if checksum is not None:
        fixed = FIXED.pack(id.raw, number, kind, created_at, committed_at)
        check_turn(id, branch, number, parent, fixed, body, checksum)
    return Turn(id, branch, number, parent, KINDS[kind], created_at, committed_at, body)


def check_turn(
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
    created_at, ended_at, interaction, counted, reads, *_ = numbers
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
        input=checked_items(body.input),
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
    attempt, conversation, branch, number, front, lease, deadline, *rest = row
    idempotency_key, fingerprint, claimed, interaction, *_ = rest
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


@decoder
def change_of(row: Row, position: Position) -> LiveChange:
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
        position=position,
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


@decoder
def bounds_of(text: str | None) -> Bounds:
    return msgspec.json.decode(text, type=Bounds) if text else UNBOUNDED


def columns_of_bounds(bounds: Bounds) -> str | None:
    return None if bounds == UNBOUNDED else msgspec.json.encode(bounds).decode()


@decoder
def token_of(row: Row) -> Token:
    id, digest, owner, name, scopes, chat_scope, models, created_at, *ends, used_at, parent = row[:12]
    expires_at, revoked_at = ends
    try:
        known = frozenset([TokenScope(word) for word in scopes.split()])
    except ValueError:
        raise StoreCorrupt(
            "The scopes of a stored token cannot be read. Restore the store from a backup."
        ) from None
    return Token(
        id=TokenId.trusted(id),
        owner=owner,
        name=name,
        scopes=known,
        chat_scope=chat_scope,
        models=msgspec.json.decode(models, type=tuple[str, ...]) if models else (),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        used_at=used_at,
        parent=id_or_none(TokenId, parent),
        conversation=id_or_none(ConversationId, row[12]),
        share=id_or_none(ShareId, row[13]),
        bounds=bounds_of(row[14]),
        defaults=msgspec.json.decode(row[15], type=dict[str, str]) if row[15] else {},
        digest=digest,
    )


def columns_of_token(token: Token) -> Row:
    return (
        token.id.raw,
        token.digest,
        token.owner,
        token.name,
        " ".join(sorted(token.scopes)),
        token.chat_scope,
        msgspec.json.encode(token.models).decode() if token.models else None,
        token.created_at,
        token.expires_at,
        token.revoked_at,
        token.used_at,
        raw_or_none(token.parent),
        raw_or_none(token.conversation),
        raw_or_none(token.share),
        columns_of_bounds(token.bounds),
        msgspec.json.encode(token.defaults).decode() if token.defaults else None,
    )


@decoder
def share_of(row: Row) -> Share:
    id, digest, owner, name, chat_scope, conversation, models, *numbers, parent, bounds, size, chats = row
    max_uses, uses, per_minute, visitor_lifetime, created_at, expires_at, revoked_at = numbers
    return Share(
        id=ShareId.trusted(id),
        owner=owner,
        name=name,
        chat_scope=chat_scope,
        conversation=id_or_none(ConversationId, conversation),
        models=msgspec.json.decode(models, type=tuple[str, ...]) if models else (),
        max_uses=max_uses,
        uses=uses,
        per_minute=per_minute,
        visitor_lifetime=visitor_lifetime,
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        parent=id_or_none(TokenId, parent),
        bounds=bounds_of(bounds),
        bytes=size,
        chats=chats,
        digest=digest,
    )


def columns_of_share(share: Share) -> Row:
    return (
        share.id.raw,
        share.digest,
        share.owner,
        share.name,
        share.chat_scope,
        raw_or_none(share.conversation),
        msgspec.json.encode(share.models).decode() if share.models else None,
        share.max_uses,
        share.uses,
        share.per_minute,
        share.visitor_lifetime,
        share.created_at,
        share.expires_at,
        share.revoked_at,
        raw_or_none(share.parent),
        columns_of_bounds(share.bounds),
        share.bytes,
        share.chats,
    )
