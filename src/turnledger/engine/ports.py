"""What the engine needs from outside: a store, a clock, a runner.

The engine's transactions are coroutines over `Tables`, written once for all stores (begin.py, commit.py,
end.py, …). A transaction awaits nothing but its tables, so an embedded store may drive it to its end
in one go, while a networked one awaits its database. `Tables` reads and writes rows and decides nothing.

What the engine asks the rows of a store for when conversations end: which are due, and to remove what they
leave. A part of `Tables`, see ports.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeAlias, TypeVar

from msgspec import Struct

from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.catalogue import Listed, ListPosition, Wanted
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
from turnledger.model.flags import Flags, FlagsOf
from turnledger.model.ids import BranchId, ConversationId, LeaseId, ShareId, TokenId, TurnId
from turnledger.model.text.search import FoundPlace, Phrase
from turnledger.model.turn import Attempt, Turn

if TYPE_CHECKING:
    from turnledger.engine.turn.running_turn import RunningTurn


class EndedTables(Protocol):
    """The conversations of a store whose time is over."""

    async def lapsed_conversations(self, now: int, limit: int) -> list[Conversation]:
        """Live ones whose time without interaction is over and where no turn runs or waits; of all owners,
        the first due first."""
        ...

    async def conversations_to_purge(self, now: int, limit: int) -> list[Conversation]:
        """Deleted ones whose `purge_at` has come, of all owners, the first due first."""
        ...

    async def unlisted_conversations(self, touched_by: int, limit: int) -> list[Conversation]:
        """Live ones that are not listed, were last touched by then, and have nothing that runs, waits, has
        ended since, or is to be settled; of all owners, the oldest first."""
        ...

    async def owners(self, after: str | None, limit: int) -> list[str]:
        """Those of whom something is stored, in order, after this one."""
        ...

    async def oldest_conversations(self, owner: str, touched_by: int, limit: int) -> list[Conversation]:
        """Live and listed ones, internal ones among them, that were last touched by then, the oldest first,
        without those that are pinned, and those where a turn runs, waits, or ended since."""
        ...

    async def oldest_deleted(self, owner: str, limit: int) -> list[Conversation]:
        """Deleted ones that can be restored, the oldest first."""
        ...

    async def purge_ended(self, limit: int) -> int:
        """Remove up to `limit` turns, attempts and origins of purged and expired conversations, and the
        previews of their branches; return how many. A turn stays while the line of a branch elsewhere
        needs it, and an origin while its branch has turns or another was made from it."""
        ...

    async def bytes_of(self, conversation: ConversationId) -> int:
        """What the branches of a conversation count, each in whole blocks."""
        ...


class ClockMark(Struct, frozen=True):
    """How the wall clock stood against the clock that counts from the start of the machine. Times are in
    milliseconds."""

    boot: str
    """Names the start of the machine; empty where that is not known."""
    boot_at: int
    """The wall time of that, as the wall clock has it."""
    since: int
    """How long after the start of the machine the wall clock was first seen to have it so."""
    trusted_at: int
    """The latest wall time that was trusted; 0 for none."""


BURIED_KEPT = 1_000
"""How many leases of dead processes are remembered by a store."""


class Tables(EndedTables, Protocol):
    """The rows of a store inside one transaction. Lookups return None for what is not there."""

    # Conversations. The owner is part of every lookup: to anyone else the row does not exist.
    async def conversation(self, owner: str, id: ConversationId) -> Conversation | None: ...
    async def conversation_by_key(
        self, owner: str, scope: str, conversation_key: str
    ) -> Conversation | None: ...
    async def listed(self, wanted: Wanted, after: ListPosition | None, limit: int) -> list[Listed]:
        """Those that are wanted, each with what its current branch says of it, the last touched first, behind
        a position in that order. Internal ones and those that are not listed are never wanted. Neither many
        chats, nor a tag that few or many of them have, may make it slow."""
        ...

    async def untouched(
        self, owner: str, scope: str | None, after: tuple[int, ConversationId] | None, limit: int
    ) -> list[Conversation]:
        """Live and listed ones that are not internal, of one scope or of all, the longest untouched first,
        behind the one that was last touched at this time and has this id."""
        ...

    async def is_taken(self, id: ConversationId) -> bool:
        """Whether anybody's conversation has this id."""
        ...

    async def taken_turns(self, ids: Sequence[TurnId]) -> set[TurnId]:
        """Those that are ids of anybody's turns, attempts or tickets."""
        ...

    async def taken_branches(self, ids: Sequence[BranchId]) -> set[BranchId]:
        """Those that are ids of anybody's branches."""
        ...

    async def add_conversation(self, conversation: Conversation) -> None:
        """Insert; if it has a conversation_key, the key names it from now on, and no other of its scope."""
        ...

    async def save_conversation(self, conversation: Conversation) -> None:
        """Update all but id, owner and scope. One deleted or purged, or saved without a conversation_key,
        frees its; one that comes back with a conversation_key takes it, if it is free."""
        ...

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        """Move the time of the last interaction forward, never back: a reader of pages must not meet a chat
        twice. Nothing else changes."""
        ...

    async def move_conversation(self, id: ConversationId, was: BranchId, now: BranchId) -> bool:
        """Make another branch current, and nothing else, if `was` still is; return whether it was."""
        ...

    async def switches(self, id: ConversationId) -> tuple[TurnId, ...]:
        """The switches between branches that were last saved for a conversation."""
        ...

    async def save_switches(self, id: ConversationId, switches: Sequence[TurnId]) -> None: ...
    async def forgotten(self, id: ConversationId) -> tuple[bytes, ...]:
        """The effects that were last saved as forgotten for a conversation, 16 bytes each."""
        ...

    async def save_forgotten(self, id: ConversationId, effects: Sequence[bytes]) -> None: ...
    # Branches.
    async def branch(self, id: BranchId) -> Branch | None: ...
    async def add_branch(self, branch: Branch) -> None: ...
    async def add_branches(self, made: Sequence[NewBranch]) -> None:
        """Insert branches of one conversation, just added, with their origins and all their turns. All other
        writers wait meanwhile, so a store does this in as few steps as it can."""
        ...

    async def save_branch(self, branch: Branch) -> None:
        """Update all but id, conversation, start and last_ticket, which rises with each ticket added."""
        ...

    async def first_branch(self, conversation: ConversationId) -> Branch | None:
        """The one that the conversation was created with."""
        ...

    async def branches(
        self, conversation: ConversationId, before: BranchId | None, limit: int
    ) -> list[Branch]:
        """Those of a conversation, the last made first, after `before` in that order."""
        ...

    async def add_origin(self, origin: Origin) -> None: ...
    async def origin(self, branch: BranchId) -> Origin | None: ...
    async def origins(self, conversation: ConversationId, base: TurnId | None, limit: int) -> list[Origin]:
        """Those of the branches that a conversation made from this turn, in the order of making."""
        ...

    async def ends_at(self, turn: Turn, limit: int) -> list[BranchId]:
        """The branches made from this turn, in whatever conversation, that have no turns of their own."""
        ...

    async def lane(
        self, owner: str, id: ConversationId, lease: LeaseId
    ) -> tuple[Conversation, Branch, bool, int, int] | None:
        """A conversation, its current branch, whether there is such a lease, and the flag version and the
        admission version of the owner: what every begin asks for, in one look."""
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
        """The turns of these stretches that go along to other branches (Turn.goes_along), in order of
        number. They are few: it must not cost what reading all turns would."""
        ...

    async def add_turn(self, turn: Turn, log: bytes = b"") -> None:
        """Insert, with the log of its events."""
        ...

    async def turn_log(self, id: TurnId) -> bytes:
        """The log of a turn's events; empty if it has none."""
        ...

    # What owners store, and all visitors of a link together: see Usage.
    async def count_bytes(self, owner: str, more: int) -> None:
        """Count so many bytes more for the owner and, if that is a visitor, for the link. The store itself
        counts conversations, their details and their branches where it saves them, and takes off what it
        purges: turns, branches that are cleared, attempts."""
        ...

    async def stored(self, owner: str) -> Usage: ...

    # Flags of items, where there are any. They go when their turn is purged.
    async def flags(self, owner: str, turns: Sequence[TurnId]) -> FlagsOf:
        """Those of these turns; turns without any are left out."""
        ...

    async def flags_in(self, owner: str, stretches: Sequence[Stretch]) -> FlagsOf:
        """Those of the turns of these stretches. They are few: it must not cost what reading all turns
        would."""
        ...

    async def save_flags(self, owner: str, turn: TurnId, flags: Mapping[int, Flags]) -> None:
        """Replace those of a turn that is there, and raise the flag version of the owner."""
        ...

    async def flag_version(self, owner: str) -> int:
        """How often flags of this owner were saved; it never goes back."""
        ...

    # Attempts: the running ones and those kept aside. One that commits is removed: the turn speaks for it.
    async def attempt(self, owner: str, id: TurnId) -> Attempt | None: ...
    async def attempts(self, conversation: ConversationId, limit: int) -> list[Attempt]:
        """Those of a conversation, newest first."""
        ...

    async def running_of(self, lease: LeaseId) -> list[Attempt]: ...
    async def add_attempt(self, attempt: Attempt) -> None: ...
    async def save_attempt(self, attempt: Attempt) -> None:
        """Update state, stop, failure, partial, journaled, fence, lease and ended_at."""
        ...

    async def drop_attempt(self, id: TurnId) -> None: ...
    async def purge_attempts(self, ended_before: int, limit: int) -> int:
        """Remove ended attempts of that age with journals and logs, but never one that is unsettled."""
        ...

    # The journal: records of one attempt in order.
    async def journal(self, attempt: TurnId) -> list[bytes]: ...
    async def add_records(self, attempt: TurnId, first: int, records: Sequence[bytes]) -> None:
        """Insert records numbered from `first`; one that is there already is left as it is."""
        ...

    async def drop_journal(self, attempt: TurnId) -> None: ...

    # Event logs: of running attempts, and of those kept aside.
    async def log_chunks(self, attempt: TurnId, first: int, limit: int) -> list[bytes]:
        """The chunks numbered from `first`, up to so many, in order."""
        ...

    async def add_log_chunk(self, attempt: TurnId, number: int, chunk: bytes) -> None:
        """Insert; one of that number that is there already is left as it is."""
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
    async def move_tickets(self, was: BranchId, now: BranchId) -> None:
        """Put the queue of one branch behind that of another, in its order."""
        ...

    # Claims of idempotency keys.
    async def claim(self, owner: str, idempotency_key: str) -> Claim | None: ...
    async def save_claim(self, claim: Claim) -> None:
        """Insert, or replace the one of the same owner and idempotency_key."""
        ...

    async def drop_claim(self, owner: str, idempotency_key: str) -> None: ...
    async def purge_claims(self, expired_before: int, limit: int) -> int: ...

    # Leases.
    async def lease(self, id: LeaseId) -> Lease | None: ...
    async def leases(self) -> list[Lease]: ...
    async def beat(self, id: LeaseId) -> None:
        """Raise the beat of the lease, or insert it."""
        ...

    async def drop_lease(self, id: LeaseId) -> None:
        """Remove the lease of a process that has ended by itself."""
        ...

    async def bury_lease(self, id: LeaseId) -> None:
        """Remove the lease of a process that was found dead, but not its last beat: should it come back, its
        beats go on from there, so that no beat is shown twice. The BURIED_KEPT buried last are remembered."""
        ...

    # Tokens. Where the owner is None, those of all owners are meant: only who runs the store asks so.
    async def token(self, owner: str | None, id: TokenId) -> Token | None: ...
    async def token_by_digest(self, digest: bytes) -> tuple[Token, int] | None:
        """A token, and the admission version of its owner: what lets a request in, in one look."""
        ...

    async def tokens(self, owner: str | None, before: TokenId | None, limit: int) -> list[Token]:
        """In whatever state, the last made first, after `before` in that order."""
        ...

    async def minted_by(self, parent: TokenId) -> list[Token]:
        """Those that this one made, in whatever state, the first made first."""
        ...

    async def count_tokens(self, owner: str, now: int, limit: int) -> int:
        """How many of the owner are neither revoked nor expired, visitors who came by a link left out;
        counted up to the limit."""
        ...

    async def add_token(self, token: Token) -> None: ...
    async def revoke_token(self, id: TokenId, at: int) -> None:
        """Mark as revoked, if it is not yet."""
        ...

    async def note_use(self, id: TokenId, at: int) -> None:
        """Move the time of the last use forward, never back."""
        ...

    async def purge_tokens(self, ended_before: int, limit: int) -> int:
        """Remove tokens that were revoked or expired before that time; return how many."""
        ...

    async def admission(self, owner: str) -> int:
        """How often the tokens of this owner have changed; it never goes back."""
        ...

    async def raise_admission(self, owner: str) -> None:
        """Have every caller of this owner authorized again."""
        ...

    # Share links. Where the owner is None, those of all owners are meant.
    async def share(self, owner: str | None, id: ShareId) -> Share | None: ...
    async def share_by_digest(self, digest: bytes) -> Share | None: ...
    async def shares(self, owner: str | None, before: ShareId | None, limit: int) -> list[Share]:
        """In whatever state, the last made first, after `before` in that order."""
        ...

    async def shares_made_by(self, parent: TokenId) -> list[Share]:
        """Those that a token made, in whatever state, the first made first."""
        ...

    async def count_shares(self, owner: str, now: int, limit: int) -> int:
        """How many of the owner are neither revoked nor expired; counted up to the limit."""
        ...

    async def add_share(self, share: Share) -> None: ...
    async def count_use(self, id: ShareId) -> None:
        """Count one more use of a link."""
        ...

    async def revoke_share(self, id: ShareId, at: int) -> None:
        """Mark as revoked, if it is not yet."""
        ...

    async def revoke_visitors(self, share: ShareId, at: int) -> list[str]:
        """Mark all tokens as revoked that were got by a link and are not yet; return their owners, each
        once, in order."""
        ...

    async def count_visitors(self, share: ShareId, since: int, limit: int) -> int:
        """How many tokens were got by a link after that time; counted up to the limit."""
        ...

    async def purge_shares(self, ended_before: int, limit: int) -> int:
        """Remove links that were revoked or expired before that time; return how many."""
        ...

    # Search. Nothing is made findable in a commit: the store knows what is not yet.
    async def index_texts(self, limit: int, owner: str | None = None) -> int:
        """Make up to `limit` turns and titles findable that are not yet as they are; return how many, 0 when
        all are. With an owner, only those of that owner, as far as they are among the newest of the store. A
        store that looks at the texts themselves has nothing to do."""
        ...

    async def is_all_known(self, owner: str | None = None) -> bool:
        """Whether all that was committed can be found as it is; or all of this owner, as far as the store
        can tell that soon."""
        ...

    async def search(
        self, owner: str, scope: str | None, sought: Sequence[Phrase], before: int | None, limit: int
    ) -> list[FoundPlace]:
        """Turns and titles of the owner, in one scope or in all, that have all words of these phrases, in
        falling order of their places, below `before`; in whatever state their conversations are, but for
        internal ones. Whether words stand together is not looked at, and one found may have changed since."""
        ...

    async def shown_elsewhere(
        self, branch: BranchId, number: int, limit: int
    ) -> list[tuple[ConversationId, BranchId]]:
        """The live conversations, and their branches, that were made from this turn of a branch or from one
        behind it, directly or not, the first made first."""
        ...

    # Changes: what owners are told of. A store numbers them in the order in which their transactions become
    # visible, without gaps, and never gives a number again: who has read up to one has missed nothing below.
    async def add_change(self, change: LiveChange) -> None:
        """Insert with the next number. The chat of it is not stored."""
        ...

    async def changes(
        self, after: int, owners: Collection[str], limit: int
    ) -> tuple[list[LiveChange], Position | None]:
        """Of the next so many changes those of these owners, in order; and the position of the last one that
        was looked at, if there was any."""
        ...

    async def changes_of(self, owner: str, after: int, limit: int) -> list[LiveChange]:
        """The next ones of one owner, in order."""
        ...

    async def secret(self) -> bytes:
        """32 random bytes that nobody outside knows, the same for as long as there is the store."""
        ...

    async def change_position(self, number: int | None) -> Position | None:
        """The position of the change of this number, or of the newest; None if it is not kept. Before the
        first one is 0, which is kept while no change was removed."""
        ...

    async def purge_changes(self, before: int, keep: int, limit: int) -> int:
        """Remove those before a time and those beyond so many, from the oldest on and looking at `limit`, up
        to the first that is neither: behind one that is kept, all are. Never the newest. Return how many."""
        ...

    async def owner_of_ticket(self, attempt: TurnId) -> str | None:
        """Whose conversation it waits for, to report that a dead process waits no more."""
        ...

    # The clocks of the machine, as the last process saw them.
    async def clock_mark(self) -> ClockMark | None: ...
    async def save_clock_mark(self, mark: ClockMark) -> None:
        """Replace the one that is there."""
        ...

    async def newest_time(self) -> int | None:
        """The time of the last change or turn that was written; None where there is none."""
        ...

    # Names of all there is, of all owners, a page at a time: for a check of the whole store. A row that
    # cannot be read has a name, too; `after` is the last one of the page before.
    async def all_conversations(
        self, after: ConversationId | None, limit: int
    ) -> list[tuple[str, ConversationId]]:
        """Each with its owner."""
        ...

    async def all_branches(self, after: BranchId | None, limit: int) -> list[tuple[str | None, BranchId]]:
        """Each with the owner of its conversation, or None if that is not there; in the order of making."""
        ...

    async def all_attempts(self, after: TurnId | None, limit: int) -> list[tuple[str, TurnId]]:
        """Each with its owner."""
        ...

    async def all_tickets(self, after: TurnId | None, limit: int) -> list[tuple[str | None, Ticket]]:
        """Each with the owner of its conversation, or None if that is not there."""
        ...

    async def all_claims(self, after: Claim | None, limit: int) -> list[Claim]: ...
    async def all_tokens(self, after: TokenId | None, limit: int) -> list[tuple[str, TokenId]]:
        """Each with its owner, in the order of their ids."""
        ...

    async def needed_through(self, branch: BranchId) -> int:
        """The number of the last turn of this branch that a branch made from it needs; 0 for none."""
        ...

    async def oddities(self, limit: int) -> list[str]:
        """What is wrong with this store that its tables do not show, each in a sentence: rows that nothing
        leads to, books that do not agree, a damaged file."""
        ...

    async def miscounts(self, limit: int) -> list[str]:
        """Branches and owners that count other bytes than their turns take, each in a sentence."""
        ...

    async def turns_without_checksum(self) -> int:
        """How many turns are from a version that kept no checksums; 0 where the store keeps none at all."""
        ...


