"""Conversations, their branches and queues, what a caller sees of them, and the storage they use."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec
from msgspec import Struct

from turnledger.model.ids import BranchId, ConversationId, LeaseId, ShareId, TokenId, TurnId
from turnledger.model.item import Item
from turnledger.model.reset_policy import NEVER, ResetPolicy
from turnledger.model.turn import Attempt, Turn, TurnKind, instructed_after

LOCAL = "local"
"""The owner of conversations when none is given."""
KEY_LENGTH = 512
TEXT_LENGTH = 512
METADATA_PAIRS = 16
TAGS = 16
TAG_LENGTH = 64
LONGEST = 1e9
"""Seconds after which a conversation may expire, at most."""

GUEST = "guest_"
"""Prefix of owners that are visitors: `guest_SHARE_TOKEN`, with the digits of both ids."""
_GUEST = re.compile(rf"{GUEST}([0-9a-f]{{32}})_[0-9a-f]{{32}}")


def guest_of(share: ShareId, token: TokenId) -> str:
    """Return the owner name of a link's visitor."""
    return f"{GUEST}{share.raw.hex()}_{token.raw.hex()}"


def link_of(owner: str) -> ShareId | None:
    """Return the link of a visitor; None for other owners."""
    found = _GUEST.fullmatch(owner) if owner.startswith(GUEST) else None
    return None if found is None else ShareId.trusted(bytes.fromhex(found[1]))


class ConversationState(StrEnum):
    LIVE = "live"
    DELETED = "deleted"  # its conversation_key is free again; it can be restored until `purge_at`
    PURGED = "purged"  # final: its turns are being removed, or are gone
    EXPIRED = "expired"  # its conversation_key stays taken until it is reset


class TitleSource(StrEnum):
    """The source of a conversation's title."""

    PERSON = "person"  # only a person changes it
    WORDS = "words"  # the first words of its first turn
    MODEL = "model"


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One chat. Times are milliseconds since 1970.

    `touched_at` is the last interaction: a turn began or ended, however it ended. Reading, renaming and
    tagging do not change it, nor do turns that are not interactions. `revision` is the version of what people
    edit: title, metadata, tags, pinned, archived.
    """

    id: ConversationId
    owner: str
    branch: BranchId
    conversation_key: str | None = None
    state: ConversationState = ConversationState.LIVE
    internal: bool = False
    title: str | None = None
    metadata: dict[str, str] = {}
    revision: int = 1
    created_at: int
    touched_at: int
    expires_after: int | None = None
    """Milliseconds without interaction after which it expires."""
    reset_policy: ResetPolicy = NEVER
    """When its conversation_key moves to a fresh conversation."""
    former_conversation_key: str | None = None
    """Its conversation_key until a reset moved that to another."""
    scope: str = ""
    """The application it belongs to; empty for none. It never changes. A conversation_key is unique per owner
    and scope."""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False
    named_by: TitleSource | None = None
    is_listed: bool = True
    """False for a conversation made by a turn, until the first commit."""
    purge_at: int | None = None
    """When a deleted conversation is purged."""

    @property
    def is_deleted(self) -> bool:
        return self.state is ConversationState.DELETED or self.state is ConversationState.PURGED

    @property
    def is_entry_complete(self) -> bool:
        """Whether a turn adds nothing to its list entry but the time of use."""
        return self.internal or (self.is_listed and self.title is not None)

    @property
    def may_lapse(self) -> bool:
        """Whether it may expire or reset after some time."""
        return self.expires_after is not None or self.reset_policy is not NEVER

    def is_expired(self, now: int) -> bool:
        if self.state is ConversationState.EXPIRED:
            return True
        return self.expires_after is not None and self.touched_at + self.expires_after <= now


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A line of turns, with its lane, fence and head.

    Its own turns are numbered from `start` + 1; those before belong to the branch it was made from.
    """

    id: BranchId
    conversation: ConversationId
    fence: int = 0
    head: TurnId | None = None
    length: int = 0
    """Number of the head; 0 before the first turn."""
    start: int = 0
    """Number of the last turn it shares with the branch it was made from."""
    settled: int = 0
    """Highest number of a turn in the line that is carried to other branches; see Turn.is_carried."""
    running: TurnId | None = None
    unsettled: TurnId | None = None
    """The failed or discarded attempt whose effects wait to be settled."""
    pending: tuple[Item, ...] = ()
    """The calls that the head left open for the client to answer."""
    instructed: int = 0
    """Number of the turn whose instructions are in force at the head; 0 for none."""
    bytes: int = 0
    """Bytes of the bodies and logs of its own turns; see Usage."""
    preview: str = ""
    """The beginning of the last visible text at the head; empty before the first turn."""
    last_ticket: int = 0
    """The number of the last ticket from its queue. Only the store changes it, not saving a branch."""
    used_at: int | None = None
    """Of a side branch: the time of its last use. None for a branch that the conversation has shown."""

    @property
    def is_side(self) -> bool:
        """Whether a turn made it to run beside the current branch, and no switch has shown it since."""
        return self.used_at is not None


