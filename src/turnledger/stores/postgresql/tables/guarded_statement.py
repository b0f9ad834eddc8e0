"""Operations as one statement: it does what the operation wants, if all that it has read is so still.

Turns need few rows. A process remembers those that it used last, and guesses that nobody has changed them
since: then a begin or a commit is a single round trip. A wrong guess does nothing, and the operation runs
again, alone with its owner. So does any operation that reads or writes more than is guarded here, fails, or
writes nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, NoReturn, TypeAlias, TypeVar

from msgspec.structs import replace

from turnledger.engine.ports import Sync
from turnledger.engine.tables.lanes import Lane
from turnledger.model.conversation import Branch, Claim, Conversation
from turnledger.model.ids import BranchId, ConversationId, LeaseId, TurnId
from turnledger.model.turn import Attempt
from turnledger.stores import row_codec
from turnledger.stores.postgresql.tables.queries import (
    COMMIT_WAITS,
    QUERIES,
    Transaction,
    highest_parameter,
    shifted,
)
from turnledger.stores.postgresql.tables.tables import (
    ATTEMPT_COLUMNS,
    LANE_CONVERSATION,
    PostgresTables,
    branch_in,
    lane_in,
)
from turnledger.stores.row_codec import Row

if TYPE_CHECKING:
    from turnledger.stores.postgresql.connections import AnyConnection

LANES_KNOWN, ATTEMPTS_KNOWN = 4_096, 512
VERSION_OF_BRANCH, VERSION_OF_CONVERSATION, VERSION_OF_ATTEMPT = 17, 21, ATTEMPT_COLUMNS + 1
"""Columns in the row of each table."""
VERSION_IN_LANE = 3
"""The version of the branch in the row of a lane."""

Value = TypeVar("Value")


class WrongGuess(Exception):
    """The operation must run alone."""


class OutdatedGuess(WrongGuess):
    """Something that was read has changed. What was remembered of it is forgotten, so another guess may be
    right."""


class Versioned(NamedTuple, Generic[Value]):
    value: Value
    version: int


Key: TypeAlias = tuple[str, str]


class Recent(Generic[Value]):
    """The rows that were used last."""

    def __init__(self, most: int) -> None:
        self._rows: OrderedDict[Key, Versioned[Value]] = OrderedDict()
        self._most = most

    def get(self, key: Key) -> Versioned[Value] | None:
        return self._rows.get(key)

    def put(self, key: Key, row: Versioned[Value] | None) -> None:
        """Remember a row, or forget it."""
        if row is None:
            self._rows.pop(key, None)
            return
        self._rows[key] = row
        self._rows.move_to_end(key)
        if len(self._rows) > self._most:
            self._rows.popitem(last=False)


class Memory:
    """What this process has read and written last, by owner and id. Any of it may be out of date."""

    def __init__(self) -> None:
        self.lanes: Recent[Lane] = Recent(LANES_KNOWN)
        """With the version of the conversation. Their branches are in `branches`."""
        self.branches: Recent[Branch] = Recent(LANES_KNOWN)
        self.attempts: Recent[Attempt] = Recent(ATTEMPTS_KNOWN)
        self.claims: Recent[Claim] = Recent(LANES_KNOWN)
        """By idempotency key; compared by all their columns."""


LOCK_ORDER = (
    "guard_owner",
    "guard_settings",
    "guard_conversation",
    "guard_attempt",
    "guard_claim",
    "guard_lease",
    "guard_branch",
)
"""The same for all, so that they wait for each other without a deadlock. The branch comes last: its guard may
be its write, and nothing must be written if another guard finds a change."""
SAVED = "save_guarded_branch"
"""The write of a branch that is its guard, too."""


class Statement(NamedTuple):
    text: str
    guards: tuple[str, ...]
    """In the order of their arguments, before those of the writes."""


@lru_cache(maxsize=256)
def guarded(guards: tuple[str, ...], writes: tuple[str, ...], sync: Sync) -> Statement:
    """Return one statement that locks and compares in this order, and writes if all is as expected. Only the
    first write may be SAVED."""
    is_saved = SAVED in writes[:1]
    order = tuple(name for name in LOCK_ORDER if name in guards and not (is_saved and name == "guard_branch"))
    parts, before, found = [], 0, ""
    for place, name in enumerate((*order, *writes)):
        query = QUERIES[name].removesuffix(";")
        part = f"q{place}"
        if place < len(order):
            head, lock = query.split(" FOR ")
            text = f"{part} AS MATERIALIZED ({head}{_if_any(found)} FOR {lock})"
            found = part
        elif name == SAVED:
            head, returning = query.split(" RETURNING ")
            text = f"{part} AS ({head}{_if_any(found)} RETURNING {returning})"
            found = part
        else:
            head, conflict, rest = query.partition(" ON CONFLICT")
            condition = _if_any(found) if " WHERE " in head else f" FROM {found}"
            text = f"{part} AS ({head}{condition}{conflict}{rest})"
        parts.append(shifted(text, before))
        before += highest_parameter(query)
    return Statement(f"WITH {', '.join(parts)} SELECT {COMMIT_WAITS[sync]} FROM {found}", order)  # noqa: S608


def _if_any(found: str) -> str:
    return f" AND EXISTS (SELECT 1 FROM {found})" if found else ""  # noqa: S608


class Guess(Transaction):
    """The guards and writes of one operation, and the connection that it reads with before them."""

    def __init__(self, connection: AnyConnection, owner: str, sync: Sync) -> None:
        super().__init__(connection, writes=True)
        self._owner = owner
        self._sync = sync
        self.guards: dict[str, Row] = {}

    def guard(self, name: str, *arguments: Any) -> None:
        """Demand that a row is as it was read. Turns need one of each table."""
        if self.guards.setdefault(name, arguments) != arguments:
            raise WrongGuess

    async def read(self, query: str, *arguments: Any) -> Row | None:
        """Read a row that is then guarded."""
        if not self.is_unwritten(query):
            raise WrongGuess
        rows: Sequence[Row] = await self.connection.fetch(QUERIES[query], *arguments)
        return rows[0] if rows else None

    async def rows(self, query: str, *arguments: Any) -> NoReturn:
        raise WrongGuess

    async def write(self, query: str, *arguments: Any) -> None:
        await super().write(query, *arguments)
        if query == SAVED:
            self._writes.insert(0, self._writes.pop())

    async def flush(self) -> NoReturn:
        raise WrongGuess

    async def lock(self, owner: str) -> None:
        if owner != self._owner:
            raise WrongGuess

    async def carry_out(self) -> None:
        """Send it all. Raises OutdatedGuess, and has done nothing, if something has changed."""
        if not self._writes:
            raise WrongGuess
        if "guard_settings" not in self.guards:
            self.guards["guard_owner"] = (self._owner,)
        names = tuple([name for name, _ in self._writes])
        query, order = guarded(tuple(self.guards), names, self._sync)
        arguments: list[Any] = []
        for name in order:
            arguments += self.guards[name]
        for _, each in self._writes:
            arguments += each
        if not await self.connection.fetch(query, *arguments):
            raise OutdatedGuess


class GuessedTables(PostgresTables):
    """The rows of an owner that the operations of turns need, each with its guard."""

    def __init__(self, guess: Guess, owner: str, memory: Memory) -> None:
        super().__init__(guess, owner)
        self._guess = guess
        self._memory = memory
        self._used: dict[tuple[Recent[Any], Key], Versioned[Any] | None] = {}
        """Rows as they are after the operation; None for those to forget."""
        self._absent: set[str] = set()
        """Idempotency keys without a claim."""

    async def carry_out(self) -> None:
        """Do what the operation wants, and remember it. Raises WrongGuess, and has done nothing."""
        if self._absent:  # only a row of its own would notice that somebody adds one
            raise WrongGuess
        try:
            await self._guess.carry_out()
        except BaseException:
            for recent, key in self._used:
                recent.put(key, None)
            raise
        for (recent, key), row in self._used.items():
            recent.put(key, row)

    async def lane(self, id: ConversationId, lease: LeaseId) -> Lane | None:
        if not (self._guess.is_unwritten("conversation") and self._guess.is_unwritten("branch")):
            raise WrongGuess
        known = self._recall(self._memory.lanes, id)
        branch = None if known is None else self._recall(self._memory.branches, known.value.branch.id)
        if known is None or branch is None:
            row = await self._guess.read("lane", self.owner, id.raw, lease.raw)
            if row is None:
                raise WrongGuess
            found = lane_in(row)
            known = self._use(self._memory.lanes, id, found, row[LANE_CONVERSATION + VERSION_OF_CONVERSATION])
            branch = self._use(self._memory.branches, found.branch.id, found.branch, row[VERSION_IN_LANE])
        lane = known.value
        if not lane.has_lease:
            raise WrongGuess
        self._note(branch.value)
        touched_at = lane.conversation.touched_at
        self._guess.guard("guard_settings", self.owner, lane.flag_version, lane.admission)
        self._guess.guard("guard_conversation", self.owner, id.raw, known.version, touched_at)
        self._guard_branch(branch)
        self._guess.guard("guard_lease", lease.raw)
        return replace(lane, branch=branch.value)

    async def _change(self, query: str, *arguments: Any) -> None:
        await self._guess.write(query, self.owner, *arguments)

    def _recall(self, recent: Recent[Value], id: str) -> Versioned[Value] | None:
        """Return a row as this operation has left it, or else as it is remembered."""
        key = (self.owner, id)
        if not self._is_used(recent, id) and (known := recent.get(key)) is not None:
            self._used[recent, key] = known
        return self._used.get((recent, key))

    def _is_used(self, recent: Recent[Any], id: str) -> bool:
        """Return whether this operation has guarded the row, or made it."""
        return (recent, (self.owner, id)) in self._used

    def _use(self, recent: Recent[Value], id: str, value: Value, version: int) -> Versioned[Value]:
        self._used[recent, (self.owner, id)] = used = Versioned(value, version)
        return used

    async def branch(self, id: BranchId) -> Branch | None:
        is_used = self._is_used(self._memory.branches, id)
        known = self._recall(self._memory.branches, id)
        if known is None:
            row = await self._guess.read("branch", self.owner, id.raw)
            if row is None:
                raise WrongGuess
            known = self._use(self._memory.branches, id, branch_in(row), row[VERSION_OF_BRANCH])
        if not is_used:
            self._guard_branch(known)
        return self._note(known.value)

    def _guard_branch(self, known: Versioned[Branch]) -> None:
        running = row_codec.raw_or_none(known.value.running)
        self._guess.guard("guard_branch", self.owner, known.value.id.raw, known.version, running)

    async def save_branch(self, branch: Branch) -> None:
        await self.branch(branch.id)
        version, running = self._guess.guards["guard_branch"][2:]
        columns = row_codec.columns_of_branch(branch)
        await self._guess.write(SAVED, self.owner, branch.id.raw, *columns, self._step, version, running)
        self._use(self._memory.branches, branch.id, branch, version + self._step)

    async def conversation(self, id: ConversationId) -> Conversation | None:
        row = await self._guess.read("conversation", self.owner, id.raw)
        if row is None:
            raise WrongGuess
        self._known.add(id)
        found = row_codec.conversation_of(row)
        version = row[VERSION_OF_CONVERSATION]
        self._guess.guard("guard_conversation", self.owner, id.raw, version, found.touched_at)
        return found

    async def save_conversation(self, conversation: Conversation) -> None:
        await super().save_conversation(conversation)
        self._used[self._memory.lanes, (self.owner, conversation.id)] = None

    async def touch_conversation(self, id: ConversationId, at: int) -> None:
        await super().touch_conversation(id, at)
        known = self._recall(self._memory.lanes, id)
        if known is not None:
            had = known.value.conversation
            touched = replace(had, touched_at=max(had.touched_at, at))
            self._use(self._memory.lanes, id, replace(known.value, conversation=touched), known.version)

    async def attempt(self, id: TurnId) -> Attempt | None:
        is_used = self._is_used(self._memory.attempts, id)
        known = self._recall(self._memory.attempts, id)
        if known is None:
            row = await self._guess.read("attempt", self.owner, id.raw)
            if row is None:
                raise WrongGuess
            known = self._use(self._memory.attempts, id, row_codec.attempt_of(row), row[VERSION_OF_ATTEMPT])
        if not is_used:
            self._guess.guard("guard_attempt", self.owner, id.raw, known.version)
        return known.value

    async def add_attempt(self, attempt: Attempt) -> None:
        await super().add_attempt(attempt)
        self._use(self._memory.attempts, attempt.id, attempt, 0)

    async def save_attempt(self, attempt: Attempt) -> None:
        await self.attempt(attempt.id)
        await super().save_attempt(attempt)
        version = self._guess.guards["guard_attempt"][-1] + self._step
        self._use(self._memory.attempts, attempt.id, attempt, version)

    async def drop_attempt(self, id: TurnId) -> None:
        await super().drop_attempt(id)
        self._used[self._memory.attempts, (self.owner, id)] = None

    async def claim(self, idempotency_key: str) -> Claim | None:
        known = self._recall(self._memory.claims, idempotency_key)
        if known is None:  # a new key, most likely: if it is not, it cannot be added
            self._absent.add(idempotency_key)
            return None
        self._guess.guard("guard_claim", *row_codec.columns_of_claim(known.value))
        return known.value

    async def save_claim(self, claim: Claim) -> None:
        if claim.idempotency_key in self._absent:
            self._absent.discard(claim.idempotency_key)
            await self._guess.write("add_claim", *row_codec.columns_of_claim(claim))
        else:
            await super().save_claim(claim)
        self._use(self._memory.claims, claim.idempotency_key, claim, 0)

    async def drop_claim(self, idempotency_key: str) -> None:
        await super().drop_claim(idempotency_key)
        self._used[self._memory.claims, (self.owner, idempotency_key)] = None
