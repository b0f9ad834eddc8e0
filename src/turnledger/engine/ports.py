"""What the engine needs from outside: a store, a clock, a runner.

The engine's transactions are coroutines over `Tables`, written once for all stores (begin.py, commit.py,
end.py, …). A transaction awaits only its tables, so an embedded store can run it to the end at once, while a
networked one awaits its database. `Tables` reads and writes rows and decides nothing.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
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
)
from turnledger.model.flags import Flags, FlagsByTurn
from turnledger.model.ids import BranchId, ConversationId, LeaseId, ShareId, TokenId, TurnId
from turnledger.model.text.search import Phrase, SearchMatch
from turnledger.model.turn import Attempt, Turn

if TYPE_CHECKING:
    from turnledger.engine.turn.running_turn import RunningTurn


class EndedTables(Protocol):
    """The part of `Tables` about conversations whose time is over."""

    async def lapsed_conversations(self, now: int, limit: int) -> list[Conversation]:
        """Live ones whose time without interaction is over and that are not in use; first due first."""
        ...

    async def conversations_to_purge(self, now: int, limit: int) -> list[Conversation]:
        """Deleted ones whose `purge_at` has come, of all owners, first due first."""
        ...

    async def unlisted_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        """Live, unlisted ones last touched by then in which no turn runs, waits, has ended since, or is to be
        settled; of all owners, oldest first."""
        ...

    async def owners(self, after: str | None, limit: int) -> list[str]:
        """The owners that store anything, in order, after this one."""
        ...

    async def oldest_conversations(self, owner: str, touched_by: int, limit: int) -> list[Conversation]:
        """Live and listed ones, including internal ones, last touched by then, oldest first. Excludes pinned
        ones, and those where a turn runs, waits, or has ended since."""
        ...

    async def oldest_deleted(self, owner: str, limit: int) -> list[Conversation]:
        """Deleted ones that can be restored, oldest first."""
        ...

    async def purge_ended(self, limit: int) -> int:
        """Remove up to `limit` turns, attempts and origins of purged and expired conversations, and the
        previews of their branches; return how many. A turn stays while a branch elsewhere needs it, an origin
        while its branch has turns or another was made from it."""
        ...

    async def bytes_of(self, conversation: ConversationId) -> int:
        """The bytes counted for the branches of a conversation, each in whole blocks."""
        ...


class ClockMark(Struct, frozen=True):
    """The wall clock as compared with the clock that counts from boot. Times are in milliseconds."""

    boot: str
    """Identifies the boot; empty if unknown."""
    boot_at: int
    """Its wall time."""
    since: int
    """The time since boot at which `boot_at` was first computed."""
    trusted_at: int
    """The latest trusted wall time; 0 for none."""


BURIED_KEPT = 1_000
"""Leases of dead processes that a store remembers."""


class Tables(EndedTables, Protocol):
    """The rows of a store inside one transaction. Lookups return None for rows that do not exist."""

    # Conversations. The owner is part of every lookup: the row does not exist for other owners.
    async def conversation(self, owner: str, id: ConversationId) -> Conversation | None: ...
    async def conversation_by_key(
        self, owner: str, scope: str, conversation_key: str
    ) -> Conversation | None: ...
    async def listed_chats(
        self, chat_filter: ChatFilter, after: ListPosition | None, limit: int
    ) -> list[ChatEntry]:
        """Matching ones with the state of their current branch, last touched first, after a position.
        Excludes internal and unlisted ones. Must be fast with many chats, and with rare and common tags."""
        ...

    async def least_recent_conversations(
        self, owner: str, scope: str | None, after: tuple[int, ConversationId] | None, limit: int
    ) -> list[Conversation]:
        """Live, listed, not internal ones of one scope or all, longest untouched first, after the one with
        this time and id."""
        ...

    async def is_id_taken(self, id: ConversationId) -> bool:
        """Whether a conversation of any owner has this id."""
        ...

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        """Those that are ids of turns, attempts or tickets of any owner."""
        ...

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        """Those that are ids of branches of any owner."""
        ...

    async def add_conversation(self, conversation: Conversation) -> None:
        """Insert; its conversation_key, if any, must be free in its scope."""
        ...

    async def save_conversation(self, conversation: Conversation) -> None:
        """Update all but id, owner and scope. Saving it as deleted or purged, or without a conversation_key,
        frees the key; saving it live with a key takes the key, if it is free."""
        ...

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        """Advance the time of the last interaction, never set it back: a reader of pages must not see a chat
        twice. Changes nothing else."""
        ...

    async def move_conversation(self, id: ConversationId, old: BranchId, new: BranchId) -> bool:
        """Make `new` the current branch if `old` still is; return whether it was. Changes nothing else."""
        ...

    async def switches(self, id: ConversationId) -> tuple[TurnId, ...]: ...

    async def save_switches(self, id: ConversationId, switches: Sequence[TurnId]) -> None: ...
    async def forgotten(self, id: ConversationId) -> tuple[bytes, ...]:
        """The effects saved as forgotten for a conversation, 16 bytes each."""
        ...

    async def save_forgotten(self, id: ConversationId, effects: Sequence[bytes]) -> None: ...
    # Branches.
    async def branch(self, id: BranchId) -> Branch | None: ...
    async def add_branch(self, branch: Branch) -> None: ...
    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        """Insert branches of a conversation that was just added, with their origins and turns. All other
        writers wait, so a store needs as few steps as possible."""
        ...

    async def save_branch(self, branch: Branch) -> None:
        """Update all but id, conversation, start and last_ticket, which rises with each ticket added."""
        ...

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        """The branch that the conversation was created with."""
        ...

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        """Those of a conversation, newest first, after `before` in that order."""
        ...

    async def add_origin(self, origin: Origin) -> None: ...
    async def origin(self, branch: BranchId) -> Origin | None: ...
    async def origins(self, conversation: ConversationId, base: TurnId | None, limit: int) -> list[Origin]:
        """Those of the branches that a conversation made from this turn, oldest first."""
        ...

    async def empty_branches_at(self, turn: Turn, limit: int) -> list[BranchId]:
        """The branches made from this turn, in any conversation, that have no turns of their own."""
        ...

    async def lane(
        self, owner: str, id: ConversationId, lease: LeaseId
    ) -> tuple[Conversation, Branch, bool, int, int] | None:
        """A conversation, its current branch, whether the lease exists, and the owner's flag version and
        admission version: what every begin needs, in one lookup."""
        ...

    # Turns: never updated.
    async def turn(self, owner: str, id: TurnId) -> Turn | None: ...
    async def turns(self, branch: BranchId, after: int, through: int, limit: int) -> list[Turn]:
        """Turns numbered after < number <= through, the last `limit` of them, in order of number."""
        ...

    async def turns_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        """All turns of these stretches, in order of number."""
        ...

    async def effects_in(self, stretches: Sequence[Stretch]) -> list[Turn]:
        """The turns of these stretches that are carried to other branches (Turn.is_carried), in order of
        number. They are few: it must cost less than reading all turns."""
        ...

    async def add_turn(self, turn: Turn, log: bytes = b"") -> None: ...

    async def turn_log(self, id: TurnId) -> bytes:
        """The event log of a turn; empty if it has none."""
        ...

    # Storage of owners, and of all visitors of a link together: see Usage.
    async def count_bytes(self, owner: str, more: int) -> None:
        """Add bytes to the count of the owner and, for a visitor, of the link. The store itself counts
        conversations, their details and their branches when it saves them, and subtracts what it purges:
        turns, cleared branches, attempts."""
        ...

    async def usage(self, owner: str) -> Usage: ...

    # Flags of items. Purged with their turn.
    async def flags(self, owner: str, turns: Sequence[TurnId]) -> FlagsByTurn:
        """Those of these turns; turns without flags are left out."""
        ...

    async def flags_in(self, owner: str, stretches: Sequence[Stretch]) -> FlagsByTurn:
        """Those of the turns of these stretches. They are few: it must cost less than reading all turns."""
        ...

    async def save_flags(self, owner: str, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        """Replace those of an existing turn, and raise the owner's flag version."""
        ...

    async def flag_version(self, owner: str) -> int:
        """How often flags of this owner were saved; never falls."""
        ...

    # Attempts: running ones and those set aside. One that commits is removed: the turn replaces it.
    async def attempt(self, owner: str, id: TurnId) -> Attempt | None: ...
    async def attempts(self, conversation: ConversationId, limit: int) -> list[Attempt]:
        """Those of a conversation, newest first."""
        ...

    async def running_attempts(self, lease: LeaseId) -> list[Attempt]: ...
    async def add_attempt(self, attempt: Attempt) -> None: ...
    async def save_attempt(self, attempt: Attempt) -> None:
        """Update state, stop, failure, partial, journaled, fence, lease and ended_at."""
        ...

    async def drop_attempt(self, id: TurnId) -> None: ...
    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        """Remove ended attempts of that age with journals and logs, but never an unsettled one."""
        ...

    # Journals: the records of an attempt in order.
    async def journal(self, attempt: TurnId) -> list[bytes]: ...
    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        """Insert records numbered from `first`; keep those that exist."""
        ...

    async def drop_journal(self, attempt: TurnId) -> None: ...

    # Event logs of running attempts, and of those set aside.
    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        """At most `limit` chunks numbered from `first`, in order."""
        ...

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        """Insert; keep one with that number if it exists."""
        ...

    async def drop_log(self, attempt: TurnId) -> None: ...

    # Tickets.
    async def tickets(self, branch: BranchId) -> list[Ticket]:
        """Those of a branch, front tickets first, then by number."""
        ...

    async def ticket(self, attempt: TurnId) -> Ticket | None: ...
    async def tickets_of(self, lease: LeaseId) -> list[Ticket]: ...
    async def add_ticket(self, ticket: Ticket) -> Ticket:
        """Insert with the next number of its branch; return it with that number."""
        ...

    async def drop_ticket(self, attempt: TurnId) -> None: ...
    async def move_tickets(self, old: BranchId, new: BranchId) -> None:
        """Append the queue of one branch to that of another, in order."""
        ...

    # Claims of idempotency keys.
    async def claim(self, owner: str, idempotency_key: str) -> Claim | None: ...
    async def save_claim(self, claim: Claim) -> None:
        """Insert, or replace that of the same owner and idempotency_key."""
        ...

    async def drop_claim(self, owner: str, idempotency_key: str) -> None: ...
    async def purge_claims(self, expired_before: int, limit: int) -> int: ...

    # Leases.
    async def lease(self, id: LeaseId) -> Lease | None: ...
    async def leases(self) -> list[Lease]: ...
    async def beat(self, id: LeaseId) -> None:
        """Raise the beat of the lease; insert it if there is none."""
        ...

    async def drop_lease(self, id: LeaseId) -> None:
        """Remove the lease of a process that has ended by itself."""
        ...

    async def bury_lease(self, id: LeaseId) -> None:
        """Remove the lease of a process found dead, but remember its last beat: should it come back, its
        beats continue from there, so that no beat occurs twice. Only the last BURIED_KEPT are remembered."""
        ...

    # Tokens. An owner of None stands for all owners: only the operator of the store may use it.
    async def token(self, owner: str | None, id: TokenId) -> Token | None: ...
    async def token_by_digest(self, digest: bytes) -> tuple[Token, int] | None:
        """A token, and the admission version of its owner: what authorizes a request, in one lookup."""
        ...

    async def tokens(self, owner: str | None, before: TokenId | None, limit: int) -> list[Token]:
        """In any state, newest first, after `before` in that order."""
        ...

    async def child_tokens(self, parent: TokenId) -> list[Token]:
        """Those that this one created, in any state, oldest first."""
        ...

    async def count_tokens(self, owner: str, now: int, limit: int) -> int:
        """How many are neither revoked nor expired, without visitors of links; counted up to the limit."""
        ...

    async def add_token(self, token: Token) -> None: ...
    async def revoke_token(self, id: TokenId, at: int) -> None:
        """Mark as revoked, unless it is."""
        ...

    async def record_use(self, id: TokenId, at: int) -> None:
        """Advance the time of the last use, never set it back."""
        ...

    async def purge_tokens(self, ended_before: int, limit: int) -> int:
        """Remove tokens revoked or expired before that time; return how many."""
        ...

    async def admission(self, owner: str) -> int:
        """How often the tokens of this owner have changed; never falls."""
        ...

    async def raise_admission(self, owner: str) -> None:
        """Make every caller of this owner authorize again."""
        ...

    # Share links. An owner of None stands for all owners.
    async def share(self, owner: str | None, id: ShareId) -> Share | None: ...
    async def share_by_digest(self, digest: bytes) -> Share | None: ...
    async def shares(self, owner: str | None, before: ShareId | None, limit: int) -> list[Share]:
        """In any state, newest first, after `before` in that order."""
        ...

    async def child_shares(self, parent: TokenId) -> list[Share]:
        """Those that a token created, in any state, oldest first."""
        ...

    async def count_shares(self, owner: str, now: int, limit: int) -> int:
        """How many of the owner are neither revoked nor expired; counted up to the limit."""
        ...

    async def add_share(self, share: Share) -> None: ...
    async def count_use(self, id: ShareId) -> None: ...

    async def revoke_share(self, id: ShareId, at: int) -> None:
        """Mark as revoked, unless it is."""
        ...

    async def revoke_visitors(self, share: ShareId, at: int) -> list[str]:
        """Revoke all tokens obtained by a link; return the owners of those not revoked before, in order."""
        ...

    async def count_visitors(self, share: ShareId, since: int, limit: int) -> int:
        """How many tokens were obtained by a link after that time; counted up to the limit."""
        ...

    async def purge_shares(self, ended_before: int, limit: int) -> int: ...

    # Search. Commits index nothing: the store knows what is not indexed yet.
    async def index_texts(self, limit: int, owner: str | None = None) -> int:
        """Index up to `limit` turns and titles that are not indexed as they are now; return how many, 0 when
        all are. With an owner, only those of that owner among the newest of the store. A store that searches
        the texts themselves has nothing to do."""
        ...

    async def is_index_complete(self, owner: str | None = None) -> bool:
        """Whether everything is indexed; or everything of this owner, as far as the store can tell
        quickly."""
        ...

    async def search(
        self, owner: str, scope: str | None, phrases: Sequence[Phrase], before: int | None, limit: int
    ) -> list[SearchMatch]:
        """Turns and titles of the owner, in one scope or all, that contain all words of these phrases, in
        descending order of place, below `before`; of conversations in any state, except internal ones. The
        order of words is not checked, and a text found may have changed since."""
        ...

    async def forks_showing(
        self, branch: BranchId, number: int, limit: int
    ) -> list[tuple[ConversationId, BranchId]]:
        """The live conversations, with their branches, that were made from this turn of a branch or a later
        one, directly or not, oldest first."""
        ...

    # Changes for the feed. A store numbers them in the order in which their transactions become visible,
    # without gaps, and never reuses a number: a reader that has read up to one has missed none below.
    async def add_change(self, change: LiveChange) -> None:
        """Insert with the next number, without the chat."""
        ...

    async def changes(
        self, after: int, owners: Collection[str], limit: int
    ) -> tuple[list[LiveChange], Position | None]:
        """Read the next `limit` changes; return those of these owners in order, and the position of the last
        one read, if any."""
        ...

    async def changes_of(self, owner: str, after: int, limit: int) -> list[LiveChange]: ...

    async def secret(self) -> bytes:
        """32 random bytes, kept for the life of the store and never disclosed."""
        ...

    async def change_position(self, number: int | None) -> Position | None:
        """The position of the change with this number, or of the newest; None if it is not kept. Number 0,
        before the first change, is kept while no change was removed."""
        ...

    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        """Remove changes before a time and those beyond `keep`, oldest first, at most `limit`; never the
        newest. Stop at the first that stays: all after it stay, too. Return how many."""
        ...

    async def owner_of_ticket(self, attempt: TurnId) -> str | None:
        """The owner of the conversation that a ticket waits for, to report its withdrawal."""
        ...

    # The clocks as the last process read them.
    async def clock_mark(self) -> ClockMark | None: ...
    async def save_clock_mark(self, mark: ClockMark) -> None: ...

    async def newest_time(self) -> int | None:
        """The time of the newest change or turn; None if there is none."""
        ...

    # Ids of all rows, of all owners, in pages, for a check of the whole store. Unreadable rows are included;
    # `after` is the last of the previous page.
    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[tuple[str, ConversationId]]: ...

    async def all_branches(self, after: BranchId | None, limit: int) -> list[tuple[str | None, BranchId]]:
        """Each with the owner of its conversation, or None if that is missing; in order of creation."""
        ...

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[tuple[str, TurnId]]: ...

    async def all_tickets(self, after: TurnId | None, limit: int) -> list[tuple[str | None, Ticket]]:
        """Each with the owner of its conversation, or None if that is missing."""
        ...

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]: ...
    async def all_tokens(self, after: TokenId | None, limit: int) -> list[tuple[str, TokenId]]:
        """Each with its owner, in order of id."""
        ...

    async def needed_through(self, branch: BranchId) -> int:
        """The number of the last turn of this branch that a branch made from it needs; 0 for none."""
        ...

    async def inconsistencies(self, limit: int) -> list[str]:
        """What is wrong with this store that its tables do not show, each in a sentence: unreachable rows,
        inconsistent counts, a damaged file."""
        ...

    async def miscounts(self, limit: int) -> list[str]:
        """Branches and owners whose byte counts do not match their turns, each in a sentence."""
        ...

    async def turns_without_checksum(self) -> int:
        """How many turns are from a version without checksums; 0 if the store keeps none."""
        ...