def turn_behind(
    branch: Branch,
    attempt: Attempt,
    kind: TurnKind,
    output: tuple[Item, ...],
    now: int,
    *,
    details: bytes | None = None,
    effects: tuple[int, ...] | None = None,
) -> Turn:
    """Return the turn that an attempt becomes behind the head of a branch, by default with the details that
    it began with."""
    # A settled edit goes behind the head, but its instructions were meant for another place.
    is_elsewhere = kind is TurnKind.SETTLED and attempt.fork is not None
    given, number = None if is_elsewhere else attempt.instructions, branch.length + 1
    return Turn.of(
        id=attempt.id,
        branch=branch.id,
        number=number,
        parent=branch.head,
        kind=kind,
        created_at=attempt.created_at,
        committed_at=now,
        input=attempt.input,
        output=output,
        instructions=given.items if given else None,
        instructed=instructed_after(given, branch.instructed, number),
        details=attempt.raw_details if details is None else details,
        effects=effects,
    )


def holds_lane(branch: Branch | None, attempt: TurnId, fence: int) -> bool:
    """Return whether this attempt may still write: the fence decides, not a clock."""
    return branch is not None and branch.running == attempt and branch.fence == fence


class Stretch(msgspec.Struct, frozen=True):
    """The turns of one branch numbered after < number <= through."""

    branch: BranchId
    after: int
    through: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """How a branch was made from another. Written once, and read to walk its line back.

    `line` lists the stretches before its own turns, newest first, up to a bound: where the last one does not
    begin with turn 1, the origin of its branch continues.
    """

    branch: BranchId
    conversation: ConversationId
    base: TurnId | None
    """The turn it was made from; None for the very beginning."""
    line: tuple[Stretch, ...] = ()


NOBODY = LeaseId("lease_00000000000070008000000000000000")
"""The lease of what belongs to no process and never dies with one: durable work that waits, or waits to be
resumed."""
FOR_EVER = 2**53 - 1
"""A time that does not come."""


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the queue of a branch. Front tickets precede all others."""

    attempt: TurnId
    conversation: ConversationId
    branch: BranchId
    number: int = 0
    front: bool = False
    lease: LeaseId
    deadline: int
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    """Of the idempotency_key; of a retry without one, the name of the claim that it looks up."""
    claimed: TurnId | None = None
    """The attempt of the idempotency_key when the ticket was taken."""
    is_interaction: bool = True
    """Whether its turn counts as use of the conversation."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What an idempotency_key refers to: the latest attempt under it, and its conversation."""

    owner: str
    idempotency_key: str
    fingerprint: bytes
    conversation: ConversationId
    attempt: TurnId
    expires_at: int | None = None
    """Set when the attempt ends; without an idempotency_key, set from the start."""
    retries: int | None = None
    """The client's retry count, for a request without an idempotency_key, which is recognized by its
    content; None otherwise."""
    is_lost: bool = False
    """Whether no client is left to receive its answer."""
    sender: TurnId | None = None
    """The request that receives the answer: the attempt itself, or the one that took it up later."""


