"""Chats as lines of JSON: one line for the chat, then one for each of its turns.

They hold the tree of turns, each with its parent, and the head of each branch, independent of the store.
Every line has the version of the format. Items are as given, except that line breaks between tokens become
spaces.

An import reports on lines, with a word for programs and a sentence for people.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from turnledger.model.conversation import Conversation
from turnledger.model.flags import SHOWN, Flags
from turnledger.model.item import Item
from turnledger.model.reset_policy import NEVER, ResetPolicy
from turnledger.model.turn import Failure, Turn, instructions_from

SCHEMA_VERSION = 1


class ResetLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    idle_after: int | None = None
    daily_at: int | None = None
    timezone: str = "UTC"

    @property
    def policy(self) -> ResetPolicy:
        return ResetPolicy(idle_after=self.idle_after, daily_at=self.daily_at, timezone=self.timezone)


class BranchLine(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    head: str | None


class FlagLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An item that is hidden from the model or the user, by its place among input and output, from 0."""

    item: int
    to_model: bool = True
    to_user: bool = True

    @property
    def flags(self) -> Flags:
        return Flags(self.to_model, self.to_user)


class ChatLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="chat"):
    """The line of a chat. Times are milliseconds since 1970."""

    schema_version: int
    id: str
    scope: str = ""
    conversation_key: str | None = None
    former_conversation_key: str | None = None
    internal: bool = False
    title: str | None = None
    named_by: str | None = None
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False
    metadata: dict[str, str] = {}
    revision: int = 1
    created_at: int
    touched_at: int
    expires_after: int | None = None
    reset_policy: ResetLine | None = None
    branches: tuple[BranchLine, ...] = ()
    """In the order of creation. Empty: the turns form one line."""
    current: str | None = None
    """The branch that the chat shows; the last one by default."""
    forgotten: tuple[str, ...] = ()
    """Effects that an undo forgot, each an id of 16 bytes in hex."""
    turns: int | None = None
    """How many turn lines follow, if known."""


class TurnLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="type", tag="turn"):
    schema_version: int
    chat: str
    id: str
    parent: str | None
    kind: str
    created_at: int
    committed_at: int
    instructions: tuple[msgspec.Raw, ...] | UnsetType = UNSET
    """Instructions that came with it; present and empty if it ended those in force."""
    instructions_once: bool = False
    input: tuple[msgspec.Raw, ...]
    output: tuple[msgspec.Raw, ...]
    details: msgspec.Raw | UnsetType = UNSET
    flags: tuple[FlagLine, ...] = ()
    failure: Failure | None = None
    """Why it failed or was interrupted."""
    effects: tuple[int, ...] | UnsetType = UNSET
    """Of an interrupted turn: places in its output of calls that may have had effects."""


_encoder = msgspec.json.Encoder()


def encode_line(line: ChatLine | TurnLine) -> bytes:
    return _encoder.encode(line) + b"\n"


def chat_line(
    conversation: Conversation,
    branches: Iterable[BranchLine],
    turns: int,
    forgotten: Iterable[bytes] = (),
) -> ChatLine:
    policy = conversation.reset_policy
    return ChatLine(
        schema_version=SCHEMA_VERSION,
        id=str(conversation.id),
        scope=conversation.scope,
        conversation_key=conversation.conversation_key,
        former_conversation_key=conversation.former_conversation_key,
        internal=conversation.internal,
        title=conversation.title,
        named_by=None if conversation.named_by is None else conversation.named_by.value,
        tags=conversation.tags,
        pinned=conversation.pinned,
        archived=conversation.archived,
        metadata=conversation.metadata,
        revision=conversation.revision,
        created_at=conversation.created_at,
        touched_at=conversation.touched_at,
        expires_after=conversation.expires_after,
        reset_policy=None if policy == NEVER else _reset_line(policy),
        branches=tuple(branches),
        current=str(conversation.branch),
        forgotten=tuple(effect.hex() for effect in forgotten),
        turns=turns,
    )


def _reset_line(policy: ResetPolicy) -> ResetLine:
    return ResetLine(idle_after=policy.idle_after, daily_at=policy.daily_at, timezone=policy.timezone)


def turn_line(chat: str, turn: Turn, flags: Mapping[int, Flags], failure: Failure | None = None) -> TurnLine:
    given = instructions_from(turn)
    details = turn.raw_details
    return TurnLine(
        schema_version=SCHEMA_VERSION,
        chat=str(chat),
        id=str(turn.id),
        parent=None if turn.parent is None else str(turn.parent),
        kind=turn.kind.value,
        created_at=turn.created_at,
        committed_at=turn.committed_at,
        instructions=UNSET if given is None else raws(given.items),
        instructions_once=given is not None and not given.is_lasting,
        input=raws(turn.input),
        output=raws(turn.output),
        details=one_line(details) if details else UNSET,
        flags=flag_lines(flags),
        failure=failure,
        effects=UNSET if turn.raw_effects is None else turn.raw_effects,
    )


