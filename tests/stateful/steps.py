"""Steps of a transaction: each reads rows, changes one and returns what it read. Tables check only the owner,
so steps follow the rules of the engine: save only existing rows, and run nothing in an ended conversation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from msgspec.structs import replace

from tests.stateful.names import BRANCHES, CONVERSATIONS, LEASES, TIMES, TURNS
from turnledger.engine.history.line import line_through
from turnledger.engine.ports import Tables, WholeStore
from turnledger.model.access.token import Token, TokenScope
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
    Origin,
    Stretch,
    Ticket,
)
from turnledger.model.flags import Flags, FlagsByTurn
from turnledger.model.ids import TokenId, TurnId
from turnledger.model.item import Item
from turnledger.model.reset_policy import ResetPolicy
from turnledger.model.turn import Attempt, AttemptState, Failure, Instructions, OnStop, Turn, TurnKind

ALL = 1_000


class Step(Protocol):
    """A step on the rows of an owner, or of all."""

    async def take(self, rows: Any, /) -> Any: ...


async def live(tables: Tables, place: int) -> Conversation | None:
    conversation = await tables.conversation(CONVERSATIONS[place])
    is_live = conversation is not None and conversation.state is ConversationState.LIVE
    return conversation if is_live else None


@dataclass(frozen=True)
class AddConversation:
    place: int
    conversation_key: str | None
    internal: bool
    at: int
    expires_after: int | None
    reset_policy: ResetPolicy
    scope: str

    async def take(self, tables: Tables) -> None:
        made = Conversation(
            id=CONVERSATIONS[self.place],
            owner=tables.owner,
            branch=BRANCHES[self.place],
            conversation_key=self.conversation_key,
            internal=self.internal,
            created_at=self.at,
            touched_at=self.at,
            expires_after=self.expires_after,
            reset_policy=self.reset_policy,
            scope=self.scope,
        )
        await tables.add_conversation(made)
        await tables.add_branch(Branch(id=made.branch, conversation=made.id))


@dataclass(frozen=True)
class SaveConversation:
    place: int
    title: str | None
    metadata: tuple[str, ...]
    at: int
    tags: tuple[str, ...]
    marks: tuple[bool, bool, bool]

    async def take(self, tables: Tables) -> Conversation | None:
        before = await live(tables, self.place)
        if before is not None:
            changes = {
                "title": self.title,
                "metadata": dict.fromkeys(self.metadata, "x"),
                "touched_at": self.at,
                "tags": self.tags,
                **dict(zip(("pinned", "archived", "is_listed"), self.marks, strict=True)),
            }
            await tables.save_conversation(replace(before, **changes, revision=before.revision + 1))
        return before


@dataclass(frozen=True)
class ReleaseKey:
    """Save a conversation without its conversation_key, in any state."""

    place: int

    async def take(self, tables: Tables) -> Conversation | None:
        before = await tables.conversation(CONVERSATIONS[self.place])
        if before is not None:
            key = before.conversation_key
            await tables.save_conversation(
                replace(before, conversation_key=None, former_conversation_key=key)
            )
        return before


@dataclass(frozen=True)
class EndConversation:
    place: int
    state: ConversationState

    async def take(self, tables: Tables) -> None:
        before = await tables.conversation(CONVERSATIONS[self.place])
        if before is None:
            return
        for attempt in await tables.attempts(before.id, 100):
            if attempt.state is AttemptState.RUNNING:
                await tables.save_attempt(replace(attempt, state=AttemptState.FAILED, ended_at=1))
        await tables.save_conversation(replace(before, state=self.state, title=None))


@dataclass(frozen=True)
class SaveBranch:
    branch: int
    fence: int
    head: TurnId | None
    running: TurnId | None
    unsettled: TurnId | None
    pending: tuple[Item, ...]
    instructed: int

    async def take(self, tables: Tables) -> Branch | None:
        before = await tables.branch(BRANCHES[self.branch])
        if before is not None:
            changes = {
                "head": self.head,
                "running": self.running,
                "unsettled": self.unsettled,
                "pending": self.pending,
                "instructed": self.instructed,
            }
            await tables.save_branch(replace(before, **changes, fence=self.fence))
        return before


@dataclass(frozen=True)
class AddBranch:
    """Add a branch from a turn of any branch of the owner, or from none."""

    name: int
    place: int
    source: int
    number: int

    async def take(self, tables: Tables) -> Origin | None:
        conversation, source = await live(tables, self.place), await tables.branch(BRANCHES[self.source])
        if conversation is None or source is None or await tables.branch(BRANCHES[self.name]) is not None:
            return None
        base = await tables.turns(source.id, self.number - 1, self.number, 1)
        if base and await tables.turn(base[0].id) is None:
            return None
        of_source = await live(tables, CONVERSATIONS.index(source.conversation))
        line: tuple[Stretch, ...] = ()
        if base and of_source is not None:
            line = await line_through(tables, replace(source, length=ALL), base[0])
        number = self.number if line else 0
        made = Branch(
            id=BRANCHES[self.name],
            conversation=conversation.id,
            start=number,
            length=number,
            head=base[0].id if line else None,
            settled=number,
        )
        await tables.add_branch(made)
        origin = Origin(branch=made.id, conversation=conversation.id, base=made.head, line=line)
        await tables.add_origin(origin)
        return origin


@dataclass(frozen=True)
class MoveConversation:
    place: int
    was: int
    now: int

    async def take(self, tables: Tables) -> bool:
        was, now = BRANCHES[self.was], await tables.branch(BRANCHES[self.now])
        if now is None or now.conversation != CONVERSATIONS[self.place]:
            return False
        return await tables.move_conversation(CONVERSATIONS[self.place], was, now.id)


@dataclass(frozen=True)
class MoveTickets:
    was: int
    now: int

    async def take(self, tables: Tables) -> None:
        was, now = BRANCHES[self.was], BRANCHES[self.now]
        if was != now and await tables.branch(was) and await tables.branch(now):
            await tables.move_tickets(was, now)


@dataclass(frozen=True)
class AddTurn:
    branch: int
    turn: TurnId
    parent: TurnId | None
    """None for the turn before it."""
    kind: TurnKind
    items: tuple[Item, ...]
    is_next: bool
    log: bytes = b""

    async def take(self, tables: Tables) -> None:
        branch = BRANCHES[self.branch]
        found = await tables.branch(branch)
        if found is None or await live(tables, CONVERSATIONS.index(found.conversation)) is None:
            return
        last = await tables.turns(branch, 0, ALL, 1)
        number = last[0].number if last else found.start
        turn = Turn.of(
            id=self.turn,
            branch=branch,
            number=number + 1 if self.is_next else max(number, 1 + found.start),
            parent=(self.parent or last[0].id) if last else found.head if found.start else None,
            kind=self.kind,
            created_at=1,
            committed_at=2,
            input=self.items[:1],
            output=self.items[1:],
        )
        await tables.add_turn(turn, self.log)


@dataclass(frozen=True)
class AddAttempt:
    place: int
    turn: TurnId
    lease: int
    base: TurnId | None
    items: tuple[Item, ...]
    instructions: Instructions | None
    idempotency_key: str | None
    is_interaction: bool

    async def take(self, tables: Tables) -> None:
        conversation = await live(tables, self.place)
        if conversation is not None:
            attempt = Attempt(
                id=self.turn,
                owner=conversation.owner,
                conversation=conversation.id,
                branch=conversation.branch,
                lease=LEASES[self.lease],
                fence=1,
                state=AttemptState.RUNNING,
                base=self.base,
                input=self.items,
                instructions=self.instructions,
                idempotency_key=self.idempotency_key,
                is_interaction=self.is_interaction,
                created_at=1,
            )
            await tables.add_attempt(attempt)


@dataclass(frozen=True)
class SaveAttempt:
    turn: TurnId
    state: AttemptState | None
    """None to leave it unchanged."""
    stop: OnStop | None
    failure: Failure | None
    partial: str
    lease: int
    at: int

    async def take(self, tables: Tables) -> Attempt | None:
        before = await tables.attempt(self.turn)
        if before is None:
            return None
        after = replace(before, stop=self.stop, partial=self.partial, lease=LEASES[self.lease], fence=self.at)
        if self.state is not None:
            after = replace(after, state=self.state, failure=self.failure, ended_at=self.at)
        await tables.save_attempt(after)
        return before


@dataclass(frozen=True)
class Progress:
    turn: TurnId
    journaled: int

    async def take(self, tables: Tables) -> Attempt | None:
        before = await tables.attempt(self.turn)
        if before is not None:
            await tables.save_attempt(replace(before, journaled=self.journaled))
        return before


@dataclass(frozen=True)
class SaveFlags:
    turn: TurnId
    flags: dict[int, Flags]

    async def take(self, tables: Tables) -> FlagsByTurn:
        before = await tables.flags((self.turn,))
        if await tables.turn(self.turn) is not None:
            await tables.save_flags(self.turn, self.flags)
        return before


@dataclass(frozen=True)
class AddTicket:
    turn: TurnId
    branch: int
    lease: int
    front: bool
    idempotency_key: str | None
    claimed: TurnId | None

    async def take(self, tables: Tables) -> Ticket | None:
        branch = BRANCHES[self.branch]
        found = await tables.branch(branch)
        if await tables.ticket(self.turn) is not None or found is None:
            return None
        ticket = Ticket(
            attempt=self.turn,
            conversation=found.conversation,
            branch=branch,
            front=self.front,
            lease=LEASES[self.lease],
            deadline=2**52,
            idempotency_key=self.idempotency_key,
            fingerprint=b"\x00\xff",
            claimed=self.claimed,
        )
        return await tables.add_ticket(ticket)


@dataclass(frozen=True)
class SaveClaim:
    idempotency_key: str
    place: int
    turn: TurnId
    expires_at: int | None
    retries: int | None
    is_lost: bool

    async def take(self, tables: Tables) -> Claim | None:
        before = await tables.claim(self.idempotency_key)
        claim = Claim(
            owner=tables.owner,
            idempotency_key=self.idempotency_key,
            fingerprint=b"\xff",
            conversation=CONVERSATIONS[self.place],
            attempt=self.turn,
            expires_at=self.expires_at,
            retries=self.retries,
            is_lost=self.is_lost,
            sender=None if self.retries is None else self.turn,
        )
        await tables.save_claim(claim)
        return before


@dataclass(frozen=True)
class AddToken:
    """Add a token unless its id or text exists."""

    id: TokenId
    owner: str
    parent: TokenId | None
    text: str
    expires_at: int | None

    async def take(self, whole: WholeStore) -> bool:
        digest = self.text.encode()
        is_id_taken = await whole.token(None, self.id) or await whole.token_by_digest(digest)
        if not is_id_taken:
            token = Token(
                id=self.id,
                owner=self.owner,
                name=self.text,
                scopes=frozenset({TokenScope.ADMIN, TokenScope.TURNS_RUN}),
                chat_scope=self.text,
                models=(self.text,) if self.parent else (),
                created_at=TIMES[0],
                expires_at=self.expires_at,
                parent=self.parent,
                digest=digest,
            )
            await whole.add_token(token)
        return not is_id_taken


@dataclass(frozen=True)
class Do:
    """Call any method of the rows."""

    method: str
    arguments: tuple[Any, ...]

    async def take(self, rows: Any) -> Any:
        return await getattr(rows, self.method)(*self.arguments)


@dataclass(frozen=True)
class AddToAttempt(Do):
    """Add to the journal or the log of an attempt that exists. Without one, stores differ in who sees it."""

    async def take(self, rows: Any) -> Any:
        return await super().take(rows) if await rows.attempt(self.arguments[0]) else None


@dataclass(frozen=True)
class DropAttempt:
    """Drop an attempt with its journal and its log."""

    turn: TurnId

    async def take(self, tables: Tables) -> None:
        for drop in (tables.drop_attempt, tables.drop_journal, tables.drop_log):
            await drop(self.turn)


@dataclass(frozen=True)
class Purge:
    """Purge in small steps to the end. Stores choose which rows go first, so only the end is compared."""

    method: str
    arguments: tuple[int, ...]
    limit: int

    async def take(self, rows: Any) -> int:
        total = idle = 0
        while idle <= len(CONVERSATIONS):
            removed = await getattr(rows, self.method)(*self.arguments, self.limit)
            assert 0 <= removed <= self.limit
            total += removed
            idle = 0 if removed else idle + 1
        return total


ANY_TURN = TURNS[:7]
