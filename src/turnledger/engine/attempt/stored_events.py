"""The stored events of a turn, in any state."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from turnledger.engine.attempt.dead_process import AttemptHolder, holder_of
from turnledger.engine.attempt.end import STATE_OF
from turnledger.engine.attempt.sent_log import load_attempt_log
from turnledger.engine.conversations.resolve import live_conversation
from turnledger.engine.history import line
from turnledger.engine.ports import Tables
from turnledger.errors import TurnNotFound
from turnledger.model import codec, event_log
from turnledger.model.conversation import Conversation
from turnledger.model.event import Event, TurnFinished
from turnledger.model.event_log import LogChunk, WholeLog
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.item import Item, checked_items
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, Failure, Turn

CHUNKS = 64
"""Chunks of a log read at once."""


@dataclass(frozen=True)
class TurnLogRequest:
    """Look at a turn from this chunk of its log on; `item` is the first item that the chunk refers to."""

    owner: str
    conversation: ConversationId
    turn: TurnId
    chunk: int
    item: int
    now: int = field(compare=False)


@dataclass(frozen=True)
class QueuedTurn:
    """The turn is queued."""


@dataclass(frozen=True)
class RunningTurnLog:
    """The turn is running."""

    holder: AttemptHolder
    chunks: tuple[LogChunk, ...]
    items: tuple[Item, ...]
    """The items that the chunks refer to."""
    has_more: bool


@dataclass(frozen=True)
class EndedTurnLog:
    log: bytes
    items: tuple[Item, ...]
    tail: str
    state: AttemptState
    failure: Failure | None
    has_run: bool = True

    @classmethod
    def of(cls, whole: WholeLog, *, has_run: bool = True) -> EndedTurnLog:
        items = checked_items(whole.items)
        return cls(whole.log, items, whole.text, whole.state, whole.failure, has_run)

    def events(self) -> Iterator[Event]:
        """Yield all events. A turn that was stopped in the queue has only its end."""
        if not self.has_run:
            return iter([TurnFinished(number=1, state=self.state, failure=self.failure)])
        return event_log.rebuild(self.log, self.items, self.tail, self.state, self.failure)


async def read_turn_log(
    tables: Tables, request: TurnLogRequest
) -> QueuedTurn | RunningTurnLog | EndedTurnLog | None:
    """Return what is stored of the turn; None if the conversation has no such turn. Raises
    ConversationDeleted and its like."""
    conversation = await live_conversation(tables, request.conversation, request.now)
    attempt = await tables.attempt(request.turn)
    if attempt is not None and attempt.conversation != conversation.id:
        attempt = None
    if attempt is not None and attempt.state is AttemptState.RUNNING:
        return await _running_log(tables, attempt, request)
    turn = await tables.turn(request.turn)
    if turn is not None:
        # Before the attempt: a settled attempt is purged in time, and a fork has none.
        if not await is_shown_in(tables, turn, conversation):
            return None
        return turn_log_of(turn, await tables.turn_log(turn.id))
    if attempt is not None:
        return EndedTurnLog.of(await load_attempt_log(tables, attempt), has_run=attempt.fence > 0)
    ticket = await tables.ticket(request.turn)
    return QueuedTurn() if ticket is not None and ticket.conversation == conversation.id else None


async def is_shown_in(tables: Tables, turn: Turn, conversation: Conversation) -> bool:
    """Return whether a branch of the conversation shows the turn: the branch it was committed to, or the
    first one, which shares turns with the origin of a fork."""
    own = await tables.branch(turn.branch)
    if own is not None and own.conversation == conversation.id:
        return True
    first = await tables.first_branch(conversation.id)
    try:
        return first is not None and bool(await line.line_through(tables, first, turn))
    except TurnNotFound:
        return False


async def _running_log(tables: Tables, attempt: Attempt, request: TurnLogRequest) -> RunningTurnLog:
    holder = await holder_of(tables, attempt)
    raws = await tables.log_chunks(attempt.id, request.chunk, CHUNKS)
    chunks = tuple(codec.decode(LogChunk, raw) for raw in raws)
    items: tuple[Item, ...] = ()
    if any(event_log.count_items(chunk.log) for chunk in chunks):
        items = tuple(Journal.of(await tables.journal(attempt.id)).items[request.item :])
    return RunningTurnLog(holder, chunks, items, has_more=len(chunks) == CHUNKS)


def turn_log_of(turn: Turn, kept: bytes) -> EndedTurnLog:
    whole = event_log.decode_whole(kept)
    if whole is not None:
        return EndedTurnLog.of(whole)
    log = event_log.decode_log(kept, turn.output)
    return EndedTurnLog(log, turn.output, "", STATE_OF[turn.kind], event_log.failure_of(log))
