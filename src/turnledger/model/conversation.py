"""A conversation, its branches, which conversations a caller may see, and the bytes that an owner stores."""

from __future__ import annotations

import re
from enum import StrEnum

import msgspec
from msgspec import Struct

from turnledger.model.ids import BranchId, ConversationId, LeaseId, ShareId, TokenId, TurnId
from turnledger.model.item import Item
from turnledger.model.retention import NEVER, ResetPolicy
from turnledger.model.turn import Attempt, Turn

LOCAL = "local"
"""The owner of conversations when nobody is named."""
KEY_LENGTH = 512
TEXT_LENGTH = 512
METADATA_PAIRS = 16
TAGS = 16
TAG_LENGTH = 64
LONGEST = 1e9
"""Seconds that a conversation can be told to last."""

GUEST = "guest_"
"""What the owners begin with that visitors are: `guest_SHARE_TOKEN`, by the digits of both ids."""
_GUEST = re.compile(rf"{GUEST}([0-9a-f]{{32}})_[0-9a-f]{{32}}")


def guest_of(share: ShareId, token: TokenId) -> str:
    """Return the owner that a visitor of a link is."""
    return f"{GUEST}{share.raw.hex()}_{token.raw.hex()}"


def link_of(owner: str) -> ShareId | None:
    """Return the link that a visitor came by; None for other owners."""
    found = _GUEST.fullmatch(owner) if owner.startswith(GUEST) else None
    return None if found is None else ShareId.trusted(bytes.fromhex(found[1]))


class ConversationState(StrEnum):
    LIVE = "live"
    DELETED = "deleted"  # its conversation_key is free again; it can be restored until `purge_at`
    PURGED = "purged"  # for good: its turns are being removed, or are gone
    EXPIRED = "expired"  # its conversation_key stays taken until it is reset


class NamedBy(StrEnum):
    """Who gave a conversation its title."""

    PERSON = "person"  # nothing but a person changes it
    WORDS = "words"  # the first ones of its first turn
    MODEL = "model"


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """What a person or program calls one chat. Times are milliseconds since 1970.

    `touched_at` is the last interaction: a turn that began or ended, however it ended. Reading, renaming and
    tagging never move it, nor do turns that are no interaction. `revision` is the version of what people
    say about it: title, metadata, tags, pinned, archived.
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
    """When its conversation_key moves on to a fresh conversation."""
    former_conversation_key: str | None = None
    """The one that named it until a reset gave it to another."""
    scope: str = ""
    """The application it belongs to; empty for none. Set when it is made, and never changed: a
    conversation_key is one among those of its owner and scope."""
    tags: tuple[str, ...] = ()
    pinned: bool = False
    archived: bool = False
    named_by: NamedBy | None = None
    """None while it has no title."""
    is_listed: bool = True
    """False where a turn made it, until one is committed."""
    purge_at: int | None = None
    """When one that is deleted goes for good."""

    @property
    def is_deleted(self) -> bool:
        """Whether somebody deleted it, restorable or not."""
        return self.state is ConversationState.DELETED or self.state is ConversationState.PURGED

    @property
    def has_time(self) -> bool:
        """Whether anything becomes of it when it is left alone."""
        return self.expires_after is not None or self.reset_policy is not NEVER

    def is_expired(self, now: int) -> bool:
        if self.state is ConversationState.EXPIRED:
            return True
        return self.expires_after is not None and self.touched_at + self.expires_after <= now


class Branch(msgspec.Struct, frozen=True, kw_only=True):
    """A line of turns. The lane, the fence and the head belong to it.

    Its own turns are numbered from `start` + 1; the ones before are those of the branch it was made from.
    """

    id: BranchId
    conversation: ConversationId
    fence: int = 0
    head: TurnId | None = None
    length: int = 0
    """Number of the head; 0 while there is no turn."""
    start: int = 0
    """Number of the last turn that it shares with the branch it was made from."""
    settled: int = 0
    """No turn of the line that goes along to other branches has a higher number; see Turn.goes_along."""
    running: TurnId | None = None
    unsettled: TurnId | None = None
    """The failed or discarded attempt whose effects wait to be settled."""
    pending: tuple[Item, ...] = ()
    """The calls that the head left open for its client to answer."""
    instructed: int = 0
    """Number of the turn whose instructions are in force at the head; 0 for none."""
    bytes: int = 0
    """Of the bodies and logs of its own turns; see Usage."""
    preview: str = ""
    """The beginning of the last text at the head that a person sees; empty before the first turn."""
    last_ticket: int = 0
    """The number of the last ticket that its queue gave out. The store keeps it: saving a branch does not."""


def holds_lane(branch: Branch | None, attempt: TurnId, fence: int) -> bool:
    """Whether this attempt may still write: the fence decides, not a clock."""
    return branch is not None and branch.running == attempt and branch.fence == fence


class Stretch(msgspec.Struct, frozen=True):
    """The turns of one branch numbered after < number <= through."""

    branch: BranchId
    after: int
    through: int


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """How a branch was made from another: written once, and read when its line is walked back.

    `line` are the stretches before its own turns, the newest first, and only so many of them: where the last
    one does not begin with turn 1, the origin of its branch goes on.
    """

    branch: BranchId
    conversation: ConversationId
    base: TurnId | None
    """The turn it was made from; None if it starts at the very beginning."""
    line: tuple[Stretch, ...] = ()


class Ticket(msgspec.Struct, frozen=True, kw_only=True):
    """A place in the queue of a branch. Front tickets go before all others."""

    attempt: TurnId
    conversation: ConversationId
    branch: BranchId
    number: int = 0
    front: bool = False
    lease: LeaseId
    deadline: int
    idempotency_key: str | None = None
    fingerprint: bytes = b""
    claimed: TurnId | None = None
    """The attempt that the idempotency_key stood for when the ticket was taken."""
    is_interaction: bool = True
    """Whether its turn counts as use of the conversation."""


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """What an idempotency_key stands for: the latest attempt made under it, and where."""

    owner: str
    idempotency_key: str
    fingerprint: bytes
    conversation: ConversationId
    attempt: TurnId
    expires_at: int | None = None
    """Set when the attempt ended; None while it runs. Without an idempotency_key, set from the first."""
    retries: int | None = None
    """Which try of its client it was, for a request without an idempotency_key, which is known by what it
    says; None for all others."""
    is_lost: bool = False
    """Whether nobody is there any more to be given its answer."""
    sender: TurnId | None = None
    """The request that is to be given the answer: the attempt itself, or who took it up since."""


class Lease(msgspec.Struct, frozen=True):
    """A process's sign of life: `beat` rises with each renewal."""

    id: LeaseId
    beat: int