class Lease(msgspec.Struct, frozen=True):
    """A process's sign of life: `beat` increases with each renewal."""

    id: LeaseId
    beat: int


ONE_CHAT = "\x03"
"""Prefix of the label of a single conversation; no scope begins with it."""


class Within(Struct, frozen=True):
    """The restriction of a caller. Conversations outside it do not exist for the caller; None restricts
    nothing."""

    scope: str | None = None
    """The only visible scope; empty: conversations without a scope."""
    chat: ConversationId | None = None

    @property
    def is_unrestricted(self) -> bool:
        return self.scope is None and self.chat is None

    def sees(self, conversation: Conversation) -> bool:
        is_in_scope = self.scope is None or self.scope == conversation.scope
        return is_in_scope and (self.chat is None or self.chat == conversation.id)

    def reaches(self, scope: str, chat: ConversationId) -> bool:
        return (self.scope is None or self.scope == scope) and (self.chat is None or self.chat == chat)

    def covers(self, other: Within) -> bool:
        """Return whether the other sees nothing beyond this."""
        return self.scope in (None, other.scope) and self.chat in (None, other.chat)

    @property
    def label(self) -> str | None:
        """A name shared only by callers with the same view; None for those that see everything."""
        return self.scope if self.chat is None else ONE_CHAT + self.chat

    @classmethod
    def from_label(cls, label: str | None) -> Within:
        if label is not None and label.startswith(ONE_CHAT):
            return cls(chat=ConversationId(label[len(ONE_CHAT) :]))
        return cls(label)


EVERYWHERE = Within()


class NewBranch(msgspec.Struct, frozen=True):
    """A branch to be stored, its origin if made from another, and its own turns with their logs."""

    branch: Branch
    origin: Origin | None
    turns: tuple[tuple[Turn, bytes], ...]


BLOCK = 16 * 1024
"""Bytes in which the turns of a branch are counted, rounded up."""
ROW = 1024
"""Bytes counted for a branch or an attempt itself. That of a branch also covers short details of its
conversation, since every conversation has a branch."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The storage that an owner uses."""

    bytes: int
    """Counts turns with their event logs, per branch in whole blocks of 16 KiB, at least one; titles,
    metadata and tags beyond 1 KiB, in such blocks; and attempts set aside, with journals and logs. Turns
    shared by branches count once. Deleted conversations count until they are purged and, soon after,
    removed."""
    chats: int = 0
    """Conversations, including deleted ones that can be restored."""


def block_bytes(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def branch_bytes(size: int) -> int:
    return block_bytes(size + ROW)


def details_bytes(conversation: Conversation) -> int:
    size = 0
    if conversation.title:
        size += len(conversation.title.encode())
    if conversation.metadata:
        size += len(msgspec.json.encode(conversation.metadata))
    if conversation.tags:
        size += len(msgspec.json.encode(conversation.tags))
    return block_bytes(size) if size > ROW else 0


def chat_count(conversation: Conversation) -> int:
    """Return 1 for a conversation that counts, 0 for a purged or expired one."""
    return int(conversation.state in (ConversationState.LIVE, ConversationState.DELETED))


def set_aside_bytes(attempt: Attempt, journal: list[bytes], log: list[bytes]) -> int:
    """Return the bytes counted for an attempt set aside with this journal and log."""
    failure = attempt.failure.message if attempt.failure else ""
    texts = len(attempt.partial.encode()) + len(failure.encode())
    return ROW + len(attempt.request_body) + texts + sum(map(len, journal)) + sum(map(len, log))