Request = TypeVar("Request")
Result = TypeVar("Result")
Operation: TypeAlias = Callable[[Tables, Request], Awaitable[Result]]


class Sync(Enum):
    """What a write must survive once it is acknowledged."""

    DISK = "disk"  # power loss
    PROCESS = "process"  # death of the process; power loss may undo it with all that came after


class Store(Protocol):
    """Keeps the rows. Every error it raises is from the tree in errors.py."""

    async def transact(
        self, operation: Operation[Request, Result], request: Request, sync: Sync = Sync.DISK
    ) -> Result:
        """Run a writing operation: all of it happens, alone, or nothing.

        What the operation raises undoes it and is raised here. Other StoreErrors mean that nothing was
        written, but for OutcomeUnknown: the write may be there, or may appear until another write by this
        process has succeeded. When the caller is cancelled, the operation may still happen.
        """
        ...

    async def read(self, operation: Operation[Request, Result], request: Request) -> Result:
        """Run a reading operation on one consistent view that includes all acknowledged writes."""
        ...

    def watch(self, changed: Callable[[], None]) -> None:
        """Have `changed` called on the event loop soon after another process may have written.
        A hint to look again, never a truth: calls may be late, lost or needless."""
        ...

    async def keep_lease(self, id: LeaseId, every: float) -> None:
        """Take the lease and renew it every so many seconds, whatever the event loop is doing, until
        the store is closed."""
        ...

    def holder_is_gone(self, id: LeaseId) -> bool:
        """Whether the process of this lease is known to be dead. False means unknown."""
        ...

    async def close(self) -> None:
        """End the lease and release everything. Operations under way are finished first."""
        ...


class StoreVisit(Protocol):
    """A look at a store by somebody who takes no part in it: no lease, nothing written, nothing created."""

    async def read(self, operation: Operation[Request, Result], request: Request) -> Result:
        """Run a reading operation on one consistent view."""
        ...

    async def close(self) -> None: ...


class Clock(Protocol):
    """Time. `now_ms` is the wall clock, and may jump. The others, in seconds, never do."""

    def now_ms(self) -> int: ...
    def monotonic(self) -> float:
        """May stand still while the machine sleeps."""
        ...

    def boot_time(self) -> float:
        """Since the start of the machine, sleep included where the system counts that."""
        ...

    def boot_id(self) -> str:
        """Names the start of the machine that `boot_time` counts from; empty where that is not known."""
        ...


class Runner(Protocol):
    """Produces a draft: gets the running turn, emits text and adds items, and returns when it is whole."""

    def __call__(self, turn: RunningTurn, /) -> Awaitable[None]: ...
