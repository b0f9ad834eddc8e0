"""Commit: the one transaction that puts a turn into the history, and what to do when its answer is lost."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.attempt.divergence import open_branch, place_of
from turnledger.engine.attempt.end import CLAIM_KEPT_MS
from turnledger.engine.conversations.resolve import enter, is_entered
from turnledger.engine.feed.changes import tell_committed
from turnledger.engine.lane.queue import holds_lane
from turnledger.engine.limits import store_turn
from turnledger.engine.ports import Tables
from turnledger.engine.process.deliveries import Note, note
from turnledger.errors import Superseded
from turnledger.model.attempt import Fork
from turnledger.model.conversation import Branch, Conversation
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.text.plain import preview_of
from turnledger.model.turn import Turn, TurnKind

NO_FLAGS: Mapping[int, Flags] = {}


class CommitRequest(Struct, frozen=True, kw_only=True):
    """A whole turn, the lane it holds and the head it ran on."""

    owner: str
    conversation: ConversationId
    lane: BranchId
    head: TurnId | None
    """The head of that branch."""
    turn: Turn
    fence: int
    fork: Fork | None
    """Where it goes, if not behind that head."""
    pending: tuple[Item, ...]
    instructed: int = 0
    """Number of the turn whose instructions are in force behind this one."""
    idempotency_key: str | None
    journaled: int
    is_interaction: bool
    now: int
    log: bytes = b""
    """The events of the turn, as they are kept with it."""
    is_flushed: bool = False
    """Whether parts of the log were written before."""
    home: Conversation | None = None
    """The conversation as its begin saw it; looked up where it is not given."""
    unheard: str | None = None
    """The name of the request that it answers, if that has no idempotency_key and its client has left."""


@dataclass(frozen=True)
class DoubtRequest:
    """Asks what became of a commit whose answer was lost."""

    owner: str
    branch: BranchId
    attempt: TurnId


@dataclass(frozen=True)
class Certainty:
    """What became of it: the committed turn, or a new fence under which the holder may try again."""

    turn: Turn | None
    fence: int | None


async def commit(tables: Tables, request: CommitRequest) -> Turn:
    """Make the turn the head, if fence and head still hold. Repeating it returns the same turn."""
    turn = request.turn
    branch = await tables.branch(request.lane)
    if branch is None or not may_commit(branch, request):
        committed = await _committed(tables, request.owner, turn.id)
        if committed is None:
            raise Superseded
        return committed
    asked = NO_FLAGS
    if request.fork is not None:
        branch, asked = await _diverge(tables, branch, request.owner, request.fork)
    stored = await store_turn(tables, request.owner, branch, turn, request.log)
    if asked:
        await tables.save_flags(request.owner, turn.id, asked)
    await tables.save_branch(behind(branch, request, stored, asked))
    await tables.drop_attempt(turn.id)
    if request.journaled:
        await tables.drop_journal(turn.id)
    if request.is_flushed:
        await tables.drop_log(turn.id)
    if request.idempotency_key is not None:
        claim = await tables.claim(request.owner, request.idempotency_key)
        if claim is not None and claim.attempt == turn.id:
            await tables.save_claim(replace(claim, expires_at=request.now + CLAIM_KEPT_MS))
    if request.unheard is not None:
        # A try that waits for the lane looks at once, and must find what is known here.
        await note(
            tables, [Note(request.owner, request.unheard, turn.id, is_delivered=False, at=request.now)]
        )
    home = request.home or await tables.conversation(request.owner, request.conversation)
    if home is not None and not is_entered(home):
        at = request.now if request.is_interaction else None
        home = await enter(tables, request.owner, home.id, branch, turn, at, hidden_among(asked))
    elif request.is_interaction:
        await tables.touch_conversation(request.conversation, request.now)
    await tell_committed(tables, home, turn, has_moved=request.fork is not None)
    return turn


def behind(
    branch: Branch, request: CommitRequest, stored: int, asked: Mapping[int, Flags] = NO_FLAGS
) -> Branch:
    """The branch with the turn as its head, its lane free, and so many bytes in all. `asked` are the flags of
    the input: what is hidden is not previewed."""
    turn = request.turn
    return replace(
        branch,
        head=turn.id,
        length=turn.number,
        running=None,
        pending=request.pending,
        instructed=request.instructed,
        bytes=stored,
        preview=preview_of(turn, hidden_among(asked)) or branch.preview,
    )


def hidden_among(asked: Mapping[int, Flags]) -> Collection[int]:
    """The places of the input that its user is not shown."""
    return [place for place, flags in asked.items() if not flags.to_user] if asked else ()


async def _diverge(
    tables: Tables, lane: Branch, owner: str, fork: Fork
) -> tuple[Branch, Mapping[int, Flags]]:
    """Free the lane, and return the branch that is made for the turn, and the flags of its input."""
    await tables.save_branch(replace(lane, running=None))
    place = await place_of(tables, owner, lane, fork)
    return await open_branch(tables, owner, lane, place), place.asked


def may_commit(branch: Branch, request: CommitRequest) -> bool:
    """Whether the lane is still held, and the turn ran on exactly the head there is.
    The head is a second net: the fence alone suffices."""
    return holds_lane(branch, request.turn.id, request.fence) and ran_on_head(branch, request)


def ran_on_head(branch: Branch, request: CommitRequest) -> bool:
    return branch.head == request.head


async def resolve_doubt(tables: Tables, request: DoubtRequest) -> Certainty:
    """Make a commit of unknown outcome certain: raise the own fence first, so that the write cannot appear
    later, then read. Once somebody else has ended the attempt, only read."""
    branch = await tables.branch(request.branch)
    if branch is not None and branch.running == request.attempt:
        raised = replace(branch, fence=branch.fence + 1)
        await tables.save_branch(raised)
        return Certainty(None, raised.fence)
    return Certainty(await _committed(tables, request.owner, request.attempt), None)


async def _committed(tables: Tables, owner: str, id: TurnId) -> Turn | None:
    """The turn if this attempt itself committed it: what others settled or kept of it is not its answer."""
    turn = await tables.turn(owner, id)
    return turn if turn is not None and turn.kind is TurnKind.COMPLETED else None