Request = TypeVar("Request")
Result = TypeVar("Result")
Operation: TypeAlias = Callable[[Tables, Request], Awaitable[Result]]


class Sync(Enum):
    """What a write must survive once it is acknowledged."""

    DISK = "disk"  # power loss
    PROCESS = "process"  # death of the process; power loss may undo it with all later writes


class Store(Protocol):
    """Stores the rows. Raises only errors of the tree in errors.py."""

    async def transact(
        self, operation: Operation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        """Run a writing operation atomically and in isolation.

        An error of the operation rolls it back and is raised here. Other StoreErrors mean that nothing was
        written, except OutcomeUnknown: the write may be there, or may appear until another write by this
        process has succeeded. When the caller is cancelled, the operation may still happen.
        """
        ...

    async def read(self, operation: Operation[Request, Result], request: Request) -> Result:
        """Run a reading operation on one consistent snapshot with all acknowledged writes."""
        ...

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed` on the event loop soon after another process may have written. Only a hint: calls
        may be late, lost or needless."""
        ...

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        """Take the lease and renew it every `every` seconds, even if the event loop is blocked, until
        closed."""
        ...

    def is_holder_dead(self, id: LeaseId) -> bool:
        """Return whether the process of this lease is known to be dead. False means unknown."""
        ...

    async def close(self) -> None:
        """End the lease and release everything. Operations under way finish first."""
        ...


class StoreVisit(Protocol):
    """A read-only visit to a store: takes no lease, writes nothing, creates nothing."""

    async def read(self, operation: Operation[Request, Result], request: Request) -> Result: ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time. `now_ms` is the wall clock, and may jump. The others, in seconds, never do."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float:
        """May stand still while the machine sleeps."""
        ...

    def boot_time(self) -> float:
        """Seconds since boot, including sleep where the system counts it."""
        ...

    def boot_id(self) -> str:
        """Identifies the boot that `boot_time` counts from; empty if unknown."""
        ...


class Runner(Protocol):
    """Produces a draft: emits text and adds items to the running turn, and returns when it is complete."""

    def __call__(self, turn: RunningTurn, /) -> Awaitable[None]: ...