def flag_lines(flags: Mapping[int, Flags]) -> tuple[FlagLine, ...]:
    return tuple(
        FlagLine(item=place, to_model=each.to_model, to_user=each.to_user)
        for place, each in sorted(flags.items())
        if each != SHOWN
    )


def raws(items: Iterable[Item]) -> tuple[msgspec.Raw, ...]:
    return tuple(one_line(item.raw) for item in items)


def one_line(raw: bytes) -> msgspec.Raw:
    """Remove line breaks from JSON. They occur only between tokens, so its meaning stays the same."""
    if b"\n" in raw or b"\r" in raw:
        raw = raw.replace(b"\r", b" ").replace(b"\n", b" ")
    return msgspec.Raw(raw)


def unknown_fields(fields: Mapping[str, msgspec.Raw], kind: type[ChatLine] | type[TurnLine]) -> list[str]:
    """Return the fields that such a line does not have, also of its parts: `branches.color`."""
    unknown = sorted(set(fields) - set(kind.__struct_encode_fields__) - {"type"})
    for name, (part, known) in _PARTS.items():
        if name in fields:
            found = _names_in(fields[name], part) - set(known.__struct_encode_fields__)
            unknown += [f"{name}.{each}" for each in sorted(found)]
    return unknown


_Object = dict[str, msgspec.Raw]
_PARTS: dict[str, tuple[Any, type[msgspec.Struct]]] = {
    "branches": (list[_Object], BranchLine),
    "reset_policy": (_Object | None, ResetLine),
    "flags": (list[_Object], FlagLine),
    "failure": (_Object | None, Failure),
}


def _names_in(raw: msgspec.Raw, part: Any) -> set[str]:
    try:
        found = msgspec.json.decode(raw, type=part)
    except (ValueError, RecursionError):
        return set()  # the import reports that the line cannot be decoded
    return {name for each in (found if isinstance(found, list) else [found or {}]) for name in each}


def details_of(line: TurnLine) -> bytes:
    return b"" if isinstance(line.details, UnsetType) else bytes(line.details)


def instructions_of(line: TurnLine) -> tuple[msgspec.Raw, ...] | None:
    return None if isinstance(line.instructions, UnsetType) else line.instructions


class ImportOutcome(StrEnum):
    """The outcome for a chat, or for a part of it."""

    IMPORTED = "imported"  # the chat is stored, except for parts that are reported
    UNCHANGED = "unchanged"  # an equal chat exists already
    CONFLICT = "conflict"  # a different chat with this id exists, and was not changed
    REFUSED = "refused"  # nothing of this chat or line was stored
    DROPPED = "dropped"  # a part was left out
    REPAIRED = "repaired"  # a part was changed, so that models accept the history
    RENAMED = "renamed"  # it was stored under another id


ENDS = frozenset(
    {ImportOutcome.IMPORTED, ImportOutcome.UNCHANGED, ImportOutcome.CONFLICT, ImportOutcome.REFUSED}
)
"""Final outcomes: each chat has exactly one."""


REASON_LENGTH = 500
"""Characters of a sentence, which may quote the file."""
LONGEST_NAME = 80
MOST_OF_A_CHAT = 1_000
"""Reports kept for one chat: a small file can have millions of errors."""


class ImportReport(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The outcome for one line, counted from 1. Each chat has one report with its final outcome, on its first
    line; every part that was changed or left out has a report of its own."""

    line: int
    did: ImportOutcome
    chat: str | None = None
    """The id of the stored chat, or its id in the file if it is not stored."""
    turn: str | None = None
    """The id of the turn in the file."""
    turns: int | None = None
    why: str = ""


class Notes:
    """The reports of one chat up to a bound, and the number of those beyond it."""

    def __init__(self) -> None:
        self._kept: list[ImportReport] = []
        self._last = 0
        self._left_out = 0

    def add(
        self, line: int, did: ImportOutcome, why: str, *, chat: str | None, turn: str | None = None
    ) -> None:
        self._last = line
        if len(self._kept) >= MOST_OF_A_CHAT:
            self._left_out += 1
            return
        named = None if turn is None else str(turn)[:LONGEST_NAME]
        self._kept.append(ImportReport(line=line, did=did, chat=chat, turn=named, why=why[:REASON_LENGTH]))

    def all(self) -> list[ImportReport]:
        kept = sorted(self._kept, key=lambda report: report.line)
        if self._left_out:
            why = f"{self._left_out} more reports of this chat are left out."
            kept.append(ImportReport(line=self._last, did=ImportOutcome.DROPPED, chat=kept[-1].chat, why=why))
        return kept
