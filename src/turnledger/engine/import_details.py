"""What a file says of a chat besides its turns, kept within the bounds that everybody has."""

from __future__ import annotations

from typing import TypeAlias, TypeVar

from turnledger.engine.asking import (
    LONGEST,
    TEXT_LENGTH,
    check_details,
    check_name,
    check_scope,
    tags_of,
)
from turnledger.errors import InvalidId, InvalidInput
from turnledger.model.conversation import Conversation, NamedBy
from turnledger.model.derived_id import derived
from turnledger.model.ids import BranchId, ConversationId, Id
from turnledger.model.reset_policy import NEVER, ResetPolicy
from turnledger.model.transfer import ChatLine
from turnledger.model.transfer_report import Did

LATEST = 253_402_300_799_999
"""The last millisecond of the year 9999."""
HIGHEST = 2**53
"""Up to here every reader of JSON counts exactly."""

Note: TypeAlias = tuple[Did, str]
AnyId = TypeVar("AnyId", bound=Id)


def known_id(kind: type[AnyId], text: str, at: int, within: str) -> AnyId:
    """The id that a text is, or the one that stands for a text of another making. The same for the same."""
    try:
        return kind(text)
    except InvalidId:
        return derived(kind, at, within, text)


def conversation_of(header: ChatLine, owner: str, notes: list[Note]) -> Conversation:
    """The conversation of a line, of this owner. What is out of bounds is left out, and noted. Raises
    InvalidInput for a line without times."""
    if not (0 <= header.created_at <= LATEST and 0 <= header.touched_at <= LATEST):
        raise InvalidInput("created_at and touched_at must be milliseconds since 1970.")
    id = known_id(ConversationId, header.id, header.created_at, owner)
    if id != header.id:
        notes.append((Did.RENAMED, f"{header.id[:80]!r} is no id of a chat; it is {id} here."))
    title, named_by = _title(header, notes)
    return Conversation(
        id=id,
        owner=owner,
        branch=derived(BranchId, header.created_at, str(id), ""),
        scope=check_scope("scope", header.scope),
        conversation_key=_name("conversation_key", header.conversation_key, notes),
        former_conversation_key=_name("former_conversation_key", header.former_conversation_key, notes),
        internal=header.internal,
        title=title,
        named_by=named_by,
        tags=_tags(header, notes),
        pinned=header.pinned,
        archived=header.archived,
        metadata=_metadata(header, notes),
        revision=_revision(header, notes),
        created_at=header.created_at,
        touched_at=header.touched_at,
        expires_after=_expiry(header, notes),
        reset_policy=_reset_policy(header, notes),
    )


def _name(field: str, value: str | None, notes: list[Note]) -> str | None:
    if value is not None:
        try:
            check_name(field, value)
        except InvalidInput as problem:
            notes.append((Did.DROPPED, str(problem)))
            return None
    return value


def _title(header: ChatLine, notes: list[Note]) -> tuple[str | None, NamedBy | None]:
    title, named_by = header.title, header.named_by
    if title is not None and len(title) > TEXT_LENGTH:
        title = title[:TEXT_LENGTH]
        notes.append((Did.REPAIRED, f"Its title was cut to {TEXT_LENGTH} characters."))
    if named_by is not None and named_by not in tuple(NamedBy):
        notes.append((Did.DROPPED, f"named_by is {named_by!r}; it must be one of {', '.join(NamedBy)}."))
        named_by = None
    if named_by is not None and title is None:
        notes.append((Did.DROPPED, "named_by says who gave it a title, and it has none."))
        named_by = None
    return title, None if named_by is None else NamedBy(named_by)


def _revision(header: ChatLine, notes: list[Note]) -> int:
    if not 1 <= header.revision <= HIGHEST:
        notes.append((Did.REPAIRED, f"Its revision is {header.revision}, which none can be; it is 1 here."))
        return 1
    return header.revision


def _tags(header: ChatLine, notes: list[Note]) -> tuple[str, ...]:
    try:
        return tags_of(header.tags)
    except InvalidInput as problem:
        notes.append((Did.DROPPED, f"Its tags: {problem}"))
        return ()


def _metadata(header: ChatLine, notes: list[Note]) -> dict[str, str]:
    try:
        check_details(None, header.metadata)
    except InvalidInput as problem:
        notes.append((Did.DROPPED, str(problem)))
        return {}
    return dict(header.metadata)


def _expiry(header: ChatLine, notes: list[Note]) -> int | None:
    if header.expires_after is not None and not 0 < header.expires_after <= LONGEST * 1000:
        notes.append((Did.DROPPED, f"expires_after must be above 0 and at most {LONGEST:g} seconds."))
        return None
    return header.expires_after


def _reset_policy(header: ChatLine, notes: list[Note]) -> ResetPolicy:
    line = header.reset_policy
    if line is None:
        return NEVER
    try:
        if line.idle_after is not None:
            ResetPolicy.idle(line.idle_after / 1000)
        if line.daily_at is not None:
            ResetPolicy.daily(line.daily_at, line.timezone)
    except InvalidInput as problem:
        notes.append((Did.DROPPED, f"Its reset policy: {problem}"))
        return NEVER
    return line.policy