ONE_CHAT = "\x03"
"""What the name of a single conversation begins with, and that of no scope."""


class Within(Struct, frozen=True):
    """How a caller is narrowed. What lies beyond does not exist for the caller; None narrows nothing."""

    scope: str | None = None
    """The only scope of conversations that there is; empty: those that are in none."""
    chat: ConversationId | None = None
    """The only conversation that there is."""

    @property
    def is_everything(self) -> bool:
        """Whether the caller sees all that the owner has."""
        return self.scope is None and self.chat is None

    def sees(self, conversation: Conversation) -> bool:
        """Whether the conversation exists for the caller."""
        is_in_scope = self.scope is None or self.scope == conversation.scope
        return is_in_scope and (self.chat is None or self.chat == conversation.id)

    def reaches(self, scope: str, chat: ConversationId) -> bool:
        """Whether what is in this scope and conversation exists for the caller."""
        return (self.scope is None or self.scope == scope) and (self.chat is None or self.chat == chat)

    def covers(self, other: Within) -> bool:
        """Whether a caller who is narrowed so sees nothing beyond this."""
        return self.scope in (None, other.scope) and self.chat in (None, other.chat)

    @property
    def label(self) -> str | None:
        """A name that nobody shares who sees something else; None for who sees everything."""
        return self.scope if self.chat is None else ONE_CHAT + self.chat

    @classmethod
    def labelled(cls, label: str | None) -> Within:
        """Who has this label."""
        if label is not None and label.startswith(ONE_CHAT):
            return cls(chat=ConversationId(label[len(ONE_CHAT) :]))
        return cls(label)


EVERYWHERE = Within()
"""How callers are narrowed that nobody narrows."""


class NewBranch(msgspec.Struct, frozen=True):
    """A branch as it will be, its origin if made from another, and its own turns with their logs."""

    branch: Branch
    origin: Origin | None
    turns: tuple[tuple[Turn, bytes], ...]


BLOCK = 16 * 1024
"""Bytes in which the turns of a branch are counted: a block that is filled in part counts whole."""
ROW = 1024
"""Bytes that a branch or an attempt counts beside what it holds. That of a branch covers short details of its
conversation, too: every conversation has one."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """What is stored for an owner."""

    bytes: int
    """Of all turns and the logs of their events, each branch of a conversation in whole blocks of 16 KiB, one
    at least; of titles, metadata and tags beyond 1 KiB, in such blocks; and of attempts kept aside, with
    their journals and logs. Turns that several branches share count once. What was deleted counts until it
    is purged and removed, soon after."""
    chats: int = 0
    """Conversations, deleted ones that can be restored among them."""


def in_blocks(size: int) -> int:
    return -(-size // BLOCK) * BLOCK


def of_branch(size: int) -> int:
    """Return what a branch counts whose turns and logs take this many bytes."""
    return in_blocks(size + ROW)


def of_details(conversation: Conversation) -> int:
    """Return what title, metadata and tags of a conversation count."""
    size = 0
    if conversation.title:
        size += len(conversation.title.encode())
    if conversation.metadata:
        size += len(msgspec.json.encode(conversation.metadata))
    if conversation.tags:
        size += len(msgspec.json.encode(conversation.tags))
    return in_blocks(size) if size > ROW else 0


def of_chat(conversation: Conversation) -> int:
    """Return 1 for a conversation that is kept, 0 for one that is purged or expired."""
    return int(conversation.state in (ConversationState.LIVE, ConversationState.DELETED))


def of_aside(attempt: Attempt, journal: list[bytes], log: list[bytes]) -> int:
    """Return what an attempt counts that is kept aside with this journal and log."""
    failure = attempt.failure.message if attempt.failure else ""
    texts = len(attempt.partial.encode()) + len(failure.encode())
    return ROW + len(attempt.asked) + texts + sum(map(len, journal)) + sum(map(len, log))
